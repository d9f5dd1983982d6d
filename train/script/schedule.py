"""Which step of a stranger's loop is what, however many steps it takes. Torch-free."""

from dataclasses import dataclass, replace

from scalescope.records.rows import StepPhase
from scalescope.train.measure.schedule import Window
from scalescope.train.script.config import ScriptConfig


@dataclass(frozen=True)
class ScriptSchedule:
    """The phases of the loop's steps; windows that cannot be recorded are left out as that turns out."""

    first_step: int
    warmup_steps: int
    windows: tuple[Window, ...]
    warmup: int = 0  # of each window: how many steps the profiler warms up on, and how many it records
    active: int = 1

    @classmethod
    def of(cls, config: ScriptConfig) -> "ScriptSchedule":
        """Return the schedule that the settings make."""
        profiler = config.profiler
        if not profiler.enabled:
            return cls(config.first_step, config.warmup_steps, ())
        assert profiler.wait is not None
        active = profiler.most_active()
        length = profiler.warmup + active
        starts = [
            config.first_step + profiler.wait + index * (profiler.wait + length) for index in range(profiler.repeat)
        ]
        windows = tuple(Window.of(start, profiler.warmup, active) for start in starts)
        return cls(config.first_step, config.warmup_steps, windows, profiler.warmup, active)

    def without(self, *left_out: Window) -> "ScriptSchedule":
        """Return the schedule without some windows."""
        return replace(self, windows=tuple(window for window in self.windows if window not in left_out))

    def with_window(self, window: Window) -> "ScriptSchedule | None":
        """Return the schedule with one window more; None where it would overlap another one, or follow it at once."""
        if any(other.first <= window.end and window.first <= other.end for other in self.windows):
            return None
        return replace(self, windows=tuple(sorted((*self.windows, window), key=lambda one: one.first)))

    def ending(self, window: Window, end: int) -> "ScriptSchedule":
        """Return the schedule with a window that ends before a step already: the steps from the next one on are none
        of the profiler's.
        """
        ended = replace(window, end=end)
        return replace(self, windows=tuple(ended if one == window else one for one in self.windows))

    def window_from(self, first: int) -> Window:
        """Return a window that begins with a step, as long as all are."""
        return Window.of(first, self.warmup, self.active)

    def window(self, step: int) -> Window | None:
        """Return the window that a step lies in."""
        return next((window for window in self.windows if step in window), None)

    def phase(self, step: int) -> StepPhase:
        """Return a step's phase.

        The step after a window counts as profiled, too: in it the ranks wait for whoever took longest to write its
        trace.
        """
        if any(window.first <= step <= window.end for window in self.windows):
            return "profile"
        return "warmup" if step < self.first_step + self.warmup_steps else "steady"

    def end_before(self, step: int) -> int | None:
        """Return the end of the last window that ended before a step; None: there was none."""
        return max((window.end for window in self.windows if window.end < step), default=None)
