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
    opened = [one for one in windows if (own := facts.get(_first(one))) is not None and own.longer is not None]
    if not opened:
        return list(windows), [], None
    longer = facts[_first(opened[-1])].longer
    assert longer is not None
    chosen, usual = [], []
    for one in windows:
        if one is opened[-1] or (_first(one) >= longer.since and _near_ms(facts, one) >= _LONGER * longer.level_ms):
            chosen.append(one)
        elif not any(one is other for other in opened) and _first(one) < longer.since:
            usual.append(one)
    return chosen, usual, longer


def _facts(path: Path) -> dict[int, WindowFacts]:
    try:
        recording = RunFolder(path).read_recording()
    except (OSError, UserError, msgspec.DecodeError):
        return {}
    return {one.steps[0]: one for one in recording.windows if one.steps} if recording is not None else {}


def _first(window: Explained) -> int:
    return min((step.step for step in window.analysis.steps), default=-1)


def _near_ms(facts: dict[int, WindowFacts], window: Explained) -> float:
    """Return what steps beside a window take, ms; 0 where that is not told."""
    own = facts.get(_first(window))
    beside = [one.median_ms for one in (own.before, own.after) if one is not None] if own is not None else []
    return min(beside, default=0.0)
