"""Windows of two H200s with one cause each, whose cost untraced steps told: is it what the first sentence names?

Made by benchmarks/known_causes.py (torch 2.11, NCCL 2.28.9, NVLS off); the costs are those of its truth.json.
"""

from pathlib import Path

import pytest

from scalescope import RunAnalysis, analyze
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.ranks.read import read_ranks
from scalescope.scaling.trace.sources import find_sources

DATA = Path(__file__).parent / "data"


def first(name: str, step_ms: float | None) -> tuple[RunAnalysis, str]:
    analysis = analyze(DATA / name, step_ms=step_ms)
    assert isinstance(analysis, RunAnalysis)
    return analysis, run_verdict(analysis).headline


@pytest.mark.parametrize("step_ms", [23.93, None])
def test_one_channel_is_a_slow_transfer_though_the_recorded_hosts_are_as_slow(step_ms: float | None) -> None:
    """NCCL_MAX_NCHANNELS=1: 15 GB/s of 450. It costs 4.97 ms of 23.93.

    Recorded, the hosts take as long as the transfers, so that faster links change nothing before recording is out.
    """
    analysis, sentence = first("one_channel_n2", step_ms)
    found = analysis.findings[0]
    assert found.code == "slow_transfer" and found.rank is None
    assert found.ms == pytest.approx(4.97, rel=0.25) and found.low_ms is not None and found.low_ms > 0
    assert "slow transfers cost" in sentence


@pytest.mark.parametrize("step_ms", [13.94, None])
def test_what_slow_links_cost_beside_slow_hosts_is_known_no_better_than_the_hosts_pace(step_ms: float | None) -> None:
    """The same, where hosts take about as long: 5.42 ms of 13.94. With fast links the hosts' launching is next.

    It was told as 7.0 ms (5.8 to 9.3). A step that its transfers bound tells the hosts' pace by a few per cent of its
    own length, which its devices differ by.
    """
    analysis, sentence = first("one_channel_slow_host_n2", step_ms)
    found = analysis.findings[0]
    assert found.code == "slow_transfer"
    assert found.low_ms is not None and found.ms is not None and found.high_ms is not None
    assert found.low_ms < 5.42 < found.high_ms and found.ms < 5.42
    assert "collectives move 20 GB/s" in sentence and "stands out" not in sentence
    assert ("depends on how fast the hosts launch" in sentence) == (found.low_ms == 0.0) == (step_ms is None)


@pytest.mark.parametrize("step_ms", [12.25, None])
def test_hosts_that_other_work_slows_make_an_unsteady_machine_and_no_cause(step_ms: float | None) -> None:
    """Two undisturbed H100s: in the window, each host takes twice as long for everything in one or two steps.

    Launching was told first, with at most 24.1 of 31.6 ms, where the untraced step takes 12.3.
    """
    analysis, sentence = first("slowed_hosts_n2", step_ms)
    paces = [[one.host_pace for one in analysis.steps if one.rank == rank] for rank in (0, 1)]
    assert all(max(own) > 1.6 * min(own) for own in paces)  # type: ignore[type-var,operator]
    assert analysis.findings[0].code == "unsteady" and not analysis.stragglers
    assert "unsteady" in sentence and "times as long for everything" in sentence


def test_steps_in_which_other_work_slows_all_hosts_are_left_out_where_others_tell_the_cause() -> None:
    """Rank 0 of four H100s waits for its loader: 2.83 ms (2.23 to 5.99). All hosts are slowed in three steps of five.

    It was told as an unsteady machine, with 16.1 ms (4.8 to 27.3) of the 30.2.
    """
    analysis, sentence = first("slowed_steps_n4", 30.22)
    slowed, found = analysis.quality.slowed, analysis.findings[0]
    assert slowed is not None and len(slowed.steps) == 3 and slowed.of == 5
    assert [rank.steps for rank in analysis.ranks] == [2] * 4
    assert 1.8 < slowed.times < 2.5 and slowed.slowed_ms > 1.5 * slowed.quiet_ms
    assert (found.code, found.rank) == ("data_loading", 0) and "loads data" in sentence
    assert found.low_ms is not None and found.high_ms is not None
    assert 0 < found.low_ms <= 2.83 <= found.high_ms < 5.99
    told = run_verdict(analysis).sentences[0]
    assert told.startswith("3 of the 5 profiled steps are left out: every rank's host took up to")


def test_of_an_unknown_step_what_is_left_without_slowed_steps_blames_no_other_rank() -> None:
    analysis, _ = first("slowed_steps_n4", None)
    assert {one.rank for one in analysis.findings if (one.low_ms or 0.0) > 0} <= {None, 0}
    assert "unsteady" not in {one.code for one in analysis.findings}


def test_a_step_that_stays_is_what_it_is_among_all_steps() -> None:
    sources = find_sources(DATA / "slowed_steps_n4")
    chosen, every = read_ranks(sources, jobs=1), read_ranks(sources, jobs=1, every_step=True)
    assert chosen.quiet is not None and every.quiet is None
    for rank, summary in chosen.summaries.items():
        kept, all_of_them = summary.shares, every.summaries[rank].shares
        assert kept is not None and all_of_them is not None
        assert len(kept.windows) == 2 and len(all_of_them.windows) == 5
        assert kept.windows.edges[:2].tolist() == all_of_them.windows.edges[:2].tolist()


@pytest.mark.parametrize("step_ms", [24.78, None])
def test_a_copy_that_one_rank_alone_makes_is_its_copy_with_all_that_it_costs(step_ms: float | None) -> None:
    """A batch out of pageable memory on rank 1: 10.21 ms (9.58 to 10.64)."""
    analysis, sentence = first("pageable_copy_rank1_n2", step_ms)
    found = analysis.findings[0]
    assert (found.code, found.rank, found.at_most) == ("copies", 1, False)
    assert found.ms == pytest.approx(10.21, rel=0.15)
    assert "rank 1 costs" in sentence and "copies" in sentence


@pytest.mark.parametrize("step_ms", [13.69, None])
def test_copies_of_all_ranks_come_before_launching_which_costs_as_much(step_ms: float | None) -> None:
    """Batches out of pageable memory on both ranks, whose hosts bound the step anyway: 5.25 ms (3.91 to 6.02).

    The host's waits for the copies go with them, and no step gains what only the first one does: that its host is ahead
    of a device which begins no earlier than it did.
    """
    analysis, sentence = first("pageable_copies_n2", step_ms)
    copies = next(one for one in analysis.findings if one.code == "copies")
    waits = [one for one in analysis.findings if one.code == "synchronising"]
    assert analysis.findings[0] is copies
    # of an unknown step they may cost a little by themselves, and no more is told of them
    assert not waits or (step_ms is None and waits == analysis.findings[-1:] and waits[0].low_ms == 0)
    assert copies.ms == pytest.approx(5.25, rel=0.15)
    assert copies.ms is not None and copies.low_ms is not None and copies.high_ms is not None
    assert copies.high_ms - copies.low_ms < 0.25 * copies.ms
    if step_ms is not None:
        assert "exposed copies cost" in sentence and "launching may cost as much" in sentence


def test_a_stall_that_records_and_launches_both_tell_is_one_finding() -> None:
    """Of the device and its calls alone: rank 1 stands still for 6.3 ms in its backward pass: 6.18 ms (4.54 to 7.66).

    It was told as two stalls of 3.4 ms, behind launching.
    """
    analysis, sentence = first("cuda_only_stalled_host_n2", 22.91)
    found = analysis.findings[0]
    assert [(one.code, one.rank) for one in analysis.findings if one.rank is not None] == [("host_stall", 1)]
    assert found.code == "host_stall" and found.ms == pytest.approx(6.18, rel=0.15)
    assert found.low_ms is not None and found.high_ms is not None and found.low_ms <= 6.18 <= found.high_ms
    assert "rank 1 costs 6.8 ms" in sentence and "vectorized_elementwise_kernel" in sentence


def test_where_devices_bound_the_step_without_a_stall_its_cost_is_as_well_known_as_the_step() -> None:
    """A host that stalls before the forward pass: 5.87 ms (4.54 to 6.66). The stalled steps differ by 3 ms."""
    analysis, _ = first("stalled_host_rank1_n2", 24.62)
    found = analysis.findings[0]
    assert (found.code, found.rank) == ("host_stall", 1)
    assert found.ms == pytest.approx(5.87, rel=0.15)
    assert found.ms is not None and found.low_ms is not None and found.high_ms is not None
    assert found.low_ms <= 5.87 <= found.high_ms and found.high_ms - found.low_ms < 0.25 * found.ms
    untold, _ = first("stalled_host_rank1_n2", None)
    late = next(one for one in untold.findings if one.code == "host_stall")
    assert late.low_ms is not None and late.high_ms is not None and late.ms is not None
    assert late.high_ms - late.low_ms > 0.5 * late.ms  # nothing tells the mean step then


@pytest.mark.parametrize("step_ms", [14.99, None])
def test_a_host_that_alone_waits_for_its_device_is_named_however_much_that_costs(step_ms: float | None) -> None:
    """Rank 1 reads the norm of each gradient: 53 waits a step, of 2.05 ms (1.36 to 2.56). The hosts bound the step.

    Noise hid it beside launching, and rank 0, which waits for rank 1 for half of the step, was told nothing of that.
    """
    analysis, sentence = first("norms_read_rank1_n2", step_ms)
    found = next(one for one in analysis.findings if one.code == "synchronising")
    assert found.rank == 1 and found.low_ms is not None and found.high_ms is not None
    assert found.low_ms <= 2.05 <= found.high_ms
    if step_ms is None:
        assert "rank 1" in sentence and "53 times a step" in sentence and "stands out" not in sentence


@pytest.mark.parametrize("step_ms", [23.1, None])
def test_handing_over_a_batch_that_is_there_is_no_worker_s_pace(step_ms: float | None) -> None:
    """Rank 1's loader is slow, which costs 3.95 ms (up to 4.19); rank 0 unpickles each batch for 1.2 to 1.4 ms.

    Its wait was taken for as slow a worker's, and 2.7 ms were told of all ranks' loading, before 1.5 of rank 1's.
    """
    analysis, sentence = first("slow_worker_rank1_n2", step_ms)
    found = analysis.findings[0]
    assert [(one.code, one.rank) for one in analysis.findings if not one.at_most] == [("data_loading", 1)]
    assert found.ms == pytest.approx(3.95, rel=0.05) and found.low_ms is not None and found.low_ms <= 4.19
    assert "rank 1 costs 4." in sentence and "loads data" in sentence
