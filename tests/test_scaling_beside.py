"""How the traces of two folders relate is told by what ran: how many times the blocks, on how many ranks, and which."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scalescope.records.errors import UserError
from scalescope.scaling import beside
from scalescope.scaling.beside import tell_relations


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
    monkeypatch.setattr(beside, "identity_of", lambda explained: explained)
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
