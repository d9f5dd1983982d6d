"""One group's bench: its memory, its clock and its patterns, on which each point is measured in turn."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist

from scalescope.collectives.ceiling import ceiling_of
from scalescope.collectives.config import SweepConfig
from scalescope.collectives.dtypes import DTYPES, FNUZ
from scalescope.collectives.measure.arena import Arena, from_library, from_torch
from scalescope.collectives.measure.check import Check
from scalescope.collectives.measure.contention import Compute, ContendedClock, compute_slowdown, concurrent_calls
from scalescope.collectives.measure.graph import capture, captured_count
from scalescope.collectives.measure.groups import GroupMember, library_settings
from scalescope.collectives.measure.timing import Clock, DeviceClock, HostClock, Limits, PointTiming, measure
from scalescope.collectives.measure.tuning_log import TuningLog, doubt_of_channels
from scalescope.collectives.measure.warm_up import WarmUp, estimate_s, warm_up
from scalescope.collectives.operations import OPERATIONS
from scalescope.collectives.operations.operation import Bound, Call, NotAvailable
from scalescope.collectives.plan import Group, PlannedPoint
from scalescope.collectives.transports import direct
from scalescope.collectives.transports.library import Library
from scalescope.collectives.transports.rotation import Run, rotating
from scalescope.hardware.fp8 import has_fnuz
from scalescope.launch.job import Job
from scalescope.records.rows import SweepRow

# of a point's budget, before the first size of a series
_SETTLE = 0.2
_SETTLE_AT_MOST = 2.0
_DISPATCH = 0.4  # of a point's budget, for what dispatching a program costs


@dataclass(frozen=True)
class Slowdowns:
    """What a collective and a matrix product beside it cost each other, each over its time alone."""

    collective: float
    compute: float


class Bench:
    """Measures the points of one group. All ranks of the group call it alike; its first rank gets the rows."""

    def __init__(self, job: Job[SweepConfig], group: Group, member: GroupMember) -> None:
        self._config = job.config
        self._device = job.device
        self._devices = job.devices
        self._backend = "mpi" if group.transport == "mpi" else job.backend
        self._messages = member.messages
        self._transport = member.transport
        self._follow = member.transport.use
        self._watchdog = job.watchdog
        here = job.devices[job.world.rank].host
        neighbours = sum(job.devices[rank].host == here for rank in group.ranks)
        self._memory = _memory(job, group, member)
        allocate = from_library(job.device) if self._memory == "library" else from_torch(job.device, neighbours)
        self._arena = Arena.reserve(group.points, allocate, job.device, member.messages)
        fitting = [point for point in group.points if self._arena.holds(point) and point.bytes]
        longest = max((point.bytes // DTYPES[point.dtype].itemsize for point in fitting), default=1)
        fnuz = any(has_fnuz(device.architecture) for device in job.devices)
        self._check = Check(len(group.ranks), job.device, longest, FNUZ if fnuz else None)
        self._compiled = member.transport.compiled
        self._clock = self._compiled.clock if self._compiled is not None else _clock(job)
        self._limits = Limits(
            min_iterations=job.config.min_iterations,
            max_iterations=job.config.max_iterations,
            budget_s=job.config.budget_s,
            relative_interval=job.config.relative_interval,
            percentile_iterations=job.config.percentile_iterations,
        )
        self._settings = library_settings(group)
        self._broken: str | None = None  # why this communicator can do nothing more
        if group.cta_policy is not None:
            self._broken = self._register()
        self._log = TuningLog(job.folder.logs, job.world.rank) if self._settings and member.messages.leads else None
        self._compute: Compute | None = None
        self._largest = {point.series: point.bytes for point in group.points}  # sizes ascend: the last one counts
        self._warm: set[tuple[object, ...]] = set()

    def _register(self) -> str | None:
        """Make the buffers a symmetric window; return why they are none on some rank."""
        reason = None
        if self._memory != "library" and self._transport.issued_by is not None:
            reason = "cta_policy works on the library's own memory; leave memory=auto, or take memory=library"
        if reasons := list(filter(None, self._messages.texts(reason))):
            return reasons[0]
        try:
            self._transport.register(self._arena.block)
        except (NotAvailable, RuntimeError) as error:
            reason = f"the buffers are no symmetric window: {error}" if isinstance(error, RuntimeError) else str(error)
        return next(filter(None, self._messages.texts(reason)), None)

    def measure(self, point: PlannedPoint) -> SweepRow | None:
        """Return the point's row on the group's first rank, None on the others."""
        if not self._arena.holds(point):
            reason = f"{point.bytes} B do not fit into every rank's memory"
            return self._row(point, status="out_of_memory", reason=reason)
        try:
            if point.mode == "in_place" and not OPERATIONS[point.operation].in_place:
                raise NotAvailable(f"{point.operation} needs a buffer to send from and another to receive into")
            self._refuse_for_programs(point)
            if self._settings and self._backend != "nccl":
                raise NotAvailable(f"{self._backend} cannot be told an algorithm, a protocol or channels")
            if self._broken is not None:
                raise NotAvailable(self._broken)
            if point.contention is not None and self._compute is None:
                self._agree_on(self._start_compute)
            bound = self._arena.buffers(point, self._messages.rank)
            calls = [OPERATIONS[point.operation].run(self._transport, io) for io in bound]
            if point.execution == "graph" and OPERATIONS[point.operation].waits_on_host:
                # tried, it would leave torch's allocator as if a capture were still under way
                raise NotAvailable(f"{point.operation} waits on the host, and a graph holds the device's work alone")
            wrong = self._try_once(point, bound[0], calls[0])
            run = self._transport.rotating(calls)
            self._warm_up(point, run)
            alone = run
            run, operations = self._as_executed(point, run, calls)
            timing, slowdowns = self._time(point, run, operations)
            dispatch_us = self._dispatch_us(alone, timing)
        except NotAvailable as reason:
            return self._row(point, status="not_available", reason=str(reason))
        except MemoryError as reason:
            return self._row(point, status="out_of_memory", reason=str(reason))
        return self._measured(point, timing, wrong, slowdowns, dispatch_us) if timing is not None else None

    def _time(self, point: PlannedPoint, run: Run, operations: int) -> tuple[PointTiming | None, Slowdowns | None]:
        """Return the timing (None but on the first rank), and with contention what each side costs the other.

        Raises NotAvailable, on every rank alike, where the two sides did not stay side by side.
        """
        expect = self._watchdog.expect
        timing = measure(run, self._clock, self._messages, self._limits, expect, operations)
        if self._compute is None or point.contention is None:
            return timing, None
        alone_us = self._messages.share(timing.time_us if timing else 0.0)
        call_s = alone_us / 1e6 * operations
        clock = ContendedClock.covering(run, self._clock, self._compute, call_s, self._messages, expect)
        contended = measure(run, clock, self._messages, self._limits, expect, operations)
        if not self._messages.least(int(clock.covers)):
            raise NotAvailable("the matrix products ended before the collectives that were to run beside them")
        calls = self._messages.tell(concurrent_calls(self._compute, call_s))
        expect(calls * call_s)
        of_compute = self._messages.gather([compute_slowdown(run, calls, self._compute, self._device)])
        if contended is None or of_compute is None:
            return None, None
        mean = statistics.fmean(value for (value,) in of_compute)
        return contended, Slowdowns(contended.time_us / alone_us, mean)

    def _try_once(self, point: PlannedPoint, io: Bound, call: Call) -> int | None:
        """Run the operation once and check every element. Returns the wrong elements of all ranks, None if unchecked.

        Raises NotAvailable or MemoryError, on every rank alike, where the library refuses on any.
        """
        if self._config.check:
            self._check.prepare(point, io)
        self._agree_on(call)
        if not self._config.check or not OPERATIONS[point.operation].moves_data:
            return None
        return self._messages.total(self._check.count_wrong(point, io))

    def _agree_on(self, call: Callable[[], object]) -> None:
        """Make a call that a library may refuse. Raises NotAvailable or MemoryError on all ranks if it does on one."""
        refusal, out_of_memory = None, False
        self._watchdog.expect(0)
        try:
            call()
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)
        except (dist.DistBackendError, dist.DistNetworkError) as error:
            # the communicator is broken, and so is all that would follow; expected where it was told what to use
            if not self._settings:
                raise
            refusal = self._broken = f"{self._backend} with {self._settings}: {error!s:.200}".replace("\n", " ")
        except (NotAvailable, RuntimeError, TypeError, ValueError) as error:
            text = next(iter(str(error).splitlines()), type(error).__name__)
            refusal = text if isinstance(error, NotAvailable) else f"{self._backend}: {text}"
            out_of_memory = isinstance(error, torch.OutOfMemoryError)
        if reasons := list(filter(None, self._messages.texts(refusal))):
            if self._messages.total(self._broken is not None):
                self._broken = self._broken or reasons[0]  # a communicator broken on one rank is broken on all
            raise (MemoryError if self._messages.total(out_of_memory) else NotAvailable)(reasons[0])

    def _start_compute(self) -> None:
        self._compute = Compute(self._device)

    def _refuse_for_programs(self, point: PlannedPoint) -> None:
        """Raise NotAvailable for what compiled programs cannot be told."""
        if self._compiled is None:
            return
        if point.execution == "graph":
            raise NotAvailable("the compiler decides what of a program becomes a graph; its figures are of "
                               "execution=eager")  # fmt: skip
        if point.contention is not None:
            raise NotAvailable("a compiled program's operations run on no stream of torch's, beside whose products "
                               "they were to be")  # fmt: skip
        if self._settings:
            raise NotAvailable("the compiler's runtime keeps its communicators, which are told nothing afterwards; "
                               "set NCCL_ALGO or NCCL_PROTO for the whole job")  # fmt: skip

    def _dispatch_us(self, alone: Run, timing: PointTiming | None) -> float | None:
        """Return what an operation in a program of its own takes longer than in a long one; None but for programs.

        On the group's first rank alone.
        """
        if self._compiled is None:
            return None
        limits = replace(self._limits, percentile_iterations=0, budget_s=_DISPATCH * self._limits.budget_s)
        by_itself = measure(alone, self._clock, self._messages, limits, self._watchdog.expect)
        return by_itself.time_us - timing.time_us if by_itself is not None and timing is not None else None

    def _as_executed(self, point: PlannedPoint, run: Run, calls: Sequence[Call]) -> tuple[Run, int]:
        """Return what the clock times, and how many operations one call of it is: one, a program or a graph of many."""
        if self._compiled is None and point.execution == "eager":
            return run, 1
        count = self._messages.tell(captured_count(estimate_s(run, self._clock), self._config.min_iterations))
        if (compiled := self._compiled) is not None:
            programs: list[Run] = []
            self._agree_on(lambda: programs.append(compiled.chained(calls, count)))
            self._clock.batch(programs[0], 1)  # what a first launch takes is no part of its time
            return programs[0], count
        graphs: list[Call] = []
        self._agree_on(lambda: graphs.append(capture(run, count, self._device, self._follow)))
        return rotating(graphs), count

    def _warm_up(self, point: PlannedPoint, run: Run) -> None:
        """Run uncounted operations before a series, until they are steady, and a few before its largest size."""
        least, budget_s = self._config.warmup_iterations, self._limits.budget_s
        if point.series not in self._warm:
            self._warm.add(point.series)
            wanted = WarmUp(least, least_s=_SETTLE * budget_s, most_s=_SETTLE_AT_MOST * budget_s)
            warm_up(run, self._clock, self._messages, wanted, self._watchdog.expect)
        elif point.bytes == self._largest[point.series]:
            self._watchdog.expect(0)
            self._clock.batch(run, least)

    def _measured(
        self,
        point: PlannedPoint,
        timing: PointTiming,
        wrong: int | None,
        slowdowns: Slowdowns | None,
        dispatch_us: float | None,
    ) -> SweepRow | None:
        algorithm_gb_s = point.bytes / timing.time_us / 1e3 if point.bytes else None
        factor = OPERATIONS[point.operation].facts.bus_factor(point.group_size) or 0.0
        ceiling, assumes = ceiling_of(point, self._devices)
        spread = timing.spread
        chose = self._log.last_choice() if self._log is not None else None
        if point.channels is not None and (doubt := doubt_of_channels(point.channels, chose, is_rccl=_is_rccl())):
            return self._row(point, status="not_available", reason=doubt)
        return self._row(
            point,
            status="measured",
            time_us=timing.time_us,
            interval_us=timing.interval_us,
            stopped_by=timing.stopped_by,
            iterations=timing.iterations,
            stalls=timing.stalls,
            time_each_us=spread.time_each_us,
            time_min_us=spread.time_min_us,
            time_max_us=spread.time_max_us,
            time_p50_us=spread.time_p50_us,
            time_p95_us=spread.time_p95_us,
            time_p99_us=spread.time_p99_us,
            slowest_rank=None if spread.slowest_rank is None else point.ranks[spread.slowest_rank],
            alg_gb_s=algorithm_gb_s,
            bus_gb_s=algorithm_gb_s * factor if algorithm_gb_s is not None else None,
            ceiling_gb_s=ceiling,
            ceiling_assumes=assumes,
            wrong=wrong,
            memory=self._compiled.memory if self._compiled is not None else self._memory,
            issued_by=self._transport.issued_by if point.execution == "eager" else None,
            compiled_with=self._compiled.compiled_with if self._compiled is not None else None,
            dispatch_us=dispatch_us,
            library_chose=chose.words if chose is not None else None,
            library_channels=chose.channels if chose is not None else None,
            slowdown=slowdowns.collective if slowdowns is not None else None,
            compute_slowdown=slowdowns.compute if slowdowns is not None else None,
        )

    def _row(self, point: PlannedPoint, **measured: object) -> SweepRow | None:
        return point.row(backend=self._backend, **measured) if self._messages.leads else None


def _memory(job: Job[SweepConfig], group: Group, member: GroupMember) -> str:
    """Return whose allocator gives the buffers: torch's, or the library's own where every rank has one."""
    wanted = job.config.memory == "library" or (job.config.memory == "auto" and group.transport == "direct")
    usable = wanted and direct.refusal(job.device) is None and Library().has("ncclMemAlloc")
    return "library" if member.messages.least(int(usable)) else "torch"


def _is_rccl() -> bool:
    return torch.version.hip is not None


def _clock(job: Job[SweepConfig]) -> Clock:
    on_device = job.device.type == "cuda" and job.config.clock != "host"
    return DeviceClock(job.device) if on_device else HostClock(job.device)
