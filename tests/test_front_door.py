"""What a user types: every way to start a job, and one clear line for every way to get it wrong."""

import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from scalescope.cli import front_door, sweep, train
from scalescope.hardware.detect import device_kind
from scalescope.launch.compose import all_keys, meant
from scalescope.launch.config import register
from scalescope.records.folder import RunFolder, find_runs
from scalescope.records.package import CONF
from tests.faults import FAULTS
from tests.worlds import run_world

BIN = Path(sys.executable).parent
SCALESCOPE = str(BIN / "scalescope")
# the smallest job that trains, traces and validates
DATA = Path(__file__).parent / "data"
TINY = (
    "model=gpt_tiny model.layers=1 model.width=32 model.context=32 model.batch_size=2 precision=fp32 data=synthetic "
    "steps=8 warmup_steps=1 profiler.warmup=1 profiler.active=2 logger=none launch.device=cpu"
).split()
# one that trains alone
UNTRACED = (
    "model=gpt_tiny model.layers=1 model.width=32 model.context=32 model.batch_size=2 precision=fp32 data=synthetic "
    "steps=3 warmup_steps=1 profiler=none logger=none launch.device=cpu"
).split()


no_gpu = pytest.mark.skipif(device_kind() != "cpu", reason="this machine has a GPU")


def call(*argv: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, as a user in a folder of his own would."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return subprocess.run(
        argv, cwd=cwd, env={**environment, **variables}, capture_output=True, text=True, timeout=180, check=False
    )


def only_run(root: Path) -> RunFolder:
    runs = list(find_runs(root))
    assert len(runs) == 1, [run.path.name for run in runs]
    return runs[0]


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder with somebody else's modules of our names."""
    for name in ("train", "launch", "records", "report", "collectives", "scaling", "hardware", "verbs"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('the stranger\\'s {name}.py was imported')\n")
    return tmp_path


@pytest.mark.quiet
def test_help_answers_at_once(tmp_path: Path) -> None:
    times = []
    for _ in range(5):
        started = time.perf_counter()
        done = call(SCALESCOPE, "--help", cwd=tmp_path)
        times.append(time.perf_counter() - started)
        assert done.returncode == 0 and "scalescope study" in done.stdout
    assert min(times) < 0.3, times


def test_importing_it_into_a_script_loads_nothing_of_ours_yet(tmp_path: Path) -> None:
    code = "import sys; before = set(sys.modules); import scalescope; print(*sorted(set(sys.modules) - before))"
    done = call(sys.executable, "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    heavy = ("torch", "numpy", "msgspec", "scalescope.")
    assert not [name for name in done.stdout.split() if name.startswith(heavy)]


def test_measuring_a_script_brings_few_objects_for_its_garbage_collector_to_walk(tmp_path: Path) -> None:
    """A loop that collects in each step pays for all that was imported; Hydra's are 7,000 of torch's 171,000."""
    code = (
        "import sys, torch, scalescope\n"
        "with scalescope.profile_steps('mine', analyze=False) as profile:\n"
        "    for _ in range(4): profile.step()\n"
        "    print(*{name.split('.')[0] for name in sys.modules})"
    )
    done = call(sys.executable, "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "scalescope" in loaded and not loaded & {"hydra", "wandb", "mpi4py", "deepspeed", "pandas", "tensorboard"}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["analyze", str(Path(__file__).parent / "data" / "gpt_ddp_n1")], 0),
        (["train", "model=gpt_tiny", "launch.device=cpu", "steps=3"], 2),  # too few: known from the config alone
    ],
)
def test_neither_reading_nor_refusing_imports_torch(words: list[str], code: int, tmp_path: Path) -> None:
    script = (
        "import sys, scalescope\n"
        "class NoTorch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        assert name.split('.')[0] != 'torch', name\n"
        "sys.meta_path.insert(0, NoTorch())\n"
        "from scalescope.cli import front_door\n"
        "code = front_door.main(sys.argv[1:])\n"
        "assert 'torch' not in sys.modules\n"
        "assert sys.argv[1] != 'analyze' or 'hydra' not in sys.modules\n"
        "sys.exit(code)"
    )
    done = call(sys.executable, "-c", script, *words, cwd=tmp_path)
    assert done.returncode == code, done.stderr


@pytest.mark.job
def test_train_makes_one_run_folder_with_a_trace_of_every_rank(hostile: Path) -> None:
    done = call(SCALESCOPE, "train", *TINY, "launch.ranks=2", cwd=hostile)
    assert done.returncode == 0, done.stderr
    run = only_run(hostile / "runs")
    info = run.read_info()
    assert (info.status, info.world_size, info.launcher, info.backend) == ("done", 2, "torchrun", "gloo")
    assert sorted(run.find_traces()) == [0, 1]
    assert len(run.read_steps()) == 8
    assert run.analysis.is_file() and run.report.is_file()


@pytest.mark.job
def test_a_logger_that_cannot_be_made_is_left_out_with_its_reason(tmp_path: Path) -> None:
    argv = [word for word in TINY if word != "logger=none"]
    done = call(SCALESCOPE, "train", *argv, "logger.wandb.mode=ofline", "launch.ranks=1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "logger wandb is left out: logger.wandb.mode=ofline: choose offline, online or disabled" in done.stderr


@pytest.mark.job
def test_torchrun_makes_one_run_folder(hostile: Path) -> None:
    torchrun = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", "2"]
    done = call(*torchrun, "-m", "scalescope", "train", *UNTRACED, cwd=hostile)
    assert done.returncode == 0, done.stderr
    info = only_run(hostile / "runs").read_info()
    assert (info.status, info.world_size, info.launcher) == ("done", 2, "torchrun")


@pytest.mark.job
@pytest.mark.skipif(shutil.which("mpirun", path=str(BIN)) is None, reason="no mpirun beside this Python")
def test_mpirun_makes_one_run_folder(hostile: Path) -> None:
    done = call(str(BIN / "mpirun"), "-n", "2", SCALESCOPE, "train", *UNTRACED, cwd=hostile)
    assert done.returncode == 0, done.stderr
    info = only_run(hostile / "runs").read_info()
    assert (info.status, info.world_size, info.launcher) == ("done", 2, "mpi")


@pytest.mark.job
def test_multirun_makes_a_run_folder_each(hostile: Path) -> None:
    argv = [word for word in TINY if word != "model=gpt_tiny" and not word.startswith("seed")]
    done = call(SCALESCOPE, "train", "model=gpt_tiny", "-m", *argv, "seed=1,2", "launch.ranks=1", cwd=hostile)
    assert done.returncode == 0, done.stderr
    assert [run.read_info().status for run in find_runs(hostile / "runs")] == ["done", "done"]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["train", "modle=gpt_tiny"], "unknown config key 'modle'; did you mean model"),
        (["train", "model.widht=3"], "did you mean model.width"),
        (["train", "model=gpt_huge"], "choose one of gpt_large, gpt_medium, gpt_small, gpt_tiny"),
        (["train", "model=gpt_schema"], "choose one of gpt_large, gpt_medium, gpt_small, gpt_tiny"),
        (["study", "model=resnet_schema"], "choose one of gpt_large, gpt_medium, gpt_small, gpt_tiny"),
        (["train", "model.layers=many"], "model.layers=many"),
        (["train", "data=text", "data.path=/no/such/file"], "/no/such/file"),
        (
            ["train", "model=gpt_tiny", "runs=/proc/nowhere", "precision=fp32"],
            "cannot make the run folder /proc/nowhere",
        ),
        pytest.param(["train", "launch.device=cuda"], "sees no GPU", marks=no_gpu),
        (["train", "launch.backend=mpi", "launch.device=cpu"], "built with MPI"),
        (["train", "steps=3"], "steps=3 leaves no step to measure"),
        (["train", "model.layers=["], "cannot read the override"),
        (["train", "name=zu weit ö"], "\"name='zu weit ö'\""),
        (["train", "+stpes=5"], "unknown config key 'stpes'; did you mean steps"),
        (["train", "+launch.rank=5"], "unknown config key 'launch.rank'; did you mean launch.ranks"),
        (["train", "--steps=5"], "write steps=5"),
        (["train", "--batch-size", "5"], "write model.batch_size=VALUE"),
        (["train", "steps=10,20"], "write steps=[10,20] for a list, or add -m for a train each"),
        (["study", str(DATA / "gpt_ddp_n2")], "gpt_ddp_n2 is a path, and settings are KEY=VALUE; scalescope analyze /"),
        (["train", "resnet50"], "'resnet50' sets nothing; write model=resnet50"),
        (["train", "steps"], "'steps' sets nothing; write steps=VALUE"),
        (["train", "~steps"], "steps has no value; write steps=VALUE"),
        (["train", "-x"], "train does not know -x; settings are KEY=VALUE"),
        (["sweep", "--quick"], "sweep does not know --quick; settings are KEY=VALUE"),
        (["sweep", "operations=[all_redcue]"], "all_redcue"),
        (["sweep", "sizes=8B..1GB"], "sizes"),
        (["study", "gpu_counts=[0]"], "gpu_counts"),
        (["study", "scaling=stong"], "scaling=stong"),
        (["study", "modle=gpt_tiny"], "did you mean model"),
        (["study", "gpu_count=[1]"], "did you mean gpu_counts?; scalescope study --help"),
        (["study", "gpu_counts=1,2"], "write gpu_counts=[1,2] for a list"),
        (["analyze", "nowhere"], "nowhere"),
        (["analyze", "/dev/null"], "is neither a file nor a folder"),
        (["report", "nowhere"], "nowhere does not exist; give a run folder"),
        (["report", "."], "Kineto .json[.gz], or jax.profiler's *.xplane.pb); record some with the profiler on"),
        (["import", "nowhere", "--out", "o"], "give a log of nccl-tests"),
        (["compare", "a", "b", "--fail-under", "nan"], "--fail-under=nan: must be a finite number"),
        (["compare", "a", "b", "--fail-under", "95"], "--fail-under=95: must be at most 10"),
        (["submit", "train", "--nodes=0", "--dry-run"], "--nodes=0: must be at least 1"),
        (["submit", "train", "--gpus-per-node=-3", "--dry-run"], "--gpus-per-node=-3: must be at least 1"),
        (["submit", "train", "seed=1,2", "--at-once=0", "--dry-run"], "--at-once=0: must be at least 1"),
        (["dashboard", "--workspace-url", "mine"], "--workspace-url mine: give the address"),
        (["sweep", "collective=all_reduce"], "unknown config key 'collective'; did you mean operations?"),
        (["sweep", "-b", "8", "-e", "1G"], "-b: settings have no dashes; write sizes=VALUE"),
        (["sweep", "--ngpus=4"], "write launch.ranks=4"),
        (["train", "lr=3e-4"], "did you mean optimizer.learning_rate?"),
        (["train", "--lr", "3e-4"], "write optimizer.learning_rate=VALUE"),
        (["train", "epochs=3"], "did you mean steps?"),
        (["study", "ngpus=4"], "did you mean gpu_counts?; scalescope study --help"),
        (["study", "--gpus", "4"], "write gpu_counts=VALUE"),
        (["study", "--lr", "1"], "write optimizer.learning_rate=VALUE"),
        (["study", "op=all_reduce"], "did you mean sweep.operations?"),
        (["study", "dtype=bf16"], "did you mean precision?"),
        (["trian"], "did you mean train"),
        (["diff"], "did you mean compare?"),
        (["profile"], "profile_steps in README.md"),
        (["--json"], "--json stands behind a verb"),
        (["analyze"], "analyze: the following arguments are required: PATH; scalescope analyze --help shows"),
        (["report", "x", "-o", "y.html"], "report: there is no -o here; did you mean --html or --json?"),
        (["compare", "x", "y", "--threshold=3"], "there is no --threshold=3 here; did you mean --fail-if?"),
        (["analyze", "x", "--step-ms", "5ms"], "argument --step-ms: invalid float value: '5ms'"),
    ],
)
def test_wrong_input_is_one_clear_line_and_exit_2_with_nothing_left(
    argv: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # in this process: what a new one adds is the second that torch takes to load
    assert front_door.main(argv) == 2
    lines = capfd.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and says in lines[0], lines
    assert list(tmp_path.iterdir()) == []


def test_a_verb_for_studies_leaves_a_run_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunFolder.create(tmp_path / "run", "train", "steps: 1")
    run.set_status("done")
    assert front_door.main(["finish", str(run.path)]) == 2
    assert run.read_info().status == "done" and "only a study is finished" in capsys.readouterr().err
    assert front_door.main(["report", str(tmp_path)]) == 2
    assert "did you mean" in (said := capsys.readouterr().err) and str(run.path) in said


def test_a_verb_that_another_program_calls_leaves_its_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    assert front_door.main(["analyze", str(DATA / "gpt_ddp_n1")]) == 0
    assert "OPENBLAS_NUM_THREADS" not in os.environ


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--nic-gb-s nan --nic-latency-us 5", "--nic-gb-s=nan: must be a finite number"),
        ("--nic-gb-s 50 --nic-latency-us inf", "--nic-latency-us=inf: must be a finite number"),
        ("--nics-per-node 0 --nic-gb-s 50 --nic-latency-us 0", "--nics-per-node=0: must be above 0"),
    ],
)
def test_a_projection_takes_no_senseless_network(
    flags: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = RunFolder.create(tmp_path / "study", "study", "x: 1")
    assert front_door.main(["project", str(study.path), "--gpus", "8", "--gpus-per-node", "4", *flags.split()]) == 2
    assert says in capsys.readouterr().err
    assert not study.analysis.exists()


def test_a_dashboard_without_a_login_is_one_line(tmp_path: Path) -> None:
    done = call(SCALESCOPE, "dashboard", "--entity", "me", cwd=tmp_path, HOME=str(tmp_path), WANDB_API_KEY="",
                WANDB_MODE="online")  # fmt: skip
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("scalescope: W&B: ") and "--dry-run" in done.stderr


def test_a_study_s_help_says_what_it_takes_and_nothing_of_hydra(capsys: pytest.CaptureFixture[str]) -> None:
    assert front_door.main(["study", "--help"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("usage: scalescope study [KEY=VALUE …]") and "gpu_counts" in said and "scaling: weak" in said
    assert "defaults" not in said and "hydra" not in said and "schema" not in said


def test_a_study_s_ranks_are_packed_run_by_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = RunFolder.create(tmp_path / "study", "study", "x: 1")
    run = RunFolder.create(study.path / "run", "train", "steps: 1")
    run.traces.mkdir()
    shutil.copy(Path(__file__).parent / "data" / "gpt_ddp_n1" / "rank0.json.gz", run.trace_of(0, 3))
    assert front_door.main(["perfetto", str(study.path)]) == 2
    assert f"give one of its runs: {run.path}" in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_locale_without_our_signs_prints_a_question_mark_for_them(encoding: str, tmp_path: Path) -> None:
    traces = str(Path(__file__).parent / "data" / "gpt_ddp_n1")
    done = subprocess.run([SCALESCOPE, "analyze", traces], cwd=tmp_path, capture_output=True, timeout=60, check=False,
                          env={**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"})  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    sign = {"ascii": b"?", "latin-1": "·".encode("latin-1")}[encoding]
    assert b"gpt_ddp_n1 " + sign + b" 1 GPU:" in done.stdout


def test_a_reader_that_leaves_early_is_no_failed_check(tmp_path: Path) -> None:
    traces = str(Path(__file__).parent / "data" / "gpt_ddp_n1")
    job = subprocess.Popen([SCALESCOPE, "analyze", traces], cwd=tmp_path, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert job.stdout is not None
    job.stdout.close()
    assert job.stderr is not None
    said = job.stderr.read()
    assert (job.wait(timeout=60), said) == (0, "")


@pytest.mark.parametrize(("argv", "code"), [("help", 0), ("--version", 0), ("train modle=gpt_tiny", 2)])
def test_closed_streams_change_no_exit_code(argv: str, code: int, tmp_path: Path) -> None:
    done = call("sh", "-c", f"'{SCALESCOPE}' {argv} >&- 2>&-", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_a_disk_that_takes_no_more_is_one_line(tmp_path: Path) -> None:
    done = call("sh", "-c", f"'{SCALESCOPE}' help > /dev/full", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (3, "scalescope: No space left on device\n")


def test_wrong_input_ends_the_process_with_2(tmp_path: Path) -> None:
    done = call(SCALESCOPE, "train", "modle=gpt_tiny", cwd=tmp_path)
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_trace_folder_without_traces_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    done = call(SCALESCOPE, "analyze", "traces", cwd=tmp_path)
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1
    assert "traces" in done.stderr
    assert list((tmp_path / "traces").iterdir()) == []


def test_wrong_input_inside_a_world_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_world(2, ["scalescope", "train", "modle=gpt_tiny"])
    assert done.returncode == 2
    assert done.stderr.count("unknown config key 'modle'") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.job
def test_a_study_that_is_asked_to_stop_starts_no_further_job(tmp_path: Path) -> None:
    argv = [word for word in TINY if not word.startswith("steps=")]
    job = subprocess.Popen(
        [SCALESCOPE, "study", *argv, "steps=100000", "name=study", "gpu_counts=[1,2]", "with_sweep=false"],
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    study = RunFolder(tmp_path / "runs" / "study")
    first = RunFolder(study.path / "gpt_tiny-ddp-n2")
    until = time.monotonic() + 60
    while not first.steps.exists():
        assert time.monotonic() < until and job.poll() is None
        time.sleep(0.05)
    job.send_signal(signal.SIGTERM)
    _, said = job.communicate(timeout=60)
    assert (job.returncode, study.read_info().status) == (3, "interrupted"), said
    assert FAULTS["study_asked_to_end"].says in said
    assert [run.path.name for run in study.read_children()] == ["gpt_tiny-ddp-n2"]
    assert first.read_info().status == "preempted"


@pytest.mark.job
def test_a_stop_signal_to_the_command_saves_the_state_and_asks_to_be_run_again(tmp_path: Path) -> None:
    argv = [word for word in TINY if not word.startswith("steps=")]
    job = subprocess.Popen(
        [SCALESCOPE, "train", *argv, "steps=100000", "name=stopped", "launch.ranks=1"],
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    folder = RunFolder(tmp_path / "runs" / "stopped")
    until = time.monotonic() + 60
    while not folder.steps.exists():
        assert time.monotonic() < until and job.poll() is None
        time.sleep(0.05)
    job.send_signal(signal.SIGUSR1)
    _, said = job.communicate(timeout=60)
    assert (job.returncode, folder.read_info().status) == (75, "preempted"), said
    assert "resume=true" in said and any(folder.checkpoints.iterdir())


@pytest.mark.job
def test_a_job_whose_console_goes_away_runs_to_its_end(tmp_path: Path) -> None:
    """`scalescope train … | head -1`: the pipe is closed while rank 0 has still to speak."""
    job = subprocess.Popen(
        [SCALESCOPE, "train", *UNTRACED, "name=piped", "launch.ranks=1"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert job.stdout is not None and job.stderr is not None
    assert job.stdout.readline().startswith("scalescope: 1 × cpu")
    job.stdout.close()
    said = job.stderr.read()
    assert job.wait(timeout=120) == 0, said
    folder = RunFolder(tmp_path / "runs" / "piped")
    assert folder.read_info().status == "done" and len(folder.read_steps()) == 3
    assert folder.analysis.is_file() and folder.report.is_file()
    assert "Traceback" not in said and "Broken pipe" not in said, said


def test_the_batch_scripts_are_copied_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "mine"
    assert front_door.main(["slurm-scripts", str(folder)]) == 0
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        path.name for path in (Path(__file__).resolve().parent.parent / "slurm").glob("*.sbatch")
    )
    (folder / "train.sbatch").write_text("mine")
    (folder / "sweep.sbatch").unlink()
    assert front_door.main(["slurm-scripts", str(folder)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert (folder / "train.sbatch").read_text() == "mine" and not (folder / "sweep.sbatch").exists()


def test_what_another_verb_calls_otherwise_is_told_by_its_name_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert front_door.main(["sweep", "gpu_counts=[2]"]) == 2
    assert "unknown config key 'gpu_counts'; did you mean group_sizes" in capsys.readouterr().err


def test_each_word_of_other_tools_leads_to_keys_that_there_are() -> None:
    words = tomllib.loads((CONF / "words.toml").read_text())
    register()
    train.verb()
    sweep.verb()
    known = {verb: all_keys(verb) for verb in ("train", "sweep", "study")}
    assert not [key for key in words if not any(key in keys for keys in known.values())]
    spoken = {word for called in words.values() for word in called.split()}
    for verb, asked in {
        "sweep": "collective collectives op dtype ngpus nproc minbytes maxbytes nthreads iters backend warmup redop",
        "train": "ngpus nproc nthreads iters batch bs lr epochs gpus dtype backend seq_len workers output_dir amp wd",
        "study": "ngpus gpus nproc world_size",
    }.items():
        assert not [word for word in asked.split() if word not in spoken or not meant(word, known[verb])], verb


def test_help_of_a_verb_may_be_asked_either_way(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["help", "study"], ["study", "--help"]):
        assert front_door.main(words) == 0
        assert capsys.readouterr().out.startswith("usage: scalescope study [KEY=VALUE …]")
    assert front_door.main(["version"]) == 0 and capsys.readouterr().out.startswith("scalescope ")
