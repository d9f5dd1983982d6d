"""Windows of two kinds: those of steps that had become longer, and those at the usual level.

`profiler.on_anomaly` opens a window where steps come to lie a fifth above their level. What costs them time then is in
that window alone: a mean over all windows would halve it, and say of neither kind what it is. So the answer is of the
longer steps, and keeps beside it what the windows at the usual level show.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from scalescope.records.steps.recording import LongerFacts, WindowFacts
from scalescope.scaling.join.explained import Explained

#: Steps are longer from this many times their level on, as for those that open a window.
_LONGER = 1.2


def by_kind(path: Path, windows: Sequence[Explained]) -> tuple[list[Explained], list[Explained], LongerFacts | None]:
    """Return the windows that the answer is of, those at the usual level beside them, and what became longer.

    All of them, none, and None, where no window was opened for that. Of several such the last one counts.
    """
    facts = _facts(path)
    opened = [one for one in windows if (own := _of(facts, one)) is not None and own.longer is not None]
    if not opened:
        return list(windows), [], None
    own = _of(facts, opened[-1])
    longer = None if own is None else own.longer
    assert longer is not None
    chosen, usual = [], []
    for one in windows:
        if one is opened[-1] or (_first(one) >= longer.since and _near_ms(facts, one) >= _LONGER * longer.level_ms):
            chosen.append(one)
        elif not any(one is other for other in opened) and _first(one) < longer.since:
            usual.append(one)
    return chosen, usual, longer


def _facts(path: Path) -> list[WindowFacts]:
    try:
        recording = RunFolder(path).read_recording()
    except (OSError, UserError, msgspec.DecodeError):
        return []
    return [one for one in recording.windows if one.steps] if recording is not None else []


def _of(facts: Sequence[WindowFacts], window: Explained) -> WindowFacts | None:
    """Return what is recorded of a window, some of whose steps may be left out."""
    first = _first(window)
    return next((one for one in facts if one.steps[0] <= first <= one.steps[-1]), None)


def _first(window: Explained) -> int:
    return min((step.step for step in window.analysis.steps), default=-1)


def _near_ms(facts: Sequence[WindowFacts], window: Explained) -> float:
    """Return what steps beside a window take, ms; 0 where that is not told."""
    own = _of(facts, window)
    beside = [one.median_ms for one in (own.before, own.after) if one is not None] if own is not None else []
    return min(beside, default=0.0)
