"""Kineto traces of the scheduled windows; outside them nothing of the profiler runs.

The low-level profiler behind torch.profiler.profile is driven directly, so that a step is called by the job's own
number in the trace (`ProfilerStep#57`) and no step outside a window is annotated.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import msgspec
import torch
import torch.distributed as dist
from isal import igzip
from torch.profiler import _KinetoProfile, record_function

from scalescope.records.steps.garbage import GarbageCollection
from scalescope.records.steps.recording import RecordedWindow, WhyFewer
from scalescope.train.measure.memory import leave_out, peak_bytes
from scalescope.train.measure.schedule import Window
from scalescope.train.measure.tracing.agreed_end import AgreedEnd
from scalescope.train.measure.tracing.garbage import GarbageWatch
from scalescope.train.measure.tracing.profile import let_go, prepared_profile
from scalescope.train.measure.tracing.room import Room
from scalescope.train.measure.tracing.trace_budget import TraceBudget
from scalescope.train.settings import ProfilerConfig

#: Of a CPU job's recordings so many events are kept: 256 MiB of them.
_MOST_KEPT_EVENTS = 75_000
#: Where the config leaves open how many steps a window records: so many events are enough, and three steps in any case.
_ENOUGH_EVENTS, _LEAST_STEPS = 50_000, 3


@dataclass(frozen=True)
class _Recorded:
    """A window that was recorded, and waits for what its header says to be known."""

    window: RecordedWindow
    written: BinaryIO | OSError | RuntimeError  # as Kineto wrote it, gzipped, in a file without a name; or why not
    unfinished: int | None  # a step that was annotated and never ended
    collections: list[GarbageCollection]  # of Python's garbage

    def header(self, metadata: Mapping[str, Any], later: Mapping[str, Any]) -> bytes:
        """Return what its trace's header says of it, as the beginning of the file in place of its `{`."""
        return b'{"scalescope": ' + msgspec.json.encode({**metadata, **self._own(), **later}) + b","

    def _own(self) -> dict[str, Any]:
        return {"steps": self.window.steps, **({"collections": self.collections} if self.collections else {})}


class Tracer:
    """Records this rank's windows, where it is one of `profiler.ranks`; they come into the run folder after the steps.

    A job on CPUs has its activations from malloc, and what is freed amid them changes what they cost: into the room of
    a window's records, 3.4 KB each, they fall from then on, and need no fresh pages (0 page faults a step for 5,000 to
    10,000, 107 ms for 130, of a CNN on glibc). So there, records are kept until the tracer goes; and what they take is
    free ahead of a window, see `Room`.

    Kineto writes each as soon as it has ended, before anything else is recorded: how a device's time stamps become the
    host's is one for the whole process, and the next recording's would put all of them outside of time.

    The first step of the first window's warm-up is recorded, counted and thrown away: it tells how many steps fit into
    `profiler.max_mib`. A window then ends early, or is left out, and `remarks` says so. On CPUs it tells how much room
    to make, too, and so it does where it is the only one of the warm-up.
    """

    def __init__(
        self, config: ProfilerConfig, device: torch.device, rank: int, metadata: dict[str, Any],
        folder: Callable[[], Path], ddp: bool = True, agreed: AgreedEnd | None = None,
    ) -> None:  # fmt: skip
        """`folder`: where there is room for traces, asked when one is written. `agreed`: None for a rank by itself.

        `ddp`: whether torch's DDP may move gradients: how large they are, only the shapes of its operators tell.
        """
        self._config = config
        self._traced = config.ranks is None or rank in config.ranks
        self._device = device
        self._rank = rank
        self._folder = folder
        self._agreed = agreed
        # gloo's collectives have no other record of their sizes and roots
        self._shapes = config.shapes if config.shapes is not None else ddp or device.type != "cuda"
        self._metadata = metadata
        self._budget = TraceBudget(config.max_mib)
        self._counting: _KinetoProfile | None = None
        self._open: _KinetoProfile | None = None
        self._end = 0  # the step before which the open window's recording ends
        self._cut: WhyFewer | None = None  # why that is before the window's own end
        self._left_out: set[Window] = set()
        self._done: list[_Recorded] = []
        self._kept: list[_KinetoProfile] = []
        self._kept_steps = 0
        self._garbage = GarbageWatch()
        self._room = Room() if device.type == "cpu" else None
        self._attached = False  # whether the device's tracing library is, since a recording
        self.remarks: list[str] = []

    @contextmanager
    def step(self, window: Window | None, step: int) -> Iterator[None]:
        """The context of one step: annotated while its window records, untouched otherwise."""
        if not self._traced or window is None or step < window.active:
            yield
            return
        with record_function(f"ProfilerStep#{step}"):
            yield

    def before(self, window: Window, step: int) -> None:
        """Begin what begins before a step of a window: counting, the profiler's warm-up, or recording."""
        if not self._traced or window in self._left_out or (self._open is None and step > window.active):
            return
        if step == window.first and self._counts_first(window):
            self._counting = self._prepare()
            self._counting.start_trace()
            if self._room is not None:
                self._room.count()
            return
        if self._open is None and not self._fit(window):
            return
        if self._open is None:
            self._open = self._prepare()
            if self._agreed is not None:
                self._agreed.tell(window.active, self._end - window.active)
            if self._room is not None:
                before = peak_bytes(self._device)
                if self._room.make(self._end - window.active, _ranks()):
                    leave_out(before)
        if step == window.active:
            self._end_with_the_others(window)
            self._open.start_trace()
            if self._room is not None:
                self._room.count()
            self._garbage.start()

    def after(self, window: Window, step: int) -> None:
        """End the recording after a window's last step."""
        if self._counting is not None:
            if self._room is not None:
                self._room.counted(1, first=True)
            self._counting.stop_trace()
            if (
                self._budget.wants_count and window.active - window.first > 1
            ):  # else ranks could not agree any more on how long the window is
                self._count(self._counting, 1)
            self._keep(self._counting, 1)
            self._counting = None
        elif self._open is not None and step == self._end - 1:
            self._finish(window, self._end)

    def break_off(self, window: Window, next_step: int) -> None:
        """End a window before its time: the loop has ended inside it. The steps before `next_step` are kept, if any."""
        if self._counting is not None:
            self.after(window, next_step)
        elif self._open is not None and next_step > window.active:
            self._finish(window, next_step, unfinished=True)
        elif self._open is not None:
            if next_step < window.active:
                self._open.start_trace()  # Kineto would stay prepared, and the next profiler find it so
            self._open.stop_trace()
            self._garbage.stop()
            self._open = None
            if self._room is not None:
                self._room.give_back()

    def let_go(self) -> None:
        """Let go of the device's tracing library, which slows a job down for as long as it is attached.

        For when no window is due: the next recording attaches again, and takes longer to begin.
        """
        if self._attached and self._open is None and self._counting is None:
            self._attached = False
            with suppress(RuntimeError):  # whatever the device says, it is no reason to end a job
                let_go(self._device)

    def _prepare(self) -> _KinetoProfile:
        self._attached = True
        return prepared_profile(
            self._device, shapes=self._shapes, stacks=self._config.stacks, memory=self._config.memory
        )

    def _counts_first(self, window: Window) -> bool:
        """Whether the first step of a window's warm-up is recorded for what is counted in it, and thrown away.

        Events are counted where a step of the warm-up follows; on CPUs, which need no warm-up, pages in any case.
        """
        steps = window.active - window.first
        pages = self._room is not None and not self._room.known and steps > 0
        return pages or (self._budget.wants_count and steps > 1)

    def _fit(self, window: Window) -> bool:
        """Set where a window's recording ends; False where there is no room for a step of it."""
        wanted = window.end - window.active
        steps = self._budget.steps_that_fit(wanted)
        if self._config.active is None and self._budget.events_per_step:
            enough = max(_LEAST_STEPS, _ENOUGH_EVENTS // self._budget.events_per_step)
            wanted, steps = min(wanted, enough), min(steps, enough)
        self._end = window.active + steps
        self._cut = "no_room" if steps < wanted else "many_operators" if self._end < window.end else None
        if steps < wanted:
            why = (
                f"a step's trace takes about {self._budget.packed_mib(1):,.1f} MiB, and of profiler.max_mib="
                f"{self._budget.max_mib:g} about {self._budget.spent_mib:,.1f} are taken; raise it, or record less"
            )
            what = f"ended after {steps} of {wanted} steps" if steps else "was left out"
            self.remarks.append(f"the Kineto window at step {window.active} {what}: {why}")
        if not steps:
            self._left_out.add(window)
        return steps > 0

    def _end_with_the_others(self, window: Window) -> None:
        """Let a window end where a rank's does that has room for fewer steps of it."""
        own = self._end - window.active
        least = self._agreed.least(window.active, own) if self._agreed is not None else own
        if least < own:
            self._end, self._cut = window.active + least, self._cut or "many_operators"

    def _finish(self, window: Window, end: int, unfinished: bool = False) -> None:
        assert self._open is not None
        steps = list(range(window.active, end))
        collections = self._garbage.stop()
        if self._room is not None:
            self._room.counted(len(steps))
        self._open.stop_trace()
        if self._budget.events_per_step is None:
            self._count(self._open, len(steps))
        self._budget.spend(len(steps))
        written = self._written(self._open, steps)
        cut = "loop_ended" if end < self._end else self._cut
        recorded = RecordedWindow(steps=steps, planned=window.end - window.active, cut=cut)
        self._done.append(_Recorded(recorded, written, end if unfinished else None, collections))
        self._keep(self._open, len(steps))
        self._open = None
        if self._room is not None:
            self._room.give_back()

    def _written(self, profile: _KinetoProfile, steps: list[int]) -> BinaryIO | OSError | RuntimeError:
        """Let Kineto write a window; a failure is kept for whoever wants the trace, and ends no job."""
        try:
            folder = self._folder()
            folder.mkdir(parents=True, exist_ok=True)
            needed, free = self._budget.plain_bytes(len(steps)), shutil.disk_usage(folder).free
            if needed > free:  # said before the disk is full for everybody else, too
                return OSError(f"writing the trace needs about {needed >> 20:,} MiB, and {free >> 20:,} are free")
            handle, name = tempfile.mkstemp(dir=folder, prefix=f".rank{self._rank}.{steps[0]}.", suffix=".json")
            os.close(handle)
            path, packed = Path(name), Path(f"{name}.gz")
            try:
                profile.export_chrome_trace(name)
                _check_whole(path)
                with path.open("rb") as plain, igzip.open(packed, "wb", compresslevel=2) as file:
                    shutil.copyfileobj(plain, file, 1 << 20)
                return packed.open("rb")
            finally:  # whatever becomes of this process, nothing is left behind
                path.unlink(missing_ok=True)
                packed.unlink(missing_ok=True)
        except (OSError, RuntimeError) as error:  # Kineto's own failures are RuntimeErrors
            return error

    def _count(self, profile: _KinetoProfile, steps: int) -> None:
        assert profile.profiler is not None and profile.profiler.kineto_results is not None
        self._budget.events_per_step = len(profile.profiler.kineto_results.events()) // steps

    def _keep(self, profile: _KinetoProfile, steps: int) -> None:
        """Keep what a recording holds where a host's job runs in the same memory, while it is not too much."""
        kept = self._kept_steps + steps
        if self._device.type == "cpu" and kept * (self._budget.events_per_step or 0) <= _MOST_KEPT_EVENTS:
            self._kept_steps = kept
            self._kept.append(profile)

    @property
    def count(self) -> int:
        """How many windows are ready to be written."""
        return len(self._done)

    def steps(self, index: int) -> list[int]:
        """Return the recorded steps of a window."""
        return self._done[index].window.steps

    def recorded(self, index: int) -> RecordedWindow:
        """Return the same with how many they were to be."""
        return self._done[index].window

    @property
    def cut(self) -> tuple[int, WhyFewer] | None:
        """The last step that the open window records, and why it is not the window's last; None where it is."""
        return (self._end - 1, self._cut) if self._open is not None and self._cut is not None else None

    def forget(self, index: int) -> None:
        """Let go of a window that has been written; those after it move up."""
        written = self._done.pop(index).written
        if not isinstance(written, OSError | RuntimeError):
            written.close()

    def export(self, index: int, path: Path, later: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Write one window's trace into `path`, gzipped, whole or not at all. Raises OSError where it does not fit.

        `later`: what became known of the window after it was recorded, for the header, beside what every header says.
        A second call for the same window writes it again.
        """
        recorded = self._done[index]
        if isinstance(recorded.written, OSError | RuntimeError):
            raise recorded.written
        path.parent.mkdir(parents=True, exist_ok=True)
        packed = path.with_name(f".{path.name}.{os.getpid()}")
        recorded.written.seek(0)
        try:
            with igzip.open(recorded.written, "rb") as plain, igzip.open(packed, "wb", compresslevel=2) as file:
                while plain.read(1) not in (b"{", b""):
                    pass
                # Kineto itself takes metadata only while it records
                file.write(recorded.header(self._metadata, later))
                while block := b"".join(plain.readlines(1 << 20)):
                    if recorded.unfinished is not None:
                        block = block.replace(b'"ProfilerStep#%d"' % recorded.unfinished, b'"unfinished step"')
                    file.write(block)
            packed.replace(path)
        finally:
            packed.unlink(missing_ok=True)


def _ranks() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _check_whole(path: Path) -> None:
    """Kineto writes through a stream that says nothing of a full disk: a trace that is whole ends with a brace."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 64))
        if not file.read().rstrip().endswith(b"}"):
            raise OSError(f"{path.parent}: the trace was cut off after {size} bytes (is the disk full?)")
