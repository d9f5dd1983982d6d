"""A job alone on its device, or beside another process: told by how long the same launches take in its steps."""

from scalescope.report.text.findings import because
from scalescope.scaling.finding.figures import OWN_TURNS
from scalescope.scaling.finding.finding import EvidenceRow, Finding
from scalescope.scaling.findings.computing.shared_device import TimedLaunch, find_turns

STEPS, KERNELS = 6, 40


def launches(
    longer: dict[tuple[int, int], float], away: dict[tuple[int, int], float] | None = None
) -> list[TimedLaunch]:
    """40 kernels of 0.2 ms in 6 steps; by (step, kernel) some are longer, or begin later than they need, ms."""
    return [
        TimedLaunch(("gemm", 64, kernel), step, 200_000 + 1e6 * longer.get((step, kernel), 0.0),
               1e6 * (away or {}).get((step, kernel), 0.0))
        for step in range(STEPS) for kernel in range(KERNELS)
    ]  # fmt: skip


HERE_AND_THERE = {(0, 3): 2.5, (1, 17): 2.5, (2, 30): 1.1, (3, 8): 2.4, (4, 21): 2.5, (5, 35): 1.7}


def test_turns_of_another_process_are_found_in_one_trace() -> None:
    """One rank has no other to compare with: *synchronising costs 5.0 ms* was told of a job of 62 ms, 44 alone."""
    turns = find_turns(launches(HERE_AND_THERE, {(1, 2): 0.0, (2, 2): 2.4}), STEPS)
    assert turns is not None
    assert round(turns.whole_ms, 3) == round((sum(HERE_AND_THERE.values()) + 2.4) / STEPS, 3)
    assert (len(turns.longer_ns), len(turns.away_ns)) == (6, 1)


def test_what_a_job_does_itself_is_nobody_elses_turn() -> None:
    assert find_turns(launches({}), STEPS) is None
    at_its_place = {(step, 7): 2.5 for step in range(0, STEPS, 2)} | {(step, 8): 2.5 for step in range(1, STEPS, 2)}
    assert find_turns(launches(at_its_place), STEPS) is None  # every second step has more to do there
    every = {(step, kernel): 0.02 * (step % 3) for step in range(STEPS) for kernel in range(KERNELS)}
    assert find_turns(launches(every), STEPS) is None  # clocks that differ from step to step
    longer_batch = {(2, kernel): 0.4 for kernel in range(KERNELS)}
    assert find_turns(launches(longer_batch), STEPS) is None  # one step has more of everything
    few = {key: HERE_AND_THERE[key] for key in list(HERE_AND_THERE)[:3]}
    assert find_turns(launches(few), STEPS) is None


def test_steps_that_do_not_do_the_same_tell_nothing() -> None:
    other = [
        TimedLaunch((f"gemm_{one.step}", 64, one.place[2]), one.step, one.work_ns, 0.0)
        for one in launches(HERE_AND_THERE)
    ]
    assert find_turns(other, STEPS) is None
    assert find_turns([one for one in launches(HERE_AND_THERE) if one.step < 2], 2) is None


def test_a_shared_device_is_said_to_be_one() -> None:
    row = EvidenceRow(kind="figure", name=OWN_TURNS, ms=13.0, calls=7.0, value=1.5)
    finding = Finding(code="slower_compute", ms=13.0, low_ms=11.0, high_ms=18.0, backed="measured", evidence=(row,))
    assert because(finding).startswith("the device is shared: 7 of its kernels a step")
