"""What changes would do to the step as run: a target opened, recording's cost taken out of it, and changes replayed."""

from collections.abc import Sequence

from scalescope.scaling.as_run.step import take_recording_out
from scalescope.scaling.as_run.untraced import given_steps, untraced_of_run
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.load import Target, open_replayer
from scalescope.scaling.replay.whatif.prediction import WhatIf
from scalescope.scaling.replay.whatif.replayer import Replayer


def open_as_run(target: Target, step_ms: float | None = None) -> Replayer:
    """Return a target's replayer, which speaks of the step as run.

    `step_ms`: the step without a profiler; None: as the run's own rows tell. Raises UserError where there are no
    traces, and for a step that is none.
    """
    given = given_steps([step_ms] if step_ms is not None else [], [target.path]).get(target.path)
    replayer = open_replayer(target)
    take_recording_out(replayer, given or untraced_of_run(target.path))
    return replayer


def predict(name: str, replayer: Replayer, changes: Sequence[Change]) -> WhatIf:
    """Return what changes would do to the step."""
    replayer.work_out(changes)
    return WhatIf(
        name=name,
        replay=replayer.replay,
        step_ms=replayer.base_ns / 1e6,
        predictions=[replayer.predict(change) for change in changes],
    )
