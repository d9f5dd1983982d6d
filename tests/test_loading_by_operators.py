"""A loader that computes its batches on the loop's own thread: what it takes is loading, whatever operators it has."""

from pathlib import Path

import pytest

from scalescope.report.text.late.rank import late_rank
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.trace.kernel_kinds import COMMUNICATION
from tests.gloo_traces import GlooJob, analysed

LOADS = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
STEPS = range(3, 9)


def job(folder: Path, loads_ms: tuple[float, float], operator: tuple[str, str]) -> RunAnalysis:
    """Return the analysis of a job whose ranks load for so long a step, by an operator each that takes most of it."""
    made = GlooJob()
    for number in STEPS:
        made.step(number)
        for rank, ms in enumerate(loads_ms):
            begun = made.now[rank] + 1_000
            made.sleep(rank, 0.1 * ms)
            made.compute(0.9 * ms, operator[rank], rank=rank, calls=40)
            made.annotate(rank, LOADS, begun, made.now[rank] - 1_000)
        made.compute(60.0, calls=40)
        made.all_reduce(4.0)
    return analysed(made.write(folder))


@pytest.mark.parametrize("operator", ["aten::sort", "aten::mm", "aten::roll"])
def test_what_one_rank_s_loader_computes_is_its_loading(operator: str, tmp_path: Path) -> None:
    """*Rank 1 costs 46.3 ms a step: aten::sort, 39.3 ms a step, which the others do not run*, and to look for logging
    and validation in the step, was told of a data set of 6 ms a sample: 50 ms of loading a step on rank 1, 1 on rank 0.
    """
    answer = job(tmp_path, (1.0, 46.0), ("aten::roll", operator))
    first = answer.findings[0]
    assert (first.code, first.rank) == ("data_loading", 1)
    assert first.ms == pytest.approx(45.0, abs=2.0) and first.low_ms is not None and first.low_ms > 38.0
    assert first.remedy is not None and first.remedy.cure == "load_ahead"
    assert f"of it in {operator}" in run_verdict(answer).headline
    assert not {one.code for one in answer.findings} & {"own_work", "more_work", "slower_compute"}
    late = late_rank(answer)
    assert late is not None and (late.part, late.ranks) == ("idle_data", (1,)), "what is hatched on the page"


def test_what_all_ranks_loaders_compute_is_the_loading_of_all(tmp_path: Path) -> None:
    """Of 20 ms that all ranks load for, 2 ms were told: what lay between the loader's operators."""
    answer = job(tmp_path, (20.0, 20.0), ("aten::sort", "aten::sort"))
    (found,) = (one for one in answer.findings if one.code == "data_loading")
    assert found.rank is None and found.ms == pytest.approx(20.0, abs=1.0)


def test_what_a_loader_runs_is_no_call_of_the_compute(tmp_path: Path) -> None:
    """*858 calls* on a terminal and *882.0* on the page were of one run: 24 a step prepare its batches. Of a loader
    that stacks 8,000 samples *copies and casts* had 8,293 calls a step, for 97.
    """
    answer = job(tmp_path, (20.0, 20.0), ("aten::mm", "aten::mm"))
    assert answer.as_run is not None and answer.as_run.kinds
    traced, replayed = (
        {one.kind: one.calls for one in kinds if one.kind != COMMUNICATION}
        for kinds in (answer.kinds, answer.as_run.kinds)
    )
    assert traced == pytest.approx(replayed) and sum(traced.values()) == pytest.approx(40.0), "40 of 80 prepare batches"
