"""What a study is: which jobs answer "why does it not scale", from the words of a command or from the folder kept."""

import difflib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import cast

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig

from scalescope.launch.compose import all_keys, compose_job, explain, freeze, meant, thaw, typed
from scalescope.launch.config import JobConfig, Sent, StudyConfig
from scalescope.launch.devices import resolve
from scalescope.launch.former_keys import with_present_names
from scalescope.launch.freeze import folder_below
from scalescope.launch.verb import Verb
from scalescope.records.errors import UserError
from scalescope.records.files import RowWriter
from scalescope.records.folder import RunFolder, new_name
from scalescope.records.rows import JobRow

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

    @property
    def resumed(self) -> bool:
        """Whether the folder is there, and is to be gone on with."""
        return self.settings.resume and self.path.exists()

    def make_folder(self) -> RunFolder:
        """Make the study's folder, or open the one that is gone on with. Raises UserError where it cannot be made."""
        if self.resumed:
            folder = RunFolder.open(self.path)
            folder.reopen()
            return folder
        folder = RunFolder.create(self.path, "study", self.text)
        with RowWriter(folder.jobs) as writer:
            for row in self._rows():
                writer.append(row)
        return folder

    def refuse_others(self) -> None:
        """Raise UserError where the folder that is gone on with consists of other jobs than these."""
        folder = RunFolder.open_study(self.path, "choose another name")
        kept = {row.name: row for row in folder.read_jobs()}
        if kept and (others := [row.name for row in self._rows() if kept.get(row.name) != row]):
            raise UserError(f"{self.path} consists of other jobs (not of {', '.join(others[:3])}); leave out all but "
                            f"name={self.path.name} resume=true, or choose another name")  # fmt: skip

    def _rows(self) -> list[JobRow]:
        return [JobRow(one.verb.name, one.name, one.ranks, one.overrides) for one in self.members]


def outline_study(overrides: Sequence[str], train: Verb, sweep: Verb, counts: list[int] | None = None) -> Outline:
    """Return the jobs that overrides ask for; `counts` stands in for `gpu_counts=auto`. Raises UserError."""
    if (kept := reopened(overrides, train, sweep)) is not None:
        return kept
    mine, shared, for_sweep, for_train = _route(overrides)
    for_train, for_sweep = with_present_names(for_train, train), with_present_names(for_sweep, sweep)
    _refuse_mistyped(for_train, train, sweep)
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
    outline = Outline(path=path, text=freeze(config), settings=settings, members=_distinct(members * settings.repeats))
    if outline.resumed:
        outline.refuse_others()
    return outline


def reopened(overrides: Sequence[str], train: Verb, sweep: Verb) -> Outline | None:
    """Return the outline that a study folder keeps, where `name=… resume=true` says nothing of what the study is.

    None: the words say it themselves. Raises UserError for a folder that keeps none.
    """
    if {_key(word) for word in overrides} - {"name", "runs", "resume"} or "resume=true" not in overrides:
        return None
    asked = typed(compose_job("study", list(overrides)), StudyConfig)
    path = folder_below(asked.runs, asked.name or "")
    if not path.exists():
        return None
    folder = RunFolder.open_study(path, "give train or sweep the same words to go on with it")
    verbs = {verb.name: verb for verb in (train, sweep)}
    members = [StudyJob(verbs[row.verb], row.name, row.overrides, row.ranks)
               for row in folder.read_jobs() if row.verb in verbs]  # fmt: skip
    if not members:
        raise UserError(f"{path} does not keep which jobs it consists of; repeat the study's whole command with "
                        "resume=true")  # fmt: skip
    text = folder.config.read_text(encoding="utf-8")
    settings = replace(thaw(text, StudyConfig, {}), name=asked.name, runs=asked.runs, resume=True)
    return Outline(path=path, text=text, settings=settings, members=members)


def _series(train: Verb, config: JobConfig, overrides: list[str], scaling: str, counts: list[int]) -> list[StudyJob]:
    """Return one training job, composed of its overrides, at every count, the largest first.

    What rank 0 compiles is the same at every count and cached, what other ranks compile is theirs alone: so the
    largest job compiles on all ranks at once, and the others find it done.
    """
    if scaling == "strong":
        overrides = [*overrides, *config.shared_out(min(counts))]
    return [StudyJob(train, f"{config.series}-n{count}", overrides, count) for count in sorted(counts, reverse=True)]


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


def _refuse_mistyped(for_train: Sequence[str], train: Verb, sweep: Verb) -> None:
    """Raise UserError for a key that training has not and a study nearly has: the job's own error would not name it."""
    own = [field.name for field in fields(StudyConfig)]
    for root in (_key(override).split(".")[0] for override in for_train):
        if root in {field.name for field in fields(train.schema)}:
            continue
        near = [key for key in meant(root, own) if key not in _SHARED] or difflib.get_close_matches(root, own, n=1)
        if not near and not meant(root, all_keys(train.name)):
            near = [f"sweep.{key}" for key in meant(root, all_keys(sweep.name))]
        if near:
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
