"""Loading that a scheduler's turn made longer in one of a window's few steps costs no more than it usually does."""

from pathlib import Path

import pytest

from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.finding.figures import EXPOSED
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.finding.order import ranked
from tests.gloo_traces import GlooJob, analysed

LOADS = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def job(loads_ms: list[float], transfer_ms: float = 12.0, second_ms: list[float] | None = None) -> GlooJob:
    """Return a job whose ranks load for so long in each step, rank 1 for `second_ms`, compute for 40 ms and reduce."""
    made = GlooJob()
    for number, both in enumerate(zip(loads_ms, second_ms or loads_ms, strict=True), 3):
        made.step(number)
        for rank in range(2):
            begun = made.now[rank] + 1_000
            made.sleep(rank, both[rank])
            made._event(rank, "user_annotation", LOADS, begun, made.now[rank] - 1_000)
        made.compute(40.0, calls=40)
        made.all_reduce(transfer_ms)
    return made


def loading(answer: RunAnalysis) -> Finding:
    (found,) = (one for one in answer.findings if one.code == "data_loading")
    return found


def test_a_scheduler_s_turn_in_one_step_of_three_is_not_what_loading_costs_a_step(tmp_path: Path) -> None:
    """*Loading data costs 2.8 ms (1.4 to 4.1)* was told first of a job that waits 0.7 to 1.1 ms for its loader."""
    answer = analysed(job([2.0, 6.3, 1.9]).write(tmp_path))
    found = loading(answer)
    assert found.ms == pytest.approx(2.0, abs=0.3) and found.high_ms is not None and found.high_ms > 3.3
    assert [one.code for one in answer.findings].index("exposed_transfer") == 0


def test_a_turn_that_one_rank_met_while_it_loaded_is_not_what_loading_costs_all(tmp_path: Path) -> None:
    """*Loading data costs 3.6 ms (1.7 to 5.6): the hosts load data for 1.9 ms a step*: a cause costs what it takes."""
    found = loading(
        analysed(job([6.0, 2.0, 2.0, 2.0, 2.0, 2.0], 12.0, [2.0, 6.5, 2.0, 2.0, 13.0, 2.0]).write(tmp_path))
    )
    loads_ms = next(row.ms for row in found.evidence if row.kind == "annotation")
    assert loads_ms is not None and found.ms is not None and found.ms <= loads_ms
    assert found.ms == pytest.approx(2.0, abs=0.3) and found.high_ms is not None and found.high_ms > 3.0


def test_a_rank_that_is_longer_at_loading_in_most_steps_is_held_to_no_turn(tmp_path: Path) -> None:
    slow = [12.0, 2.0, 12.0, 2.0, 12.0, 2.0]
    found = loading(analysed(job(slow, 12.0, [2.0, 12.0, 2.0, 12.0, 2.0, 12.0]).write(tmp_path)))
    assert found.ms is not None and found.ms > 8.0


@pytest.mark.parametrize("loads_ms", [[30.1, 29.0, 31.0], [6.3, 6.0, 2.0]])
def test_what_loads_as_long_in_most_steps_costs_the_mean(loads_ms: list[float], tmp_path: Path) -> None:
    answer = analysed(job(loads_ms).write(tmp_path))
    assert loading(answer).ms == pytest.approx(sum(loads_ms[1:]) / 2, rel=0.05)


def test_a_batch_that_takes_longer_than_a_turn_is_the_loader_s(tmp_path: Path) -> None:
    found = loading(analysed(job([2.0, 60.0, 2.0]).write(tmp_path)))
    assert found.ms is not None and found.ms > 15


def test_what_all_ranks_do_alike_stands_behind_a_transfer_that_costs_far_more() -> None:
    """Of three runs of one script each had another first cause, by what its loader happened to take in two steps."""
    transfer = Finding(code="exposed_transfer", ms=13.0, low_ms=0.0, high_ms=13.0, at_most=True, backed="bound",
                       evidence=(EvidenceRow(kind="figure", name=EXPOSED, ms=13.0),),
                       remedy=Remedy(cure="send_less"))  # fmt: skip
    little, much = (
        Finding(code="data_loading", ms=ms, low_ms=ms / 2, high_ms=1.5 * ms, backed="replay") for ms in (3.1, 6.0)
    )
    assert ranked([little, transfer]) == [transfer, little]
    assert ranked([much, transfer]) == [much, transfer]
