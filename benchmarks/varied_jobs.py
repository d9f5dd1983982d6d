"""Jobs of many kinds, each with one known cause a run, recorded with torch.profiler alone: is it what analyze says?

    torchrun --standalone --nproc-per-node 2 benchmarks/varied_jobs.py make OUT [--only tp,moe/skew] [--minutes 5]
    python benchmarks/varied_jobs.py check OUT

None is a job of `scalescope train`, and `make` needs nothing of the project. There are two sorts:
  devices bind (made unless others are asked for; 290 s on two H200s): two adversaries that are updated by turns, an
  LSTM over packed sequences, two towers that exchange embeddings, a decoder with a sharded optimizer, one that
  accumulates gradients, a U-Net behind a loader with workers, a policy that generates before it trains, and 700 million
  parameters under FSDP2;
  launching binds (`--only launching`, 200 s on four): a decoder under FSDP2, the same compiled under DDP, a vision
  transformer with checkpointed activations, a convolutional network in half precision with a gradient scaler, tensor
  parallelism by hand, a pipeline, experts behind all-to-alls, and a deep decoder with tiny batches.
Each cause's steps are run with it and without in turns, untraced, then four are recorded; with `--read-loss` each ends
by reading its loss. OUT/JOB/CAUSE has a plain trace a rank and truth.json: the cost by neighbouring stretches, in ms a
step, and the codes that name it. `check` analyses each folder, told the untraced step and untold, and prints the truth
beside the first findings.
"""

import argparse
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]


def main() -> int:
    from varied.causes import DEVICE_BOUND, JOBS, LAUNCH_BOUND

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("make", "check"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", help=f"make: launching, or of {', '.join(JOBS)}, or JOB/CAUSE; comma-separated")
    parser.add_argument("--minutes", type=float, default=5, help="make: begin nothing after so many")
    parser.add_argument(
        "--read-loss", action="store_true", help="make: end each step by reading its loss, as most loops do"
    )
    given = parser.parse_args()
    if given.verb == "check":
        from varied.check import check

        return check(given.out)
    chosen = given.only.split(",") if given.only else list(DEVICE_BOUND)
    if "launching" in chosen:
        chosen.extend(LAUNCH_BOUND)
    every = [(job, cause) for job, causes in JOBS.items() for cause in causes]
    wanted = [(job, cause) for job, cause in every if job in chosen or f"{job}/{cause}" in chosen]
    if not wanted:
        parser.error(f"--only: there is none of {given.only}")
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    from varied.disturbing import Causes
    from varied.making import make

    Causes.read_loss = given.read_loss
    make(given.out, wanted, 60 * given.minutes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
