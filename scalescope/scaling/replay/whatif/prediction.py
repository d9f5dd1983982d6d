"""What is predicted of a change, typed."""

import msgspec

from scalescope.scaling.answer import Replay
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
    reason: str | None = None


class WhatIf(msgspec.Struct, kw_only=True):
    """A run's replay, and what changes would do to it."""

    name: str
    replay: Replay
    step_ms: float  # unchanged: what the predictions' changes are of
    predictions: list[Prediction] = []


def withheld(change: Change, reason: str) -> Prediction:
    return Prediction(change=change, what=change.description, step_ms=None, reason=reason)
