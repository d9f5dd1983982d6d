"""What a Kineto window costs: the same job's steps before it, inside it and after it.

    python benchmarks/profiling_cost.py [KEY=VALUE …] [--out DIR]

One job, with the window in its middle. Steps before and after it are compared by their medians; a run without the
profiler, cut at the same place, says how much the two halves of a job differ by themselves. KEY=VALUE are `scalescope
train`'s; without any it is the small GPT on one CPU rank. It writes below --out only.
"""

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from jobs import JobFailed, UserError, composed, figure, markdown, runs_folder, train

from scalescope.records.folder import RunFolder
from scalescope.records.rows import StepRow
from scalescope.train.measure.schedule import make_schedule

TINY = ("model=gpt_tiny", "launch.device=cpu", "launch.ranks=1", "precision=fp32", "steps=205", "profiler.active=5")
GOAL = 0.01


@dataclass(frozen=True)
class Halves:
    """A job's steps around the place of the window: median ms of the slowest rank. `inside` are the recorded steps."""

    before_ms: float
    inside_ms: float | None
    after_ms: float

    @property
    def change(self) -> float:
        """After over before, less one."""
        return self.after_ms / self.before_ms - 1

    @property
    def slowdown(self) -> float | None:
        """Inside over before, less one."""
        return None if self.inside_ms is None else self.inside_ms / self.before_ms - 1


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="of `scalescope train`")
    parser.add_argument("--out", type=Path, help="where the runs go (default: a temporary folder, deleted at the end)")
    options = parser.parse_intermixed_args(arguments)
    try:
        overrides = [*(options.overrides or TINY), "validate_every=null", "data.validation_samples=0"]
        overrides.append(f"profiler.wait={_middle(overrides)}")
        with runs_folder(options.out) as out:
            profiled = halves(train(out, "profiled", overrides), overrides)
            plain = halves(train(out, "plain", [*overrides, "profiler.enabled=false"]), overrides)
    except (JobFailed, UserError) as error:
        print(f"profiling_cost: {error}", file=sys.stderr)
        return 3
    rows = [
        [name, figure(one.before_ms, 3), figure(one.inside_ms, 3), figure(one.after_ms, 3), _percent(one.slowdown),
         _percent(one.change)]
        for name, one in (("with the window", profiled), ("without the profiler", plain))
    ]  # fmt: skip
    print(markdown(("job", "before, ms", "inside, ms", "after, ms", "inside / before", "after / before"), rows))
    within = max(GOAL, abs(plain.change))  # no claim is finer than what halves differ by without a window
    print(f"after the window within {within:.1%} of before: {'yes' if abs(profiled.change) <= within else 'NO'} "
          f"({profiled.change:+.2%}; by themselves the halves differ by {plain.change:+.2%})")  # fmt: skip
    return 0 if abs(profiled.change) <= within else 1


def _middle(overrides: list[str]) -> int:
    """Return the step at which a window of the job lies in the middle of its measured steps."""
    config = composed(overrides)
    length = config.profiler.warmup + config.active_steps
    return config.warmup_steps + (config.steps - config.warmup_steps - length) // 2


def halves(run: RunFolder, overrides: list[str]) -> Halves:
    """Return a run's medians before, inside and after the place where `overrides` have the window."""
    config = composed(overrides)
    (window,) = make_schedule(config).windows
    rows = run.read_steps()
    recorded = [row for row in rows if window.active <= row.step < window.end]
    return Halves(
        before_ms=_median(row for row in rows if config.warmup_steps <= row.step < window.first),
        inside_ms=_median(recorded) if any(row.phase == "profile" for row in recorded) else None,
        after_ms=_median(row for row in rows if row.step >= window.end),
    )


def _median(rows: Iterable[StepRow]) -> float:
    return median(max(row.step_ms) for row in rows)


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:+.2%}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
