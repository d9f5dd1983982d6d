"""All hosts that stand still before a step's first operator most likely load: said so, and how to name it."""

from pathlib import Path

import pytest

from scalescope.report.text.findings import because, line, todo, todo_elsewhere
from scalescope.scaling.finding.finding import Finding
from tests.gloo_traces import GlooJob, analysed


def _first(folder: Path, *, where: str, ranks: tuple[int, ...] = (0, 1)) -> Finding:
    """Return the first finding where hosts sleep 25 ms of each step: before its first operator, or in its midst."""
    job = GlooJob()
    for number in range(2, 10):
        job.step(number)
        if where == "begin":
            for rank in ranks:
                job.sleep(rank, 25.0)
        job.compute(30.0, "aten::linear", calls=10)
        if where == "midst":
            for rank in ranks:
                job.sleep(rank, 25.0)
        job.compute(30.0, "aten::mm", calls=10)
        job.all_reduce(2.0)
        job.compute(3.0, "aten::add_")
    return analysed(job.write(folder)).findings[0]


def test_hosts_that_all_stand_still_where_the_step_begins_most_likely_load_and_are_told_how_to_name_it(
    tmp_path: Path,
) -> None:
    first = _first(tmp_path, where="begin")
    assert (first.code, first.rank) == ("host_stall", None) and first.ms == pytest.approx(25.0, rel=0.05)
    assert because(first).endswith("where the step begins: most likely they load the next batch")
    assert todo(first).startswith("load batches ahead, if that is what the hosts do there: ")
    assert "record_function" in todo_elsewhere(first) and "py-spy" in todo_elsewhere(first)


@pytest.mark.parametrize(("where", "ranks"), [("midst", (0, 1)), ("begin", (1,))])
def test_hosts_in_mid_step_and_one_rank_alone_are_not_taken_for_loading(
    where: str, ranks: tuple[int, ...], tmp_path: Path
) -> None:
    first = _first(tmp_path, where=where, ranks=ranks)
    assert first.code == "host_stall" and "most likely" not in because(first)
    assert "load" not in todo(first)


def test_hosts_of_all_ranks_are_several(tmp_path: Path) -> None:
    """*A stalled host* was said of the hosts of all ranks."""
    assert line(_first(tmp_path, where="midst")).startswith("stalled hosts: ")
    assert line(_first(tmp_path, where="begin", ranks=(1,))).startswith("rank 1, a stalled host: ")
