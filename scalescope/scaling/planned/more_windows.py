"""How a job is measured again in more windows: how many, over how many steps, and by which overrides of a study."""

from collections.abc import Mapping, Sequence
from typing import Any

from scalescope.records.rows import JobRow
from scalescope.scaling.answer_steps import MoreWindows
from scalescope.scaling.study_answer import MeasuredAgain

#: So many windows at least are more than a moment of the machine.
_WINDOWS = 4


def windows_to_tell(windows: int) -> int:
    """Return how many windows tell more than so many did: four, or twice as many."""
    return max(_WINDOWS, 2 * windows)


def more_windows(settings: Mapping[str, Any]) -> MoreWindows | None:
    """Return the windows and steps that tell more of a job of ours than its own; None where it profiled nothing.

    Each window has as many steps as before, so that whatever its wait, warm-up and recorded steps are, they fit.
    """
    profiler, steps = settings.get("profiler"), settings.get("steps")
    if not isinstance(profiler, Mapping) or not profiler.get("enabled"):
        return None
    repeat = profiler.get("repeat")
    if not isinstance(steps, int) or not isinstance(repeat, int) or steps < 1 or repeat < 1:
        return None
    windows = windows_to_tell(repeat)
    return MoreWindows(windows=windows, steps=windows * -(-steps // repeat))


def measured_again(series: str, scaling: str, counts: Sequence[int], job: JobRow, more: MoreWindows) -> MeasuredAgain:
    """Return the overrides of a study that measures one of its jobs again, at the same counts, in more windows."""
    replaced = {"steps": more.steps, "profiler.repeat": more.windows}
    kept = [word for word in job.overrides if word.lstrip("+").split("=", 1)[0] not in replaced]
    words = [*kept, *(f"{key}={value}" for key, value in replaced.items())]
    words += [] if scaling == "weak" else [f"scaling={scaling}"]
    return MeasuredAgain(series=series, overrides=[*words, f"gpu_counts=[{','.join(map(str, counts))}]"])


def job_called(name: str, jobs: Sequence[JobRow]) -> JobRow | None:
    """Return a study's training job by its name; None where the study does not keep it."""
    return next((job for job in jobs if job.verb == "train" and job.name == name), None)
