"""A host without another rank to compare with: interrupted now here and now there, or held up where its program is."""

import msgspec
import numpy as np
import pytest

from scalescope.report.text.findings import because
from scalescope.scaling.evidence.causes.common_steps import CommonSteps, against_others
from scalescope.scaling.evidence.causes.starvation import starved_causes
from scalescope.scaling.evidence.gaps import Located
from scalescope.scaling.evidence.host_evidence import HostEvidence
from scalescope.scaling.evidence.interruptions import interruptions, interruptions_alone, lock_waits
from scalescope.scaling.finding.figures import LATE
from scalescope.scaling.finding.finding import EvidenceRow, Finding

MS = 1_000_000
STEPS, PLACES, PASSES = 5, 10, 20


def stretches(long: dict[tuple[int, int, int], float]) -> Located:
    """Ten places to which a host comes 20 times a step for 0.05 ms; by (step, place, pass) some last longer, ms."""
    rows = [(step, place, at) for step in range(STEPS) for place in range(PLACES) for at in range(PASSES)]
    length = np.array([round(MS * long.get(row, 0.05)) for row in rows], np.int64)
    starts = np.concatenate(([0], np.cumsum(length)[:-1] + 1000))
    step, place = (np.array([row[column] for row in rows], np.int64) for column in (0, 1))
    nothing = np.zeros(len(rows), bool)
    return Located(starts, starts + length, step, place, np.full((4, PLACES), -1), nothing, nothing)


#: In each step at eight places, as on a core that others use, too: a turn of theirs is 8 ms.
EVERYWHERE = {(step, place, (7 * step + 3 * place) % PASSES): 8.0 for step in range(STEPS) for place in range(8)}


def test_a_host_that_is_interrupted_at_the_same_places_in_most_steps_is_interrupted_all_the_same() -> None:
    """The longest stretch of such a place is as long in most steps, and was taken for what the place takes."""
    assert interruptions(stretches(EVERYWHERE), STEPS) is None
    found = interruptions_alone(stretches(EVERYWHERE), STEPS)
    assert found is not None and (found.places, found.count) == (8, (8,) * STEPS)
    assert np.mean(found.ns) == 8 * (8.0 - 0.05) * MS


def causes(long: dict[tuple[int, int, int], float], step_ms: float = 100.0) -> list[tuple[str, int | None, float]]:
    steps = (round(step_ms * MS),) * STEPS
    none = (0,) * STEPS
    evidence = HostEvidence(
        on_cpu=False, steps=tuple(range(STEPS)), step_ns=steps, busy_ns=steps, waiting_ns=none, loading_ns=none,
        gap_ns=none, recording_ns=none, launches=none, kernels=none, kernel_ns=none, late_ns=none,
        interruptions_alone=interruptions_alone(stretches(long), STEPS),
    )  # fmt: skip
    return [(one.code, one.rank, one.typical_ns / MS) for one in starved_causes(CommonSteps({0: evidence}))]


def test_a_lone_host_that_is_interrupted_everywhere_is_starved() -> None:
    """*Launching costs at most 40.5 ms* was told of a step of 76 ms on one core that two other processes use."""
    ((code, rank, ms),) = causes(EVERYWHERE)
    assert (code, rank) == ("host_starved", None) and round(ms, 1) == 63.6


def test_what_a_program_does_at_its_own_place_is_no_interruption() -> None:
    assert not causes({(step, 4, 9): 20.0 for step in range(STEPS)})  # it sleeps there, in each step
    assert not causes({(1, place, 3): 2.0 for place in range(8)})  # one bad step
    assert not causes({(step, step, 3): 4.0 for step in range(STEPS)})  # once a step, as undisturbed hosts may be
    assert not causes(EVERYWHERE, step_ms=10_000.0)  # too little of the step


def test_loading_that_nobody_annotated_is_told_with_how_long_it_takes() -> None:
    gap = EvidenceRow(kind="figure", name="gap_before aten::empty", ms=11.6, calls=1.0)
    finding = Finding(code="data_loading", ms=11.4, low_ms=8.1, high_ms=14.7, backed="replay", evidence=(gap,))
    assert because(finding).startswith("the hosts load data for 11.6 ms a step while the device")


@pytest.mark.parametrize(("ms", "step"), [(33.0, "a profiled step"), (41.0, "a step")])
def test_loading_for_longer_than_it_costs_is_said_to_be_of_a_profiled_step(ms: float, step: str) -> None:
    """*Loading data costs 33.0 ms of 120 ms: the hosts load data for 43.0 ms a step* were two figures of it."""
    row = EvidenceRow(kind="annotation", name="load batch", ms=43.0, calls=1.0)
    finding = Finding(code="data_loading", ms=ms, low_ms=28.0, high_ms=45.0, backed="replay", evidence=(row,))
    assert because(finding).startswith(f"the hosts load data (load batch) for 43.0 ms {step} while")
    late = EvidenceRow(kind="figure", name=LATE, ms=30.0, value=40.0)
    told = because(msgspec.structs.replace(finding, rank=1, evidence=(row, late)))
    assert "for 43.0 ms a step in the profiled steps" in told


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8])
def test_a_rank_is_laid_beside_the_median_of_the_others_equal_ones_included(ranks: int) -> None:
    table = np.random.default_rng(ranks).integers(0, 6, (ranks, 200)) * 1_000_003
    expected = [table[at] - np.median(np.delete(table, at, axis=0), axis=0) for at in range(ranks)]
    np.testing.assert_array_equal(against_others(table), np.rint(expected).astype(np.int64))


def test_what_lasts_as_long_as_the_switch_interval_in_operators_that_compute_is_no_wait_for_the_lock() -> None:
    """Convolutions of 5.2 ms on a CPU were told as waits for a thread that there was not."""
    found = stretches({(step, place, 3): 5.2 for step in range(STEPS) for place in range(4)})
    assert lock_waits(found, STEPS) is not None
    assert lock_waits(msgspec.structs.replace(found, computes=np.ones(len(found.step), bool)), STEPS) is None
