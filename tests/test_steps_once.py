"""Steps of a window that came once, or that are longer for what took their ranks' cores: what is said of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import pytest
from msgspec.structs import replace

from scalescope.records.rows import StepRow
from scalescope.report.text.findings import because
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.compare.compare import compare_paths
from scalescope.scaling.finding.kinds import is_now_and_then
from scalescope.scaling.findings.of_rows.core_waits import SINCE_STEP
from tests.gloo_traces import GlooJob
from tests.report_samples import run_with_traces

FIRST, STEPS = 22, 10


def _traces(path: Path, still_ms: Mapping[int, float], computes_ms: Mapping[int, float]) -> Path:
    """Write traces of ten steps of some 89 ms in which rank 0 stands still behind its optimizer's step, or computes for
    longer, for so long.
    """
    job = GlooJob()
    for number in range(FIRST, FIRST + STEPS):
        job.step(number)
        for at in range(24):
            job.compute(3.5, ("aten::linear", "aten::gelu", "aten::mul", "aten::add")[at % 4])
            if at == 12 and number in computes_ms:
                job.compute(computes_ms[number], "aten::addmm", rank=0)
        job.all_reduce(2.0)
        begun = dict(job.now)
        job.compute(3.0, "aten::lerp_")
        for rank in range(2):
            job.annotate(rank, "Optimizer.step#AdamW.step", begun[rank], job.now[rank])
        job.sleep(0, still_ms.get(number, 0.0))
    return job.write(path)


def _run(
    path: Path,
    still_ms: Mapping[int, float],
    computes_ms: Mapping[int, float],
    waited: Mapping[int, float],
    later_ms: float = 0.0,
) -> RunAnalysis:
    """Return a run's answer; `waited`: in which of its steps rank 0 waits for a core, ms; from the first of these on
    each of its own steps is longer by `later_ms`.
    """
    folder, recorded = run_with_traces(path / "run", _traces(path / "traces", still_ms, computes_ms))
    with folder.step_writer() as writer:
        for step in range(52):
            phase: Literal["profile", "steady"] = "profile" if step in recorded else "steady"
            more = max(still_ms.get(step, 0.0), computes_ms.get(step, 0.0)) if step in recorded else 0.0
            more += later_ms if step not in recorded and step in waited else 0.0
            ms = 89.0 + 0.3 * (step % 3) + more
            writer.append(
                StepRow(
                    step=step, phase=phase, step_ms=[ms, ms], samples_per_s=1.0, own_ms=[ms - 9.0, ms - 9.0 - more],
                    run_delay_ms=[waited.get(step, 1.0), 1.0], own_run_delay_ms=[waited.get(step, 1.0), 1.0],
                )
            )  # fmt: skip
    (answer,) = analyze([folder.path], jobs=1)
    assert isinstance(answer, RunAnalysis)
    return answer


def test_what_a_rank_s_host_did_once_is_told_with_its_step_and_place(tmp_path: Path) -> None:
    """A checkpoint of 310 ms on rank 0 in step 26 was *the machine was unsteady. Of the profiled steps alone: launching
    costs at most 13.4 ms*, and *unsteady steps: 4.8 ms, as where other work slows a machine for once*: of launching
    the other steps have 6.
    """
    run = _run(tmp_path, {26: 210.0}, {}, {})
    assert run.once is not None and (run.once.steps, run.once.rank, run.once.part) == ([26], 0, "idle_launch")
    first = run.findings[0]
    assert (first.code, first.rank, first.low_ms) == ("host_stall", 0, 0.0)
    assert first.ms == pytest.approx(210.0 / 52, rel=0.02)
    told = run_verdict(run)
    assert ": step 26 took 210.0 ms longer than the job's 51 others: " in told.headline, told.headline
    assert "after the optimizer's step" in told.headline and "waits for no core" in told.headline
    assert "unsteady" not in told.text and "other work" not in told.text, told.text
    launching = [one.ms or 0.0 for one in run.findings if one.code == "host_bound"]
    assert max(launching, default=0.0) < 2.0, "that step's surplus is no launching"


def test_steps_that_wait_for_cores_are_told_by_those_waits_alone(tmp_path: Path) -> None:
    """Rank 1's core was taken in step 26 and not given back: *in 5 of 10 profiled steps, and in none of the job's 32
    others, rank 1 takes 46.1 ms longer, as where other work slows a machine for once*, of a job whose 17 steps behind
    the window were all as long; a second mean step, 100.6 ms, stood beside one of 86.6.
    """
    slow = dict.fromkeys(range(27, 52), 50.0)
    run = _run(tmp_path, {}, dict.fromkeys(range(27, 32), 50.0), slow, later_ms=50.0)
    assert run.once is None
    assert [one.code for one in run.findings if is_now_and_then(one)] == []
    first = run.findings[0]
    assert (first.code, first.rank) == ("host_starved", 0)
    assert run.step_times is not None and run.step_times.core_waits is not None
    since = run.step_times.core_waits.since
    assert since is not None and (since.step, since.before_ms, since.after_ms) == (27, 1.0, 50.0)
    assert first.ms == pytest.approx(50.0 * 20 / 42, rel=0.05)
    assert (first.low_ms or 0.0) > 0.9 * (first.ms or 0.0), "a change of level is no chance"
    assert ". Since step 27 its host could run, and waits for a core" in run_verdict(run).headline
    assert "50.0 ms a step, and 1.0 ms before" in run_verdict(run).headline
    # *Since step 57 the hosts could run, and wait for a core: 9.1 ms a step, and 70.2 ms before*
    rows = [
        replace(row, ms=row.others_ms, others_ms=row.ms) if row.name == SINCE_STEP else row for row in first.evidence
    ]
    ended = because(replace(first, evidence=tuple(rows)))
    assert ended.startswith("until step 27 its host could run, and waits for a core")
    assert ended.endswith(": 50.0 ms a step, and 1.0 ms since")


@pytest.mark.parametrize("waits", [range(20, 52, 6), range(49, 52), range(0)])
def test_waits_that_come_now_and_then_have_no_step_since_which_they_do(waits: range, tmp_path: Path) -> None:
    run = _run(tmp_path, {}, {}, dict.fromkeys(waits, 50.0), later_ms=50.0)
    assert run.step_times is not None and run.step_times.core_waits is not None
    assert run.step_times.core_waits.since is None


def test_steps_that_waited_for_cores_in_the_window_alone_say_so(tmp_path: Path) -> None:
    run = _run(tmp_path, {}, {26: 130.0, 27: 130.0}, {26: 120.0, 27: 120.0})
    found = next(one for one in run.findings if is_now_and_then(one))
    assert (found.code, found.rank) == ("unsteady", None)
    assert because(found).endswith(
        "rank 0 computes for 130.0 ms longer, and waits 119.0 ms of that for a core, which others have"
    )


def test_what_computes_for_longer_once_is_not_laid_to_other_work_that_nothing_tells_of(tmp_path: Path) -> None:
    """Three steps of ten computed for 316 ms longer on ranks that waited 5 to 20 ms for cores: *as where other work
    slows a machine for once*.
    """
    run = _run(tmp_path, {}, {26: 130.0, 27: 130.0, 28: 130.0}, {})
    told = run_verdict(run)
    assert "each of steps 26 to 28 took 130.0 ms longer than the job's 49 others" in told.text, told.text
    assert "Rank 0 computes for longer in them, and waits for no core" in told.text, told.text
    assert "other work" not in told.text


def test_what_came_once_is_in_no_part_that_a_comparison_lays_side_by_side(tmp_path: Path) -> None:
    """*In ckpt a step has 29 ms more idle (host late) than in noneA*, of a run in which one step of 42 had 201 ms."""
    for name, still in (("without", {}), ("with", {26: 210.0})):
        _run(tmp_path / name, still, {}, {})
    answer = compare_paths([tmp_path / "without" / "run"], [tmp_path / "with" / "run"])
    late = [one for one in answer.parts if one.name == "idle_launch"]
    assert all(one.within_noise and abs(one.change_ms) < 1.0 for one in late), late
    told = [note for note in answer.notes if "step 26 took 210.0 ms longer on rank 0, once in 52 steps" in note]
    assert told, answer.notes


@pytest.mark.parametrize(("more", "code"), [(0, "unsteady"), (12, "more_work")])
def test_steps_that_run_no_more_operators_for_longer_are_not_said_to_have_more_work(
    more: int, code: str, tmp_path: Path
) -> None:
    """Of one window its traces alone told *more work may cost 94.8 ms*, its run folder *other work slows a machine for
    once*: three steps ran the same 309 operators, which took 2.5 times as long.
    """
    job = GlooJob()
    for number in range(FIRST, FIRST + STEPS):
        long = number in (29, 30, 31)
        job.step(number)
        for at in range(24):
            job.compute(10.0 if long and not more else 3.5, ("aten::linear", "aten::mul", "aten::add")[at % 3])
        if long and more:
            job.compute(156.0, "aten::linear", calls=more)
        job.all_reduce(2.0)
        job.compute(3.0, "aten::lerp_")
    (run,) = analyze([job.write(tmp_path)], jobs=1)
    assert isinstance(run, RunAnalysis)
    found = next(one for one in run.findings if is_now_and_then(one))
    assert (found.code, found.rank) == (code, None)
    told = because(found)
    assert told.startswith("in 3 of 10 profiled steps (29 to 31)"), told
    assert told.endswith("by as many operators as in the others: slower ones, or on more data") == (not more), told
