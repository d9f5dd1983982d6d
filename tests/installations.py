"""scalescope as others get it: a wheel, an sdist, `git archive`, an editable one, each in an environment of its own."""

import os
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_BUILD = "import sys; from setuptools import build_meta as by; print(getattr(by, sys.argv[1])(sys.argv[2]))"


def call(*argv: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, without what this process's environment says of Python."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return subprocess.run(
        [str(word) for word in argv], cwd=cwd, env={**environment, "OMP_NUM_THREADS": "1", **variables},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def said(*argv: str | Path, cwd: Path, **variables: str) -> str:
    """Run a command that has to succeed, and return what it printed."""
    done = call(*argv, cwd=cwd, **variables)
    assert done.returncode == 0, f"{argv}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def archive(folder: Path, kind: str) -> Path:
    """Write `git archive` of this checkout as it stands, what is not committed yet included; return its path.

    The index and what git writes for it lie in the folder: the checkout's own stay as they are.
    """
    objects = folder / "objects"
    objects.mkdir(exist_ok=True)
    here = said("git", "rev-parse", "--git-path", "objects", cwd=ROOT).strip()
    own = {"GIT_INDEX_FILE": str(folder / "index"), "GIT_OBJECT_DIRECTORY": str(objects),
           "GIT_ALTERNATE_OBJECT_DIRECTORIES": str((ROOT / here).resolve())}  # fmt: skip
    said("git", "add", "--all", cwd=ROOT, **own)
    tree = said("git", "write-tree", cwd=ROOT, **own).strip()
    out = folder / f"scalescope.{kind}"
    said("git", "archive", f"--format={kind}", "--prefix=scalescope/", f"--output={out}", tree, cwd=ROOT, **own)
    return out


def unpacked(tar: Path, into: Path) -> Path:
    """Return the one folder that a tar file holds, unpacked."""
    with tarfile.open(tar) as file:
        # as an attribute: the argument `filter`, and the filter, came with a bug-fix release of Python 3.11
        file.extraction_filter = getattr(tarfile, "data_filter", None)
        file.extractall(into)
    (folder,) = into.iterdir()
    return folder


def build(what: str, source: Path, out: Path) -> Path:
    """Return what setuptools makes of a source folder: `what` is `wheel` or `sdist`."""
    name = said(sys.executable, "-c", _BUILD, f"build_{what}", out, cwd=source).splitlines()[-1]
    return out / name


def environment(folder: Path) -> Path:
    """Make an environment that sees this one's dependencies, and no scalescope; return its Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    # a .pth file in a folder that a .pth file names is not read: this checkout stays out of sight
    packages.joinpath("dependencies.pth").write_text(
        "".join(f"{path}\n" for path in sys.path if path.endswith("site-packages"))
    )
    return folder / "bin" / "python"


def install(python: Path, *what: str | Path, offline: bool = True, **variables: str) -> None:
    """Let pip install into an environment; `offline`: without dependencies, and with the setuptools that is here."""
    flags = ["--no-deps", "--no-build-isolation", "--no-index", "--no-compile"] if offline else []
    said(
        sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, "install", "--quiet", *flags,
        *what, cwd=python.parent, **variables,
    )  # fmt: skip
