"""What a job says while it runs: who is late, that steps became longer, and the figures for node_exporter."""

import re
import shutil
import statistics
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from scalescope.launch.sinks import open_sinks
from scalescope.records.folder import RunFolder
from scalescope.records.rows import StepRow
from scalescope.scaling.analyze import analyze_run
from scalescope.train.measure.anomaly import Anomaly, AnomalyWatch
from scalescope.train.measure.lateness import Lateness, LateRank
from scalescope.train.measure.loading import LiveNews, describe_both
from scalescope.train.measure.progress import StepProgress
from scalescope.train.measure.schedule import Schedule, Window
from scalescope.train.script.announce import late
from tests.anomaly_script_job import GROWS_FROM as SCRIPT_GROWS_FROM
from tests.late_rank_job import SLEEP_S, SLEEPS_FROM
from tests.late_script_job import SLEEPS_FROM as SCRIPT_SLEEPS_FROM
from tests.train_runs import FAST, SMALL_GPT
from tests.worlds import run_world

JOB = Path(__file__).resolve().parent / "late_rank_job.py"
SCRIPT = JOB.with_name("late_script_job.py")


def row(step: int, own_ms: list[float], **more: object) -> StepRow:
    plain = StepRow(step=step, phase="steady", step_ms=[20.0] * len(own_ms), samples_per_s=1.0, own_ms=own_ms)
    return msgspec.structs.replace(plain, **more)


def late_after(rows: list[StepRow]) -> LateRank | None:
    lateness = Lateness()
    for one in rows:
        lateness.take(one)
    return lateness.late


def test_a_rank_is_late_that_comes_last_by_a_share_of_the_step_in_most_steps() -> None:
    four = [5.0, 9.0, 5.0, 4.5]
    assert late_after([row(step, four) for step in range(10)]) == LateRank(1, 4.0, 20.0)
    assert late_after([row(step, four) for step in range(9)]) is None  # too few to tell
    assert late_after([row(step, [5.0, 5.5]) for step in range(10)]) is None  # less than a twentieth
    by_turns = [row(step, [9.0, 5.0] if step % 2 else [5.0, 9.0]) for step in range(20)]
    assert late_after(by_turns) is None  # last, but not the same one
    once = [row(step, [5.0, 90.0 if step == 4 else 5.0]) for step in range(10)]
    assert late_after(once) is None


def test_by_a_device_s_clock_who_is_last_may_only_launch_last() -> None:
    """*Rank 0 is 7.8 ms late a step* was said of healthy jobs of two GPUs whose hosts bound the step."""
    news = LiveNews(runs_ahead=True)
    for step in range(10):
        news.take(row(step, [9.6 + step % 2, 2.3], step_ms=[11.5, 11.5]))
    assert news.text == "the others wait 7.8 ms a step for rank 0 (68% of 11.5 ms), which is late or launches last"
    news.told()
    for step in range(10, 40):
        if news.take(row(step, [9.6 + step % 2, 9.6], step_ms=[11.5, 11.5])):
            break
    assert news.text == "the others no longer wait for rank 0"


def test_a_rank_that_merely_waits_for_a_core_is_not_late_and_the_wait_is_said() -> None:
    """*Rank 1 is 40.4 ms late a step* was said of a rank without a core, where the other computed in Python."""
    waits = [54.0, 114.0, 60.0, 97.0, 82.0, 58.0, 91.0, 70.0, 66.0, 76.0]
    rows = [
        row(step, [82.0, 80.0 + ms], step_ms=[200.0, 200.0], run_delay_ms=[5.0, ms + 2.0], own_run_delay_ms=[3.0, ms])
        for step, ms in enumerate(waits)
    ]
    lateness = Lateness()
    for one in rows:
        lateness.take(one)
    assert lateness.late is None and lateness.waits is not None and lateness.is_news(None)
    assert not lateness.is_news(None, lateness.waits)
    told = describe_both(None, None, lateness.waits)
    assert told == "ranks wait 75.0 ms of a step for a core (38% of 200.0 ms)"
    assert late(14, told) == f"step 14: {told}"
    unknown = [msgspec.structs.replace(one, run_delay_ms=[], own_run_delay_ms=[]) for one in rows]
    assert late_after(unknown) == LateRank(1, 71.0, 200.0)  # where nothing tells, own times stand as they are
    both = [msgspec.structs.replace(one, own_ms=[one.own_ms[0] + 30.0, one.own_ms[1]]) for one in rows]
    found = late_after(both)
    assert found is not None and found.rank == 0  # who is late beside that is named


def test_ranks_that_share_cores_are_late_by_no_more_than_their_own_noise() -> None:
    """Of a clean run rank 1 was said to be late, and then rank 0."""
    by_ms = [9.0, 1.0, 11.0, 2.0, 14.0, -3.0, 8.0, 16.0, -1.0, 7.0]  # last in 8 of 10 steps of 100 ms, by 7.5
    noisy = [row(step, [80.0, 80.0 + ms], step_ms=[100.0, 100.0]) for step, ms in enumerate(by_ms)]
    assert late_after(noisy) is None
    surely = [row(step, [80.0, 88.0 + ms / 3], step_ms=[100.0, 100.0]) for step, ms in enumerate(by_ms)]
    found = late_after(surely)
    assert found is not None and found.rank == 1


def test_a_rank_that_is_no_longer_late_is_said_to_be_so_once(capsys: pytest.CaptureFixture[str]) -> None:
    """*Rank 0 is 18.6 ms late a step* stood as the last word of a run in which that was noise of ten steps."""
    news, said = LiveNews(runs_ahead=False), []
    shown = StepProgress("gpt", 60)
    for step in range(60):
        late = step < 20
        one = row(step, [15.0 if late else 5.0, 5.0])
        shown.show(one)
        if news.take(one):
            said.append((step, news.text))
            news.told()
    assert said[0][1] == "rank 0 is 10.0 ms late a step (50% of 20.0 ms)"
    assert [text for _, text in said[1:]] == ["rank 0 is no longer late"]
    assert 34 <= said[1][0] <= 45, "it is gone for as long as it was there"
    lines = capsys.readouterr().out.splitlines()
    assert sum("is no longer late" in line for line in lines) == 1
    assert next(line for line in lines if "rank 0" in line).endswith("rank 0 is 10.0 ms late a step (50% of 20.0 ms)")


#: By how much rank 0 came later than rank 1, ms, in 46 steps of 70 ms of two ranks on two cores that do the same.
CLEAN_MS = (
    0, 7, 2, -8, 1, 1, 1, 2, 1, -11, -10, -14, -13, -1, -5, 11, 7, 1, 3, 9, 7, 0, 11, 9, 10, 9, 4, 6, 17, 7, 5, 7,
    9, 7, 6, 3, 3, 6, 15, 13, 8, 14, 10, 13, 9, 12,
)  # fmt: skip
#: … and rank 1 than rank 0, where its loader sleeps 12 ms in each step.
LOADER_MS = (
    5, 8, 13, 25, 12, 21, 15, 22, 11, 3, 7, 16, 2, 10, 13, 16, 15, 14, 14, 13, 14, 13, 14, 20, 12, 16, 10, 5, 12, 8,
    11, 14, 19, 14, 5, 15, 13, 15, 11, 12, 13, 11, 14, 15, 13, 14,
)  # fmt: skip


def said_of(by_ms: Sequence[float]) -> list[str]:
    """Return what is said of two ranks the first of which comes later by so much in each step of 70 ms."""
    news, said = LiveNews(runs_ahead=False), []
    for step, ms in enumerate(by_ms):
        if news.take(row(step, [40.0 + max(ms, 0), 40.0 - min(ms, 0)], step_ms=[70.0, 70.0])):
            said.append(news.text)
            news.told()
    return said


def test_what_clean_steps_differ_by_names_nobody_and_what_a_rank_is_late_by_does() -> None:
    """*Rank 0 is 8.1 ms late a step* was said of ten of these, and never taken back."""
    assert said_of(CLEAN_MS) == []
    assert [re.sub(r" is .*", "", one) for one in said_of(LOADER_MS)] == ["rank 0"]
    later = said_of([*CLEAN_MS, *(ms + 20.0 for ms in CLEAN_MS[:20])])
    assert [re.sub(r" is .*", "", one) for one in later] == ["rank 0"], "after so many calm steps, too"


#: By how much rank 0, which sorts what a hook of its own keeps in each step, came later than rank 1, ms, of two ranks
#: whose loaders' workers take their cores by turns: in steps 5 to 18 and 33 to 59 of a job of 60.
HOOKED_MS = (
    49, 29, 31, 26, 37, 34, 37, -4, 34, 37, 30, 30, 31, 24, 32, 18, 26, 31, 25, 24, 2, 26, 31, 45, 65, 1, 51, 100, 78,
    18, -10, -5, -7, 59, 36, -23, -18, -20, 22, 25, 20, 28,
)  # fmt: skip


def test_a_few_noisy_steps_end_no_lateness_that_held_for_many() -> None:
    """*Rank 0 is no longer late* was the last word of a run whose end named rank 0, which was late throughout."""
    said = said_of(HOOKED_MS)
    assert [re.sub(r" is .*", "", one) for one in said] == ["rank 0"] and "no longer" not in said[0]
    gone = said_of([*HOOKED_MS, *(5 * (step % 2) for step in range(60))])
    assert gone[-1] == "rank 0 is no longer late", "where it is gone for as long, it is said"


def test_what_was_said_is_taken_back_where_all_later_steps_make_it_chance() -> None:
    """Later by half of that in the median of ten, and earlier by far in the others."""
    by_turns = [9.0, -40.0, 12.0, 8.0, -35.0, 9.0, -44.0, 9.0, 8.0, 10.0]
    said = said_of([15.0 + step % 2 for step in range(10)] + 5 * by_turns)
    assert said[0].startswith("rank 0 is 15.5 ms late a step") and said[1:] == ["rank 0 is no longer late"]


def test_a_rank_that_is_late_by_somewhat_less_is_not_taken_back() -> None:
    news, said = LiveNews(runs_ahead=False), []
    for step in range(40):
        if news.take(row(step, [15.0 if step < 15 else 5.0 + (step % 2) * 11.0, 5.0])):
            said.append(news.text)
            news.told()
    assert said == ["rank 0 is 10.0 ms late a step (50% of 20.0 ms)"], "half of it is left, now more and now less"


def test_steps_that_tell_nothing_are_passed_over() -> None:
    late = [5.0, 9.0]
    assert late_after([row(step, late, phase="warmup") for step in range(10)]) is None
    assert late_after([row(step, late, synchronised=False) for step in range(10)]) is None
    assert late_after([row(step, [9.0]) for step in range(10)]) is None


def test_a_step_that_noise_made_a_little_longer_is_not_the_first_of_the_long_ones() -> None:
    watch = AnomalyWatch(500)
    times = {29: 35.0, 30: 134.0, 31: 125.0, 32: 123.0}  # as on a loaded machine
    found = [one for step in range(33) if (one := watch.take(step, times.get(step, 25.0)))]
    assert found == [Anomaly(30, 125.0, 25.0)]


def test_three_long_steps_in_a_row_are_an_anomaly_and_then_the_watch_is_silent() -> None:
    watch = AnomalyWatch(every=100)
    lengths = [10.0] * 20 + [30.0] + [10.0] * 5 + [12.5, 13.0, 12.4] + [12.5] * 60 + [20.0] * 60
    found = [one for step, ms in enumerate(lengths) if (one := watch.take(step, ms)) is not None]
    assert found[0] == Anomaly(since=26, step_ms=12.5, level_ms=10.0)  # the single long step at 20 is none
    assert len(found) == 1  # the one at 89 lies within 100 steps, and by 128 it has become the level


def test_a_window_more_lies_before_the_others_and_before_the_end() -> None:
    schedule = Schedule(100, 10, (Window(90, 92, 95),))
    longer = schedule.with_window(Window(40, 42, 45))
    assert longer is not None and longer.phase(41) == "profile" and longer.phase(45) == "steady"
    assert schedule.with_window(Window(91, 93, 96)) is None  # begun inside of another
    assert schedule.with_window(Window(88, 89, 91)) is None and schedule.with_window(Window(96, 98, 101)) is None


@pytest.fixture(scope="module")
def late_job(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, str]:
    """Two ranks, of which one sleeps 100 ms in each step from the 30th on; a step without takes some 10 ms."""
    runs = tmp_path_factory.mktemp("late")
    done = run_world(2, [
        str(JOB), "train", f"runs={runs}", "name=late", *SMALL_GPT, *FAST, "logger=prometheus", "steps=84",
        "warmup_steps=5", "data.validation_samples=0", "profiler.on_anomaly=true", "profiler.warmup=1",
        "profiler.active=2", "profiler.anomaly_every=10",  # noise may have opened one before
    ])  # fmt: skip
    assert done.returncode == 0, done.stderr
    return RunFolder(runs / "late"), done.stdout


@pytest.mark.job
def test_a_late_rank_is_said_live_and_in_every_row(late_job: tuple[RunFolder, str]) -> None:
    folder, said = late_job
    told = re.findall(r"step (\d+)/84.*rank 1 is ([\d.,]+) ms late a step", said)
    late_ms = [float(ms.replace(",", "")) for step, ms in told if SLEEPS_FROM < int(step) < 84]
    assert late_ms and max(late_ms) > 500 * SLEEP_S, said
    rows = [one for one in folder.read_steps() if one.step >= SLEEPS_FROM and one.phase == "steady"]
    assert rows and all(one.own_ms[1] > 1e3 * SLEEP_S for one in rows)


@pytest.mark.job
def test_steps_that_became_longer_open_a_window_whose_trace_shows_why(
    late_job: tuple[RunFolder, str], tmp_path: Path
) -> None:
    folder, said = late_job
    told = re.findall(r"since step \d+ steps take .* were usual: recording steps (\d+) to \d+", said)
    late = [first for first in map(int, told) if first > SLEEPS_FROM]
    assert late, said
    assert all(folder.trace_of(rank, late[0]).is_file() for rank in (0, 1))
    recording = folder.read_recording()
    assert recording is not None
    (why,) = (one.longer for one in recording.windows if one.steps[0] == late[0])
    assert why is not None and why.step_ms > 1.2 * why.level_ms and why.since < late[0]
    at_the_end = max(folder.find_traces()[0])
    assert at_the_end != folder.trace_of(0, late[0])
    # the window by itself: noise may have opened another one before any rank slept, which holds no such thing
    for rank in (0, 1):
        shutil.copy(folder.trace_of(rank, late[0]), tmp_path)
    found = analyze_run(tmp_path)
    assert any((one.rank, one.code) == (1, "host_stall") for one in found.findings), found.findings
    # what it costs depends on what else delays the other rank; that it sleeps does not
    assert max(one.idle_launch_ms for one in found.steps if one.rank == 1) > 900 * SLEEP_S


@pytest.mark.job
def test_the_figures_lie_in_a_file_for_node_exporter(late_job: tuple[RunFolder, str]) -> None:
    folder, _ = late_job
    text = (folder.path / "scalescope.prom").read_text()
    samples = dict(re.findall(r'^(\w+)\{[^}]*run="late"[^}]*\} (\S+)$', text, re.MULTILINE))
    assert samples["scalescope_steps_total"] == "84" and samples["scalescope_running"] == "0"
    assert float(samples["scalescope_samples_per_second"]) > 0
    assert len(re.findall(r"^scalescope_rank_own_duration_seconds\{.*rank=", text, re.MULTILINE)) == 2
    for name in samples:
        assert f"# TYPE {name} " in text and f"# HELP {name} " in text
    assert [path.name for path in folder.path.glob("*.prom*")] == ["scalescope.prom"]


def test_a_file_that_node_exporter_would_not_read_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder.create(tmp_path / "run", "train", "seed: 1\n")
    open_sinks({"prometheus": {"file": "metrics.txt", "write_every_s": 5}}, folder)
    assert "left out: file=metrics.txt: node_exporter reads files that end in .prom" in capsys.readouterr().err


@pytest.mark.job
def test_a_loop_of_ones_own_records_by_itself_why_its_steps_became_longer(tmp_path: Path) -> None:
    """Rank 1 sleeps 100 ms in each step from the 30th on; by then no window is left in the schedule."""
    done = run_world(2, [str(JOB.with_name("anomaly_script_job.py")), str(tmp_path)])
    assert done.returncode == 0, done.stderr
    told = re.findall(r"since step (\d+) steps take ([\d.,]+) ms, .* usual: recording steps (\d+) to \d+", done.stderr)
    # later by up to ten steps where noise has opened a window right before
    opened, *_ = [int(first) for since, ms, first in told if 0 <= int(since) - SCRIPT_GROWS_FROM <= 10]
    late = re.findall(r"step (\d+): rank (\d) is ([\d.,]+) ms late a step", done.stderr)
    assert {rank for step, rank, _ in late if int(step) > SCRIPT_GROWS_FROM} == {"1"}, done.stderr
    folder = RunFolder(tmp_path / "grown")
    assert all(folder.trace_of(rank, opened).is_file() for rank in (0, 1)), done.stderr
    phases = {row.step: row.phase for row in folder.read_steps()}
    assert phases[opened] == "profile" and phases[opened - 9] == "steady"
    for before in set(folder.traces.iterdir()) - {folder.trace_of(rank, opened) for rank in (0, 1)}:
        before.unlink()
    (finding,) = [one for one in analyze_run(folder.traces).findings if one.rank == 1 and one.code == "host_stall"]
    assert finding.ms == pytest.approx(1e3 * SLEEP_S, rel=0.3)


@pytest.mark.job
def test_a_loop_of_ones_own_says_who_is_late_also_in_the_midst_of_the_backward_pass(tmp_path: Path) -> None:
    done = run_world(2, [str(SCRIPT), str(tmp_path)])
    assert done.returncode == 0, done.stderr
    told = re.findall(r"scalescope: step (\d+): rank (\d) is ([\d.,]+) ms late a step", done.stderr)
    late_ms = {rank: float(ms) for step, rank, ms in told if int(step) > SCRIPT_SLEEPS_FROM}
    assert late_ms.keys() == {"1"} and late_ms["1"] > 200 * SLEEP_S, done.stderr
    rows = [row for row in RunFolder(tmp_path / "late").read_steps() if row.step > SCRIPT_SLEEPS_FROM]
    assert len(rows) > 20 and sum(bool(row.own_ms) for row in rows) > 10
    rows = [row for row in rows if row.own_ms]
    assert all(row.own_ms[1] > 1e3 * SLEEP_S > row.own_ms[1] - row.step_ms[1] for row in rows)
    apart = statistics.median(row.own_ms[1] - row.own_ms[0] for row in rows)
    assert apart > 500 * SLEEP_S, "the other rank waits, which is none of its own time"
