"""Pseudonyms throughout a structure: every free text of it, its keys included, whatever the structure is."""

import functools
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin

import msgspec

from scalescope.report.redaction.pseudonyms import Pseudonyms

T = TypeVar("T")


def redacted(value: T, by: Pseudonyms) -> T:
    """Return a structure whose texts reveal neither hosts nor users nor paths.

    Structs and dataclasses keep their type. Fields that hold one of a few words (a Literal) stay as they are: code
    decides by them, and a host may be called like one.
    """
    return cast(T, _of(value, by))


def redacted_twice(value: T, by: Pseudonyms) -> T:
    """Return a structure redacted by all that the whole of it tells: a user may be known by a path at its very end."""
    redacted(value, by)
    return redacted(value, by)


def redacted_config(value: Any, by: Pseudonyms, key: str = "") -> Any:
    """Return a composed config, as plain data, whose values reveal nothing; see `Pseudonyms.value`."""
    if isinstance(value, Mapping):
        return {name: redacted_config(one, by, str(name)) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [redacted_config(one, by, key) for one in value]
    return by.value(key, value) if isinstance(value, str) else value


def _of(value: Any, by: Pseudonyms) -> Any:
    if isinstance(value, str):
        return by.text(value)
    if isinstance(value, Path):
        return value.with_name(by.text(value.name)) if value.name else value
    if isinstance(value, msgspec.Struct):
        names = _free_fields(type(value))
        return msgspec.structs.replace(value, **{name: _of(getattr(value, name), by) for name in names})
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: _of(getattr(value, one.name), by) for one in fields(value) if one.init})
    if isinstance(value, Mapping):
        return {_of(key, by): _of(one, by) for key, one in value.items()}
    if isinstance(value, list):
        return [_of(one, by) for one in value]
    return tuple(_of(one, by) for one in value) if type(value) is tuple else value


@functools.cache
def _free_fields(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the fields of a struct that may hold free text, in themselves or in what they hold."""
    return tuple(field.name for field in msgspec.structs.fields(kind) if _may_hold_text(field.type))


def _may_hold_text(kind: Any) -> bool:
    origin = get_origin(kind)
    if origin is Literal:
        return False
    if origin in (Union, types.UnionType) or origin is not None:
        return any(_may_hold_text(one) for one in get_args(kind) if one is not Ellipsis)
    return kind is Any or (isinstance(kind, type) and issubclass(kind, str | Path | msgspec.Struct))
