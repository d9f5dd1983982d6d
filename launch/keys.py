"""What a config's field says of its key beside its type: what it was called before, and whether it may change when a
run goes on. What a key means stands beside its default, in conf/."""

from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, get_type_hints

from omegaconf import MISSING

from scalescope.records.errors import UserError

_RESUMABLE, _FORMERLY, _ADDED, _AUTO = "resumable", "formerly", "added_as", "auto_goes_on"
_NOT_ADDED = object()

#: By group, then by kind: the classes that type a node whose class depends on its `kind`.
Variants = Mapping[str, Mapping[str, "type[Variant]"]]


def key(
    *, resumable: bool = False, formerly: str | None = None, added_as: Any = _NOT_ADDED, auto_goes_on: bool = False
) -> Any:
    """Return a field whose default is in conf/.

    `resumable`: a run may go on with another value, since it decides nothing of what is measured. `formerly`: the key's
    former name, which overrides and frozen configs may still use. `added_as`: what configs mean that were frozen before
    there was the key. `auto_goes_on`: a run of any value goes on where `auto`, or nothing, is asked for, which asks for
    none of them: what was the default before there was that stands in every run's config.
    """
    return field(
        default=MISSING,
        metadata={_RESUMABLE: resumable, _FORMERLY: formerly, _ADDED: added_as, _AUTO: auto_goes_on},
    )


@dataclass
class Variant:
    """One of the classes that may type a group's node; `kind` in the config says which. Raises UserError for a kind
    that is another class's."""

    group: ClassVar[str]
    own_kind: ClassVar[str]
    retired: ClassVar[tuple[str, ...]] = ()  # keys that frozen configs may hold, and that nothing reads any more

    kind: str = MISSING

    def __post_init__(self) -> None:
        if self.kind != self.own_kind:
            raise UserError(f"{self.group}.kind={self.kind}: the rest is {self.own_kind}'s; choose by {self.group}=…")


def former_names(schema: type[Any], variants: Variants) -> dict[str, str]:
    """Return the present name of every key that had another one, both in full: {"a.old": "a.new"}."""
    return {
        f"{prefix}{former}": f"{prefix}{one.name}"
        for prefix, one in _all_fields(schema, variants)
        if (former := one.metadata.get(_FORMERLY)) is not None
    }


def added_keys(schema: type[Any], variants: Variants) -> dict[str, Any]:
    """Return what every key that a version added meant before, by its name in full."""
    return {
        f"{prefix}{one.name}": one.metadata[_ADDED]
        for prefix, one in _all_fields(schema, variants)
        if one.metadata.get(_ADDED, _NOT_ADDED) is not _NOT_ADDED
    }


def foreign_keys(group: str, kind: str, variants: Variants) -> set[str]:
    """Return the keys that a group's node may hold beside its own class's: retired ones, and those of other kinds.

    Until each kind had a class, every frozen config held the keys of all.
    """
    kinds = variants[group]
    known = {one.name for each in kinds.values() for one in fields(each)}
    return (known | {name for each in kinds.values() for name in each.retired}) - {
        one.name for one in fields(kinds[kind])
    }


def changed_keys(then: Any, now: Any, prefix: str = "") -> Iterator[tuple[str, object, object]]:
    """Yield (key, before, now) for what differs between two typed configs, but for what may change on resuming."""
    if isinstance(then, Variant) and isinstance(now, Variant) and type(then) is not type(now):
        yield f"{prefix}kind", then.kind, now.kind
        return
    for one in fields(now):
        if one.metadata.get(_RESUMABLE):
            continue
        before, after = getattr(then, one.name), getattr(now, one.name)
        if is_dataclass(after):
            yield from changed_keys(before, after, f"{prefix}{one.name}.")
        elif before != after and not (after in ("auto", None) and one.metadata.get(_AUTO)):
            yield f"{prefix}{one.name}", before, after


def _all_fields(schema: type[Any], variants: Variants, prefix: str = "") -> Iterator[tuple[str, Field[Any]]]:
    """Yield every field below a schema with the names above it, those of every variant included."""
    hints = get_type_hints(schema)
    for one in fields(schema):
        yield prefix, one
        inside = list(variants[one.name].values()) if not prefix and one.name in variants else [hints[one.name]]
        for each in inside:
            if is_dataclass(each) and isinstance(each, type):
                yield from _all_fields(each, variants, f"{prefix}{one.name}.")
