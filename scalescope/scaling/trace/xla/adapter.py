"""Makes a trace of one rank, as Kineto's are, of what a profile of XLA says of one device.

A device is a rank: its number is the global id that the runs of its modules have. What was launched is found by the
correlation id, as for Kineto; so a device's step begins with the first compute kernel that a run launched, and the
host's spans, which only dispatch, are no steps' times. A collective is known by its HLO op where the profile holds the
module, by the op's name else, by the kernel's name last; ranks match theirs by (run of the module, op).
"""

import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

import msgspec
import numpy as np

from scalescope.records.operations import OPERATION_FACTS
from scalescope.scaling.trace.columns import Columns
from scalescope.scaling.trace.events import NO_ARGS, AnyEvent, Args, Event
from scalescope.scaling.trace.header import DistributedInfo, Header
from scalescope.scaling.trace.trace import Trace
from scalescope.scaling.trace.xla.hlo import OPERATIONS, operation_of
from scalescope.scaling.trace.xla.profile import DeviceActivity, HloCollective, LaunchCall, ModuleRun, Profile

#: How the annotations are called that tell the steps, see rank/step_sources/xla.py.
STEP_MARK, MODULE_RUN = "StepTraceAnnotation#", "XlaModule:"

_COLLECTIVE_OP = re.compile(rf"({'|'.join(OPERATIONS)})(?:-start|-fusion|\.clone|[.\d])*$")
_API_CALL = re.compile(r"(cu|cuda|hip|hsa)[A-Z]|(cuda|hip)Memcpy")
_BATCH = 50_000


def trace_of(profile: Profile, path: Path) -> Trace:
    """Return a rank's trace. Times stay on the file's clock; the header has what it counts from, where that is told."""
    launched = _Launches(profile)
    columns = Columns()
    batch: list[AnyEvent] = []
    for event in chain(_activities(profile, launched), launched.events(), _annotations(profile, launched)):
        batch.append(event)
        if len(batch) >= _BATCH:
            columns.add_events(batch)
            batch = []
    columns.add_events(batch)
    columns.invalid_events += profile.invalid
    header = Header(
        distributed=DistributedInfo(
            backend="nccl" if launched.device is not None and profile.cliques else "",
            rank=launched.device if launched.device is not None else -1,
            world_size=profile.world_size,
        ),
        devices=[profile.device] if profile.device is not None else [],
        base_ns=profile.base_ns,
        host=profile.host,
    )
    trace = columns.trace(path, header, profile.damage, profile.cut_off)
    trace.framework = "jax"
    return trace


class _Launches:
    """Which runs of modules launched a device's activities, and which device it is among all."""

    def __init__(self, profile: Profile) -> None:
        wanted = {one.correlation for one in profile.activities if one.correlation > 0}
        self.calls: dict[int, LaunchCall] = {}
        for call in sorted(profile.launches, key=lambda call: call.start):
            if call.correlation in wanted:
                self.calls.setdefault(call.correlation, call)
        ordinals = Counter(call.device for call in self.calls.values())
        # ROCm's ids are no ordinals, but one device's are alike
        self._own = ordinals.most_common(1)[0][0] if ordinals else -1
        self._lost = [
            call for call in profile.launches if call.correlation not in wanted and call.device == self._own >= 0
        ]
        by_thread: dict[int, list[ModuleRun]] = {}
        for run in sorted(profile.runs, key=lambda run: run.start):
            by_thread.setdefault(run.thread, []).append(run)
        starts = {thread: np.array([run.start for run in runs]) for thread, runs in by_thread.items()}
        run_of: dict[int, ModuleRun] = {}
        for number, call in self.calls.items():
            if call.thread in by_thread:
                at = int(np.searchsorted(starts[call.thread], call.start, side="right")) - 1
                if at >= 0 and call.start <= (run := by_thread[call.thread][at]).start + run.duration:
                    run_of[number] = run
        found = Counter(run.device for run in run_of.values())
        self.device = found.most_common(1)[0][0] if found else None
        self.runs = [run for runs in by_thread.values() for run in runs if run.device == self.device]
        self.runs.sort(key=lambda run: run.start)
        numbers = {id(run): number for number, run in enumerate(self.runs)} if _run_alike(profile) else {}
        #: by correlation: the number of the run, which is the same on all devices of the process; none where not
        self.run_number = {number: numbers[id(run)] for number, run in run_of.items() if id(run) in numbers}

    def events(self) -> Iterator[AnyEvent]:
        """Yield the calls as the runtime's own; those of this device that launched nothing, too."""
        for call in chain(self.calls.values(), self._lost):
            yield Event(
                ph="X", cat="cuda_runtime", name=_call_name(call.name), tid=call.thread,
                ts=call.start / 1000, dur=call.duration / 1000, args=Args(correlation=call.correlation),
            )  # fmt: skip


def _run_alike(profile: Profile) -> bool:
    """Tell whether all devices of the process ran the same modules in the same order, and are the whole world."""
    by_device: dict[int, list[str]] = {}
    for run in sorted(profile.runs, key=lambda run: run.start):
        by_device.setdefault(run.device, []).append(run.module)
    orders = {tuple(modules) for modules in by_device.values()}
    return len(orders) == 1 and len(by_device) == profile.world_size


def _call_name(name: str) -> str:
    """Return a runtime call's name. CUPTI's spans have, of a launch, the kernel's in XLA's profiles."""
    if name.startswith("Mem"):
        return f"cuda{name.split(' ')[0]}Async"
    return name if _API_CALL.match(name) else "cuLaunchKernel"


class _Group(msgspec.Struct, frozen=True):
    """A clique as Kineto would tell of it: made once, for its texts may be long and its collectives many."""

    size: int
    name: str
    ranks: str


def _groups(cliques: set[tuple[int, ...]]) -> dict[int | None, _Group]:
    """Return the group of each size, and under None that of any; of a size that several groups have, none."""
    of_size = Counter(map(len, cliques))
    found: dict[int | None, _Group] = {
        len(clique): _Group(len(clique), f"devices {','.join(map(str, clique))}", str(list(clique)))
        for clique in cliques
        if of_size[len(clique)] == 1
    }
    if len(cliques) == 1:
        found[None] = next(iter(found.values()))
    return found


def _activities(profile: Profile, launched: _Launches) -> Iterator[AnyEvent]:
    groups = _groups(profile.cliques.get(launched.device, set()) if launched.device is not None else set())
    seen: Counter[tuple[int, str]] = Counter()
    for one in sorted(profile.activities, key=lambda one: one.start):
        args = Args(correlation=one.correlation, stream=one.stream, device=0, grid=one.grid)
        if one.category == "kernel":
            hlo, operation = _collective(one, profile.collectives)
            if operation is not None:
                run = launched.run_number.get(one.correlation)
                sequence = -1
                if run is not None and one.op:
                    sequence = _sequence(run, one.op, seen[run, one.op])
                    seen[run, one.op] += 1
                args = _collective_args(one, hlo, operation, groups, sequence)
        yield Event(
            ph="X", cat=one.category, name=one.name, tid=one.stream, ts=one.start / 1000, dur=one.duration / 1000,
            args=args,
        )  # fmt: skip


def _collective(
    one: DeviceActivity, known: Mapping[tuple[int, str], HloCollective]
) -> tuple[HloCollective | None, str | None]:
    """Return what the module says of a kernel's collective, and its operation; None, None where it is none."""
    hlo = known.get((one.program, one.op))
    if hlo is not None:
        return hlo, hlo.operation
    if (match := _COLLECTIVE_OP.match(one.op)) and ((one.program, one.op) not in known):
        return None, operation_of(match[1])
    return None, None


def _sequence(run: int, op: str, occurrence: int) -> int:
    """Return a number that stands for (run, op, how often it ran before in the run): the same on all ranks."""
    return (run % (1 << 17)) << 32 | zlib.crc32(f"{op} {occurrence}".encode())


def _collective_args(
    one: DeviceActivity, hlo: HloCollective | None, operation: str, groups: Mapping[int | None, _Group], sequence: int
) -> Args:
    """Return a collective's arguments as Kineto names them. Its group is that of its size; of several such, none."""
    size = hlo.group_size if hlo is not None else None
    group = groups.get(size)
    size = size or (group.size if group is not None else None)
    elements = hlo.in_elements if hlo is not None else None
    received = _received(operation, elements, size) if elements is not None and size else -1
    return Args(
        correlation=one.correlation,
        stream=one.stream,
        device=0,
        grid=one.grid,
        collective=operation,
        in_elements=elements if elements is not None and received >= 0 else -1,
        out_elements=received,
        dtype=hlo.dtype if hlo is not None else None,
        group=group.name if group is not None else None,
        group_ranks=group.ranks if group is not None else None,
        group_size=size or -1,
        sequence=sequence,
    )


def _received(operation: str, sent: int, size: int) -> int:
    """Return the elements that each member has afterwards, of `sent` that each gives."""
    facts = OPERATION_FACTS[operation]
    if not facts.sharded or facts.personalised:
        return sent
    return sent // size if facts.reduces else sent * size


def _annotations(profile: Profile, launched: _Launches) -> Iterator[AnyEvent]:
    spans = [(f"{STEP_MARK}{one.number}", one.start, one.duration, one.thread) for one in profile.steps]
    spans += [(f"{MODULE_RUN}{one.module}", one.start, one.duration, one.thread) for one in launched.runs]
    for name, start, duration, thread in sorted(spans, key=lambda span: span[1]):
        yield Event(
            ph="X", cat="user_annotation", name=name, tid=thread, ts=start / 1000, dur=duration / 1000, args=NO_ARGS
        )
