"""What each precision does to the loss: the same job in each, on the same real text, beside fp32's losses.

    python benchmarks/precision_losses.py [KEY=VALUE …] [--precisions fp32,bf16] [--after 50,200] [--out DIR]

KEY=VALUE are `scalescope train`'s and go to every job; without any it is model=gpt_small on one device, on the standard
library's sources. Printed is a markdown table: the held-out loss (the same samples in each job) and the training loss
after so many steps, and their difference from fp32's. The row `fp32, another seed` is the yardstick: other first
weights and another order of the data move the loss as well. A precision that cannot run here is a row with its reason.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from pathlib import Path
from statistics import median

from jobs import JobFailed, figure, markdown, runs_folder, train

from scalescope.records.rows import StepRow

PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8")
DEFAULTS = ("model=gpt_small", "model.batch_size=16", "data=python_stdlib", "launch.ranks=1", "profiler=none",
            "optimizer.warmup_steps=20")  # fmt: skip
SEED = "fp32, another seed"


@dataclass(frozen=True)
class Losses:
    """One job's losses by the number of updates before them, and its median measured step."""

    training: dict[int, float]
    held_out: dict[int, float]
    step_ms: float


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="of `scalescope train`")
    parser.add_argument("--precisions", default=",".join(PRECISIONS), help="separated by commas; fp32 is always run")
    parser.add_argument("--after", default="50,200", metavar="STEPS", help="after how many, separated by commas")
    parser.add_argument("--out", type=Path, help="where the runs go (default: a temporary folder, deleted at the end)")
    options = parser.parse_intermixed_args(arguments)
    after = sorted({int(count) for count in options.after.split(",")})
    # one more step, since a step's loss is taken before its update; every divisor's step, so after each count too
    overrides = (*DEFAULTS, f"steps={after[-1] + 1}", f"validate_every={gcd(*after)}", *options.overrides)
    precisions = ["fp32", *(name for name in options.precisions.split(",") if name != "fp32")]
    with runs_folder(options.out) as out:
        jobs = {name: _run(out, name, (*overrides, f"precision={name}")) for name in precisions}
        jobs[SEED] = _run(out, "fp32-seed", (*overrides, "precision=fp32", "seed=7331"))
    reference = jobs["fp32"]
    if isinstance(reference, str):
        print(f"fp32: {reference}", file=sys.stderr)
        return 3
    header = ["precision", "step ms"]
    for steps in after:
        header += [f"held-out loss after {steps}", "− fp32's", f"training loss after {steps}", "− fp32's"]
    print(markdown(header, [_row(name, losses, reference, after) for name, losses in jobs.items()]))
    return 0


def _run(out: Path, name: str, overrides: Sequence[str]) -> Losses | str:
    """Run one job; return its losses, or why it has none."""
    print(f"{name} …", file=sys.stderr, flush=True)
    try:
        return _losses(train(out, name, overrides).read_steps())
    except JobFailed as error:
        return str(error)


def _losses(rows: Sequence[StepRow]) -> Losses:
    # a step's loss is taken before its update; a held-out loss after it, but for the untrained model's at step 0
    return Losses(
        {row.step: row.loss for row in rows if row.loss is not None},
        {row.step + 1: row.validation_loss for row in rows if row.validation_loss is not None and row.step > 0},
        median(max(row.step_ms) for row in rows if row.phase == "steady"),
    )


def _row(name: str, losses: Losses | str, reference: Losses, after: Sequence[int]) -> list[str]:
    if isinstance(losses, str):
        return [name, losses, *["–"] * (4 * len(after))]
    cells = [name, figure(losses.step_ms, 1)]
    for steps in after:
        for own, base in ((losses.held_out, reference.held_out), (losses.training, reference.training)):
            value, expected = own.get(steps), base.get(steps)
            difference = None if value is None or expected is None or losses is reference else value - expected
            cells += [figure(value, 4), "–" if difference is None else f"{difference:+.4f}"]
    return cells


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
