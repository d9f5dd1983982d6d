"""A window of traced steps, recorded as users do it: torch.profiler with a schedule, `step()` after each step."""

import os
from pathlib import Path

from torch.profiler import ProfilerActivity, profile, schedule

from causes.cases import Recording
from causes.job import Hooks, Job
from causes.measuring import Marks, Team

WAIT, WARMUP, ACTIVE = 1, 2, 5
FIRST = WAIT + WARMUP  # the first traced step's number


def record(job: Job, team: Team, hooks: Hooks, folder: Path | None, recording: Recording) -> list[float]:
    """Trace five steps and return how long each took, ms. The trace is left uncompressed; without a folder, nowhere."""
    if recording.teardown:
        os.environ["TEARDOWN_CUPTI"] = "1"
    host = [ProfilerActivity.CPU] if recording.host or not job.on_gpu else []
    device = [ProfilerActivity.CUDA] if job.on_gpu else []

    def export(finished: profile) -> None:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            finished.export_chrome_trace(str(folder / trace_name(job.rank)))

    marks = Marks(job)
    with (
        team.running(hooks),
        profile(
            activities=[*host, *device],
            schedule=schedule(wait=WAIT, warmup=WARMUP, active=ACTIVE, repeat=1),
            on_trace_ready=export,
            record_shapes=recording.shapes,
            with_stack=recording.stack,
        ) as profiler,
    ):
        job.synchronize()
        team.barrier()
        for number in range(FIRST + ACTIVE):
            if number >= FIRST:
                marks.mark()
            job.step(hooks)
            if number == FIRST + ACTIVE - 1:
                marks.mark()
            profiler.step()
        return marks.steps_ms()


def trace_name(rank: int) -> str:
    """Return the name of a rank's trace before it is compressed."""
    return f"rank{rank}.{FIRST}.pt.trace.json"
