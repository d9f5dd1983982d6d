"""What the loop's own thread looks at behind the optimizer's step, on CPUs: what is told of it, and of what not."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from scalescope import RunAnalysis
from scalescope.report.text.cures.words import cure_elsewhere, cure_text
from scalescope.report.text.findings import because
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.finding.finding import Finding
from tests.gloo_traces import GlooJob, analysed

LOADER, DDP = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "DistributedDataParallel.forward"
CONFUSION = ("aten::argmax", "aten::eq", "aten::eq", "aten::bitwise_and", "aten::sum") * 4


def _metrics(answer: RunAnalysis) -> list[Finding]:
    return [one for one in answer.findings if one.code == "metrics"]


def _job(
    folder: Path,
    operators: Sequence[str] = CONFUSION,
    *,
    ms: Sequence[float] = (12.0, 12.0),
    in_steps: Sequence[int] = range(8),
    on_ranks: Sequence[int] = (0, 1),
    counts: bool = False,
    optimizer: str = "Optimizer.step#AdamW.step",
    behind_edge: bool = False,
    loader: str = LOADER,
    parameters: int = 0,
    fetches: str = "first",
    zeroes: bool = False,
) -> RunAnalysis:
    """Analyse ranks that load a batch, train on it for 40 ms, update, and look at it for so long each.

    `in_steps`, `on_ranks`: where they look; `counts`: all ranks count something there in each step, which is little;
    `behind_edge`: the loop says that its step ends before it looks;
    `parameters`: into so many gradients go from the backward pass; `fetches`: where in a step the next batch is
    fetched, first, amid the passes, or behind the update; `zeroes`: what runs behind the update zeroes gradients.
    """
    job = GlooJob(view_ns=None)

    def fetch() -> None:
        for rank in (0, 1):
            begun = job.now[rank]
            job.sleep(rank, 0.5)
            job.annotate(rank, loader, begun, job.now[rank])
            job.sleep(rank, 0.01)

    def look(step: int) -> None:
        for rank in (0, 1):
            if counts:
                job.compute(0.04, "aten::add", rank=rank, calls=2)
            for name in operators if step in in_steps and rank in on_ranks else ():
                job.compute(ms[rank] / len(operators), name, rank=rank)

    for step in range(8):
        job.step(3 + step)
        if behind_edge and step:
            look(step - 1)
        if fetches == "first":
            fetch()
        job.sleep(0, 0.01)
        job.sleep(1, 0.01)
        begun_of = dict(job.now)
        job.compute(15.0, "aten::embedding" if fetches == "amid" else "aten::mm", calls=8)
        for rank, begun in begun_of.items():
            job.annotate(rank, DDP, begun - 500, job.now[rank])
        if fetches == "amid":
            fetch()
        job.compute(25.0, "AddmmBackward0", calls=12)
        if parameters:
            job.compute(0.4, "torch::autograd::AccumulateGrad", calls=parameters)
        job.all_reduce(2.0)
        begun_of = dict(job.now)
        job.compute(1.0, "aten::_fused_adamw_")
        for rank, begun in begun_of.items():
            job.annotate(rank, optimizer, begun - 1_000, job.now[rank])
        if fetches == "behind":
            fetch()
        begun_of = dict(job.now)
        if not behind_edge:
            look(step)
        for rank, begun in begun_of.items() if zeroes else ():
            job.annotate(rank, "Optimizer.zero_grad#AdamW.zero_grad", begun - 1_000, job.now[rank])
    return analysed(job.write(folder))


def test_what_all_ranks_compute_behind_the_update_is_told(tmp_path: Path) -> None:
    """A confusion matrix in a loop of Python over classes took 36 ms of 275, and nothing was wrong."""
    answer = _job(tmp_path)
    first = answer.findings[0]
    assert (first.code, first.rank, first.at_most, first.backed) == ("metrics", None, False, "replay")
    assert first.ms == pytest.approx(12.0, rel=0.03)
    assert "metrics most likely, for 12.0 ms a profiled step (4.8 ms in aten::eq" in because(first)
    assert first.remedy is not None and "compute metrics rarely, or at once" in cure_text(first.remedy)
    assert "torch.bincount" in cure_elsewhere(first.remedy)
    assert "metrics cost 12.0 ms" in run_verdict(answer).headline


def test_so_it_is_beside_what_else_each_step_has_there(tmp_path: Path) -> None:
    (one,) = _metrics(_job(tmp_path, counts=True))
    assert one.ms == pytest.approx(12.0, rel=0.03)


def test_so_is_what_a_loop_looks_at_that_says_its_step_is_over(tmp_path: Path) -> None:
    """Who calls `profiler.step()` right behind the optimizer's has the metrics of a step in the next one."""
    (one,) = _metrics(_job(tmp_path, behind_edge=True))
    assert one.ms == pytest.approx(12.0, rel=0.2)


@pytest.mark.parametrize(
    "otherwise",
    [
        {"optimizer": "update"},  # where the update is nothing tells
        {"ms": (1.0, 1.0)},
        {"ms": (12.0, 1.0)},  # one rank's own
        {"in_steps": (2, 5)},  # a validation pass
        {"in_steps": (2, 5), "counts": True, "ms": (40.0, 40.0)},  # … beside a little of each step
        {"in_steps": (5,), "counts": True, "ms": (75.0, 0.0), "on_ranks": (0,)},  # so does one rank
        {"in_steps": (2,), "counts": True, "ms": (75.0, 0.0), "on_ranks": (0,), "operators": ("aten::add",)},
        {"operators": ("aten::conv2d", "aten::relu") * 6},  # another network's
        {"operators": ("aten::mm", "AddmmBackward0", "aten::sum")},  # another network's step
        {"operators": ("aten::mul_", "aten::add_") * 16, "parameters": 16},  # an average of the weights, in place
        {"operators": ("aten::_foreach_lerp_",)},  # … of all at once
        {"behind_edge": True, "loader": "step"},  # what follows may be making a batch
        {"fetches": "behind"},  # so may this
        {"operators": (), "fetches": "amid"},  # what comes before that is the forward pass
        {"operators": ("aten::zero_",) * 8, "zeroes": True},
    ],
    ids=str,
)
def test_what_may_be_something_else_is_not_told_as_that(tmp_path: Path, otherwise: dict[str, Any]) -> None:
    assert not _metrics(_job(tmp_path, **otherwise))
