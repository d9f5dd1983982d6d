"""When Python collects its garbage, in a recorded window: by `gc.callbacks`, 1.1 µs a young collection."""

import gc
import threading
import time
from typing import Any

from scalescope.records.steps.garbage import SHORTEST_NS, GarbageCollection


class GarbageWatch:
    """Notes the long collections between `start` and `stop`. There is one at a time in a process, whichever thread."""

    def __init__(self) -> None:
        self._since_ns = 0
        self._found: list[GarbageCollection] = []

    def start(self) -> None:
        """Begin to look."""
        self._since_ns, self._found = 0, []
        gc.callbacks.append(self._note)

    def stop(self) -> list[GarbageCollection]:
        """Return what was found, and look no longer; nothing where it has not begun."""
        if self._note in gc.callbacks:
            gc.callbacks.remove(self._note)
        found, self._found = self._found, []
        return found

    def _note(self, phase: str, info: dict[str, Any]) -> None:
        now_ns = time.time_ns()  # as Kineto's: a trace's base is this clock's
        if phase == "start":
            self._since_ns = now_ns
        elif self._since_ns and now_ns - self._since_ns >= SHORTEST_NS:
            self._found.append(
                GarbageCollection(self._since_ns, now_ns, int(info["generation"]), threading.get_native_id())
            )
