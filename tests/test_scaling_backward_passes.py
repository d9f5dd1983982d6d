"""Gradients that are exchanged in each of several backward passes of a step: what that costs, and what goes with it."""

from pathlib import Path

import msgspec
import pytest

from scalescope.report.text.cures.words import cure_elsewhere
from scalescope.report.text.findings import headline, todo
from scalescope.scaling.finding.finding import Finding, Remedy
from scalescope.scaling.finding.order import ranked, worth_leading
from scalescope.scaling.findings.bounds.needless_exchanges import needless_exchanges, without_what_goes_with
from scalescope.scaling.findings.cores import CoreShare
from scalescope.scaling.rank.records.backward_passes import DDP_FORWARD, accumulates, backward_passes
from tests.gloo_traces import GlooJob, analysed
from tests.test_scaling_bounds import bare_run, launching, record


@pytest.mark.parametrize(
    ("reduces", "updates", "passes"),
    [
        ([12, 15, 32, 35, 52, 55, 72, 75], [90], 4),
        ([72, 75], [90], 1),
        ([12, 32, 52, 72], [20, 40, 60, 90], 1),
        ([12, 15, 32, 52, 55, 72, 75], [90], 1),
    ],
    ids=["in each of four", "in the last alone", "a step each", "now more and now less"],
)
def test_gradients_that_are_exchanged_in_each_backward_pass_are_counted(
    reduces: list[int], updates: list[int], passes: int
) -> None:
    assert backward_passes(record(reduces, [10, 30, 50, 70], updates)) == passes


@pytest.mark.parametrize(
    ("reduces", "made", "told"),
    [([72, 75], [14], True), ([72, 75], [72], False), ([12, 72], [14], False), ([72, 75], [], False)],
    ids=["in the last pass", "of one backward pass", "in each pass", "not known"],
)
def test_who_accumulates_gradients_already_is_not_told_to(reduces: list[int], made: list[int], told: bool) -> None:
    """*Gradient accumulation under no_sync()* was advised to a job of four micro-batches that did just that."""
    records = record(reduces, [10, 30, 50, 70], [90])
    records[0].new_gradients = made
    assert accumulates(records) is told
    words = cure_elsewhere(Remedy(cure="send_less", accumulates=told, on_cpu=True))
    assert ("no_sync()" in words, "more micro-batches" in words) == (not told, told)


@pytest.mark.parametrize(("made", "passes"), [([14, 44, 74], 1), ([14], 3), ([], 3)],
                         ids=["of three models", "of one, dropped before", "of one, kept as zeros"])  # fmt: skip
def test_gradients_that_each_pass_makes_anew_are_of_several_models(made: list[int], passes: int) -> None:
    records = record([12, 15, 42, 45, 72, 75], [10, 40, 70], [90])
    records[0].new_gradients = made
    assert backward_passes(records) == passes


def test_gradients_of_several_backward_passes_cost_all_but_the_last_whatever_else_is_found() -> None:
    passes = record([12, 15, 32, 35, 52, 55, 72, 75], [10, 30, 50, 70], [90])
    (found,) = needless_exchanges(bare_run(8, 1.5), passes)
    assert found.remedy is not None and found.remedy.cure == "exchange_once"
    assert found.ms == pytest.approx(30 * 3 / 4)
    assert "gradients are exchanged in each of the step's 4 backward passes" in headline(found, 90.0, 2)


def test_what_is_not_exchanged_waits_for_nobody_and_is_copied_into_no_bucket() -> None:
    """Of four exchanges of a step at most 34.9 ms were told; with one in place of four it took 58 ms less.

    What moves the data has the cores that compute meanwhile, and what that costs no part of the step tells.
    """
    run = bare_run(8, 1.5, wait_ms=8.0)
    passes = record([12, 15, 32, 35, 52, 55, 72, 75], [10, 30, 50, 70], [90])
    own = passes[0]
    own.edges = [0, 100]
    own.name = ["torch::distributed::reducer::mul_out", "aten::mm"]
    own.start, own.end = [20, 40], [4_000_020, 60]
    (found,) = needless_exchanges(run, passes)
    assert (found.at_most, found.at_least) == (False, True)
    # the copies surely go with them; that both ranks wait for 8 ms is in part or all for exchanges that are needless
    assert [found.ms, found.low_ms] == pytest.approx([(30 + 4) * 3 / 4] * 2)
    assert found.high_ms == pytest.approx((30 + 4) * 3 / 4 + 8)
    told = headline(found, 90.0, 2)
    # before, `at least 22.5 ms`, which is read as what it costs, where the most was counted as well
    assert (
        "exposed transfer costs between 25.5 ms and 33.5 ms of the 90.0 ms step" in told
        and "hides 30.0 ms of transfer" in told
    )
    assert "backward passes, where the last exchange would do; the others may take cores from the compute" in told
    assert ": between 25.5 ms and 33.5 ms a step" in todo(found)
    for one in run.steps:  # a rank that is late is waited for in the last exchange as well
        one.exposed_wait_ms = 0.0 if one.rank else 8.0
    (beside,) = needless_exchanges(run, passes)
    assert beside.high_ms == pytest.approx((30 + 4) * 3 / 4)


def test_what_runs_beside_compute_is_counted_a_step_and_not_a_window() -> None:
    """*Between 34.9 ms and 167.6 ms* were told of four exchanges, which took 72: 148 ms hidden were of five steps."""
    run = bare_run(8, 1.5, steps=5)
    for one in run.ranks:
        one.communication_ms, one.overlap_fraction = 200.0, 0.5
    (found,) = needless_exchanges(run, record([12, 15, 32, 35, 52, 55, 72, 75], [10, 30, 50, 70], [90]))
    assert [found.low_ms, found.high_ms] == pytest.approx([30 * 3 / 4, (30 + 20) * 3 / 4])


def test_few_steps_that_differ_in_what_is_bare_tell_less_of_what_needless_exchanges_cost() -> None:
    run = bare_run(8, 1.5)
    for one in run.steps:
        one.exposed_transfer_ms += 5.0 * (one.step - 1)
    (found,) = needless_exchanges(run, record([12, 15, 32, 35, 52, 55, 72, 75], [10, 30, 50, 70], [90]))
    assert found.low_ms is not None and found.low_ms < 30 * 3 / 4 - 5


@pytest.mark.parametrize(
    ("cores", "ms", "told"),
    [((2, 2, 2), 4.1, False), ((2, 2, 8), 4.1, True), (None, 4.1, True), ((2, 2, 2), 40.0, True)],
    ids=["full cores", "cores to spare", "cores unknown", "costs more than the exchanges"],
)
def test_hosts_that_threads_of_needless_exchanges_interrupt_are_no_second_fault(
    cores: tuple[int, int, int] | None, ms: float, told: bool
) -> None:
    """*Give each rank cores* stood below four exchanges of a step on two cores, for their threads' turns."""
    passes = record([12, 15, 32, 35, 52, 55, 72, 75], [10, 30, 50, 70], [90])
    needless = needless_exchanges(bare_run(8, 1.5), passes)
    starved = Finding(code="host_starved", ms=ms, low_ms=ms / 2, high_ms=2 * ms, backed="replay",
                      remedy=Remedy(cure="free_cores"))  # fmt: skip
    share = CoreShare(*cores) if cores is not None else None
    assert without_what_goes_with(needless, [starved], share) == [starved] * told
    alone = msgspec.structs.replace(starved, rank=1)  # what one rank alone meets is no work of all ranks' threads
    assert without_what_goes_with(needless, [alone], share) == [alone]
    assert needless_exchanges(bare_run(4, 7.5), {}) == []
    assert without_what_goes_with([], [starved], share) == [starved]


IN_THREE = record([12, 15, 42, 45, 72, 75], [10, 40, 70], [90])


def three_exchanges(**parts_ms: float) -> Finding:
    run = bare_run(6, 1.0, wait_ms=parts_ms.get("wait_ms", 0.0), bare_ms=parts_ms.get("bare_ms", 6.0))
    (found,) = needless_exchanges(run, IN_THREE)
    return found


def test_needless_exchanges_are_told_where_hosts_lose_more_than_transfer_does() -> None:
    """Three exchanges a step cost 20 ms and more; *launching costs at most 33.9 ms* was all that was told."""
    found = three_exchanges(bare_ms=6.0)
    assert found.ms == pytest.approx(4.0) and found.at_least
    assert "in each of the step's 3 backward passes" in headline(found, 90.0, 2)
    noise = Finding(code="slower_compute", rank=1, ms=24.3, low_ms=0.0, high_ms=48.7, backed="replay")
    assert worth_leading([noise, found]) is found


def test_how_gradients_are_cut_is_no_matter_where_they_are_exchanged_too_often() -> None:
    """*Use larger buckets* stood below exchanges in each of three passes, of 2 all-reduces each."""
    found, small = three_exchanges(), Finding(code="small_buckets", ms=2.1, low_ms=1.9, high_ms=2.3, backed="replay")
    assert without_what_goes_with([found], [small], None) == []
    large = msgspec.structs.replace(small, ms=40.0, low_ms=30.0, high_ms=50.0)
    assert without_what_goes_with([found], [large], None) == [large]


def test_hosts_that_are_interrupted_go_behind_exchanges_that_may_be_what_interrupts_them() -> None:
    """*Starved hosts cost 14.4 ms* came first, where the threads of two needless exchanges had the cores."""
    found = three_exchanges(wait_ms=18.0)
    starved = Finding(code="host_starved", ms=14.4, low_ms=11.9, high_ms=16.8, backed="replay",
                      remedy=Remedy(cure="free_cores"))  # fmt: skip
    assert ranked([starved, found]) == [found, starved]
    assert ranked([starved, three_exchanges()])[0] is starved
    assert ranked([launching(20.0), found])[0] is found


def test_who_stands_still_before_each_of_several_backward_passes_costs_all_of_it(tmp_path: Path) -> None:
    """8.2 ms were told of 39 for which a rank's loop stood still, of four micro-batches: that the others waited for it
    in each pass was taken for their own time, since DDP was thought to await all of a step's buckets at its end.
    """
    job, still_ms, passes = GlooJob(), 10.0, 3
    for number in range(20, 28):
        job.step(number)
        for _ in range(passes):
            job.sleep(1, still_ms)
            begun = dict(job.now)
            job.compute(10.0, "aten::linear", calls=5)
            for rank in range(2):
                job.annotate(rank, DDP_FORWARD, begun[rank], job.now[rank])
            job.compute(10.0, "AddmmBackward0", calls=5)
            job.fill_bucket(1000)
            job.all_reduce(4.0)
            job.compute(1.0, "torch::distributed::ddp::reducer::copy_bucket_to_grad")
        job.compute(3.0, "aten::_fused_adamw_")
    found = analysed(job.write(tmp_path)).findings
    stall = next(one for one in found if one.code == "host_stall")
    assert stall.rank == 1 and stall.ms == pytest.approx(passes * still_ms, rel=0.1)
