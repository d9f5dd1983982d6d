"""What the steps beside a window tell of the step in it, on recorded jobs: 1 to 4 H200, GPT and ResNet-50."""

import gzip
import statistics
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import msgspec
import pytest

from scalescope.records.rows import StepRow
from scalescope.records.steps.recording import BurstTimes, RecordingBursts, UntracedSteps, untraced_steps
from scalescope.scaling.as_run.recording import WITH_DEVICE, terms_for
from tests.recorded import records_of

RESULTS = Path(__file__).parent.parent / "benchmarks" / "results"
DATA = Path(__file__).parent / "data"
WINDOW, NEAR = 5, 20


@cache
def recorded_jobs() -> list[list[float]]:
    """Return the steady steps of recorded jobs, ms, in order."""
    decoder = msgspec.json.Decoder(StepRow)
    jobs = []
    for file in sorted(RESULTS.glob("*/*.steps.jsonl.gz")):
        if file.name.startswith(("images.pillow", "images.nvjpeg")):
            continue  # they wait for their batches now and then: no twenty steps tell when they do next
        rows = map(decoder.decode, gzip.decompress(file.read_bytes()).splitlines())
        jobs.append([row.length_ms for row in rows if row.phase == "steady"])
    return jobs


def covers(told: UntracedSteps | None, times_ms: list[float]) -> bool:
    assert told is not None
    return abs(statistics.median(times_ms) - told.median_ms) <= told.spread_ms


def share(found: Iterator[bool]) -> float:
    return statistics.fmean(list(found))


def test_twenty_steps_tell_the_stretch_right_after_them_within_their_spread() -> None:
    starts = [(job, at) for job in recorded_jobs() for at in range(0, len(job) - NEAR - WINDOW + 1, 2)]
    assert len(starts) > 250
    inside = share(
        covers(untraced_steps(job[at : at + NEAR], WINDOW), job[at + NEAR : at + NEAR + WINDOW]) for job, at in starts
    )
    assert inside >= 0.92
    widths = [told.spread_ms / told.median_ms for job, at in starts if (told := untraced_steps(job[at : at + NEAR], 5))]
    assert statistics.median(widths) < 0.035, "and it tells something"


def test_half_of_the_untraced_steps_predicts_the_other_half() -> None:
    cut = [(job[::2], job[1::2]) for job in recorded_jobs()]
    assert len(cut) > 20
    crossed = [pair for one, other in cut for pair in ((one, other), (other, one))]
    assert share(covers(untraced_steps(one, WINDOW), other) for one, other in crossed) >= 0.95
    in_order = [(job[: len(job) // 2], job[len(job) // 2 :]) for job in recorded_jobs()]
    assert share(covers(untraced_steps(one, WINDOW), other) for one, other in in_order) >= 0.9


def bursts(**changed: BurstTimes | None) -> RecordingBursts:
    found = RecordingBursts(
        rank=0,
        bare=BurstTimes(operator_ns=1000, call_ns=900),
        plain=BurstTimes(operator_ns=2000, call_ns=2100),
        recorded=BurstTimes(operator_ns=5000, call_ns=3000),
        shapes=BurstTimes(operator_ns=5400, call_ns=3000),
    )
    return msgspec.structs.replace(found, **changed)


def test_what_a_call_costs_is_told_against_a_process_in_which_nothing_was_recorded() -> None:
    """The host has become twice as slow since, which the operators show."""
    found = bursts()
    assert (found.operator_ns, found.shapes_ns, found.call_ns) == (3000, 400, 3000 - 2 * 900)
    assert bursts(bare=None).call_ns is None and found.frame_ns is None


def test_a_jobs_own_bursts_tell_what_calls_cost_beside_one_another_unless_they_cannot_be() -> None:
    records = records_of("gpt_ddp_n1")
    (record,) = records.values()
    assert record.recorded is not None
    record.recorded = replace(record.recorded, launch_ns=None)  # the host's pace aside
    assert terms_for(records) == WITH_DEVICE
    record.own = msgspec.structs.replace(record.own, bursts=bursts())
    own = terms_for(records)
    level = WITH_DEVICE.operator_ns / 3000  # a burst's calls cost less than a step's
    assert own.operator_ns == pytest.approx(WITH_DEVICE.operator_ns)
    assert (own.shapes_ns, own.call_ns) == pytest.approx((400 * level, 1200 * level))
    assert (own.frame_ns, own.low, own.high) == (WITH_DEVICE.frame_ns, WITH_DEVICE.low, WITH_DEVICE.high)
    for operator_ns in (1900.0, float("nan"), 1e9):
        record.own = msgspec.structs.replace(
            record.own, bursts=bursts(recorded=BurstTimes(operator_ns=operator_ns, call_ns=3000))
        )
        assert terms_for(records) == WITH_DEVICE


@pytest.mark.parametrize("times", [[], [1.0, 2.0]])
def test_fewer_than_three_steps_tell_nothing(times: list[float]) -> None:
    assert untraced_steps(times, WINDOW) is None
