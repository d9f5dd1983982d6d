"""Traces whose truth is known, made by real ranks: does the analysis find what was injected, within 5%?

    torchrun --standalone --nproc-per-node 4 benchmarks/known_truth.py make OUT
    python benchmarks/known_truth.py check OUT

`make` records a folder of traces a case (see known_truth_cases.py), all in one launch; it needs torch and hydra-core,
and runs on GPUs (NCCL) or, for a smoke test, on CPUs (gloo), where the host sleeps instead of the device.
`check` needs no torch. What was injected is read off the injected activity itself in the disturbed rank's trace, by a
reader of its own: the kernels launched inside the annotation `scalescope:injected`, or the annotation
`scalescope:data`. A step need not grow by that: a device at its power limit runs faster after a rest, a host slower
after a sleep. So the account of its growth is held against the growth, which the same reader takes from the traces.
Where a figure is a difference to an undisturbed run, that run is the mean of the one before the case and the one after.
Prints a row a claim, and exits with 1 where one is off by more than the tolerance, which is always
a share of the injected time.
"""

import argparse
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]  # the checkout, without an installation

TOLERANCE = 0.05


def main() -> int:
    from known_truth_cases import chosen_cases

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("make", "check"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--cases", help="comma-separated; default: all")
    parser.add_argument("--markdown", action="store_true", help="check: the table in markdown")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE, help="check: share of the injected time")
    options = parser.parse_args()
    try:
        cases = chosen_cases(options.cases)
    except ValueError as error:
        parser.error(str(error))
    # each verb imports its own half: what makes traces need not be where they are read, nor the other way round
    if options.verb == "check":
        from known_truth_check import check

        return check(cases, options.out, options.tolerance, options.markdown)
    # with it NCCL may reduce in the switch, and a waiting collective then occupies few multiprocessors
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    from known_truth_job import make

    make(cases, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
