"""What each strategy costs, and that all of them compute the same: the same job under each, on the same data.

    python benchmarks/strategies.py [KEY=VALUE …] [--ranks 4] [--only ddp,fsdp2] [--out DIR]

KEY=VALUE are `scalescope train`'s and go to every job; without any it is model=gpt_small on the standard library's
sources. Printed is a markdown table: step, throughput and memory of the steady steps; communication a step, of the mean
rank's Kineto window, and what is exposed of it when the cost of recording is taken out; the whole price of
communication, which is the step's length over the one of `local` (that exchanges nothing: exposed communication and
slower compute together); and how far the losses are from those of one rank that works through the same global batch in
parts, in the median over the steps: where training itself jumps for a step, the largest difference says how far the
jump is, and not how alike they are. DeepSpeed's steps are not compiled; with compile=false among the overrides none is,
and the steps compare. A strategy that cannot run here is a row with its reason.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from jobs import JobFailed, UserError, composed, figure, markdown, runs_folder, train

from scalescope.records.folder import RunFolder
from scalescope.records.rows import StepRow
from scalescope.scaling.answer import RunAnalysis, read_run_answer

STRATEGIES: dict[str, tuple[str, ...]] = {
    "local": ("strategy=local",),
    "ddp": ("strategy=ddp",),
    "ddp, bf16 gradients": ("strategy=ddp", "strategy.gradient_dtype=bf16"),
    "fsdp2": ("strategy=fsdp2",),
    "fsdp2, kept gathered": ("strategy=fsdp2", "strategy.reshard_after_forward=false"),
    "zero1": ("strategy=zero1",),
    "zero2": ("strategy=zero2",),
    "zero3": ("strategy=zero3",),
}
DEFAULTS = ("model=gpt_small", "data=python_stdlib", "data.validation_samples=0", "steps=40", "warmup_steps=8")
HEADER = ("strategy", "compiled", "step ms", "p95", "samples/s", "memory GB", "communication ms, profiled",
          "exposed ms, as run", "longer than local ms", "losses differ by")  # fmt: skip


@dataclass(frozen=True)
class Result:
    """One job's rows, and what its traces say."""

    rows: list[StepRow]
    analysis: RunAnalysis | None
    compiled: bool

    @property
    def steps_ms(self) -> list[float]:
        return [row.length_ms for row in self.rows if row.phase == "steady"]

    @property
    def communication_ms(self) -> float | None:
        """Communication of the window a step, of the mean rank, hidden or not."""
        ranks = self.analysis.ranks if self.analysis else []
        return fmean(rank.communication_ms / rank.steps for rank in ranks) if ranks else None

    @property
    def exposed_ms(self) -> float | None:
        """Exposed communication a step, of the mean rank, without what recording costs; None where not known."""
        as_run = self.analysis.as_run if self.analysis else None
        if as_run is None or not as_run.ranks:
            return None
        exposed = (rank.exposed_transfer_ms + rank.exposed_wait_ms + rank.exposed_unsplit_ms for rank in as_run.ranks)
        return fmean(exposed) / as_run.steps


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="of `scalescope train`")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--only", default=",".join(STRATEGIES), help="strategies, separated by commas")
    parser.add_argument("--out", type=Path, help="where the runs go (default: a temporary folder, deleted at the end)")
    options = parser.parse_intermixed_args(arguments)
    overrides = (*DEFAULTS, *options.overrides)
    chosen = {name: own for name, own in STRATEGIES.items() if name in _names(options.only)}
    try:
        batch = composed(overrides).model.batch_size
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    alone = ("strategy=local", "launch.ranks=1", f"global_batch_size={batch * options.ranks}",
             f"accumulate={options.ranks}", "profiler=none")  # fmt: skip
    with runs_folder(options.out) as out:
        reference = _run(out, "one rank, in parts", (*overrides, *alone))
        results = {
            name: _run(out, name, (*overrides, f"launch.ranks={options.ranks}", *own)) for name, own in chosen.items()
        }
    rows = [_row(name, result, results.get("local"), reference) for name, result in results.items()]
    print(markdown(HEADER, [_row("one rank, in parts", reference, None, None), *rows]))
    return 0 if all(isinstance(result, Result) for result in results.values()) else 3


def _names(combination: str) -> set[str]:
    """Read --only: names hold commas themselves, so each known name is looked for, the longest first."""
    left, found = combination, set()
    for name in sorted(STRATEGIES, key=len, reverse=True):
        if name in left:
            found.add(name)
            left = left.replace(name, "")
    if unknown := left.replace(",", "").strip():
        raise SystemExit(f"--only: there is no strategy {unknown}; choose from {', '.join(STRATEGIES)}")
    return found


def _run(out: Path, name: str, overrides: Sequence[str]) -> Result | str:
    """Run one job; return what it gave, or why it did not."""
    print(f"{name} …", file=sys.stderr, flush=True)
    try:
        folder = train(out, name.replace(",", "").replace(" ", "-"), overrides)
    except JobFailed as error:
        print(f"{name}: {error}", file=sys.stderr, flush=True)
        return str(error)
    return _read(folder)


def _read(folder: RunFolder) -> Result:
    facts = folder.read_facts()
    answer = read_run_answer(folder.analysis) if folder.analysis.is_file() else None
    return Result(folder.read_steps(), answer, facts is not None and facts.compiled)


def _row(name: str, result: Result | str, local: Result | str | None, reference: Result | str | None) -> list[str]:
    if isinstance(result, str):
        return [name, result, *["–"] * (len(HEADER) - 2)]
    step_ms = median(result.steps_ms)
    p95 = sorted(result.steps_ms)[round(0.95 * (len(result.steps_ms) - 1))]
    memory = max((row.memory_peak_bytes or 0) for row in result.rows) or None
    longer = step_ms - median(local.steps_ms) if isinstance(local, Result) and local is not result else None
    exchanges = name not in ("local", "one rank, in parts")
    differ = _difference(result, reference) if exchanges and isinstance(reference, Result) else None
    return [
        name,
        "yes" if result.compiled else "no",
        figure(step_ms, 2),
        figure(p95, 2),
        figure(median(row.samples_per_s for row in result.rows if row.phase == "steady"), 1),
        figure(memory / 1e9 if memory else None, 2),
        figure(result.communication_ms, 2),
        figure(result.exposed_ms, 2),
        figure(longer, 2),
        "–" if differ is None else f"{differ:.1e}",
    ]


def _difference(result: Result, reference: Result) -> float:
    """Return the relative difference of the two jobs' losses, in the median over the steps of both."""
    expected = {row.step: row.loss for row in reference.rows}
    pairs = [(row.loss, expected.get(row.step)) for row in result.rows]
    return median(abs(loss - other) / abs(other) for loss, other in pairs if loss is not None and other)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
