"""`scalescope finish`: end a study whose jobs ran one by one, as a scheduler's last job does."""

from pathlib import Path

from records.errors import ExitCode, UserError
from records.folder import RunFolder
from verbs.show import show


def run(words: list[str]) -> int:
    """Set a study's status from its jobs' and show it: a study folder, then the names of the jobs it should have."""
    if not words:
        raise UserError("finish needs a study folder, and may be given the names of its jobs")
    folder = RunFolder.open(Path(words[0]))
    runs = folder.read_children()
    bad = [f"{run.path.name} is {run.read_info().status}" for run in runs if run.read_info().status != "done"]
    bad += [f"{name} never began" for name in words[1:] if name not in {run.path.name for run in runs}]
    folder.set_status("failed" if bad or not runs else "done", "; ".join(bad) or (None if runs else "no job ran"))
    show([folder.path])
    return int(ExitCode.RUN_FAILED if bad or not runs else ExitCode.OK)
