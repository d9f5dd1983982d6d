"""A study: which jobs answer "why does it not scale", and running them one after another on this machine."""

import difflib
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import cast

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig

from scalescope.launch.compose import compose_job, explain, freeze, typed
from scalescope.launch.config import JobConfig, Sent, StudyConfig
from scalescope.launch.devices import resolve
from scalescope.launch.former_keys import with_present_names
from scalescope.launch.freeze import Plan, folder_below, plan_job
from scalescope.launch.verb import Verb
from scalescope.records.environment import usable_cores
from scalescope.records.errors import RunError, Stopped, UserError
from scalescope.records.folder import RunFolder, new_name

_SHARED = ("launch", "seed", "logger")  # go to every job of the study, and `launch` to the study itself


@dataclass(frozen=True)
class StudyJob:
    """One job of a study, before anything of this machine is known: a login node can submit it as it is."""

    verb: Verb
    name: str
    overrides: list[str]
    ranks: int

    def compose(self, study: Path) -> DictConfig:
        """Return the job's config. Raises UserError for overrides that do not fit."""
        config = compose_job(self.verb.name, self.overrides)
        # set as values, not as overrides: a path may hold what Hydra's grammar reads otherwise
        config.name = self.name
        config.runs = str(study)
        config.study = study.name
        config.launch.ranks = self.ranks
        return config


@dataclass(frozen=True)
class Outline:
    """What a study is: its folder, its own config, its jobs. Nothing is on disk yet."""

    path: Path
    text: str
    settings: StudyConfig
    members: list[StudyJob]


@dataclass(frozen=True)
class PlannedStudy:
    """A study that is ready to run on this machine: every job checked and placed."""

    outline: Outline
    jobs: list[Plan]


def outline_study(overrides: Sequence[str], train: Verb, sweep: Verb, counts: list[int] | None = None) -> Outline:
    """Return the jobs that overrides ask for; `counts` stands in for `gpu_counts=auto`. Raises UserError."""
    mine, shared, for_sweep, for_train = _route(overrides)
    for_train, for_sweep = with_present_names(for_train, train), with_present_names(for_sweep, sweep)
    _refuse_mistyped(for_train, train)
    config = compose_job("study", [*mine, *(item for item in shared if _key(item) != "seed")])
    settings = typed(config, StudyConfig)
    if settings.gpu_counts == "auto":
        settings.gpu_counts = counts or _auto_counts(settings)
    counts = cast(list[int], settings.gpu_counts)
    name = settings.name or new_name("study", _what(settings, for_train))
    members: list[StudyJob] = []
    sent: list[Sent] = []
    for case in settings.cases or [[]]:
        for combination in grid([*with_present_names(case, train), *for_train]):
            overrides = [*combination, *shared]
            job = typed(compose_job(train.name, overrides), train.schema)
            members += _series(train, job, overrides, settings.scaling, counts)
            sent.append(job.sent)
    if settings.with_sweep and max(counts) > 1:
        axes = [f"group_sizes={[count for count in counts if count > 1]}"]
        for axis, some in (("operations", [one.operations for one in sent]), ("dtypes", [one.dtypes for one in sent])):
            each = dict.fromkeys(itertools.chain.from_iterable(some))  # once, in order
            axes += [f"{axis}=[{','.join(each)}]"] if each else []  # else the sweep's own choice stands
        members.append(StudyJob(sweep, "sweep", [*axes, *shared, *for_sweep], max(counts)))
    path = folder_below(settings.runs, name)
    return Outline(path=path, text=freeze(config), settings=settings, members=_distinct(members))


def plan_study(outline: Outline) -> PlannedStudy:
    """Check and place every job of a study on this machine. Raises UserError before anything is started or written."""
    settings = outline.settings
    most = max(settings.gpu_counts)
    here = resolve(replace(settings.launch, ranks=None))
    if here.device == "cuda" and most > here.ranks:
        raise UserError(f"gpu_counts={settings.gpu_counts}, but this machine has {here.ranks} GPUs; "
                        "leave out what is above that")  # fmt: skip
    return PlannedStudy(outline=outline, jobs=[_plan(member, outline) for member in outline.members])


def _plan(member: StudyJob, outline: Outline) -> Plan:
    config = member.compose(outline.path)
    if config.launch.threads_per_rank is None:
        # the same threads a rank at every count, else scaling is an artefact of them
        config.launch.threads_per_rank = max(1, usable_cores() // max(outline.settings.gpu_counts))
    return plan_job(member.verb, config)


def run_study(study: PlannedStudy, say: Callable[[str], None]) -> tuple[RunFolder, list[str]]:
    """Run a study's jobs in order and return its folder, with the reasons of those that failed.

    A job that fails costs the study its own point, not the others'. Raises RunError where none succeeded, and on an
    interrupt, which ends the study.
    """
    from scalescope.launch.start import start_job  # loads torch, which a mistyped key need not wait for

    folder = RunFolder.create(study.outline.path, "study", study.outline.text)
    failed: list[str] = []
    try:
        for number, plan in enumerate(study.jobs, 1):
            ranks = f"{plan.devices.ranks} rank{'s' if plan.devices.ranks > 1 else ''}"
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
                say(f"    done in {time.monotonic() - started:.0f} s")
    except BaseException:
        folder.set_status("interrupted", "stopped before its last job; what ran is kept")
        raise
    folder.set_status("failed" if failed else "done", "; ".join(failed) or None)
    if len(failed) == len(study.jobs):
        raise RunError(f"every job of the study failed; their folders are in {folder.path}")
    return folder, failed


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


def _series(train: Verb, config: JobConfig, overrides: list[str], scaling: str, counts: list[int]) -> list[StudyJob]:
    """Return one training job, composed of its overrides, at every count."""
    if scaling == "strong":
        overrides = [*overrides, *config.shared_out(min(counts))]
    return [StudyJob(train, f"{config.series}-n{count}", overrides, count) for count in counts]


def _distinct(members: list[StudyJob]) -> list[StudyJob]:
    """Number the jobs whose names are the same, since a grid can vary what a name does not show."""
    seen: dict[str, int] = {}
    result = []
    for member in members:
        seen[member.name] = number = seen.get(member.name, 0) + 1
        result.append(replace(member, name=f"{member.name}-{number}") if number > 1 else member)
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


def _refuse_mistyped(for_train: Sequence[str], train: Verb) -> None:
    """Raise UserError for a key that training has not and a study nearly has: the job's own error would not name it."""
    for root in (_key(override).split(".")[0] for override in for_train):
        near = difflib.get_close_matches(root, [field.name for field in fields(StudyConfig)], n=1)
        if near and root not in {field.name for field in fields(train.schema)}:
            raise UserError(f"unknown config key '{root}'; did you mean {near[0]}?; scalescope study --help lists them")


def _key(override: str) -> str:
    return override.lstrip("+~").split("=", 1)[0]


def grid(overrides: Sequence[str]) -> list[list[str]]:
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
