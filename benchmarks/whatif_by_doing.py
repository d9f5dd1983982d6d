"""Is what `whatif` predicts what comes, when it is done? On the GPUs at hand.

    python benchmarks/whatif_by_doing.py [KEY=VALUE …] [--ranks 4] [--buckets 2,100,1000] [--truth FOLDER] [--out DIR]

A study of the job (one rank, and all of them, and the all-reduce sweep) gives the traces to predict from. Then each
change is made in a run of its own: DDP's buckets, gradients as bf16; and the unchanged job once more at the end, whose
difference is what a difference of nothing looks like. Measured is the median of the steady steps, outside the
profiler's window. `--truth` is a folder of traces that `known_truth.py make` has made, with a rank held up on purpose:
predicted from the disturbed traces is the step without the delay, measured in the traces of undisturbed runs.

A prediction is right within 30% of the measured change, or 1% of the step, whichever is larger. Prints a markdown
table; exits with 1 where one is not. KEY=VALUE are `scalescope train`'s and go to every job (model=gpt_small
without any). About 20 s a run on H200.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from jobs import ROOT, JobFailed, figure, markdown, runs_folder, train
from known_truth_cases import CASES

from scalescope.records.folder import RunFolder
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.load import Target, find_targets, open_replayer
from scalescope.scaling.replay.whatif.prediction import Prediction
from scalescope.scaling.replay.whatif.replayer import Replayer

HEADER = ("change", "step ms", "predicted ms", "95% interval", "measured ms", "off by", "right")
CHANGE_SHARE, STEP_SHARE = 0.30, 0.01
#: Of known_truth's cases: the disturbed one, the rank that is held up, the undisturbed ones.
TRUTHS = (
    ("device_delay", ("undisturbed_1", "undisturbed_2", "undisturbed_3")),
    ("slow_compute", ("undisturbed_1", "undisturbed_2", "undisturbed_3")),
    ("two_late", ("undisturbed_3", "undisturbed_4")),
    ("slow_data", ("synced_1", "synced_2")),
    ("late_root", ("broadcast_1", "broadcast_2")),
)


@dataclass(frozen=True)
class Row:
    """One change: predicted, and done."""

    what: str
    step_ms: float
    predicted: Prediction
    measured_ms: float

    @property
    def right(self) -> bool:
        allowed = max(CHANGE_SHARE * abs(self.measured_ms), STEP_SHARE * self.step_ms)
        return self.predicted.change_ms is not None and abs(self.predicted.change_ms - self.measured_ms) <= allowed

    @property
    def cells(self) -> list[str]:
        one = self.predicted
        if one.change_ms is None or one.low_ms is None or one.high_ms is None:
            return [self.what, figure(self.step_ms, 2), one.reason or "–", "–", f"{self.measured_ms:+.2f}", "–", "no"]
        off = one.change_ms - self.measured_ms
        interval = f"{one.low_ms:+.2f} to {one.high_ms:+.2f}"
        return [self.what, figure(self.step_ms, 2), f"{one.change_ms:+.2f}", interval,
                f"{self.measured_ms:+.2f}", f"{off:+.2f}", "yes" if self.right else "NO"]  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="of `scalescope train`")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--buckets", default="2,100,1000", help="MiB, separated by commas")
    parser.add_argument("--sizes", default="256KiB..1GiB x4", help="of the sweep")
    parser.add_argument("--no-bf16", action="store_true", help="leave gradients as bf16 out, as gloo must")
    parser.add_argument("--truth", type=Path, help="a folder that known_truth.py made")
    parser.add_argument("--only-truth", action="store_true", help="run no jobs")
    parser.add_argument("--out", type=Path, help="where the runs go (default: a temporary folder, deleted at the end)")
    options = parser.parse_intermixed_args(arguments)
    rows: list[Row] = []
    with runs_folder(options.out) as out:
        if not options.only_truth:
            buckets = [float(word) for word in options.buckets.split(",") if word]
            overrides = tuple(options.overrides or ["model=gpt_small"])
            for row in by_doing(out, overrides, options.ranks, buckets, options.sizes, bf16=not options.no_bf16):
                rows.append(row)
                print("  ".join(row.cells), file=sys.stderr, flush=True)
    if options.truth is not None:
        rows += delays_taken_off(options.truth)
    print(markdown(HEADER, [row.cells for row in rows]))
    return 0 if all(row.right for row in rows) else 1


def by_doing(
    out: Path, overrides: Sequence[str], ranks: int, buckets: Sequence[float], sizes: str, *, bf16: bool
) -> Iterator[Row]:
    """Predict from a study's largest run, make each change, and yield what came of it. Raises JobFailed."""
    base = _study(out, overrides, ranks, sizes)
    replayer = open_replayer(Target(base.path, base.path.name, base.path.parent))
    print("; ".join([f"replay {100 * replayer.replay.error:+.2f}% off", *replayer.assumptions]), file=sys.stderr)
    before = _steady_ms(base)
    changes = [(f"bucket-{size:g}", Change(bucket_mib=size), f"strategy.bucket_mib={size:g}") for size in buckets]
    if bf16:
        changes.append(("bf16", Change(gradients="bf16"), "strategy.gradient_dtype=bf16"))
    for name, change, override in changes:
        run = train(out, name, [*overrides, f"launch.ranks={ranks}", override])
        yield Row(change.description, before, replayer.predict(change), _steady_ms(run) - before)
    again = train(out, "again", [*overrides, f"launch.ranks={ranks}"])
    yield Row("nothing (run again)", before, _nothing(replayer), _steady_ms(again) - before)


def _study(out: Path, overrides: Sequence[str], ranks: int, sizes: str) -> RunFolder:
    command = [sys.executable, "-m", "scalescope", "study", "logger=none", *overrides, f"runs={out}", "name=base",
               f"gpu_counts=[1,{ranks}]", f"sweep.sizes={sizes}"]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise JobFailed(done.stderr[-2000:])
    (target,) = find_targets(out / "base")
    return RunFolder.open(target.path)


def _steady_ms(run: RunFolder) -> float:
    return median(max(row.step_ms) for row in run.read_steps() if row.phase == "steady")


def _nothing(replayer: Replayer) -> Prediction:
    noise = STEP_SHARE * replayer.replay.replayed_ms
    return Prediction(change=Change(), what="nothing", step_ms=replayer.replay.replayed_ms, change_ms=0.0,
                      low_ms=-noise, high_ms=noise, fraction=0.0)  # fmt: skip


def delays_taken_off(truth: Path) -> list[Row]:
    """Return for each known delay what taking it off was predicted to bring, beside runs that never had it."""
    rows = []
    for case, undisturbed in TRUTHS:
        if not (truth / case).is_dir():
            continue
        replayer = open_replayer(Target(truth / case, case))
        replayers = [open_replayer(Target(truth / name, name)) for name in undisturbed if (truth / name).is_dir()]
        # a set that lacks a rank is no reference
        references = [one.replay.traced_ms for one in replayers if one.graph.ranks == replayer.graph.ranks]
        if not references:
            continue
        late = next(one for one in CASES if one.name == case).ranks_of(len(replayer.graph.ranks))
        each = [Change(no_straggler=rank) for rank in replayer.graph.ranks]
        changes = [Change(no_stragglers=late)] if len(late) > 1 else each
        found = [replayer.predict(one, quick=True) for one in changes]
        removal = min(found, key=lambda one: one.change_ms or 0.0).change
        disturbed = replayer.replay.traced_ms
        rows.append(
            Row(f"{case}: {removal.description}", disturbed, replayer.predict(removal), fmean(references) - disturbed)
        )
        if case == "slow_data":
            rows.append(Row(f"{case}: data loading free", disturbed, replayer.predict(Change(data_free=True)),
                            fmean(references) - disturbed))  # fmt: skip
    return rows


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
