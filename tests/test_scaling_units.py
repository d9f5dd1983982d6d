"""What a converter did to a trace's times is said, and so are ProfilerSteps that are no iterations."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scalescope.report.text.findings import because
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze_run
from scalescope.scaling.ranks.summary import read_rank
from scalescope.scaling.ranks.units import impossible_call_ns
from scalescope.scaling.ranks.updates import said_of_updates
from scalescope.scaling.trace.reader import read_trace
from tests.gloo_traces import GlooJob
from tests.host_traces import HostTrace, backward, forward, optimise
from tests.trace_json import unpacked

DATA = Path(__file__).parent / "data"


def rescaled(source: Path, out: Path, factor: float, ranks: tuple[int, ...]) -> Path:
    out.mkdir()
    for path in sorted(source.glob("*.json.gz")):
        trace: dict[str, Any] = unpacked(path)
        if any(f"rank{rank}." in path.name for rank in ranks):
            first = min(event["ts"] for event in trace["traceEvents"] if "ts" in event)
            for event in (one for one in trace["traceEvents"] if "ts" in one):
                event["ts"] = first + (event["ts"] - first) * factor
                event["dur"] = event.get("dur", 0) * factor
        (out / path.name.removesuffix(".gz")).write_bytes(msgspec.json.encode(trace))
    return out


@pytest.mark.parametrize(
    ("job", "factor", "says"),
    [
        ("gather_ce_n2", 1000, "divide both by 1,000, if a converter wrote ns"),
        ("cpu_threads_n2", 1000, "divide both by 1,000, if a converter wrote ns"),
        ("one_channel_n2", 1e-3, "multiply both by 1,000, if a converter wrote ms"),
        ("one_channel_n2", 1000, "divide both by 1,000, if a converter wrote ns"),
    ],
)
def test_times_that_no_host_can_take_are_said_and_not_explained(
    job: str, factor: float, says: str, tmp_path: Path
) -> None:
    answer = analyze_run(rescaled(DATA / job, tmp_path / "traces", factor, (0, 1)))
    assert answer.quality.verdict == "unusable"
    assert says in answer.quality.reasons[0]
    assert "% of the" not in run_verdict(answer).headline and not answer.findings


def test_one_rank_in_another_unit_is_left_out_alone(tmp_path: Path) -> None:
    answer = analyze_run(rescaled(DATA / "cpu_threads_n2", tmp_path / "traces", 1000, (1,)))
    assert answer.quality.verdict == "degraded"
    assert any("rank 1, whose times are in another unit" in reason for reason in answer.quality.reasons)


@pytest.mark.parametrize("job", ["gpt_ddp_n2", "cpu_tiny_buckets_n2", "pageable_copies_n2", "cpu_now_and_then_n2"])
def test_times_as_profilers_write_them_are_in_no_other_unit(job: str) -> None:
    for path in sorted((DATA / job).glob("*.json.gz")):
        assert not read_rank(path).summary.misscaled


@pytest.mark.parametrize(
    ("updates", "says"),
    [
        (
            (0, 1, 0, 1, 0, 1),
            "of 6 ProfilerSteps 3 hold a step of the optimizer: where gradients are accumulated 2 Prof",
        ),
        ((0, 0, 0, 1, 0, 0, 0, 1), "4 ProfilerSteps make an iteration"),
        ((0, 0, 1, 0), "of 4 ProfilerSteps 1 holds a step of the optimizer: where gradients are accumulated several"),
        ((4, 4, 4), "each ProfilerStep holds 4 steps of the optimizer"),
        ((1, 1, 1), None),
        ((), None),
        ((0, 1, 0, 0, 1, 1), None),  # a job that varies
        ((1, 1, 1, 0, 1, 1), None),  # a scaler of gradients that left one out
        ((0, 1), None),
        ((1, 2, 1), None),
    ],
)
def test_profiler_steps_that_are_no_iterations_are_said_to_be_none(updates: tuple[int, ...], says: str | None) -> None:
    said = said_of_updates(updates)
    assert said == says if said is None or says is None else says in said


def test_an_answer_says_that_two_profiler_steps_make_an_iteration(tmp_path: Path) -> None:
    """Every second update is taken out of a job's traces, as gradient accumulation leaves it out."""
    (out := tmp_path / "traces").mkdir()
    for path in sorted((DATA / "pageable_copies_n2").glob("*.json.gz")):
        trace = unpacked(path)
        updates = [one for one in trace["traceEvents"] if str(one.get("name")).startswith("Optimizer.step#")
                   and one.get("cat") == "user_annotation"]  # fmt: skip
        kept = sorted(updates, key=lambda one: one["ts"])[1::2]
        trace["traceEvents"] = [one for one in trace["traceEvents"] if one not in updates or one in kept]
        (out / path.name.removesuffix(".gz")).write_bytes(msgspec.json.encode(trace))
    answer = analyze_run(out)
    (said,) = [reason for reason in answer.quality.reasons if "ProfilerSteps" in reason]
    assert "2 ProfilerSteps make an iteration" in said and answer.quality.verdict == "good"


def test_a_long_step_makes_no_iteration_of_two_short_ones(tmp_path: Path) -> None:
    """A checkpoint of 150 ms among steps of 5 was told as gradients that two ProfilerSteps accumulate.

    It is a stall in that step, of three alone.
    """

    def step(trace: HostTrace, number: int) -> None:
        forward(trace, 1_000.0)
        backward(trace, 1_000.0)
        optimise(trace)
        if number == 1:
            trace.synchronise()
            trace.idle(150_000.0)

    HostTrace(0, 1).steps(4, step).write(tmp_path)
    answer = analyze_run(tmp_path)
    assert not [reason for reason in answer.quality.reasons if "ProfilerSteps" in reason]
    first = answer.findings[0]
    assert first.code == "host_stall" and first.low_ms == 0.0
    assert "in 1 of 3 profiled steps" in because(first)


@pytest.mark.parametrize(
    ("view_ns", "misscaled"),
    [
        (None, False),  # a compiled step: what computes is all that is recorded, and takes milliseconds
        (2_000, False),
        (1_900_000, True),
    ],
)
def test_operators_that_compute_may_take_long_and_views_may_not(
    view_ns: int | None, misscaled: bool, tmp_path: Path
) -> None:
    job = GlooJob(world_size=1, view_ns=view_ns)
    for number in range(3):
        job.step(number)
        job.compute(60.0, "aten::addmm", calls=30)
        job.all_reduce(1.0)
    (path,) = job.write(tmp_path / "traces").glob("*.json*")
    assert read_rank(path).summary.misscaled is misscaled
    assert ("another unit" in " ".join(analyze_run(path.parent).quality.reasons)) is misscaled


@pytest.mark.parametrize(
    ("launches_us", "views_us", "others", "told_ns"),
    [
        ([400] * 60, [60] * 20, 0, 400_000),
        ([290] * 60, [60] * 20, 0, None),
        ([400] * 60, [40] * 20, 0, None),
        ([400] * 49, [60] * 20, 0, 60_000),  # too few launches tell nothing
        ([400] * 60, [60] * 9, 0, None),  # nor do too few views
        ([400] * 60, [], 60, None),  # a full queue, and operators that compute
        ([400] * 60, [], 0, 400_000),
        ([400] * 51 + [5] * 9, [60] * 20, 0, None),
        ([0.09] * 60, [], 0, 90),
        ([0.11] * 60, [], 0, None),
        ([0.09] * 49, [], 0, None),
        ([0.09] * 51 + [5] * 9, [], 0, None),
    ],
)
def test_in_which_unit_times_are_launches_and_views_tell_where_there_are_enough(
    launches_us: list[float], views_us: list[float], others: int, told_ns: int | None, tmp_path: Path
) -> None:
    calls = [
        *(("cuda_runtime", "cudaLaunchKernel", us) for us in launches_us),
        *(("cpu_op", "aten::transpose", us) for us in views_us),
        *(("cpu_op", "aten::mm", 400) for _ in range(others)),
    ]
    events = [
        {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": 1e6 + at * 1e3, "dur": us, "args": {}}
        for at, (category, name, us) in enumerate(calls)
    ]
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": events}))
    assert impossible_call_ns(read_trace(path)) == told_ns
