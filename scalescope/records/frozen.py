"""A frozen config as plain YAML: what `config.yaml` may hold when it comes back from disk, perhaps a stranger's."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from scalescope.records.errors import UserError
from scalescope.records.files import DamagedFile, refuse_special

_MOST_CHARACTERS = 1_000_000
_DEEPEST = 50


def refuse_unfrozen(text: str) -> None:
    """Raise UserError for a text that freezing does not write, before a loader builds anything of it.

    An alias stands for a whole subtree and multiplies with the next one; `${…}` reads whatever a resolver reaches, such
    as this process's environment; a tag asks for a Python object.
    """
    if len(text) > _MOST_CHARACTERS:
        raise UserError(f"it holds {len(text):,} characters; a frozen config has a few thousand")
    depth = 0
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > _DEEPEST:
                raise UserError(f"it is nested more than {_DEEPEST} deep")
            if isinstance(event, yaml.AliasEvent):
                raise UserError(f"line {event.start_mark.line + 1}: a frozen config has no aliases (*{event.anchor})")
            if isinstance(event, yaml.ScalarEvent) and "${" in event.value:
                raise UserError(f"line {event.start_mark.line + 1}: a frozen config has nothing left to resolve "
                                f"({event.value[:60]})")  # fmt: skip
            if getattr(event, "tag", None) is not None:
                raise UserError(f"line {event.start_mark.line + 1}: a frozen config has no tags ({event.tag})")
    except yaml.YAMLError as error:
        raise UserError(" ".join(str(error).split())[:300]) from error


def imported_config(names: Sequence[str]) -> str:
    """Return the config of a folder made of other tools' files. Any name reads back: quoted, and nothing to resolve."""
    plain = [name.encode("utf-8", "replace").decode().replace("${", "$ {") for name in names]
    return f"# imported, not measured here\nlogs: {json.dumps(plain)}\n"


def frozen_keys(text: str) -> dict[str, Any]:
    """Return the keys of a frozen config's text; none of an empty one.

    Raises UserError for what freezing does not write.
    """
    refuse_unfrozen(text)
    try:
        loaded = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: numbers such as `0x_`
        raise UserError(" ".join(str(error).split())[:300]) from error
    if loaded is not None and not isinstance(loaded, dict):
        raise UserError("it holds no keys")
    return loaded or {}


def read_frozen_text(path: Path) -> str:
    """Return the text of a `config.yaml`.

    Raises DamagedFile where it is none, OSError where it cannot be read, UserError for what is no plain file.
    """
    refuse_special(path)
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DamagedFile(f"{path}: {error}") from error


def read_frozen(path: Path) -> dict[str, Any]:
    """Return the keys of a folder's `config.yaml`; none where there is no such file.

    Raises DamagedFile for what freezing does not write, UserError for what is no plain file.
    """
    if not path.exists():
        return {}
    text = read_frozen_text(path)
    try:
        keys = frozen_keys(text)
    except UserError as error:
        raise DamagedFile(f"{path}: {error}") from error
    if not keys:
        raise DamagedFile(f"{path}: it holds no keys")
    return keys
