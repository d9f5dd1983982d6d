"""The Kineto windows of a loop that is not ours, on one rank: opened beside no other profiler's, recorded, written."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch

from scalescope.records.folder import RunFolder
from scalescope.records.steps.recording import RecordedWindow, RecordingBursts, WindowFacts
from scalescope.train.measure.schedule import Window
from scalescope.train.measure.tracing.agreed_end import AgreedEnd
from scalescope.train.measure.tracing.bursts import Bursts
from scalescope.train.measure.tracing.kineto import Tracer
from scalescope.train.script import announce
from scalescope.train.script.exchange import Refused
from scalescope.train.script.membership import Membership
from scalescope.train.script.schedule import ScriptSchedule
from scalescope.train.settings import ProfilerConfig

_recording: "ScriptWindows | None" = None  # Kineto knows one recording at a time


class ScriptWindows:
    """Records what is scheduled. What fails costs the traces, not the rows, and is kept as a remark.

    `schedule` loses the windows that cannot be recorded. `known_of`: what a trace's header says of the steps before the
    recorded ones; the loop stands still while that is asked for.
    """

    def __init__(
        self, schedule: ScriptSchedule, known_of: Callable[[list[int]], WindowFacts], say: Callable[[str], None]
    ) -> None:
        self.schedule = schedule
        self.measured: RecordingBursts | None = None
        self._known_of = known_of
        self._say = say
        self._says = False
        self._membership: Membership | None = None
        self._tracer: Tracer | None = None
        self._bursts: Bursts | None = None
        self._folder: Callable[[], RunFolder] | None = None
        self._annotation: AbstractContextManager[None] | None = None
        self._written: list[RecordedWindow] = []  # that rank 0 has not heard of yet
        self._remarks: list[str] = []

    def equip(
        self, config: ProfilerConfig, membership: Membership, metadata: Mapping[str, Any],
        folder: Callable[[], RunFolder], agreed: AgreedEnd, says: bool,
    ) -> None:  # fmt: skip
        """Make ready to record. `folder` is asked when a trace is written. `says`: of a window that ends early, too."""
        self._membership = membership
        self._folder = folder
        self._says = says
        self._tracer = Tracer(
            config, membership.device, membership.rank, dict(metadata), lambda: folder().traces, agreed=agreed
        )
        self._bursts = Bursts(membership.rank, membership.device, config.stacks)
        self._bursts.begin()

    def before(self, window: Window, step: int) -> None:
        """Do what is due before a step of a window."""
        global _recording
        if step == window.first and (_recording is not None or torch.autograd._profiler_enabled()):
            self._remarks.append(
                f"no trace of steps {window.active} to {window.end - 1}: another profiler is recording"
            )
            self.schedule = self.schedule.without(window)
            return
        _recording = self
        self._trace(lambda tracer: tracer.before(window, step), step)
        cut = self._tracer.cut if self._tracer is not None and step == window.active else None
        if cut is not None and self._says:
            self._say(announce.cut(window, *cut))

    def annotate(self, window: Window, step: int) -> None:
        """Begin a step of a window in the trace."""
        if self._tracer is not None:
            self._annotation = self._tracer.step(window, step)
            self._annotation.__enter__()

    def end_annotation(self) -> None:
        """End the step in the trace, if one has begun."""
        if self._annotation is not None:
            self._annotation.__exit__(None, None, None)
            self._annotation = None

    def after(self, window: Window, step: int) -> None:
        """Do what is due after a step of a window."""
        self._trace(lambda tracer: tracer.after(window, step), step)
        if self._tracer is not None and self._tracer.count and step + 1 < window.end:
            self.schedule = self.schedule.ending(window, step + 1)  # on all ranks alike: they agree on where it ends
        self._write(step)

    def close(self, step: int) -> None:
        """End for good, at a step that did not end: what was recorded before it is kept."""
        if (window := self.schedule.window(step)) is not None:
            self._trace(lambda tracer: tracer.break_off(window, step), step)
            self._write(step)
        self._release()
        self._let_go()

    def abandon(self) -> None:
        """Leave everything as it is; another loop may record."""
        self.end_annotation()
        self._release()

    def take_written(self) -> list[RecordedWindow]:
        """Return the windows written since the last call."""
        written, self._written = self._written, []
        return written

    def take_remarks(self, last: bool) -> list[str]:
        """Return what a reader has to know that was not said before; what the tracer has to say comes `last`."""
        remarks, self._remarks = self._remarks, []
        return [*remarks, *(self._tracer.remarks if last and self._tracer is not None else ())]

    def _trace(self, call: Callable[[Tracer], None], step: int) -> None:
        """Do something with the profiler. One that fails costs the traces, not the rows."""
        if self._tracer is None:
            return
        try:
            call(self._tracer)
        except Refused:
            raise
        except Exception as error:  # noqa: BLE001 - Kineto's and CUPTI's failures are of many kinds
            self._remarks.append(f"no traces from step {step} on: the profiler failed ({error})")
            self._tracer = None
            self.schedule = self.schedule.without(*self.schedule.windows)
            self._release()

    def _write(self, step: int) -> None:
        """Write what has been recorded; the time it takes is no step's."""
        while self._tracer is not None and self._membership is not None and self._tracer.count:
            self._release()
            assert self._folder is not None
            window = self._tracer.recorded(0)
            path = self._folder().trace_of(self._membership.rank, window.steps[0])
            try:
                self._tracer.export(0, path, self._header(window.steps))
                self._written.append(window)
            except (OSError, RuntimeError) as error:
                self._remarks.append(f"a trace could not be written: {path}: {error}")
            self._tracer.forget(0)
            if not any(window.first > step for window in self.schedule.windows):
                self._let_go()

    def _header(self, steps: list[int]) -> dict[str, WindowFacts | RecordingBursts]:
        """Return what a trace's header says of recording's cost, and of this rank's own steps before the window.

        The loop stands still meanwhile, as it does while a trace is written: so that is the place for the bursts.
        """
        assert self._bursts is not None
        self.measured = self.measured or self._bursts.measure()
        window = self._known_of(steps)
        return {"window": window, **({"bursts": self.measured} if self.measured is not None else {})}

    def _let_go(self) -> None:
        """Let the device's tracing library go in a job of one rank: beside NCCL's kernels that has not been tried."""
        if self._tracer is not None and self._membership is not None and self._membership.size == 1:
            self._tracer.let_go()

    def _release(self) -> None:
        global _recording
        if _recording is self:
            _recording = None
