"""What is predicted of a change, typed."""

from typing import Literal

import msgspec

from scalescope.scaling.answer import Replay
from scalescope.scaling.finding.finding import Reason
from scalescope.scaling.replay.change import Change


class Prediction(msgspec.Struct, kw_only=True):
    """What a change would do to the step, each figure with its 95% interval."""

    change: Change
    what: str
    step_ms: float | None  # None: it cannot be told, see `reason`
    change_ms: float | None = None
    low_ms: float | None = None  # of the change
    high_ms: float | None = None
    fraction: float | None = None  # change over the replayed step
    at_least: bool = False  # it takes that much off, and nothing tells how much more: `low_ms` is no bound
    reason: str | None = None


#: Which step changes are of: the job's own, the one that is likeliest to be it, the profiled ones without recording,
#: where those are others than the job's, or as they were recorded.
ChangedStep = Literal["as_run", "likely", "without_recording", "as_profiled"]


class NothingFound(msgspec.Struct, frozen=True):
    """That each cause was looked for and none costs the step; and what changes that may be asked for have to act on."""

    exchanges: bool  # ranks exchange data, which links and overlap change
    gradients: bool  # DDP's are told apart: they can travel otherwise, in other buckets


class WhatIf(msgspec.Struct, kw_only=True):
    """A run's replay, and what changes would do to it."""

    name: str
    replay: Replay
    step_ms: float  # unchanged: what the predictions' changes are of
    of: ChangedStep = "as_profiled"  # which step that is
    own_ms: float | None = None  # the job's own, where changes are of another one
    predictions: list[Prediction] = []
    nothing_found: NothingFound | None = None  # no change was asked for, and there is nothing to take out
    unpriced: Reason | None = None  # no change was asked for, and why what was found has no price


def withheld(change: Change, reason: str) -> Prediction:
    return Prediction(change=change, what=change.description, step_ms=None, reason=reason)
