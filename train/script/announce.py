"""What `profile_steps` says that it will do: when it starts, and before it analyses. Torch-free."""

from collections.abc import Sequence
from pathlib import Path

from scalescope.records.folder import RunFolder
from scalescope.records.steps.recording import WhyFewer
from scalescope.train.measure.anomaly import Anomaly
from scalescope.train.measure.schedule import Window

#: What an analysis with its report takes on a core of 2.8 GHz: to begin with, and for each MiB of packed traces.
_BASE_S, _PER_MIB_S = 4.0, 0.2
_MIB = 2**20
_EARLIEST = 3  # the first step that wait=2, warmup=1 records


def plan(windows: Sequence[Window], folder: Path, *, analyze: bool, left_open: bool = False) -> str:
    """Return what will happen, in a line: which steps are recorded, and what comes at the end, on which rank.

    `left_open`: how many they are, up to these, is for the first of them to tell.
    """
    spans = [f"{window.active} to {window.end - 1}" for window in windows]
    recorded = f"steps {', '.join(spans)} are recorded" if spans else "no step is recorded"
    if left_open and spans:
        recorded += ", or fewer where a step has many operators"
    later = f"scalescope analyze {folder}"
    if not analyze:
        return f"{recorded}; nothing is analysed at the end (analyze=False): {later}"
    return (
        f"{recorded}; when the loop has ended, rank 0 analyses them and writes report.html, which takes it about "
        f"{_BASE_S:.0f} s, longer with many ranks or long windows (analyze=False puts it off: {later})"
    )


_WHY: dict[WhyFewer, str] = {
    "many_operators": "a step has so many operators that they are enough",
    "no_room": "profiler.max_mib leaves room for no more",
    "loop_ended": "the loop ended",
}


def cut(window: Window, last: int, why: WhyFewer) -> str:
    """Return which steps of a window are recorded after all, and why not those that were to be."""
    which = f"step {last} is" if last == window.active else f"steps {window.active} to {last} are"
    return f"{which} recorded, not {window.active} to {window.end - 1}: {_WHY[why]}"


def analysis(folder: RunFolder) -> str:
    """Return what is about to be analysed, and about how long it takes."""
    paths = [path for of_rank in folder.find_traces().values() for path in of_rank]
    mib = sum(path.stat().st_size for path in paths) / _MIB
    traces = f"{len(paths)} trace{'s' if len(paths) != 1 else ''} of {mib:,.1f} MiB" if paths else "the steps' times"
    return f"analysing {traces}, about {_BASE_S + _PER_MIB_S * mib:.0f} s"


def too_short(step: int, windows: Sequence[Window]) -> str | None:
    """Return that a loop ended at a step before any was recorded, and what to do; None where it did not."""
    if not windows or step > windows[0].active:
        return None
    first = windows[0]
    return (
        f"nothing was recorded: the loop ended at step {step}, before steps {first.active} to {first.end - 1}. "
        f"Let it go on to step {first.end}, or record earlier ones: profile_steps(…, wait=2, warmup=1)"
    )


def kept(step: int, windows: Sequence[Window], folder: Path) -> str:
    """Return what is kept of a loop that was stopped, or failed, while it worked at a step."""
    if not windows or step > windows[0].active:
        return f"what was measured is kept; scalescope analyze {folder}"
    first = windows[0].active
    earlier = " To record earlier steps: profile_steps(…, wait=2, warmup=1)" if first > _EARLIEST else ""
    return (
        f"nothing was recorded: the loop ended after step {step - 1}, and step {first} is the first that is recorded. "
        f"The steps' times are kept in {folder}.{earlier}"
    )


def late(step: int, news: str) -> str:
    """Return which rank the others wait for, who loads for how long and what ranks wait for cores, as of a step."""
    return f"step {step}: {news}"


def longer_steps(anomaly: Anomaly, window: Window | None) -> str:
    """Return that steps have become longer, and which are recorded for it; None: those of the next window."""
    done = (
        f"recording steps {window.active} to {window.end - 1}"
        if window is not None
        else "they are recorded by the next window"
    )
    return (
        f"since step {anomaly.since} steps take {anomaly.step_ms:,.1f} ms, where {anomaly.level_ms:,.1f} were usual: "
        f"{done}"
    )


def renamed(wanted: str, path: Path) -> str:
    """Return that a name was taken."""
    return f"there is a run {wanted} already, so this one is {path.name}"
