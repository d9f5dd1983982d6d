"""How a script ended, as its run is to say, and the analysis that follows one that came to its end."""

import os
import subprocess
import sys
from pathlib import Path

from scalescope.records.package import COMMAND, importable
from scalescope.records.rows import RunStatus


def how_it_ended(error: BaseException | None) -> tuple[RunStatus, str | None]:
    """Return the status of a run whose script has come to this, and in words why, where it failed."""
    if error is None or (isinstance(error, SystemExit) and not error.code) or isinstance(error, GeneratorExit):
        return "done", None
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", "interrupted from the keyboard"
    return "failed", f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


def analyze_run(run: Path) -> None:
    """Analyse and report in a process of its own, which holds no GPU memory and is gone afterwards."""
    subprocess.run([sys.executable, *COMMAND, "analyze", str(run)], env=importable(os.environ), stdout=2, check=False)
