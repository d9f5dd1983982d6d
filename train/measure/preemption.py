"""A request to stop, as a scheduler sends it: noted when it comes, obeyed by all ranks after the same step."""

import signal
from types import FrameType, TracebackType

from scalescope.records.errors import Preempted
from scalescope.records.stop import noted

_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)  # what Slurm sends before a job's time is up, or --signal=USR1


class StopRequest:
    """Listens for SIGTERM and SIGUSR1 while it is open."""

    def __init__(self) -> None:
        self.name: str | None = None  # the signal that came

    def __enter__(self) -> "StopRequest":
        self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        self.name = self.name or noted()  # before this began to listen
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None and issubclass(kind, Preempted):
            return  # obeyed: being asked again must not end the rank before it has said where its state is
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.name = signal.Signals(number).name
