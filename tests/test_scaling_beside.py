"""How the traces of two folders relate is told by what ran: how many times the blocks, on how many ranks, and which."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scalescope.records.errors import UserError
from scalescope.report.text.beside import beside_sentences
from scalescope.scaling import beside
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.beside import tell_relations
from tests.gloo_traces import GlooJob


def folder(name: str, world_size: int = 2, *, kernels: bool = True, verdict: str = "good", steps: int = 3) -> Any:
    rows = [SimpleNamespace(rank=rank, step=step) for rank in range(world_size) for step in range(steps)]
    ranks = [SimpleNamespace(rank=rank) for rank in range(world_size)]
    analysis = SimpleNamespace(name=name, world_size=world_size, quality=SimpleNamespace(verdict=verdict), ranks=ranks,
                               steps=rows, steps_by="profiler", beside=None)  # fmt: skip
    return Path(name), SimpleNamespace(analysis=analysis, kernels={"gemm": 1} if kernels else {})


def how(monkeypatch: pytest.MonkeyPatch, first: Any, other: Any, ratio: float | None) -> str:
    def work_ratio_of(*_: Path) -> float | None:
        if ratio is None:
            raise UserError("no kernels in common")
        return ratio

    monkeypatch.setattr(beside, "work_ratio_of", work_ratio_of)
    monkeypatch.setattr(beside, "another_job", lambda *_: None)
    monkeypatch.setattr(beside, "identity_of", lambda explained: SimpleNamespace(model=None, names={}))
    tell_relations([first, other])
    assert first[1].analysis.beside is None
    found: str = other[1].analysis.beside.how
    return found


@pytest.mark.parametrize(
    ("ranks", "ratio", "told"),
    [
        ((1, 2), 1.0, "another_world_size"),  # weak scaling
        ((1, 2), 0.5, "another_world_size"),  # a batch that is shared out
        ((4, 1), 4.0, "another_world_size"),
        ((4, 1), 2.0, "another_size"),
        ((1, 2), 2.0, "another_size"),
        ((2, 2), 0.5, "another_size"),
        ((2, 2), 1.0, "same_job"),
        ((2, 2), None, "same_job"),
    ],
)
def test_a_batch_that_is_shared_out_is_one_job_and_one_of_another_size_is_not(
    ranks: tuple[int, int], ratio: float | None, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert how(monkeypatch, folder("a", ranks[0]), folder("b", ranks[1]), ratio) == told


@pytest.mark.parametrize("lacks", [{"kernels": False}, {"verdict": "unusable"}])
def test_of_traces_that_tell_nothing_nobody_knows(lacks: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert how(monkeypatch, folder("a", **lacks), folder("b"), 1.0) == "unknown"
    assert how(monkeypatch, folder("a"), folder("b", **lacks), 1.0) == "unknown"


def test_without_steps_on_either_side_no_number_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    assert how(monkeypatch, folder("a", steps=0), folder("b"), 1.0) == "unnumbered_steps"
    assert how(monkeypatch, folder("a"), folder("b", steps=0), 1.0) == "unnumbered_steps"


def test_kernels_that_have_names_in_common_make_two_jobs_no_one_job(tmp_path: Path) -> None:
    """*Are one job by their kernels, on 1 and on 2 ranks: how it scales is told by --base* was said of an MLP beside a
    GPT, whose products have the same names.
    """
    folders = []
    for name, products_ms, attention_ms in (("mlp", 40.0, 0.0), ("gpt", 40.0, 40.0), ("again", 44.0, 40.0)):
        job = GlooJob()
        for number in range(2, 6):
            job.step(number)
            job.compute(products_ms)
            job.compute(
                max(0.1, attention_ms), name="aten::scaled_dot_product_attention" if attention_ms else "aten::gelu"
            )
            job.all_reduce(1.0)
        folders.append(job.write(tmp_path / name))
    answers = [one for one in analyze(folders, jobs=1) if isinstance(one, RunAnalysis)]
    two, *_ = beside_sentences(answers)
    assert "mlp and gpt may be one job or two (50% of their compute is in kernels of one name), on as many ranks" in two
    assert "If it is one: which is slower, and where, is told by scalescope compare mlp gpt." in two
    one, *_ = beside_sentences([one for one in analyze(folders[1:], jobs=1) if isinstance(one, RunAnalysis)])
    assert "gpt and again are one job by their kernels, on as many ranks, " in one
