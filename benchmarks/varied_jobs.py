"""Jobs of many kinds, each with one known cause a run, recorded with torch.profiler alone: is it what analyze says?

    torchrun --standalone --nproc-per-node 4 benchmarks/varied_jobs.py make OUT [--only tp,moe/skew] [--minutes 5]
    python benchmarks/varied_jobs.py check OUT

A decoder under FSDP2, the same compiled under DDP, a vision transformer with checkpointed activations, a convolutional
network in half precision with a gradient scaler, tensor parallelism by hand, a pipeline, and experts behind
all-to-alls: none is a job of `scalescope train`, and `make` needs nothing of the project. It runs each cause's steps
with it and without in turns, untraced, then records four of them. OUT/JOB/CAUSE has a plain trace a rank and
truth.json: the cost by neighbouring stretches, in ms a step, and the codes that name it. `check` analyses each folder,
told the untraced step and untold, and prints the truth beside the first findings.
"""

import argparse
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]


def main() -> int:
    from varied.causes import JOBS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("make", "check"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", help=f"make: of {', '.join(JOBS)}, or JOB/CAUSE; comma-separated")
    parser.add_argument("--minutes", type=float, default=5, help="make: begin no further job after so many")
    given = parser.parse_args()
    if given.verb == "check":
        from varied.check import check

        return check(given.out)
    chosen = given.only.split(",") if given.only else list(JOBS)
    every = [(job, cause) for job, causes in JOBS.items() for cause in causes]
    wanted = [(job, cause) for job, cause in every if job in chosen or f"{job}/{cause}" in chosen]
    if not wanted:
        parser.error(f"--only: there is none of {given.only}")
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    from varied.making import make

    make(given.out, wanted, 60 * given.minutes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
