"""Composing and freezing a job's config: overrides in, one typed config and its text out.

A config is composed once a job. The ranks read the frozen text only, so that no rank can compose another one.
"""

import difflib
import functools
import os
import re
import sysconfig
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException
from yaml import YAMLError

from scalescope.launch.former_keys import bring_up_to_date
from scalescope.launch.keys import Variants
from scalescope.launch.verb import Verb
from scalescope.records.errors import UserError
from scalescope.records.frozen import refuse_unfrozen
from scalescope.records.package import CONF

Schema = TypeVar("Schema")
_WANTED = (
    ("converted to Integer$", "must be a whole number"),
    ("converted to Float$", "must be a number"),
    ("not a valid bool", "must be true or false"),
    ("is not a ListConfig", "must be a list, such as [A,B]"),
    ("is not Optional$", "cannot be null"),
)


def register_resolvers() -> None:
    """Make the values known that no file can hold.

    `${python_stdlib:}` is the standard library's folder, `${choices:model}` what there is to choose in conf/model.
    """
    OmegaConf.register_new_resolver("python_stdlib", lambda: sysconfig.get_paths()["stdlib"], replace=True)
    OmegaConf.register_new_resolver("choices", lambda group: ", ".join(_choices(group)), replace=True)


def compose_job(verb: str, overrides: Sequence[str]) -> DictConfig:
    """Return the composed config of a verb. Raises UserError in one line, with the near keys where one is unknown."""
    register_resolvers()
    try:
        with initialize_config_dir(str(CONF), version_base="1.3", job_name=verb):
            config = compose(verb, overrides=list(overrides))
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(explain(error, verb)) from error
    _refuse_gaps(config)
    return config


def typed(config: DictConfig, schema: type[Schema]) -> Schema:
    """Return a composed config as its dataclasses, checked. Raises UserError for a value that cannot be."""
    try:
        made = OmegaConf.to_object(config)
    except OmegaConfBaseException as error:
        cause = error.__cause__ or error
        raise UserError(str(cause).splitlines()[0]) from error
    assert isinstance(made, schema)  # conf/*.yaml name it in their defaults
    return made


def refuse_strangers(config: DictConfig, verb: Verb) -> None:
    """Raise UserError for a key that a composed config has and its schema has not, as `+stpes=5` adds it."""
    _refuse_gaps(config)
    try:
        values = OmegaConf.to_container(config, resolve=True)  # as in its text, which takes longer to write and read
        frozen = cast(DictConfig, OmegaConf.create(values))
        chosen = {group: cast(type[Any], OmegaConf.get_type(config, group)) for group in verb.variants}
        _refuse_gaps(_fitted(frozen, verb.schema, chosen))
    except ConfigKeyError as error:
        known = [key for key in _keys_of(config) if key != error.full_key]
        raise UserError(_unknown(str(error.full_key), known, verb.name)) from error


def _refuse_gaps(config: DictConfig) -> None:
    """Raise UserError for a key without a value, which a choice leaves that is a type and no file: model=gpt_schema."""
    if gaps := sorted(OmegaConf.missing_keys(config)):
        group = gaps[0].partition(".")[0]
        if choices := _choices(group):
            raise UserError(
                f"{group}: this choice leaves {gaps[0]} without a value; choose one of {', '.join(choices)}"
            )
        raise UserError(f"{gaps[0]} has no value; write {gaps[0]}=VALUE")


def freeze(config: DictConfig) -> str:
    """Return a composed config as text: every value resolved, nothing left to compose."""
    return OmegaConf.to_yaml(config, resolve=True)


def thaw(text: str, schema: type[Schema], variants: Variants) -> Schema:
    """Return the typed config of a frozen text, also of one that an earlier version wrote.

    Raises UserError where the text does not fit the schema (an edited file, another kind of job's).
    """
    try:
        raw = _read(text)
        bring_up_to_date(raw, schema, variants)
        chosen = {group: kinds[raw[group].kind] for group, kinds in variants.items()}
        return typed(_fitted(raw, schema, chosen), schema)
    except (OmegaConfBaseException, LookupError, AttributeError, TypeError, ValueError, OverflowError) as error:
        said = str(error).splitlines()[0]
        raise UserError(f"the frozen config does not fit this version of scalescope: {said}") from error


def _read(text: str) -> DictConfig:
    """Return a frozen text's keys. Raises UserError for what freezing does not write."""
    try:
        refuse_unfrozen(text)
        return cast(DictConfig, OmegaConf.create(text))
    except (UserError, YAMLError, ValueError) as error:  # ValueError: numbers such as `0x_`
        raise UserError(f"the frozen config is not what freezing wrote: {str(error).splitlines()[0]}") from error


def _fitted(raw: DictConfig, schema: type[Any], chosen: Mapping[str, type[Any]]) -> DictConfig:
    """Return a config with its types; `chosen` has those of the nodes that may be one of several."""
    base = OmegaConf.structured(schema)
    for group, kind in chosen.items():
        base[group] = OmegaConf.structured(kind)
    return cast(DictConfig, OmegaConf.merge(base, raw))


def explain(error: Exception, verb: str) -> str:
    """Return Hydra's error as one line that says what is wrong, where, and what to do."""
    text = str(error)
    cause = error.__cause__
    if match := re.search(r"Could not override '([^']+)'|Key '([^']+)' is not in struct", text):
        return _unknown(match[1] or match[2], all_keys(verb), verb)
    if match := re.search(r"Could not find '([^']+)'", text):
        group, _, option = match[1].rpartition("/")
        options = _choices(group) if group else []
        if options:
            return f"{group}={option}: there is no such choice; choose one of {', '.join(options)}"
    if text.startswith("Error merging override") and cause is not None:
        return f"{text.removeprefix('Error merging override ').strip()}: {_wanted(str(cause).splitlines()[0])}"
    if match := re.search(r"Ambiguous value for argument '([^=']+)=(.*)'", text):
        each = "" if verb == "study" else f", or add -m for a {verb} each"
        return f"{match[1]}={match[2]} is several values; write {match[1]}=[{match[2]}] for a list{each}"
    if isinstance(error, OverrideParseException):
        word = str(error.override)
        if os.path.exists(word):  # noqa: PTH110 - no word of a command line makes this one raise
            return f"{word} is a path, and settings are KEY=VALUE; scalescope analyze {word} reads it"
        return _unreadable(word, text.splitlines()[0], all_keys(verb))
    if isinstance(cause, OmegaConfBaseException):
        text = f"{text.splitlines()[0]} ({str(cause).splitlines()[0]})"
    return text.splitlines()[0]


def _choices(group: str) -> list[str]:
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def quoted(value: str) -> str:
    """Return a value in Hydra's quotes, since a path may hold what its grammar reads otherwise."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def dashed(word: str, verb: str) -> str | None:
    """Return how a setting is written that came as a flag (`--steps=5`); None where no setting has that name."""
    name, equals, value = word.lstrip("-").replace("-", "_").partition("=")
    known = all_keys(verb)
    keys = [key for key in known if key == name] or [key for key in known if key.rpartition(".")[2] == name]
    keys = keys or meant(name, known)
    if not word.startswith("--"):
        keys = meant(word.partition("=")[0], known)  # one dash and a letter, as nccl-tests' flags
    if not keys:
        return None
    return f"{word}: settings have no dashes; write {keys[0]}={value if equals else 'VALUE'}"


def _unknown(key: str, known: Sequence[str], verb: str) -> str:
    return f"unknown config key '{key}'{_near(key, known)}; scalescope {verb} --help lists them"


def _unreadable(override: str, why: str, known: Sequence[str]) -> str:
    key, equals, value = override.partition("=")
    if not equals and re.fullmatch(r"[\w.]+", override):
        groups = [folder.name for folder in sorted(CONF.iterdir()) if override in _choices(folder.name)]
        wanted = f"{groups[0]}={override}" if groups else f"{override if override in known else 'KEY'}=VALUE"
        return f"{override!r} sets nothing; write {wanted}"
    if not equals or re.search(r"[\[\]{}()'\"]", value):  # quotes or brackets of its own, which do not fit together
        advice = "write KEY=VALUE, in quotes where the shell would take it apart"
        return f"cannot read the override {override!r} ({why}); {advice}"
    return f'cannot read {override!r}: blanks and other signs take quotes of their own: "{key}={quoted(value)}"'


def _wanted(said: str) -> str:
    """Return what a key takes, instead of OmegaConf's words for a value of another type."""
    return next((wanted for pattern, wanted in _WANTED if re.search(pattern, said)), said)


def meant(word: str, known: Sequence[str]) -> list[str]:
    """Return the keys, of those that are known, which another tool calls by a word: `lr`, `collective`, `ngpus`."""
    word = word.lower().replace("-", "_") if not word.startswith("-") else word
    words = tomllib.loads((CONF / "words.toml").read_text(encoding="utf-8"))
    return [key for key, called in words.items() if word in called.split() and key in known]


def _near(key: str, known: Sequence[str]) -> str:
    last = key.rpartition(".")[2]
    near = meant(key, known) or meant(last, known)
    near += [name for name in difflib.get_close_matches(key, known, n=3, cutoff=0.6) if name not in near]
    near += [name for name in known if name.rpartition(".")[2] == last and name not in near][:3]
    return f"; did you mean {' or '.join(near[:3])}?" if near else ""


@functools.cache
def all_keys(verb: str) -> Sequence[str]:
    """Return the keys of a verb's config, with those of the choices that it makes unasked."""
    with initialize_config_dir(str(CONF), version_base="1.3", job_name=verb):
        return _keys_of(compose(verb))


def _keys_of(config: DictConfig, prefix: str = "") -> list[str]:
    keys: list[str] = []
    for key in map(str, config):
        keys.append(f"{prefix}{key}")
        child = config._get_node(key)
        if isinstance(child, DictConfig) and not child._is_none():
            keys += _keys_of(child, f"{prefix}{key}.")
    return keys
