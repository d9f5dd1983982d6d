"""However scalescope is installed, it is one import name, and it works in a folder that is full of its own names."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from scalescope.records.folder import RunFolder
from tests.installations import ROOT, archive, build, call, environment, install, said, unpacked
from tests.made_once import made_once

TRACES = ROOT / "tests" / "data" / "gpt_ddp_n1"
FOLDERS = ("train", "collectives", "launch", "conf", "slurm")
TRAIN = (
    "model=gpt_tiny model.layers=1 model.width=16 model.heads=2 model.context=16 model.batch_size=2 precision=fp32 "
    "data=synthetic steps=4 warmup_steps=1 profiler=none logger=none launch.device=cpu launch.ranks=2 name=run"
).split()
STRANGE = "raise SystemExit('the stranger\\'s {} was imported')\n"
long = pytest.mark.long


def _build_all(folder: Path) -> None:
    made = folder / "work"
    made.mkdir()
    source = unpacked(archive(made, "tar"), folder / "source")
    shutil.copytree(source, folder / "editable", symlinks=True)
    (folder / "sdist").mkdir()
    build("sdist", source, folder / "sdist")
    (folder / "wheel").mkdir()
    build("wheel", source, folder / "wheel")
    (folder / "archive").mkdir()
    (made / "scalescope.tar").rename(folder / "archive" / "scalescope.tar")


@pytest.fixture(scope="session")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder a form: wheel/, sdist/ and archive/ hold a file, editable/ is a source folder."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout: git archive has nothing to pack")
    return made_once(tmp_path_factory, "builds", _build_all)


def _python_of(form: str, builds: Path, factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment that a form is installed in."""

    def make(folder: Path) -> None:
        python = environment(folder)
        what = ["--editable", builds / form] if form == "editable" else list((builds / form).iterdir())
        install(python, *what)

    return made_once(factory, f"installed_{form}", make) / "bin" / "python"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder with somebody else's modules and packages of our names, and of one of torch's."""
    for name in ("train", "launch", "torch_utils", "records", "scaling", "hardware", "cli"):
        (tmp_path / f"{name}.py").write_text(STRANGE.format(name))
    for name in ("report", "collectives", "conf", "slurm"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(STRANGE.format(name))
    return tmp_path


@pytest.mark.job
@pytest.mark.parametrize("form", ["wheel", "sdist", "archive", "editable"])
def test_it_answers_and_reads_a_trace_among_strangers(
    form: str, builds: Path, hostile: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    python = _python_of(form, builds, tmp_path_factory)
    scalescope = python.with_name("scalescope")
    assert "scalescope study" in said(scalescope, "--help", cwd=hostile)
    assert "scalescope study" in said(python, "-m", "scalescope", "--help", cwd=hostile)
    assert "Where a step goes" in said(scalescope, "analyze", TRACES, cwd=hostile)
    ask = (
        "import scalescope, scalescope.collectives.transports.issue_library as c;"
        "import scalescope.scaling.replay.engine.compiled as r, scalescope.scaling.trace.fields.compiled as f;"
        "print(scalescope.__file__, c.load(), r.check_library().level, f.check_library().level)"
    )
    where = said(python, "-c", ask, cwd=hostile)
    assert where.startswith(str(builds / "editable" if form == "editable" else python.parent.parent)), where
    assert shutil.which("cc") is None or ("CDLL" in where and where.endswith("fine fine\n")), (
        "the C files are built with it"
    )


@pytest.mark.job
@pytest.mark.parametrize(
    "form",
    # the editable one is what every other test of a job runs, tests/test_front_door.py among strangers, too
    ["wheel", *(pytest.param(form, marks=long) for form in ("editable", "sdist", "archive"))],
)
def test_two_ranks_train_among_strangers(
    form: str, builds: Path, hostile: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    python = _python_of(form, builds, tmp_path_factory)
    said(python.with_name("scalescope"), "train", *TRAIN, cwd=hostile)
    run = RunFolder(hostile / "runs" / "run")
    info = run.read_info()
    assert (info.status, info.world_size, info.backend, len(run.read_steps())) == ("done", 2, "gloo", 4)


@pytest.mark.job
def test_a_loop_in_a_package_named_train_is_measured(
    builds: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    python = _python_of("wheel", builds, tmp_path_factory)
    for name in ("train", "report"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("WHOSE = 'theirs'\n")
    (tmp_path / "train" / "loop.py").write_text(
        "import torch, report, train\n"
        "from scalescope import profile_steps\n"
        "settings = {'name': 'run', 'wait': 2, 'warmup': 1, 'active': 1, 'warmup_steps': 1, 'analyze': False}\n"
        "with profile_steps('theirs', **settings) as profile:\n"
        "    for step in range(6):\n"
        "        profile.step(torch.ones(8, 8).sum())\n"
        "import train.later\n"
        "assert train.WHOSE == report.WHOSE == train.later.WHOSE == 'theirs'\n"
    )
    (tmp_path / "train" / "later.py").write_text("WHOSE = 'theirs'\n")
    said(python, "-m", "train.loop", cwd=tmp_path)
    run = RunFolder(tmp_path / "runs" / "run")
    assert len(run.read_steps()) == 6 and run.find_traces().keys() == {0}


def _files(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as file:
        return {name: file.read(name) for name in file.namelist()}


def test_a_wheel_holds_one_import_name_and_real_files(builds: Path) -> None:
    (wheel,) = (builds / "wheel").iterdir()
    files = _files(wheel)
    (record,) = (name for name in files if name.endswith(".dist-info/RECORD"))
    named = [line.split(",")[0] for line in files[record].decode().splitlines()]
    assert {name.split("/")[0] for name in named} == {"scalescope", record.split("/")[0]}
    here = said("git", "ls-files", *FOLDERS, "scalescope", cwd=ROOT).split()
    tracked = {name if name.startswith("scalescope/") else f"scalescope/{name}" for name in here}
    tracked -= {f"scalescope/{name}" for name in FOLDERS}  # the links
    missing = {name for name in tracked if (ROOT / name).exists()} - set(named)
    assert not missing, "everything that is there is in it, settings, sbatch scripts, pages, C and py.typed too"
    assert all(files[name] == (ROOT / name).read_bytes() for name in tracked & set(named))
    assert {"licenses/LICENSE"} == {name.split("/", 1)[1] for name in named if "LICENSE" in name}


@pytest.mark.job
@pytest.mark.parametrize("form", ["sdist", "archive"])
def test_what_is_built_from_sources_is_the_wheel(
    form: str, builds: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (wheel,) = (builds / "wheel").iterdir()
    (packages,) = _python_of(form, builds, tmp_path_factory).parent.parent.glob("lib/python*/site-packages")
    for name, content in _files(wheel).items():
        if name.startswith("scalescope/") and not name.endswith(".so"):
            installed = packages / name
            assert installed.read_bytes() == content and not installed.is_symlink(), name


@pytest.mark.job
def test_without_a_compiler_it_is_installed_all_the_same(builds: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "environment")
    install(python, *(builds / "archive").iterdir(), CC="/nowhere/cc")
    ask = "from scalescope.collectives.transports import issue_library as c; print(c.check_library().says)"
    answer = said(python, "-c", ask, cwd=tmp_path)
    assert answer.startswith("is not built: transport=direct issues its operations from Python"), answer
    ask = "from scalescope.scaling.replay.engine import compiled; print(compiled.check_library().says)"
    assert said(python, "-c", ask, cwd=tmp_path).startswith("is not built: replays run in Python")
    ask = "from scalescope.scaling.trace.fields import compiled; print(compiled.check_library().says)"
    assert said(python, "-c", ask, cwd=tmp_path).startswith("is not built: traces are read in Python")
    assert "Where a step goes" in said(python.with_name("scalescope"), "analyze", TRACES, cwd=tmp_path)


def test_a_zip_that_lost_its_links_says_so_in_one_line(builds: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(archive(tmp_path, "zip")) as file:
        file.extractall(tmp_path / "there")
    for argv in (["--help"], ["analyze", str(TRACES)], ["train"]):
        done = call(sys.executable, "-m", "scalescope", *argv, cwd=tmp_path / "there" / "scalescope")
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        assert line.startswith("scalescope: ") and "symbolic links" in line and "git clone" in line
    done = call(sys.executable, "-c", "from scalescope import profile_steps; profile_steps('x')",
                cwd=tmp_path / "there" / "scalescope")  # fmt: skip
    assert done.stderr.splitlines()[-1] == f"ImportError: {line.removeprefix('scalescope: ')}"


def test_no_import_hook_exists() -> None:
    hooks = re.compile(r"sys\.(meta_path|path_hooks|modules\[|path\.\w+\()|__import__|__path__|importlib\.abc")
    ours = [path for folder in (*FOLDERS, "scalescope") for path in (ROOT / folder).rglob("*.py")]
    assert len(ours) > 200
    assert not [str(path) for path in ours if hooks.search(path.read_text())]


@pytest.mark.parametrize("name", [*FOLDERS, "records", "hardware", "scaling", "report"])
def test_the_linter_forbids_our_folders_as_names_of_their_own(name: str) -> None:
    ruff = Path(sys.executable).with_name("ruff")
    for line in (f"import {name}", f"import {name}.parts", f"from {name}.parts import one", f"from {name} import one"):
        done = subprocess.run([ruff, "check", "--select=TID251", "--stdin-filename=launch/new.py", "-"], cwd=ROOT,
                              input=f"{line}\n", capture_output=True, text=True, check=False)  # fmt: skip
        assert done.returncode == 1 and "TID251" in done.stdout, line


def _full_environment(folder: Path) -> Path:
    """Make an environment with nothing in it but pip."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=120)
    return folder / "bin" / "python"


@long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("form", ["wheel", "sdist"])
def test_pip_alone_installs_all_that_it_takes(form: str, builds: Path, hostile: Path) -> None:
    python = _full_environment(hostile / "environment")
    (package,) = (builds / form).iterdir()
    install(python, "--constraint", ROOT / "constraints.txt", package, offline=False)
    scalescope = python.with_name("scalescope")
    assert "Where a step goes" in said(scalescope, "analyze", TRACES, cwd=hostile)
    said(scalescope, "train", *TRAIN, cwd=hostile)
    assert RunFolder(hostile / "runs" / "run").read_info().status == "done"
