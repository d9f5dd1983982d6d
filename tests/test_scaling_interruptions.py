"""A host that shares its core is interrupted for a share of the time in which it has something to do."""

from pathlib import Path

import pytest

from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.as_run.untraced import given_steps
from tests.host_traces import HostTrace

STEPS, OPERATORS, TURN_US, TURNS = 6, 1_200, 4_000.0, 3


def interrupted(trace: HostTrace, number: int) -> None:
    """A step of launches, of which others have the core three times, here and there."""
    taken = {(37 * number + 311 * turn + 53) % OPERATORS for turn in range(TURNS)}
    for at in range(OPERATORS):
        if at in taken:
            trace.clock += TURN_US
        trace.kernel(f"aten::op{at % 40}", 2.0)
        trace.python(10.0)


@pytest.mark.parametrize("share", [1.0, 0.7])
def test_interruptions_are_shorter_in_a_step_that_is_not_recorded(tmp_path: Path, share: float) -> None:
    """*Interruptions cost 12.0 ms* of a step of 36 was told, which are those of a recorded one of 65: they cost 7.9."""
    HostTrace().steps(STEPS, interrupted).write(tmp_path)
    (recorded,) = analyze([tmp_path], 1, write=False)
    assert isinstance(recorded, RunAnalysis)
    whole_ms = recorded.steps[1].window_ms
    (run,) = analyze([tmp_path], 1, untraced=given_steps([share * whole_ms], [tmp_path]), write=False)
    assert isinstance(run, RunAnalysis) and run.as_run is not None and run.as_run.contradicts is None
    starved = next(one for one in run.findings if one.code == "host_starved")
    assert starved.rank is None and starved.ms == pytest.approx(share * TURNS * TURN_US / 1e3, rel=0.05)
