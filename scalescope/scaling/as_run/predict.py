"""What changes would do to the step as run: a target opened, recording's cost taken out of it, and changes replayed."""

from collections.abc import Sequence

from msgspec.structs import replace

from scalescope.scaling.as_run.of_job import NEAR
from scalescope.scaling.as_run.step import take_recording_out
from scalescope.scaling.as_run.untraced import given_steps, untraced_of_run
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.load import Target, open_replayer
from scalescope.scaling.replay.whatif.prediction import Prediction, WhatIf
from scalescope.scaling.replay.whatif.replayer import Replayer


def open_as_run(target: Target, step_ms: float | None = None) -> Replayer:
    """Return a target's replayer, which speaks of the step as run.

    `step_ms`: the step without a profiler; None: as the run's own rows tell. Raises UserError where there are no
    traces, and for a step that is none.
    """
    given = given_steps([step_ms] if step_ms is not None else [], [target.path]).get(target.path)
    replayer = open_replayer(target)
    untraced = given or untraced_of_run(target.path)
    told = take_recording_out(replayer, untraced)
    replayer.of = "as_profiled" if told is None or not told.ranks else "likely" if told.source == "range" else "as_run"
    if replayer.on_cpu and untraced is not None and replayer.of == "as_run":
        replayer.job_ms = untraced.job_ms  # what such a job's step takes, all its steady ones tell
    return replayer


def predict(name: str, replayer: Replayer, changes: Sequence[Change]) -> WhatIf:
    """Return what changes would do to the step: the job's own, where the replayed one is as long as that."""
    replayer.work_out(changes)
    predictions = [replayer.predict(change) for change in changes]
    step, own, of = replayer.base_ns / 1e6, replayer.job_ms, replayer.of
    if own is not None and abs(own - step) > NEAR * own:
        of = "without_recording"
    elif own is not None:
        predictions, step, own = [_of_job(one, own) for one in predictions], own, None
    return WhatIf(name=name, replay=replayer.replay, step_ms=step, of=of, own_ms=own, predictions=predictions)


def _of_job(one: Prediction, step_ms: float) -> Prediction:
    """Return a prediction as one of the job's own step."""
    if one.change_ms is None:
        return one
    return replace(one, step_ms=step_ms + one.change_ms, fraction=one.change_ms / step_ms)
