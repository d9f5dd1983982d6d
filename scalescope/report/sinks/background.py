"""Work that a training step must not wait for: done in order by one thread, its failure told at the next call."""

import queue
import threading
from collections.abc import Callable


class Background:
    """One thread that does calls in the order they came. A daemon: a stuck service cannot keep a job alive.

    After what was queued is done, it rests for `pause_s`, so that calls are done in bursts: a thread that wakes for
    every one of them costs the step several times as much.
    """

    def __init__(self, name: str, pause_s: float = 0.0) -> None:
        self._pause_s = pause_s
        self._finishing = threading.Event()
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def do(self, call: Callable[[], None]) -> None:
        """Queue a call. Raises what an earlier one raised; after a failure nothing more is done."""
        if self._error is not None:
            raise self._error
        self._calls.put(call)

    def finish(self, timeout_s: float) -> None:
        """Wait for all calls. Raises what one of them raised, or TimeoutError where they take too long."""
        self._finishing.set()
        self._calls.put(None)
        self._thread.join(timeout_s)
        if self._error is not None:
            raise self._error
        if self._thread.is_alive():
            raise TimeoutError(f"{self._thread.name} did not answer within {timeout_s:g} s")

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            if self._error is None:
                try:
                    call()
                except Exception as error:  # noqa: BLE001 - told to the caller at its next call
                    self._error = error
            if self._pause_s and self._calls.empty():
                self._finishing.wait(self._pause_s)
