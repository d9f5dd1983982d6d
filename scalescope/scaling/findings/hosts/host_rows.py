"""What speaks for the causes on the hosts' side: rows of names and figures, of what a comparison of hosts finds."""

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from scalescope.scaling.evidence.causes.stalls import of_objects
from scalescope.scaling.evidence.host_calls import OBJECT_COLLECTIVES
from scalescope.scaling.evidence.host_cause import HostCause, HostFigure
from scalescope.scaling.finding.figures import EACH_PASS, GARBAGE, LOCK_WAITS, MAY_LOAD
from scalescope.scaling.finding.finding import EvidenceRow

_KINDS: dict[str, Literal["operator", "annotation"]] = {
    "operator": "operator",
    "call": "operator",
    "annotation": "annotation",
}
_MOST_EVIDENCE = 3
_GAP = "gap_before "
#: `.item()` reads a value by these.
_ITEM = ("aten::item", "aten::_local_scalar_dense")


def evidence_of(causes: Sequence[HostCause]) -> tuple[EvidenceRow, ...]:
    """Return what speaks for causes of one code and host, the longest of it first."""
    rows = _in_whichever_pass([_row(figure, cause) for cause in causes for figure in cause.evidence])
    largest = max(causes, key=lambda cause: cause.typical_ns)
    each = [_each_pass(largest)] if largest.each_pass_ns and not collects(largest) else []
    loads = [EvidenceRow(kind="figure", name=MAY_LOAD)] if most_likely_loads(largest) else []
    return (*sorted(rows, key=lambda row: -(row.ms or 0.0))[:_MOST_EVIDENCE], *each, *loads)


def _in_whichever_pass(rows: Sequence[EvidenceRow]) -> list[EvidenceRow]:
    """Return the rows, of gaps before one operator in several passes as one."""
    found: dict[object, EvidenceRow] = {}
    for at, row in enumerate(rows):
        alike = row.name if row.name.startswith(_GAP) and row.others_ms is None else at
        if (same := found.get(alike)) is not None:
            ms, calls = (same.ms or 0.0) + (row.ms or 0.0), (same.calls or 0.0) + (row.calls or 0.0)
            place = row.place if row.place == same.place else None
            line = row.line if row.line == same.line else None
            read = row.read if row.read == same.read else None
            row = replace(same, ms=ms, calls=calls, place=place, line=line, read=read)
        found[alike] = row
    return list(found.values())


def pickles(cause: HostCause) -> bool:
    """Tell whether a host pickles or unpickles at a stall's place, for a collective of Python objects."""
    return cause.place is not None and of_objects(cause.place) is not None


def collects(cause: HostCause) -> bool:
    """Tell whether Python collects its garbage at a stall's place."""
    return cause.place is not None and cause.place.is_collector


def most_likely_loads(cause: HostCause) -> bool:
    """Tell whether all hosts stand still before a step's first operator, in every step, and nobody says what loads."""
    alike = cause.code == "host_stall" and cause.rank is None and not cause.now_and_then
    return alike and cause.otherwise == "data_loading" and not (collects(cause) or pickles(cause))


def _each_pass(cause: HostCause) -> EvidenceRow:
    before = cause.place.before if cause.place is not None else ""
    count = next((one.count for one in cause.evidence if one.kind == "gap"), None)
    return EvidenceRow(
        kind="figure", name=f"{EACH_PASS} {before or 'the begin of the step'}", ms=cause.each_pass_ns / 1e6, calls=count
    )


def _row(figure: HostFigure, cause: HostCause) -> EvidenceRow:
    name = f"{figure.name} in {figure.inside}" if figure.inside and figure.name else figure.name or figure.inside
    if figure.kind == "gap" and cause.place is not None:
        name = f"{_GAP}{figure.opens or cause.place.after or 'the end of the step'}"
        objects = [one for one in (cause.place.inside, cause.place.before) if one in OBJECT_COLLECTIVES.values()]
        if objects:  # which unpickles, inside or at its end
            name = f"gap_in {objects[0]}"
        if cause.place.is_collector:
            name = GARBAGE
    name = LOCK_WAITS if figure.kind == "lock_waits" else name
    return EvidenceRow(
        kind=_KINDS.get(figure.kind, "figure"),
        name=name or figure.kind,
        ms=figure.ns / 1e6,
        others_ms=figure.others_ns / 1e6 if figure.others_ns is not None else None,
        calls=figure.count,
        share=figure.share,
        place=figure.within,
        line=figure.line,
        read=_read(cause) if figure.kind == "gap" else None,
    )


def _read(cause: HostCause) -> Literal["before", "after"] | None:
    """Tell whether `.item()` reads a value right before or after a stall."""
    if cause.place is None or cause.place.inside:
        return None
    return "before" if cause.place.before in _ITEM else "after" if cause.place.after in _ITEM else None
