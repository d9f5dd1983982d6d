"""A study: which jobs answer "why does it not scale", and running them one after another on this machine."""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from launch.compose import compose_job, explain, freeze, typed
from launch.config import StudyConfig
from launch.freeze import Plan, plan_job
from launch.place import resolve
from launch.verb import Verb
from records.environment import usable_cores
from records.errors import RunError, UserError
from records.folder import RunFolder, new_name

_SHARED = ("launch", "seed", "logger")  # go to every job of the study, and `launch` to the study itself


@dataclass(frozen=True)
class Study:
    """A study that is ready to run: every job checked, nothing on disk yet."""

    path: Path
    text: str
    logger: dict[str, Any]
    jobs: list[Plan]


def plan_study(overrides: Sequence[str], train: Verb, sweep: Verb) -> Study:
    """Return the jobs that overrides ask for. Raises UserError before anything is started or written."""
    mine, shared, for_sweep, for_train = _route(overrides)
    config = compose_job("study", [*mine, *(item for item in shared if _key(item) != "seed")])
    settings = cast(StudyConfig, cast(Any, typed(config)))
    counts = settings.gpu_counts if settings.gpu_counts != "auto" else _auto_counts(settings)
    name = settings.name or new_name("study", _what(settings, for_train))
    path = Path(settings.runs).expanduser().resolve() / name
    here = resolve(replace(settings.launch, ranks=None))
    if here.device == "cuda" and max(counts) > here.ranks:
        raise UserError(f"gpu_counts={counts}, but this machine has {here.ranks} GPUs; leave out what is above that")
    # the same threads a rank at every count, else scaling is an artefact of them
    threads = settings.launch.threads_per_rank or max(1, usable_cores() // max(counts))
    common = [*shared, f"launch.threads_per_rank={threads}"]
    jobs = []
    for case in settings.cases or [[]]:
        for combination in _grid([*case, *for_train]):
            for count in counts:
                child = _compose_child(train, [*combination, *common], path, count)
                if settings.scaling == "strong":
                    child.global_batch_size = child.model.batch_size * min(counts)
                child.name = f"{child.model.name}-{child.strategy.kind}-n{count}"
                jobs.append(plan_job(train, child))
    if settings.with_sweep and max(counts) > 1:
        groups = [count for count in counts if count > 1]
        child = _compose_child(sweep, [f"group_sizes={groups}", *common, *for_sweep], path, max(counts))
        child.name = "sweep"
        jobs.append(plan_job(sweep, child))
    return Study(path=path, text=freeze(config), logger=settings.logger, jobs=_distinct(jobs))


def run_study(study: Study, say: Callable[[str], None]) -> tuple[RunFolder, list[str]]:
    """Run a study's jobs in order and return its folder, with the reasons of those that failed.

    A job that fails costs the study its own point, not the others'. Raises RunError where none succeeded, and on an
    interrupt, which ends the study.
    """
    from launch.start import start_job  # loads torch, which a mistyped key need not wait for

    folder = RunFolder.create(study.path, "study", study.text)
    failed: list[str] = []
    try:
        for number, plan in enumerate(study.jobs, 1):
            ranks = f"{plan.place.ranks} rank{'s' if plan.place.ranks > 1 else ''}"
            say(f"[{number}/{len(study.jobs)}] {plan.path.name}: {plan.verb.name} on {ranks} ({plan.place.backend})")
            started = time.monotonic()
            try:
                start_job(plan)
            except (RunError, UserError) as error:
                if plan.path.is_dir() and RunFolder(plan.path).read_info().status == "interrupted":
                    raise
                failed.append(f"{plan.path.name}: {error}")
                say(f"    failed: {error}")
            else:
                say(f"    done in {time.monotonic() - started:.0f} s")
    except BaseException:
        folder.set_status("interrupted", "stopped before its last job; what ran is kept")
        raise
    folder.set_status("failed" if failed else "done", "; ".join(failed) or None)
    if len(failed) == len(study.jobs):
        raise RunError(f"every job of the study failed; their folders are in {folder.path}")
    return folder, failed


def _compose_child(verb: Verb, overrides: list[str], study: Path, ranks: int) -> DictConfig:
    config = compose_job(verb.name, overrides)
    # set as values, not as overrides: a path may hold what Hydra's grammar reads otherwise
    config.runs = str(study)
    config.study = study.name
    config.launch.ranks = ranks
    return config


def _distinct(jobs: list[Plan]) -> list[Plan]:
    """Number the jobs whose names are the same, since a grid can vary what a name does not show."""
    seen: dict[Path, int] = {}
    result = []
    for job in jobs:
        seen[job.path] = seen.get(job.path, 0) + 1
        if (number := seen[job.path]) > 1:
            config = cast(DictConfig, OmegaConf.create(job.text))
            config.name = f"{job.path.name}-{number}"
            job = Plan(job.verb, freeze(config), job.path.with_name(config.name), job.study, job.place)
        result.append(job)
    return result


def _route(overrides: Sequence[str]) -> tuple[list[str], list[str], list[str], list[str]]:
    """Split a study's overrides: its own, every job's, the sweep's (`sweep.KEY=…`), the training jobs'."""
    own = {field.name for field in fields(StudyConfig)} | {"preset"}
    mine: list[str] = []
    shared: list[str] = []
    for_sweep: list[str] = []
    for_train: list[str] = []
    for override in overrides:
        root = _key(override).split(".")[0]
        if root in _SHARED:
            shared.append(override)
        elif root in own:
            mine.append(override)
        elif root == "sweep":
            for_sweep.append(override.lstrip("+~").removeprefix("sweep."))
        else:
            for_train.append(override)
    return mine, shared, for_sweep, for_train


def _key(override: str) -> str:
    return override.lstrip("+~").split("=", 1)[0]


def _grid(overrides: Sequence[str]) -> list[list[str]]:
    """Return every combination of comma lists: `model=a,b` gives two. Raises UserError for what does not parse."""
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
    except HydraException as error:
        raise UserError(explain(error, "train")) from error
    choices: list[list[str]] = []
    for override in parsed:
        key = override.get_key_element()
        if override.is_sweep_override():
            choices.append([f"{key}={value}" for value in override.sweep_string_iterator()])
        else:
            choices.append([cast(str, override.input_line)])
    return [list(combination) for combination in itertools.product(*choices)]


def _auto_counts(settings: StudyConfig) -> list[int]:
    most = resolve(settings.launch).ranks
    counts = {2**power for power in range(most.bit_length()) if 2**power <= most}
    return sorted(counts | {most})


def _what(settings: StudyConfig, for_train: Sequence[str]) -> str:
    models = [item.split("=", 1)[1] for item in for_train if item.startswith("model=")]
    models += [item.split("=", 1)[1] for case in settings.cases for item in case if item.startswith("model=")]
    return (models[0].replace(",", "+") if len(models) == 1 else "models") if models else "default"
