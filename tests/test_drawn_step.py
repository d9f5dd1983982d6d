"""The step that a page draws shows what is told first, wherever that is; its caption says which step it is, and why."""

import shutil
from pathlib import Path

from msgspec.structs import replace

from scalescope.records.rows import StepRow
from scalescope.report.timeline.drawn import timeline_sentence
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze, analyze_against, analyze_alone
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.step_timeline import StepTimeline
from tests.gloo_traces import GlooJob
from tests.report_samples import run_with_traces


def _window(
    path: Path, steps: range, *, save_ms: float = 0.0, late_ms: float = 0.0, other_late_ms: float = 0.0
) -> Path:
    """Write a window of which rank 0 writes for `save_ms` at the end of every 6th step, and rank 1 sleeps in each.

    `other_late_ms`: for how much longer rank 1 computes in those that save.
    """
    job = GlooJob()
    for number in steps:
        job.step(number)
        job.sleep(1, late_ms)
        for at in range(24):
            job.compute(3.5, ("aten::linear", "aten::gelu", "aten::mul", "aten::add")[at % 4])
        if other_late_ms and number % 6 == 5:
            job.compute(other_late_ms, rank=1)
        job.all_reduce(2.0 + number % 3 / 10)
        job.compute(3.0, "aten::lerp_")
        if number % 6 == 5:
            job.sleep(0, save_ms)
    return job.write(path)


def _drawn(path: Path, windows: list[Path], *, save_ms: float = 0.0) -> tuple[RunAnalysis, StepTimeline]:
    """Return the answer of a run whose windows begin ten steps apart from step 22 on, and the step that it draws."""
    folder, recorded = run_with_traces(path / "run", windows[0])
    for at, window in enumerate(windows[1:], 1):
        for trace in window.glob("rank*.json.gz"):
            shutil.copy(trace, folder.trace_of(int(trace.name[4]), 30 + 10 * at))
        recorded |= {step + 20 * at for step in recorded}
    with folder.step_writer() as writer:
        for step in range(90):
            phase = "profile" if step in recorded else "steady"
            ms = [92.0 + step % 2 / 5 + save_ms * (step % 6 == 5), 92.0 + save_ms * (step % 6 == 0)]
            writer.append(StepRow(step=step, phase=phase, step_ms=ms, samples_per_s=1.0))  # type: ignore[arg-type]
    (answer,) = analyze([folder.path], jobs=1)
    assert isinstance(answer, RunAnalysis) and answer.timeline is not None
    return answer, answer.timeline


def test_a_step_that_saves_is_drawn_where_that_is_told_first(tmp_path: Path) -> None:
    """The one nearest the median showed nothing of the checkpoint that the page began with."""
    answer, drawn = _drawn(tmp_path, [_window(tmp_path / "traces", range(22, 32), save_ms=120.0)], save_ms=120.0)
    assert answer.recurring is not None and drawn.step % 6 == 5
    assert {one.rank for one in drawn.ranks if "late" in one.why} == {0}
    said = "is drawn since it shows what makes every 6th step longer, which is told first: 2 of 8 steps"
    whose = "209.4 ms on rank 0 and 89.4 ms on rank 1"  # before, 149.4 ms: the mean of the two, and no rank's step
    assert timeline_sentence(drawn).startswith(f"Step {drawn.step}, {whose} with recording, {said}")
    median = "that all ranks recorded whole do; the median of all is 89.3 ms, in the mean of the ranks. Both ranks"
    assert median in timeline_sentence(drawn)


def test_who_makes_the_drawn_step_longer_is_said_also_where_it_waits_for_another_in_it(tmp_path: Path) -> None:
    """*Nothing sets it apart* stood under both ranks of a step that was drawn for what rank 0 does at its end."""
    window = _window(tmp_path / "traces", range(22, 32), save_ms=120.0, other_late_ms=6.0)
    answer, drawn = _drawn(tmp_path, [window], save_ms=120.0)
    assert answer.recurring is not None and answer.recurring.rank == 0 and drawn.step % 6 == 5
    assert [one.why for one in drawn.ranks] == [["cause"], []]
    assert timeline_sentence(drawn).endswith("Both ranks are drawn; rank 0 makes it longer.")


def test_the_length_of_a_drawn_step_is_one_where_ranks_are_alike_and_of_many_the_ends(tmp_path: Path) -> None:
    _, drawn = _drawn(tmp_path, [_window(tmp_path / "traces", range(22, 32))])
    mean = f"Step {drawn.step}, {drawn.step_ms:.1f} ms with recording: "
    assert timeline_sentence(drawn).startswith(mean)
    lengths = {0: 100_000_000, 1: 140_000_000, 2: 105_000_000}
    ranks = [replace(drawn.ranks[0], rank=rank, length=length) for rank, length in lengths.items()]
    apart = timeline_sentence(replace(drawn, ranks=ranks, step_ms=115.0))
    assert apart.startswith(f"Step {drawn.step}, from 100.0 ms on rank 0 to 140.0 ms on rank 1 with recording: ")


def test_a_step_that_saves_is_drawn_of_the_window_that_met_one(tmp_path: Path) -> None:
    windows = [
        _window(tmp_path / "first", range(24, 29)),
        _window(tmp_path / "second", range(44, 49), save_ms=120.0),
    ]
    _, drawn = _drawn(tmp_path, windows, save_ms=120.0)
    assert (drawn.step, drawn.shows, drawn.every) == (47, "recurring", 6)


def test_a_step_is_drawn_of_the_window_that_holds_what_is_told_first(tmp_path: Path) -> None:
    windows = [_window(tmp_path / "first", range(24, 29)), _window(tmp_path / "second", range(44, 49), late_ms=40.0)]
    answer, drawn = _drawn(tmp_path, windows)
    assert answer.findings[0].rank == 1 and drawn.step >= 44
    assert timeline_sentence(drawn).count("in a window that shows what is told first") == 1


def test_a_typical_step_is_drawn_where_every_step_shows_what_is_told_first(tmp_path: Path) -> None:
    answer, drawn = _drawn(tmp_path, [_window(tmp_path / "traces", range(22, 32), late_ms=30.0)])
    assert answer.findings[0].rank == 1 and drawn.shows == "typical"
    assert "the nearest to their median" in timeline_sentence(drawn)


def _asleep_now_and_then(folder: Path, asleep: tuple[int, int], sort_ms: float) -> Path:
    """Write a window in which rank 1 sleeps in two steps, and rank 0 sorts something in each."""
    job = GlooJob()
    for number in range(22, 32):
        job.step(number)
        job.compute(30.0 + number % 3, calls=10)
        job.sleep(1, 40.0 if number in asleep else 0.0)
        if sort_ms:
            job.compute(sort_ms, "aten::sort", rank=0)
        job.compute(30.0, "aten::gelu", calls=10)
        job.all_reduce(2.0)
    return job.write(folder)


def test_beside_a_reference_a_step_is_drawn_that_shows_what_is_told_first_of_its_own_steps(tmp_path: Path) -> None:
    """Of a sort in every step, which the reference has none of, any step shows as much: what its own steps tell first
    is in two of them, and the page says which of the two it draws.
    """
    run, reference = (
        _asleep_now_and_then(tmp_path / name, asleep, ms)
        for name, asleep, ms in (("run", (25, 29), 6.0), ("reference", (23, 28), 0.0))
    )
    alone, beside = analyze_alone(run), analyze_against(run, [reference])
    assert alone.findings[0].code == "host_stall" and beside.findings[0].code == "host_stall"
    assert alone.timeline is not None and beside.timeline is not None
    assert (alone.timeline.step, alone.timeline.shows) == (25, "some_steps")
    assert (beside.timeline.step, beside.timeline.shows) == (25, "some_steps")
    assert ": in “run”, and not in “reference”, rank 0" in run_verdict(beside).headline
    assert "what is told first, which is in some steps alone" in timeline_sentence(alone.timeline)
    # where the comparison leads, what is drawn is first of what the run's own steps tell
    assert "what is told first of its own steps, which" in timeline_sentence(alone.timeline, beside=True)
