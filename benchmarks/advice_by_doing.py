"""Is the advice the right one, and does it bring what it promises? On jobs that are badly set up on purpose.

    python benchmarks/advice_by_doing.py [--ranks 4] [--cases tiny_buckets,compile_order,slow_loader] [--out DIR]

Each case is a study of one job with `try_advice=true`: it trains on all ranks, replays the step, and runs the best
advice. Right is the setting that undoes what was set up badly, within 30% of the promised gain or 1% of the step,
whichever is larger; a gain of at most so much is right where no more came. `slow_loader` makes JPEGs and decodes them
in the loop. About 20 s a run on H200, and a sweep a case. Prints a markdown table; exits with 1 where one is not right.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs import ROOT, JobFailed, figure, markdown, runs_folder

from scalescope.scaling.study_answer import TriedAdvice, read_study_answer

HEADER = ("set up badly", "best advice", "promised ms", "95% interval", "came ms", "step before", "after", "right")


@dataclass(frozen=True)
class Case:
    """A job that is badly set up, and the setting that the advice has to name."""

    name: str
    overrides: tuple[str, ...]
    setting: str


CASES = (
    Case("tiny_buckets", ("model=gpt_small", "compile=false", "strategy.bucket_mib=0.01"), "strategy.bucket_mib"),
    Case("compile_order", ("model=gpt_small", "compile=true", "strategy.compile_by_bucket=false"),
         "strategy.compile_by_bucket"),
    Case("slow_loader", ("model=resnet50", "data=image_folder", "data.decoder=pillow", "data.workers=0",
                         "data.validation_samples=0", "model.batch_size=64"), "data.workers"),
)  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--cases", default=",".join(case.name for case in CASES), help="separated by commas")
    parser.add_argument("--sizes", default="64KiB..1GiB x4", help="of the sweep")
    parser.add_argument("--images", type=int, default=2000, help="how many JPEGs are made")
    parser.add_argument("--out", type=Path, help="where the runs go (default: a temporary folder, deleted at the end)")
    options, overrides = parser.parse_known_intermixed_args(arguments)
    chosen = [case for case in CASES if case.name in options.cases.split(",")]
    rows, fine = [], True
    with runs_folder(options.out) as out:
        for case in chosen:
            extra = [*overrides, f"sweep.sizes={options.sizes}"]
            if case.name == "slow_loader":
                from image_loading import make_folder

                extra.append(f"data.path={make_folder(out / 'jpegs', options.images)}")
            try:
                tried = _study(out, case, options.ranks, extra)
            except JobFailed as error:  # the other cases may not
                print(f"{case.name}: {error}", file=sys.stderr)
                tried = None
            right = tried is not None and is_right(tried, case)
            fine = fine and right
            rows.append(_cells(case, tried, right))
            print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    print(markdown(HEADER, rows))
    return 0 if fine else 1


def is_right(tried: TriedAdvice, case: Case) -> bool:
    """Tell whether the advice names the setting at fault, and brought what it promised."""
    if tried.measured_ms is None or not tried.overrides[0].startswith(f"{case.setting}="):
        return False
    slack = max(0.3 * tried.expected_ms, 0.01 * (tried.base_step_ms or 0.0))
    return tried.measured_ms > 0 and (tried.at_most or tried.measured_ms >= tried.expected_ms - slack) and (
        tried.measured_ms <= tried.expected_ms + slack)  # fmt: skip


def _study(out: Path, case: Case, ranks: int, extra: Sequence[str]) -> TriedAdvice | None:
    command = [sys.executable, "-m", "scalescope", "study", "--try-advice", "logger=none", *case.overrides, *extra,
               f"runs={out}", f"name={case.name}", f"gpu_counts=[{ranks}]"]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stdout, file=sys.stderr)
    if done.returncode:
        raise JobFailed(done.stderr[-2000:])
    tried = read_study_answer(out / case.name / "analysis.json").tried
    return tried[0] if tried else None


def _cells(case: Case, tried: TriedAdvice | None, right: bool) -> list[str]:
    if tried is None:
        return [case.name, "none", "–", "–", "–", "–", "–", "NO"]
    bound = "at most" if tried.at_most else f"{tried.expected_low_ms:.2f} to {tried.expected_high_ms:.2f}"
    return [case.name, " ".join(tried.overrides), figure(tried.expected_ms, 2), bound, figure(tried.measured_ms, 2),
            figure(tried.base_step_ms, 2), figure(tried.run_step_ms, 2), "yes" if right else "NO"]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
