"""What chance makes on cores that others use, and what no noise hides: loading, and a place where all ranks stand."""

from dataclasses import replace as replace_fields
from pathlib import Path

import numpy as np
import pytest
from host_traces import HostTrace, backward, forward, optimise
from msgspec.structs import replace

from scalescope.records.statistics import is_beyond_chance, student_95, student_beyond
from scalescope.report.text.findings import because, first_to_do, headline_of_all, more_steps, todo
from scalescope.scaling.evidence.compare import compare_hosts
from scalescope.scaling.finding.codes import Code
from scalescope.scaling.finding.figures import BESIDES, LAUNCHES_DIFFER
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.finding.kinds import is_within_noise
from scalescope.scaling.findings.detectors.slower_compute import InCommon, by_turns, for_sure
from scalescope.scaling.findings.measured import measured_findings, with_loading
from scalescope.scaling.rank.partition import Partition
from scalescope.scaling.ranks.read import read_ranks
from scalescope.scaling.trace.kernel_kinds import MATMUL
from scalescope.scaling.trace.sources import find_sources
from scalescope.scaling.verdicts.stragglers import Late
from tests.gloo_traces import GlooJob, analysed

STEP_MS = 63.0
LOOKED_AT = 8  # two ranks, and what each may seem to have


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7, 12, 30])
def test_chance_makes_the_tables_quantile_as_often_as_it_says(degrees: int) -> None:
    assert 2 * student_beyond(student_95(degrees), degrees) == pytest.approx(0.05, abs=2e-4)
    assert student_beyond(-1.0, degrees) == pytest.approx(1 - student_beyond(1.0, degrees))


def test_a_rank_that_is_late_in_most_steps_of_a_noisy_machine_may_be_so_by_chance() -> None:
    """Two ranks alike on cores that others used, and two of which one had three times the batch."""
    assert not is_beyond_chance([14.7, 10.5, -6.0, 10.4, 25.0], LOOKED_AT)
    assert not is_beyond_chance([3.8, 12.5], LOOKED_AT)
    assert is_beyond_chance([38.2, 31.2, 39.9], LOOKED_AT)
    assert is_beyond_chance([50.2, 50.4], LOOKED_AT)


def late(*beyond_ms: float) -> Late:
    lost = tuple(max(ms, 1.0) for ms in beyond_ms)
    return Late(rank=0, code="slower_compute", lost_ms=lost, part="compute", excess_ms=5.0, beyond_ms=beyond_ms)


def test_nobody_is_accused_of_what_others_do_on_its_cores() -> None:
    chance, sure = late(9.0, 10.0, -6.0, 11.0, 12.0), late(9.0, 10.0, 9.5, 11.0, 12.0)
    for on_cpu, one, accused in ((True, chance, False), (True, sure, True), (False, chance, True)):
        (found,) = measured_findings([one], STEP_MS, ranks=2, on_cpu=on_cpu)
        assert is_within_noise(found) != accused
        assert not (found.at_least and is_within_noise(found)), "what may be nothing is no least cost"


def products(*times_as_long: list[float]) -> InCommon:
    """Return one rank's products of 1 ms elsewhere, in steps of so many times as long each."""
    rows = [(step, ratio) for step, own in enumerate(times_as_long) for ratio in own]
    return InCommon(
        name=["aten::linear"] * len(rows),
        kind=[MATMUL] * len(rows),
        mine=np.array([1e6 * ratio for _, ratio in rows]),
        theirs=np.full(len(rows), 1e6),
        steps=len(times_as_long),
        step=[step for step, _ in rows],
    )


def test_a_rank_whose_quickest_products_take_several_times_as_long_is_slower_whatever_noise_hides_of_the_cost() -> None:
    """Eight times the batch, two steps: *launching costs at most 1.2 ms* of 97 was said first."""
    (row,) = for_sure(products([4.8, 4.2, 9.0, 5.0], [4.6, 4.9, 5.1, 30.0]))
    assert row.value == pytest.approx(4.5, abs=0.3)
    for taken in (products([1.0, 9.0, 1.1, 9.0], [8.0, 1.0, 9.0, 1.0]), products([4.8, 4.2, 9.0, 5.0])):
        assert not list(for_sure(taken))
    sure = Finding(code="slower_compute", rank=1, ms=37.8, low_ms=0.0, high_ms=63.9, backed="replay", evidence=(row,))
    launching = Finding(code="host_bound", ms=1.2, low_ms=1.1, high_ms=1.3, backed="replay", at_most=True)
    found = headline_of_all([sure, launching], 97.0, 2, "")
    told, doubtful = found.text, found.doubtful
    assert told.startswith("rank 1 may cost 37.8 ms (0.00 ms to 63.9 ms) of the 97.0 ms step: ") and not doubtful
    assert told.endswith("; how much, the noise hides.")


@pytest.mark.parametrize(("sure_ms", "leads"), [(1.2, False), (30.0, True)])
def test_what_is_sure_leads_only_where_it_is_no_trifle(sure_ms: float, leads: bool) -> None:
    """A slow server of 18 ms, or nothing, stood behind *launching costs at most 1.0 ms of the 70.4 ms step*."""
    doubtful = Finding(code="slower_compute", rank=1, ms=37.8, low_ms=0.0, high_ms=63.9, backed="replay",
                       remedy=Remedy(cure="look_at_rank"))  # fmt: skip
    sure = Finding(code="host_bound", ms=sure_ms, low_ms=sure_ms, high_ms=sure_ms, backed="replay", at_most=True,
                   remedy=Remedy(cure="compile"))  # fmt: skip
    found = headline_of_all([doubtful, sure], 97.0, 2, "36% is compute.")
    told, beside = found.text, found.doubtful
    assert beside.startswith("Rank 1 may cost 37.8 ms") and first_to_do([doubtful, sure]) is (
        sure if leads else doubtful
    )
    lead = (
        f"launching costs at most {sure_ms:.1f} ms" if leads else "no rank stands out from the noise: 36% is compute."
    )
    assert told.startswith(lead)


def partitions(*loads_ms: list[float]) -> dict[int, list[Partition]]:
    return {
        rank: [Partition(**dict.fromkeys(Partition.__struct_fields__, 0) | {"data": round(ms * 1e6)}) for ms in own]
        for rank, own in enumerate(loads_ms)
    }


def test_what_all_ranks_load_leads_though_nothing_can_be_replayed_and_a_rank_may_be_slower() -> None:
    doubtful = Finding(code="slower_compute", rank=1, ms=1.9, low_ms=0.0, high_ms=4.1, backed="measured")
    found = with_loading([doubtful], partitions([41.5, 41.7, 41.6], [42.0, 42.4, 42.1]), set(), STEP_MS, on_cpu=True)
    assert (found[0].code, found[0].rank) == ("data_loading", None) and found[0].ms == pytest.approx(41.6)
    told = headline_of_all(found, STEP_MS, 2, "").text
    assert told.startswith("loading data costs 41.6 ms")


def test_where_noise_hides_most_more_steps_come_first_and_nobody_is_accused() -> None:
    """*Launch less* was the advice beside a rank that anomaly detection made 20 of 67 ms late."""
    may = Finding(code="slower_compute", rank=1, ms=20.7, low_ms=0.0, high_ms=43.4, backed="replay",
                  remedy=Remedy(cure="look_at_device"))  # fmt: skip
    launching = Finding(code="host_bound", ms=4.0, low_ms=1.0, high_ms=4.0, backed="replay", at_most=True,
                        remedy=Remedy(cure="compile"))  # fmt: skip
    found = headline_of_all([may, launching], 66.8, 2, "")
    told, doubtful = found.text, found.doubtful
    assert told.startswith("no rank stands out from the noise") and "rank 1" not in told
    assert doubtful.startswith("Rank 1 may cost 20.7 ms") and "or nothing" in doubtful
    assert more_steps([may, launching]).startswith(
        "profile more steps (active=20), since these do not tell whether rank 1"
    )
    assert more_steps([may, launching]).endswith("; if it does, ")  # launching is a trifle beside it
    larger = replace(launching, ms=12.0, low_ms=10.0, high_ms=12.0)
    sure = replace(may, low_ms=15.0)
    for findings in ([may, larger], [sure, launching], [launching]):
        assert more_steps(findings) == ""
    assert more_steps([may]).startswith("profile more steps"), "what may be nothing is measured before it is mended"


def test_what_computes_on_cpus_is_no_device_and_has_no_kernels() -> None:
    """*While the device has nothing to do* and *10 of its kernels a step* were told of hosts that compute."""
    codes: tuple[Code, ...] = ("data_loading", "slower_compute", "own_work", "more_work", "host_bound", "unsteady")
    rows: dict[Code, EvidenceRow] = {
        "data_loading": EvidenceRow(kind="figure", name="idle_data", ms=41.5),
        "slower_compute": EvidenceRow(kind="figure", name="by_turns", calls=10.0, value=5.0),
        "unsteady": EvidenceRow(kind="figure", name="step_spread", share=0.3),
    }
    unlike = EvidenceRow(kind="figure", name=LAUNCHES_DIFFER, calls=20.0, value=10.0)
    for on_cpu in (True, False):
        for code in codes:
            evidence = (rows[code], unlike) if code in rows else ()
            remedy = Remedy(cure="faster_kernels", on_cpu=on_cpu)
            finding = Finding(code=code, rank=1, ms=5.0, low_ms=1.0, high_ms=9.0, backed="replay",
                              evidence=evidence, remedy=remedy)  # fmt: skip
            told = f"{because(finding)} {todo(finding)}"
            assert ("device" in told or "kernel" in told) != on_cpu, told


def test_what_is_there_for_sure_is_said_before_what_costs_less_for_sure() -> None:
    """A rank's own averages of its weights were what to begin with, and the first sentence was of launching."""
    counted = EvidenceRow(kind="figure", name=BESIDES, calls=144.0)
    own = Finding(code="own_work", rank=0, ms=4.6, low_ms=0.0, high_ms=9.0, backed="replay",
                  evidence=(counted,), remedy=Remedy(cure="look_at_rank"))  # fmt: skip
    launching = Finding(code="host_bound", ms=2.8, low_ms=1.0, high_ms=2.8, backed="replay", at_most=True,
                        remedy=Remedy(cure="compile"))  # fmt: skip
    late = Finding(code="slower_compute", rank=1, ms=12.0, low_ms=0.0, high_ms=30.0, backed="replay")
    told = headline_of_all([late, own, launching], 148.0, 2, "").text
    assert told.startswith("rank 0 may cost 4.6 ms") and "how much, the noise hides" in told
    assert first_to_do([late, own, launching]) is own


@pytest.mark.parametrize(("fraction", "leads"), [(0.03, True), (0.002, False)])
def test_what_noise_may_have_made_outweighs_no_count(fraction: float, leads: bool) -> None:
    """A late bucket of 32 ms (-22 to 59) put *nothing stands out from the noise* before launches that were counted."""
    counted = EvidenceRow(kind="figure", name=BESIDES, calls=144.0)
    own = Finding(code="own_work", rank=0, ms=4.6, low_ms=1.0, high_ms=9.0, fraction=fraction, backed="replay",
                  evidence=(counted,), remedy=Remedy(cure="look_at_rank"))  # fmt: skip
    launching = Finding(code="host_bound", ms=5.0, low_ms=5.0, high_ms=5.0, backed="replay", at_most=True)
    bucket = Finding(code="late_bucket", ms=32.0, low_ms=-22.0, high_ms=59.0, backed="replay",
                     remedy=Remedy(cure="hand_over_early"))  # fmt: skip
    told = headline_of_all([bucket, launching, own], 148.0, 2, "36% is compute.").text
    assert told.startswith("rank 0 costs 4.6 ms" if leads else "nothing stands out from the noise: 36%")
    assert (first_to_do([bucket, launching, own]) is own) == leads


def test_a_loader_that_is_slow_now_and_then_is_its_ranks() -> None:
    slow = [0.1, 0.1, 0.1, 117.0, 0.1, 0.1, 0.1, 120.0, 0.1, 0.1, 0.1, 115.0]
    (found,) = with_loading([], partitions(slow, [2.0] * 12), set(), STEP_MS, on_cpu=True)
    assert (found.code, found.rank) == ("data_loading", 0) and not is_within_noise(found)
    assert found.ms == pytest.approx(sum(slow) / 12 - 2.0)
    assert "in 3 of 12 profiled steps" in because(found)
    (once,) = with_loading([], partitions([0.1] * 11 + [120.0], [0.1] * 12), set(), STEP_MS, on_cpu=True)
    assert is_within_noise(once)


def test_loading_of_a_single_step_is_told_as_that_of_one_step() -> None:
    """Before, `loading data costs 41.5 ms (41.5 ms to 41.5 ms)`: one step does not tell what is usual."""
    for loads in ([41.5], [42.0]), ([41.5], [0.1]):
        (found,) = with_loading([], partitions(*loads), set(), STEP_MS)
        assert (found.low_ms, found.rank) == (0.0, None if loads[1][0] > 1 else 0)
        told = headline_of_all([found], STEP_MS, 2, "").text
        assert "the only one that is recorded whole" in told and "1 of 1" not in told


def test_ranks_that_wait_for_a_lock_by_turns_stall_at_one_place_each_as_long_as_it_does(tmp_path: Path) -> None:
    for rank, waits_us in enumerate((3_000.0, 6_000.0)):

        def step(trace: HostTrace, number: int, waits_us: float = waits_us) -> None:
            trace.idle(waits_us)
            forward(trace, 40.0)
            backward(trace, 40.0)
            optimise(trace)

        HostTrace(rank, 2).steps(5, step).write(tmp_path)
    summaries = read_ranks(find_sources(tmp_path)).summaries
    found = compare_hosts({rank: one.host_evidence for rank, one in summaries.items() if one.host_evidence})
    (stall,) = (one for one in found if one.code == "host_stall")
    assert (stall.code, stall.rank) == ("host_stall", None)
    own = dict(stall.own_ns)
    assert own[0] == pytest.approx(3e6, rel=0.05) and own[1] == pytest.approx(6e6, rel=0.05)


def test_another_process_has_no_cores_by_turns_where_most_launches_are_longer() -> None:
    """1.5 times the tokens, beside a rank of which a few launches were disturbed: these take it most of its time.

    Before, `23 of its operators a step take 6.5 ms longer than on the others, and the rest do not` was told.
    """
    for typical, told in ((1.0, True), (1.5, False)):
        steps = [[1.0, 1.0, 1.0, *[typical] * 40] for _ in range(2)]
        for at, own in enumerate(steps):
            own[10 + at] = own[20 + at] = 30.0  # here and there, the others' 1 ms
        common = replace_fields(products(*steps), place=[*range(43)] * 2)
        common.theirs[:3] *= 40
        assert (by_turns(common) is not None) == told


def test_a_rank_that_is_late_in_each_step_is_so_though_it_was_held_up_for_longer_in_one(tmp_path: Path) -> None:
    """Before, `rank 1 may cost 14.5 ms, or nothing` of a rank that stood still for 12 ms in each of eight steps."""
    job = GlooJob()
    for step, ms in enumerate((78.0, 12.0, 21.9, 12.9, 13.2, 12.0, 15.4, 15.9, 12.4)):
        job.step(3 + step)
        job.compute(20.0, calls=10)
        job.sleep(1, ms)
        job.all_reduce(2.0)
    first = analysed(job.write(tmp_path)).findings[0]
    assert (first.code, first.rank) == ("host_stall", 1) and first.low_ms is not None and first.low_ms > 0


def _of_a_busy_machine(folder: Path, *, stalls_ms: tuple[float, ...], held_up_ms: tuple[float, ...]) -> Finding:
    """Return the first finding of a rank 0 that stands still behind its step, beside a rank 1 held up in it."""
    job = GlooJob()
    for step, (stall, held_up) in enumerate(zip(stalls_ms, held_up_ms, strict=True)):
        job.step(3 + step)
        job.compute(60.0, calls=12)
        job.compute(held_up, rank=1)
        job.all_reduce(2.0)
        job.compute(1.0, name="aten::copy_")
        job.sleep(0, stall)
        job.compute(5.0, name="aten::add_", calls=5)
    return analysed(job.write(folder)).findings[0]


def test_what_stands_still_at_one_place_in_each_step_is_no_chance_however_long_others_have_its_core(
    tmp_path: Path,
) -> None:
    """A loop of 50 ms took 88, 51 and 62, and *no rank stands out from the noise*."""
    found = _of_a_busy_machine(tmp_path / "loop", stalls_ms=(88.0, 51.0, 62.0), held_up_ms=(1.0, 1.0, 1.0))
    assert (found.code, found.rank) == ("host_stall", 0) and not is_within_noise(found)
    brief = _of_a_busy_machine(tmp_path / "brief", stalls_ms=(1.0, 14.0, 3.0), held_up_ms=(1.0, 1.0, 1.0))
    assert brief.rank is None or is_within_noise(brief), "as brief as one interruption of many is chance"


@pytest.mark.parametrize("held_up_ms", [(0.1, 0.1, 0.1), (50.0, 30.0, 1.0)])
def test_what_one_rank_launches_costs_what_it_takes_though_another_rank_lost_its_core_meanwhile(
    tmp_path: Path, held_up_ms: tuple[float, ...]
) -> None:
    """Products of 24 ms, hidden by what others took of rank 1's core: `11.2 ms (9.3 ms to 12.7 ms)` was told."""
    job = GlooJob()
    for step, held_up in enumerate(held_up_ms):
        job.step(3 + step)
        job.compute(24.0, name="aten::matmul", rank=0, calls=3)
        job.compute(60.0, rank=0, calls=12)
        job.compute(55.0, rank=1, calls=11)
        job.compute(5.0 + held_up, rank=1)
        job.all_reduce(2.0)
    (own,) = (one for one in analysed(job.write(tmp_path)).findings if one.code == "own_work")
    assert own.rank == 0 and own.low_ms is not None and own.high_ms is not None
    assert own.low_ms < 24.0 < own.high_ms, "so much it costs where nobody is held up"
    if max(held_up_ms) > 24.0:
        assert own.low_ms < 15.0, "steps with another rank as late do not tell that it costs nearly all"
    else:
        assert own.low_ms > 20.0


def test_loading_of_a_turn_or_two_on_a_core_accuses_nobody() -> None:
    """Of two ranks alike the one loaded 6.4 ms longer in two of three steps, and *rank 1 costs 4.2 ms*."""
    for longer, accused in ((6.4, False), (117.0, True)):
        (found,) = with_loading(
            [], partitions([2.0] * 3, [2.0 + longer, 2.0, 2.0 + longer]), set(), 110.0, on_cpu=True
        )[:1]
        assert is_within_noise(found) != accused or found.rank is None
