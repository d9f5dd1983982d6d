"""Which step is what: warm-up, steady, or inside a Kineto window. Torch-free, and the same on every rank."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from scalescope.records.errors import UserError
from scalescope.records.rows import StepPhase
from scalescope.train.settings import ProfilerConfig

if TYPE_CHECKING:  # with it comes Hydra, which a stranger's script has no need of, nor its garbage collector
    from scalescope.train.config import TrainConfig


@dataclass(frozen=True)
class Window:
    """One Kineto window: the profiler warms up on [first, active), and records [active, end)."""

    first: int
    active: int
    end: int

    @classmethod
    def of(cls, first: int, warmup: int, active: int) -> "Window":
        """Return the window that begins with a step, by how many steps the profiler warms up and records."""
        return cls(first, first + warmup, first + warmup + active)

    def __contains__(self, step: int) -> bool:
        return self.first <= step < self.end


@dataclass(frozen=True)
class Schedule:
    """The phases of a job's steps."""

    steps: int
    warmup_steps: int
    windows: tuple[Window, ...]
    first_step: int = 0  # above 0 in a resumed job, whose process warms up again

    def resumed(self, first_step: int) -> "Schedule":
        """Return the phases of a job that goes on with a step; a window that began before it is left out."""
        windows = tuple(window for window in self.windows if window.first >= first_step)
        return replace(self, windows=windows, first_step=first_step)

    def with_window(self, window: Window) -> "Schedule | None":
        """Return the phases with one window more; None where it would overlap another one, or outlast the last step."""
        overlaps = any(other.first < window.end and window.first < other.end for other in self.windows)
        if overlaps or window.end > self.steps:
            return None
        return replace(self, windows=tuple(sorted((*self.windows, window), key=lambda one: one.first)))

    def phase(self, step: int) -> StepPhase:
        """Return a step's phase: a step inside a window counts as profiled, whatever else it would be."""
        if self.window(step) is not None:
            return "profile"
        return "warmup" if step < self.first_step + self.warmup_steps else "steady"

    def window(self, step: int) -> Window | None:
        """Return the window that a step lies in."""
        return next((window for window in self.windows if step in window), None)

    def may_interrupt_after(self, step: int) -> bool:
        """Whether something that takes its time may follow a step: not where a window would show it."""
        window = self.window(step)
        return window is None or step == window.end - 1

    @property
    def steady_steps(self) -> int:
        first = min(self.first_step + self.warmup_steps, self.steps)
        return self.steps - first - sum(max(0, window.end - max(window.first, first)) for window in self.windows)


def make_schedule(config: "TrainConfig") -> Schedule:
    """Return a job's phases. Raises UserError where the windows do not fit into the steps."""
    return Schedule(config.steps, config.warmup_steps, _windows(config.profiler, config.steps, config.active_steps))


def _windows(profiler: ProfilerConfig, steps: int, active: int) -> tuple[Window, ...]:
    """Cycles of wait, warm-up, active, as torch.profiler.schedule counts them; without `wait`, the job's last steps."""
    if not profiler.enabled:
        return ()
    length = profiler.warmup + active
    if profiler.wait is None:
        starts = [steps - (profiler.repeat - index) * length for index in range(profiler.repeat)]
    else:
        starts = [profiler.wait + index * (profiler.wait + length) for index in range(profiler.repeat)]
    if starts[0] < 0 or starts[-1] + length > steps:
        raise UserError(
            f"profiler: {profiler.repeat} window(s) of {length} steps, {profiler.wait or 0} before each, do "
            f"not fit into steps={steps}; lower profiler.wait or profiler.repeat, or raise steps"
        )
    return tuple(Window.of(start, profiler.warmup, active) for start in starts)
