"""Jobs that rows need: a sweep or a training job with its own folder inside the scorecard's."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from scalescope.launch.config import LaunchConfig
from scalescope.launch.freeze import Plan, plan_job
from scalescope.launch.studies.outline import StudyJob
from scalescope.launch.verb import Verb
from scalescope.records.folder import RunFolder
from scalescope.scorecard.machine import RunJob

Start = Callable[[Plan], RunFolder]


def job_runner(folder: Path, launch: LaunchConfig, verbs: Mapping[str, Verb], start: Start) -> RunJob:
    """Return what runs a job to its end in a folder of the scorecard's. It raises RunError and UserError as jobs do."""
    fixed = [f"launch.{name}={value}" for name, value in (
        ("device", launch.device), ("backend", launch.backend), ("threads_per_rank", launch.threads_per_rank),
    ) if value is not None]  # fmt: skip

    def run(verb: str, name: str, ranks: int, overrides: Sequence[str]) -> RunFolder:
        job = StudyJob(verbs[verb], name, [*overrides, "logger=none", *fixed], ranks)
        return start(plan_job(verbs[verb], job.compose(folder)))

    return run
