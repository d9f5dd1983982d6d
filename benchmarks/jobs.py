"""Training jobs of a benchmark, started one after another as a user starts them, and tables of what they gave."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scalescope.launch.compose import compose_job, typed
from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from scalescope.train.config import TrainConfig, register

ROOT = Path(__file__).resolve().parent.parent


class JobFailed(Exception):
    """A job that did not end as `done`; the text is its last word."""


def composed(overrides: Sequence[str]) -> TrainConfig:
    """Return the config that `scalescope train` makes of these. Raises UserError for a wrong one."""
    register()
    return typed(compose_job("train", overrides), TrainConfig)


def train(out: Path, name: str, overrides: Sequence[str]) -> RunFolder:
    """Run one job to its end, analysis included. Raises JobFailed with the reason where it does not get there."""
    # `-m` from another folder needs the checkout on the path; an installed scalescope does not mind
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}
    command = [sys.executable, "-m", "scalescope", "train", "logger=none", *overrides, f"runs={out}", f"name={name}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [
            line for line in done.stderr.splitlines() if line.startswith("scalescope: ")
        ] or done.stderr.splitlines()
        raise JobFailed(said[-1].removeprefix("scalescope: ") if said else f"exit code {done.returncode}")
    return RunFolder.open(out / name)


@contextmanager
def runs_folder(out: Path | None) -> Iterator[Path]:
    """The folder that the runs go to: the one asked for, or a temporary one that is deleted at the end."""
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        yield out.resolve()
        return
    temporary = Path(tempfile.mkdtemp(prefix="scalescope-"))
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def figure(value: float | None, digits: int) -> str:
    """Return a figure for a table; a dash where there is none."""
    return "–" if value is None else f"{value:,.{digits}f}"


__all__ = ["JobFailed", "UserError", "composed", "figure", "markdown", "runs_folder", "train"]
