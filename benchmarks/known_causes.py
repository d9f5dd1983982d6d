"""Jobs with one known cause of lost time each: does the analysis name it, and say rightly what it costs?

    python benchmarks/known_causes.py make OUT [--minutes 8] [--only gpu_bound/own_work,…]
    python benchmarks/known_causes.py table OUT [--markdown]
    python benchmarks/known_causes.py check OUT [--half tuned] [--markdown]

`make` starts the launches that this machine's GPUs allow (two GPUs are enough; four take two pairs side by side, then
the cases of four ranks; without any, a smoke test over gloo) and leaves a folder a window in OUT/LAUNCH/CASE: a
compressed trace a rank and truth.json (see causes/truth.py): what the cause costs, measured on untraced steps with it
and without in turns, so that no analysis has a part in it. A further call makes what is missing. It needs torch and
numpy, nothing of the project. `table` prints the truth. `check` runs `scalescope analyze` on every window, with the
step time that the job had before it was traced and without, and scores the findings (see causes/scoring.py); it exits
with 1 where the first finding is wrong anywhere.
"""

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("make", "table", "check"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", help="launches, or launch/case, comma-separated; default: all")
    parser.add_argument("--minutes", type=float, default=30, help="make: begin nothing that would end later")
    parser.add_argument("--plain", action="store_true", help="make: leave the traces uncompressed")
    parser.add_argument("--markdown", action="store_true", help="table, check: in markdown")
    parser.add_argument("--half", choices=("tuned", "other"), help="check: of the windows; other: its totals alone")
    parser.add_argument(
        "--analyze", help=f"check: the command (default: {Path(sys.executable).name} -m scalescope analyze)"
    )
    options = parser.parse_args()
    only = options.only.split(",") if options.only else None
    # each verb imports its own half: what makes traces need not be where they are read, nor the other way round
    if options.verb == "make":
        from causes.making import make

        return make(options.out, only, 60 * options.minutes, compress=not options.plain)
    if options.verb == "table":
        from causes.tables import truth_table

        print("\n".join(truth_table(options.out, only, options.markdown)))
        return 0
    from causes.scoring import check

    command = options.analyze.split() if options.analyze else [sys.executable, "-m", "scalescope", "analyze"]
    return check(options.out, only, command, options.markdown, options.half)


if __name__ == "__main__":
    sys.exit(main())
