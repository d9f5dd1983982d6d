"""Jobs beyond data parallelism whose truth is known: pipelines, tensor parallelism, experts. Is it what analyze says?

    torchrun --standalone --nproc-per-node 2 benchmarks/parallel_truth.py make OUT
    torchrun --standalone --nproc-per-node 4 benchmarks/parallel_truth.py make OUT
    python benchmarks/parallel_truth.py check OUT

`make` records a folder of traces a case (parallelism/cases.py), those for as many ranks as it runs on, on GPUs (NCCL)
or on CPUs (gloo, where work is sleep). `check` needs no torch: it reads how long ranks worked off the traces by a
reader of its own, prints a row a claim, and exits with 1 where one is wrong. `--cases` takes some of them.
"""

import argparse
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]  # the checkout, without an installation


def main() -> int:
    from parallelism.cases import chosen_cases

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("make", "check"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--cases", help="comma-separated; default: all that there are traces of")
    parser.add_argument("--markdown", action="store_true", help="check: the table in markdown")
    options = parser.parse_args()
    try:
        cases = chosen_cases(options.cases)
    except ValueError as error:
        parser.error(str(error))
    if options.verb == "check":
        from parallelism.check import check

        found = [case for case in cases if options.cases or (options.out / case.name).is_dir()]
        return check(found, options.out, options.markdown)
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    from parallelism.job import make

    make(cases, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
