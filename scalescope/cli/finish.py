"""`scalescope finish`: end a study whose jobs ran one by one, as a scheduler's last job does."""

from pathlib import Path

from scalescope.cli.outputs import VerbParser, add_json
from scalescope.cli.show import Asked, show
from scalescope.records.errors import ExitCode
from scalescope.records.folder import RunFolder


def run(argv: list[str]) -> int:
    """Set a study's status from its jobs' and show it: a study folder, then the names of the jobs it should have."""
    parser = VerbParser(
        prog="scalescope finish",
        description="End a study whose jobs ran one by one: set its status from theirs, analyse, and write its report. "
        "Slurm's last job of `scalescope submit study` calls it.",
    )
    parser.add_argument("study", type=Path, metavar="STUDY", help="a study folder")
    parser.add_argument(
        "jobs", nargs="*", default=[], metavar="JOB", help="the jobs that it should have, by their folders' names"
    )
    add_json(parser)
    options = parser.read(argv)
    folder = RunFolder.open_study(options.study, "only a study is finished: give the folder that it lies in")
    runs = folder.read_children()
    bad = [f"{run.path.name} is {run.read_info().status}" for run in runs if run.read_info().status != "done"]
    bad += [f"{name} never began" for name in options.jobs if name not in {run.path.name for run in runs}]
    folder.set_status("failed" if bad or not runs else "done", "; ".join(bad) or (None if runs else "no job ran"))
    show(Asked([folder.path], json=options.json))
    return int(ExitCode.RUN_FAILED if bad or not runs else ExitCode.OK)
