"""Where a window begins and ends, recording itself makes steps unlike the others: that is no cause of the job's."""

import pytest

from scalescope.scaling.answer import PARTS, Quality, RunAnalysis, StepSplit
from scalescope.scaling.verdicts.now_and_then import with_now_and_then


def split(rank: int, step: int, *, open_ended: bool = False, **parts: float) -> StepSplit:
    taken = {f"{part}_ms": parts.get(part, 0.0) for part in PARTS}
    return StepSplit(rank=rank, step=step, window_ms=sum(parts.values()), open_ended=open_ended, **taken)


@pytest.mark.parametrize(("last", "told"), [(4.8, []), (0.0, ["host_stall"])])
def test_a_queue_that_has_run_dry_is_no_stall_of_some_steps(last: float, told: list[str]) -> None:
    """A rank of which recording makes the host slower than the device: it waits in all steps once its lead is used up.

    *Its host stands still in 2 of 4 steps* was told first, of a rank with work of its own. What ends again is a stall.
    """
    run = RunAnalysis(
        name="x", world_size=2, activity="gpu", quality=Quality(verdict="good"), steps_by="profiler"
    )  # fmt: skip
    for step, idle in enumerate((0.0, 0.0, 5.2, 8.4, last)):
        run.steps.append(split(0, step, open_ended=step == 4, compute=3.3, exposed_wait=8.7 + idle))
        run.steps.append(split(1, step, open_ended=step == 4, compute=12.0, idle_launch=idle))
    assert [one.code for one in with_now_and_then([], run)] == told
