"""Two runs' traces as one file for ui.perfetto.dev: one above the other, both beginning with their first step."""

from collections.abc import Iterator
from pathlib import Path

from scalescope.records.folder import RunFolder
from scalescope.report.perfetto import Bundle, Event, open_bundle, write_events
from scalescope.report.redaction.report_data import pseudonyms_of

_SIDE_STRIDE = 100_000_000  # process ids a side; those of a run's ranks stay far below
_FLOW_STRIDE = 2**56
_ORDER_STRIDE = 1_000_000


def write_side_by_side(baseline: Path, other: Path, out: Path, *, redact: bool = False) -> None:
    """Pack both sides' traces into one gzipped trace-event file, `redact`: under pseudonyms.

    Raises UserError where one side has no traces, OSError where the file cannot be written.
    """
    sides = [open_bundle(path, out) for path in (baseline, other)]
    names = [f"{letter} ({path.resolve().name})" for letter, path in zip("AB", (baseline, other), strict=True)]
    known = pseudonyms_of([RunFolder(baseline), RunFolder(other)]) if redact else None
    write_events(out, _both(sides, names), known)


def _both(sides: list[Bundle], names: list[str]) -> Iterator[Event]:
    for at, (bundle, name) in enumerate(zip(sides, names, strict=True)):
        begin_us = _first_step_us(bundle)
        for event in bundle.events:
            yield _moved(event, at, name, begin_us)


def _first_step_us(bundle: Bundle) -> float:
    """Return when the first step begins on any rank's device, in the bundle's time; 0 where there are no steps."""
    begins = [
        int(one.shares.windows.edges[0]) + bundle.packed.offsets_ns.get(rank, 0)
        for rank, one in bundle.summaries.items()
        if one.shares is not None and len(one.shares.windows)
    ]
    return (min(begins) - bundle.origin_ns) / 1e3 if begins else 0.0


def _moved(event: Event, side: int, name: str, begin_us: float) -> Event:
    """Return an event in its side's processes, its time from the side's first step on."""
    moved = {**event, "pid": event.get("pid", 0) + side * _SIDE_STRIDE}
    arguments = event.get("args")
    if event.get("ph") == "M":
        if event.get("name") == "process_name" and isinstance(arguments, dict):
            moved["args"] = {"name": f"{name} · {arguments.get('name', '')}"}
        elif event.get("name") == "process_sort_index" and isinstance(arguments, dict):
            moved["args"] = {"sort_index": int(arguments.get("sort_index", 0)) + side * _ORDER_STRIDE}
        return moved
    if "ts" in event:
        moved["ts"] = round(float(event["ts"]) - begin_us, 3)
    if isinstance(event.get("id"), int):
        moved["id"] = event["id"] + side * _FLOW_STRIDE
    return moved
