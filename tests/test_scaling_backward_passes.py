"""Gradients that are exchanged in each of several backward passes of a step: what that costs, and what goes with it."""

import msgspec
import pytest

from scalescope.report.text.findings import headline
from scalescope.scaling.finding import Finding, Remedy
from scalescope.scaling.findings.bounds.bare_transfer import bare_transfer, without_starved_by
from scalescope.scaling.findings.cores import CoreShare
from tests.test_scaling_bounds import bare_run, launching, record


def test_gradients_of_several_backward_passes_cost_all_but_the_last_whatever_else_is_found() -> None:
    passes = record([12, 15, 32, 35, 52, 55, 72, 75], [10, 30, 50, 70], [90])
    (found,) = bare_transfer(bare_run(8, 1.5), passes, [launching(28.0)])
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
    (found,) = bare_transfer(run, passes, [])
    assert (found.at_most, found.at_least) == (False, True)
    assert [found.ms, found.low_ms] == pytest.approx([30 * 3 / 4] * 2)
    assert found.high_ms == pytest.approx((30 + 8 + 4) * 3 / 4)
    told = headline(found, 90.0, 2)
    assert "exposed transfer costs at least 22.5 ms" in told and "hides 30.0 ms of transfer" in told
    assert "backward passes, where the last exchange would do; the others may take cores from the compute" in told
    late = Finding(code="host_stall", rank=1, ms=2.0, low_ms=1.0, high_ms=3.0, backed="replay")
    (beside,) = bare_transfer(run, passes, [late])
    assert beside.high_ms == pytest.approx((30 + 4) * 3 / 4)


@pytest.mark.parametrize(
    ("cores", "ms", "told"),
    [((2, 2, 2), 4.1, False), ((2, 2, 8), 4.1, True), (None, 4.1, True), ((2, 2, 2), 40.0, True)],
    ids=["full cores", "cores to spare", "cores unknown", "costs more than the exchanges"],
)
def test_hosts_that_threads_of_needless_exchanges_interrupt_are_no_second_fault(
    cores: tuple[int, int, int] | None, ms: float, told: bool
) -> None:
    """*Give each rank cores of its own* stood below four exchanges of a step on two cores, for their threads' turns."""
    passes = record([12, 15, 32, 35, 52, 55, 72, 75], [10, 30, 50, 70], [90])
    bare = bare_transfer(bare_run(8, 1.5), passes, [])
    starved = Finding(code="host_starved", ms=ms, low_ms=ms / 2, high_ms=2 * ms, backed="replay",
                      remedy=Remedy(cure="free_cores"))  # fmt: skip
    share = CoreShare(*cores) if cores is not None else None
    assert without_starved_by(bare, [starved], share) == [starved] * told
    alone = msgspec.structs.replace(starved, rank=1)  # what one rank alone meets is no work of all ranks' threads
    assert without_starved_by(bare, [alone], share) == [alone]
    assert without_starved_by(bare_transfer(bare_run(4, 7.5), {}, []), [starved], share) == [starved]
