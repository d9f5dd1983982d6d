"""Running a study's jobs one after another on this machine, also from where an earlier start has come to."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from scalescope.launch.devices import resolve
from scalescope.launch.freeze import Plan, plan_job
from scalescope.launch.studies.outline import Outline, StudyJob
from scalescope.records.console import duration
from scalescope.records.environment import usable_cores
from scalescope.records.errors import RunError, Stopped, UserError
from scalescope.records.folder import RunFolder


@dataclass(frozen=True)
class PlannedStudy:
    """A study that is ready to run on this machine: every job checked and placed."""

    outline: Outline
    jobs: list[Plan]
    done: frozenset[str] = frozenset()  # the names of those that an earlier start has brought to their end


def plan_study(outline: Outline) -> PlannedStudy:
    """Check and place every job of a study on this machine. Raises UserError before anything is started or written."""
    settings = outline.settings
    most = max(member.ranks for member in outline.members)
    here = resolve(replace(settings.launch, ranks=None))
    if here.device == "cuda" and most > here.ranks:
        raise UserError(f"gpu_counts={settings.gpu_counts}, but this machine has {here.ranks} GPUs; "
                        "leave out what is above that")  # fmt: skip
    jobs = [_plan(member, outline) for member in outline.members]
    return PlannedStudy(outline, jobs, frozenset(plan.path.name for plan in jobs if outline.resumed and _ended(plan)))


def _ended(plan: Plan) -> bool:
    """Return whether an earlier start has brought a job to its end. Raises UserError where it was another job."""
    if plan.path.exists():
        plan.refuse_another_config(RunFolder.open(plan.path))
    return is_done(plan.path)


def is_done(path: Path) -> bool:
    """Return whether there is a run folder whose run came to its end."""
    return (path / "run.json").is_file() and RunFolder(path).read_info().status == "done"


def _plan(member: StudyJob, outline: Outline) -> Plan:
    config = member.compose(outline.path)
    if config.launch.threads_per_rank is None:
        # the same threads a rank at every count, else scaling is an artefact of them
        config.launch.threads_per_rank = max(1, usable_cores() // max(one.ranks for one in outline.members))
    return replace(plan_job(member.verb, config), resume=outline.resumed)


def run_study(study: PlannedStudy, say: Callable[[str], None]) -> tuple[RunFolder, list[str]]:
    """Run a study's jobs in order and return its folder, with the reasons of those that failed.

    A job that fails costs the study its own point, not the others'. Raises RunError where none succeeded, and on an
    interrupt, which ends the study.
    """
    from scalescope.launch.start import start_job  # loads torch, which a mistyped key need not wait for

    folder = study.outline.make_folder()
    failed: list[str] = []
    took_s: list[float] = []
    left = [plan.path.name for plan in study.jobs if plan.path.name not in study.done]
    try:
        for number, plan in enumerate(study.jobs, 1):
            ranks = f"{plan.devices.ranks} rank{'s' if plan.devices.ranks > 1 else ''}"
            if plan.path.name in study.done:
                say(f"[{number}/{len(study.jobs)}] {plan.path.name}: done before")
                continue
            say(f"[{number}/{len(study.jobs)}] {plan.path.name}: {plan.verb.name} on {ranks} ({plan.devices.backend})")
            started = time.monotonic()
            try:
                child = start_job(plan)
            except Stopped:
                raise
            except (RunError, UserError) as error:
                failed.append(f"{plan.path.name}: {error}")
                say(f"    failed: {error}")
            else:
                if child.read_info().status == "preempted":
                    raise Stopped(f"asked to stop during {plan.path.name}; what ran is kept in {folder.path}")
                took_s.append(time.monotonic() - started)
                say(f"    done in {took_s[-1]:.0f} s{_left(left[left.index(plan.path.name) + 1 :], took_s)}")
    except BaseException:
        folder.set_status("interrupted", "stopped before its last job; what ran is kept")
        raise
    folder.set_status("failed" if failed else "done", "; ".join(failed) or None)
    if len(failed) == len(study.jobs):
        raise RunError(f"every job of the study failed; their folders are in {folder.path}")
    return folder, failed


def _left(jobs: Sequence[str], took_s: Sequence[float]) -> str:
    """Return how long the other jobs take, where they take as long as those that ran: no promise."""
    if not jobs:
        return ""
    return f", about {duration(statistics.mean(took_s) * len(jobs))} left"


def followed(base: str) -> str:
    """Return the name of the run that follows the advice for another one."""
    return f"{base}-advice"


def follow_advice(study: PlannedStudy, base: str, overrides: Sequence[str], say: Callable[[str], None]) -> RunFolder:
    """Run one job of a study again, with overrides more, and return its folder.

    Raises UserError for overrides that do not fit the job, RunError where it fails.
    """
    from scalescope.launch.start import start_job  # loads torch, which a mistyped key need not wait for

    member = next(one for one in study.outline.members if one.name == base)
    plan = _plan(replace(member, name=followed(base), overrides=[*member.overrides, *overrides]), study.outline)
    say(f"[advice] {plan.path.name}: {base} with {' '.join(overrides)}")
    return start_job(plan)
