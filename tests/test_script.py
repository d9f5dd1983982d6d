"""A training loop that is not ours, under `profile_steps`: measured in full, and never disturbed."""

import gzip
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median

import msgspec
import pytest
import torch

from scalescope import profile_steps
from scalescope.hardware.detect import describe
from scalescope.records.folder import RunFolder, find_runs
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze, analyze_run
from scalescope.scaling.answer import RunAnalysis, read_run_answer
from scalescope.scaling.study_answer import StudyAnalysis
from scalescope.scaling.trace.header import Header
from scalescope.train.measure.schedule import Window
from scalescope.train.script import announce
from scalescope.train.script.config import script_config
from scalescope.train.script.exchange import Lap, Message
from scalescope.train.script.membership import Membership
from scalescope.train.script.run_recorder import RunRecorder
from tests.made_once import made_once

TESTS = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
QUICK = {"wait": 3, "warmup": 1, "active": 2, "warmup_steps": 1, "analyze": False}


def call(cwd: Path, *argv: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return subprocess.run(
        argv, cwd=cwd, env={**environment, "OMP_NUM_THREADS": "1", **variables}, capture_output=True, text=True,
        timeout=180, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Their folder, with their modules of our names, after they have trained on one rank and on two."""
    return made_once(tmp_path_factory, "theirs", _train)


def _train(folder: Path) -> None:
    shutil.copy(TESTS / "own_train.py", folder / "train.py")
    for name in ("records", "hardware", "report", "collectives", "verbs"):
        (folder / f"{name}.py").write_text("WHOSE = 'theirs'\n")
    for name in ("launch", "scaling"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("WHOSE = 'theirs'\n")
    for command in (
        [sys.executable, "train.py", "1"],
        [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", "2", "train.py", "2"],
    ):
        done = call(folder, *command, PYTHONPATH=str(folder))
        assert done.returncode == 0, done.stderr


@pytest.mark.job
def test_beside_modules_of_our_names_each_side_gets_its_own(theirs: Path) -> None:
    run = RunFolder(theirs / "runs" / "scaling" / "own-n2")
    info = run.read_info()
    assert (info.status, info.world_size, info.launcher, info.backend) == ("done", 2, "torchrun", "gloo")
    assert sorted(device.rank for device in info.devices) == [0, 1]
    assert run.find_traces().keys() == {0, 1} and run.report.is_file()
    quality = read_run_answer(run.analysis).quality
    assert quality.verdict == ("degraded" if quality.unsteady else "good")


@pytest.mark.job
def test_every_step_has_a_row_with_every_ranks_time_and_what_the_script_told(theirs: Path) -> None:
    rows = RunFolder(theirs / "runs" / "scaling" / "own-n2").read_steps()
    assert [row.step for row in rows] == list(range(14))
    assert "".join(row.phase[0] for row in rows) == "ww" + "ssssss" + "pppp" + "ss"  # the step after a window, too
    for row in rows:
        assert len(row.step_ms) == 2 and min(row.step_ms) > 0
        assert row.samples_per_s == pytest.approx(8 / row.length_ms * 1e3)
        assert row.tokens_per_s == pytest.approx(row.samples_per_s * 8)
    losses = [row.loss for row in rows if row.loss is not None]
    assert len(losses) == 14 and losses[-1] < losses[0]


@pytest.mark.job
def test_runs_at_several_counts_are_compared_as_a_study_is(theirs: Path) -> None:
    study, *runs = analyze([theirs / "runs" / "scaling"])
    assert isinstance(study, StudyAnalysis) and len(runs) == 2
    assert [(point.series, point.world_size, point.scaling) for point in study.efficiency] == [
        ("own", 1, "weak"),
        ("own", 2, "weak"),
    ]
    (fall,) = study.waterfall
    assert fall.growth_ms == pytest.approx(sum(part.ms for part in fall.parts))


@pytest.mark.job
def test_the_example_in_the_docs_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(TESTS.parent / "docs" / "examples" / "own_loop.py"))
    (run,) = find_runs(tmp_path)
    assert len(run.read_steps()) == 64 and run.report.is_file()
    (rank,) = read_run_answer(run.analysis).ranks
    assert rank.steps == 10 and rank.idle_data_ms > 0  # its DataLoader is seen


@pytest.mark.job
def test_a_script_without_a_process_group_is_one_run_under_mpirun(tmp_path: Path) -> None:
    """And it ends with the process where nobody closes it; what the launcher says is left as it was."""
    if shutil.which("mpirun", path=str(BIN)) is None:
        pytest.skip("no mpirun beside this Python")
    (tmp_path / "loop.py").write_text(
        "import os, torch, scalescope\n"
        f"profile = scalescope.profile_steps('bare', **{QUICK}).start()\n"
        "for step in range(10):\n"
        "    profile.step(torch.ones(8, 8).sum())\n"
        "assert 'MASTER_ADDR' not in os.environ and 'WORLD_SIZE' not in os.environ\n"
    )
    done = call(tmp_path, str(BIN / "mpirun"), "-n", "2", sys.executable, "loop.py")
    assert done.returncode == 0, done.stderr
    (run,) = find_runs(tmp_path)
    info = run.read_info()
    assert (info.status, info.world_size, info.launcher) == ("done", 2, "mpi")
    assert [len(row.step_ms) for row in run.read_steps()] == [2] * 10
    assert run.find_traces().keys() == {0, 1}


@pytest.mark.job
def test_an_error_without_a_with_is_noted_at_the_end_of_the_process(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(
        "import torch, scalescope\n"
        "profile = scalescope.profile_steps('raises', name='raises').start()\n"
        "for step in range(10):\n"
        "    profile.step(1.0)\n"
        "raise ValueError('theirs')\n"
    )
    done = call(tmp_path, sys.executable, "loop.py")
    assert done.returncode == 1 and "ValueError: theirs" in done.stderr
    run = RunFolder(tmp_path / "runs" / "raises")
    assert (run.read_info().status, run.read_info().message) == ("failed", "ValueError: theirs")
    assert len(run.read_steps()) == 10


def work() -> torch.Tensor:
    return (torch.ones(32, 32) @ torch.ones(32, 32)).mean()


def steps_of(run: RunFolder) -> list[int]:
    return [row.step for row in run.read_steps()]


def traced(run: RunFolder) -> RunAnalysis:
    (answer,) = analyze([run.path])
    assert isinstance(answer, RunAnalysis)
    return answer


def test_an_error_in_the_loop_passes_through_and_what_was_measured_stays(tmp_path: Path) -> None:
    error = KeyError("theirs")
    with pytest.raises(KeyError) as caught, profile_steps("raises", name="r", runs=tmp_path, **QUICK) as profile:
        for step in range(20):
            if step == 12:
                raise error
            profile.step(work())
    assert caught.value is error
    run = RunFolder(tmp_path / "r")
    assert (run.read_info().status, run.read_info().message) == ("failed", "KeyError: 'theirs'")
    assert steps_of(run) == list(range(12))
    assert list(run.find_traces()) == [0]


@pytest.mark.parametrize(("taken", "kept"), [(5, 1), (4, 0), (3, 0), (1, 0)])
def test_a_loop_that_ends_inside_the_window_keeps_its_whole_steps(taken: int, kept: int, tmp_path: Path) -> None:
    """The window records steps 4 and 5; the profiler's next use is undisturbed by one that was broken off."""
    with profile_steps("short", name="short", runs=tmp_path, **QUICK) as profile:
        for _ in range(taken):
            profile.step(work())
    run = RunFolder(tmp_path / "short")
    assert steps_of(run) == list(range(taken)) and run.read_info().status == "done"
    assert [rank.steps for rank in traced(run).ranks] == [kept] * bool(kept)

    with profile_steps("next", name="next", runs=tmp_path, **QUICK) as profile:
        for _ in range(8):
            profile.step(work())
    assert [rank.steps for rank in traced(RunFolder(tmp_path / "next")).ranks] == [2]


def test_of_two_loops_one_inside_the_other_the_first_to_record_has_the_trace(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with profile_steps("outer", name="outer", runs=tmp_path, **QUICK) as outer:
        for step in range(8):
            if step == 4:
                with profile_steps("inner", name="inner", runs=tmp_path, **QUICK) as inner:
                    for _ in range(8):
                        inner.step(work())
            outer.step(work())
    assert steps_of(RunFolder(tmp_path / "inner")) == steps_of(RunFolder(tmp_path / "outer")) == list(range(8))
    assert RunFolder(tmp_path / "inner").find_traces() == {}
    assert "no trace of steps 4 to 5: another profiler is recording" in capfd.readouterr().err
    assert [rank.steps for rank in traced(RunFolder(tmp_path / "outer")).ranks] == [2]


def test_the_users_own_profiler_goes_first(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with torch.profiler.profile() as own, profile_steps("own", name="own", runs=tmp_path, **QUICK) as profile:
        for _ in range(8):
            profile.step(work())
    assert any(event.key == "aten::mm" for event in own.key_averages())
    assert steps_of(RunFolder(tmp_path / "own")) == list(range(8))
    assert "another profiler is recording" in capfd.readouterr().err


def test_windows_repeat_and_keep_beside_each_other(tmp_path: Path) -> None:
    settings = {**QUICK, "wait": 5}
    with profile_steps("again", name="again", runs=tmp_path, repeat=2, first_step=100, **settings) as profile:
        for _ in range(22):
            profile.step(work())
    run = RunFolder(tmp_path / "again")
    assert steps_of(run)[0] == 100
    assert [path.name for path in run.find_traces()[0]] == [f"rank0.{s}.pt.trace.json.gz" for s in (106, 114)]

    facts = run.read_recording()
    assert facts is not None and [one.steps for one in facts.windows] == [[106, 107], [114, 115]]
    (bursts,) = facts.bursts
    assert bursts.operator_ns > 0
    lengths = {row.step: row.length_ms for row in run.read_steps()}
    for window, before in zip(facts.windows, (range(101, 105), range(109, 113)), strict=True):
        assert window.before is not None and window.before.count == 4, (
            "not the step that waits for traces to be written"
        )
        assert window.before.median_ms == pytest.approx(median(lengths[step] for step in before))
        trace = msgspec.json.decode(gzip.decompress(run.trace_of(0, window.steps[0]).read_bytes()), type=Header)
        assert trace.own.window is not None and trace.own.window.before == window.before
        assert trace.own.bursts == bursts, "measured once"


def test_a_name_that_is_taken_is_never_written_again_and_the_next_one_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    for _ in range(2):
        with profile_steps("twice", name="twice", runs=tmp_path, **QUICK) as profile:
            profile.step()
        said.append(capsys.readouterr().err)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["twice", "twice-2"]
    assert RunFolder(tmp_path / "twice-2").read_steps()[0].loss is None
    assert "already" not in said[0] and "there is a run twice already, so this one is twice-2" in said[1]


def test_what_will_be_recorded_and_analysed_is_said_when_the_loop_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with profile_steps("later", name="later", runs=tmp_path, **QUICK) as profile:
        for _ in range(2):
            profile.step()
        begun = capsys.readouterr().err
    assert "steps 4 to 5 are recorded; nothing is analysed at the end (analyze=False)" in begun
    run = RunFolder(tmp_path / "later")
    assert f"scalescope analyze {run.path} says where the time went" in capsys.readouterr().err
    assert not run.report.exists()
    told = announce.plan([Window(3, 4, 6), Window(9, 10, 12)], run.path, analyze=True)
    assert told.startswith("steps 4 to 5, 10 to 11 are recorded; when the loop has ended, rank 0 analyses them")
    assert announce.plan([], run.path, analyze=True).startswith("no step is recorded")
    run.traces.mkdir()
    for rank in range(2):
        run.trace_of(rank, 4).write_bytes(b" " * (10 << 20))
    assert announce.analysis(run) == "analysing 2 traces of 20.0 MiB, about 8 s"


@pytest.mark.parametrize(("taken", "recorded"), [(2, False), (4, False), (5, True)])
def test_a_loop_that_ends_before_its_window_says_so_and_how_one_is_recorded(
    taken: int, recorded: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with profile_steps("brief", name="brief", runs=tmp_path, **QUICK) as profile:
        for _ in range(taken):
            profile.step(work())
    told = f"nothing was recorded: the loop ended at step {taken}, before steps 4 to 5. Let it go on to step 6, or"
    assert (told in capsys.readouterr().err) != recorded


def test_a_loop_stopped_before_its_window_says_so_and_so_does_its_analysis(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Before, the profiler that was on was to be put on, and an analysis was advised that could tell nothing."""
    with (
        pytest.raises(KeyboardInterrupt),
        profile_steps("tiny", samples=1, runs=str(tmp_path), name="one", warmup_steps=1) as profile,
    ):
        for _ in range(22):  # steps 0 to 21
            profile.step(1.0)
        raise KeyboardInterrupt
    said = capfd.readouterr().err
    assert "ended after step 21, and step 22 is the first that is recorded" in said
    assert "wait=2, warmup=1" in said and "scalescope analyze" not in said.splitlines()[-1]
    run = analyze_run(RunFolder(tmp_path / "one"))
    verdict = run_verdict(run)
    told = " ".join((verdict.headline, *verdict.sentences, *verdict.notes))
    assert "the last step was 21 and step 22 is the first that is recorded" in told
    assert "unusable" not in told and "profiler on" not in told and "profiler=none" not in told


def test_a_loop_stopped_before_the_earliest_window_is_told_no_earlier_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        profile_steps("tiny", samples=1, runs=str(tmp_path), name="one", warmup_steps=1, wait=2, warmup=1) as profile,
    ):
        profile.step(1.0)
        raise KeyboardInterrupt
    said = capfd.readouterr().err
    assert "step 3 is the first that is recorded" in said and "wait=2" not in said
    reason = analyze_run(RunFolder(tmp_path / "one")).quality.reasons[0]
    assert "step 3 is the first that is recorded" in reason and "wait=2" not in reason


def test_where_no_folder_can_be_made_the_loop_goes_on(capfd: pytest.CaptureFixture[str]) -> None:
    done = 0
    with profile_steps("nowhere", runs="/proc/nowhere", **QUICK) as profile:
        for _ in range(8):
            profile.step(work())
            done += 1
    assert done == 8
    said = capfd.readouterr().err
    assert said.count("scalescope:") == 1 and "cannot make the run folder /proc/nowhere" in said


def test_a_trace_that_cannot_be_written_costs_the_trace_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with profile_steps("full", name="full", runs=tmp_path, **QUICK) as profile:
        for step in range(8):
            profile.step(work())
            if step == 0:
                (tmp_path / "full" / "traces").touch()  # to the export, that is a full disk
    assert steps_of(RunFolder(tmp_path / "full")) == list(range(8))
    assert RunFolder(tmp_path / "full").read_info().status == "done"
    assert "a trace could not be written" in capfd.readouterr().err


@pytest.mark.job
def test_it_logs_to_wandb_beside_a_run_of_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(
        "import wandb\n"
        "from scalescope import profile_steps\n"
        "mine = wandb.init(mode='offline', dir='mine', project='mine')\n"
        f"settings = {QUICK | {'logger': {'wandb': {'system_metrics': False}}}}\n"
        "with profile_steps('logged', name='logged', **settings) as profile:\n"
        "    for step in range(4):\n"
        "        profile.step(1.0)\n"
        "        mine.log({'mine': step})\n"
        "assert wandb.run is mine\n"
        "mine.log({'mine': 4})\n"
    )
    (tmp_path / "mine").mkdir()
    done = call(tmp_path, sys.executable, "loop.py", WANDB_SILENT="true", WANDB_ERROR_REPORTING="false")
    assert done.returncode == 0, done.stderr
    ours = list((tmp_path / "runs" / "logged" / "wandb").glob("offline-run-*/*.wandb"))
    theirs = list((tmp_path / "mine" / "wandb").glob("offline-run-*/*.wandb"))
    assert len(ours) == len(theirs) == 1
    assert b"train/loss" in ours[0].read_bytes() and b"train/loss" not in theirs[0].read_bytes()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"wiat": 3}, "did you mean wait"),
        ({"samples": "many"}, "samples"),
        ({"wait": 0}, "wait must be at least 1"),
        ({"logger": "wand"}, "choose one of"),
        ({"logger": {"wandb": {"modus": "offline"}}}, "has no 'modus'"),
    ],
)
def test_what_cannot_be_is_refused_before_the_loop_begins(settings: dict[str, object], says: str) -> None:
    with pytest.raises(Exception, match=says):
        profile_steps("wrong", **settings)


def test_ranks_that_are_told_different_numbers_of_samples_are_counted_each_by_its_own(tmp_path: Path) -> None:
    """A rank with a larger batch than rank 0 had its samples left out of the throughput."""
    config, text = script_config("uneven", {"samples": 128, "runs": tmp_path, "name": "uneven", "logger": "none"})
    membership = Membership(0, 2, "torchrun", "gloo", torch.device("cpu"), torch.distributed.HashStore())
    recorder = RunRecorder(config, text, membership, describe(0, membership.device), lambda _: "steady", lambda _: None)
    recorder.take([Message(1, device=describe(1, membership.device), samples=192)])
    recorder.take([Message(rank, [Lap(step, 100.0, 1.0) for step in range(3)], ended=True) for rank in (0, 1)])
    remarks = recorder.end("done", None)
    run = RunFolder(tmp_path / "uneven")
    assert [row.samples_per_s for row in run.read_steps()] == pytest.approx([3200.0] * 3)
    facts = run.read_facts()
    assert facts is not None and (facts.samples_per_rank_step, facts.samples_by_rank) == (160, (128, 192))
    assert any("rank 0 128, rank 1 192" in remark for remark in remarks)


def test_where_rank_0_is_told_no_samples_another_ranks_are_no_batches(tmp_path: Path) -> None:
    config, text = script_config("untold", {"runs": tmp_path, "name": "untold", "logger": "none"})
    membership = Membership(0, 2, "torchrun", "gloo", torch.device("cpu"), torch.distributed.HashStore())
    recorder = RunRecorder(config, text, membership, describe(0, membership.device), lambda _: "steady", lambda _: None)
    recorder.take([Message(1, device=describe(1, membership.device), samples=192)])
    recorder.take([Message(rank, [Lap(step, 100.0, 1.0) for step in range(3)], ended=True) for rank in (0, 1)])
    recorder.end("done", None)
    run = RunFolder(tmp_path / "untold")
    facts = run.read_facts()
    assert facts is not None and facts.counts_batches and not facts.samples_by_rank
    assert [row.samples_per_s for row in run.read_steps()] == pytest.approx([20.0] * 3)


@pytest.mark.parametrize(("told", "kept"), [({}, (None, None)), ({"precision": "fp32", "parameters": 9}, ("fp32", 9))])
def test_a_run_states_no_precision_and_no_parameters_that_its_script_did_not_tell(
    told: dict[str, object], kept: tuple[str | None, int | None], tmp_path: Path
) -> None:
    """Scripts in fp32 read `precision: bf16` and `parameters: 0` as facts of theirs."""
    config, text = script_config("plain", {**told, "runs": tmp_path, "name": "plain", "logger": "none"})
    membership = Membership(0, 1, "torchrun", "gloo", torch.device("cpu"), torch.distributed.HashStore())
    recorder = RunRecorder(config, text, membership, describe(0, membership.device), lambda _: "steady", lambda _: None)
    recorder.take([Message(0, [Lap(step, 100.0, 1.0) for step in range(3)], ended=True)])
    recorder.end("done", None)
    facts = RunFolder(tmp_path / "plain").read_facts()
    assert facts is not None and (facts.precision, facts.parameters) == kept
    assert isinstance(facts.job, tuple)  # which studies tell jobs by
