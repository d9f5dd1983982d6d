"""When the host loads data: in the annotations around fetching a batch, on the thread that runs the training loop.

Which annotations those are is learned from their names and from where they stand, since every loop has its own.

- A name that says both that something is fetched and that it is a batch: torch's own `enumerate(DataLoader)#…`,
  Lightning's `…train_dataloader_next`, `get_batch`, `load_data`; ours, `scalescope:data`.
- A name with one such word (`data`, `fetch`, `prefetch`), or with none: where it stands at the begin of a step. There
  nothing of the step has been computed yet, nor is it inside. One whose name says nothing must also come by a batch:
  the device's first work after it begins is a copy out of the host's memory.

What holds most of a step's compute is no loading, whatever its name says; but for torch's own loaders and our own jobs,
whose operators in there are the batch's.
"""

import re

import numpy as np

from scalescope.scaling.rank.loading_names import STRONG, WEAK, is_known_loader, says_loading
from scalescope.scaling.rank.step_sources.steps import Steps
from scalescope.scaling.trace.families import ENGINE_FRAMES
from scalescope.scaling.trace.intervals import EMPTY, Intervals, Ints, covers, union
from scalescope.scaling.trace.trace import KERNEL, HostSpans, Trace

#: Of torch's own loaders' annotations the one that waits for a worker process: it ends when that has the batch,
#: whatever the loop did before.
_FROM_WORKERS = re.compile(r"enumerate\(DataLoader\)#_MultiProcessingDataLoaderIter\b")
#: An annotation that holds more of a step's launches (on a CPU: of its operators) than this is no loading.
_MOST_COMPUTE = 0.2
#: The share of an annotation's occurrences that stand where loading does.
_MOSTLY = 0.75


def data_loading(trace: Trace, steps: Steps) -> Intervals:
    """Return when the training loop's thread loads data: a disjoint set in absolute ns.

    `steps`: the trace's own, in absolute ns. Loading by other threads or worker processes costs the loop
    nothing unless the loop waits for it, and then that wait lies in one of these annotations.
    """
    found = []
    base = trace.header.base_ns
    work: _Work | None = None
    for spans in (trace.annotations, trace.operators):
        by_name = {int(name): _how_clearly(trace, spans, int(name)) for name in np.unique(spans.name)}
        for name, clear in by_name.items():
            if clear < 0:
                continue
            rows = spans.name == name
            if steps.thread is not None:
                rows &= spans.thread == steps.thread
            if not rows.any():
                continue
            one = Intervals(spans.start[rows], spans.end[rows])
            if not is_known_loader(trace.names[name]):
                work = work or _Work(trace, steps.shifted(-base))
                if not work.may_load(one, clear):
                    continue
            found.append(Intervals(one.starts + base, one.ends + base))
    return union(*found) if found else EMPTY


def waits_for_workers(trace: Trace, steps: Steps) -> Intervals:
    """Return when the training loop's thread waits for batches of worker processes: a disjoint set in absolute ns."""
    spans, base = trace.annotations, trace.header.base_ns
    names = [name for name in np.unique(spans.name).tolist() if _FROM_WORKERS.match(trace.names[name])]
    rows = np.isin(spans.name, names)
    if steps.thread is not None:
        rows &= spans.thread == steps.thread
    return union(Intervals(spans.start[rows] + base, spans.end[rows] + base)) if rows.any() else EMPTY


def from_workers(name: str) -> bool:
    """Tell whether an annotation is of waiting for a batch that a worker process makes."""
    return _FROM_WORKERS.match(name) is not None


def _how_clearly(trace: Trace, spans: HostSpans, name: int) -> int:
    clear = says_loading(trace.names[name])
    # torch 1.8 wrote annotations as operators: among those only a name that leaves no doubt counts
    return clear if spans is trace.annotations or (clear == STRONG and "::" not in trace.names[name]) else -1


class _Work:
    """When the steps' work is launched (on a CPU: done), to tell loading from it. Times in ns of the file's clock."""

    def __init__(self, trace: Trace, steps: Steps) -> None:
        self.steps = steps
        self.copied_in = np.empty(0, np.int64)
        if len(trace.activities):
            kernels, copies = _launches(trace)
            self.compute, self.copied_in = kernels, copies
        else:
            counts = np.array(["::" in name and not name.startswith(ENGINE_FRAMES) for name in trace.names], bool)
            self.compute = np.sort(trace.operators.start[counts[trace.operators.name]])
        self.on_cpu = not len(trace.activities)

    def may_load(self, spans: Intervals, clear: int) -> bool:
        """Tell whether annotations of one name, which says so this clearly, load data by what they hold and follow."""
        whole = union(spans)
        inside = int(covers(whole, self.compute).sum())
        if inside > _MOST_COMPUTE * max(self.compute.size, 1):
            return False
        if clear == STRONG:
            return True
        if not len(self.steps):
            return False
        step = self.steps.of(spans.starts)
        spans = Intervals(spans.starts[step >= 0], spans.ends[step >= 0])
        step = step[step >= 0]
        if np.unique(step).size * 2 < len(self.steps):
            return False
        before = np.searchsorted(self.compute, self.steps.start[step])
        begun = np.searchsorted(self.compute, spans.starts if self.on_cpu else spans.ends)
        first = (before == begun).mean() >= _MOSTLY
        if clear == WEAK or not first:
            return bool(first)
        return self._brings_a_batch(spans) >= _MOSTLY

    def _brings_a_batch(self, spans: Intervals) -> float:
        """Return how often the first thing launched after the annotations begin is a copy out of the host's memory."""
        far = np.iinfo(np.int64).max
        copies = np.append(self.copied_in, far)[np.searchsorted(self.copied_in, spans.starts)]
        computes = np.append(self.compute, far)[np.searchsorted(self.compute, spans.starts)]
        return float((copies < computes).mean())


def _launches(trace: Trace) -> tuple[Ints, Ints]:
    """Return when kernels, and when copies out of the host's memory, are launched, ascending."""
    activities, calls = trace.activities, trace.runtime
    known = np.flatnonzero(calls.correlation > 0)
    known = known[np.argsort(calls.correlation[known], kind="stable")]
    if not known.size:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    ids = calls.correlation[known]
    at = np.minimum(np.searchsorted(ids, activities.correlation), ids.size - 1)
    linked = (ids[at] == activities.correlation) & (activities.correlation > 0)
    launch = calls.start[known[at]]
    from_host = np.array([copies_from_host(name) for name in trace.names], bool)[activities.name]
    kernels = linked & (activities.kind == KERNEL)
    return np.sort(launch[kernels]), np.sort(launch[linked & from_host])


def copies_from_host(name: str) -> bool:
    """Tell whether an activity copies out of the host's memory to a device, as CUDA or ROCm names it."""
    return "HtoD" in name or "HostToDevice" in name


def copies_to_host(name: str) -> bool:
    """Tell whether an activity copies out of a device's memory to the host's, as CUDA or ROCm names it."""
    return re.search(r"DtoH|DeviceToHost", name, re.IGNORECASE) is not None


def copies_within(name: str) -> bool:
    """Tell whether an activity copies within one device's memory, as CUDA, ROCm or XLA names it."""
    return re.search(r"DtoD|DeviceToDevice|D2D", name, re.IGNORECASE) is not None


def stays_on_device(name: str) -> bool:
    """Tell whether an activity fills, or copies within, one device's memory."""
    return copies_within(name) or re.search(r"memset|fillbuffer", name, re.IGNORECASE) is not None
