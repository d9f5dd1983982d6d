"""Kernels of one model on an H100 and an MI300X: how much is matched by operator, and does TraceLens match the same?

    git clone https://github.com/AMD-AGI/TraceLens
    python benchmarks/compare_with_tracelens.py TraceLens [--markdown]

TraceLens's repository holds traces of the same models on both devices (tests/traces/h100 and mi300), and its TraceDiff
lays two traces side by side: it merges their trees of operators by the Wagner-Fischer distance of their names, and
gives each kernel the lowest operator that both trees have. The share matched is that of both sides' compute that has a
counterpart, by ours and by theirs. A group of theirs agrees with ours where all of its kernels, of both sides, belong
to one pair of ours; of those that do not, the longest are printed with their kernels, to be looked at in the traces.
Needs pandas; nothing of TraceLens is kept. Exits with 1 where less than 90% is matched.
"""

import argparse
import io
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scalescope.scaling.compare.kernels.alignment import align
from scalescope.scaling.compare.kernels.matching import match_tables
from scalescope.scaling.compare.kernels.operators import Call, CallTable, read_calls

LEAST_MATCHED = 0.9
_COPIES = ("Memcpy", "Memset")
#: Kernels are the same event where name and duration agree to this many µs, in order.
_DIGITS = 2
Key = tuple[str, float]


@dataclass
class Result:
    """One model's outcome; times in µs, of both sides together."""

    model: str
    ours: float
    theirs: float
    agreed_us: float = 0.0
    grouped_us: float = 0.0
    differing: list[tuple[float, str, list[str]]] = field(default_factory=list)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tracelens", type=Path, help="a checkout of TraceLens")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    sys.path.insert(0, str(options.tracelens))
    results = [compared(options.tracelens, model) for model in models(options.tracelens)]
    if not results:
        raise SystemExit(f"{options.tracelens} holds no traces of one model on both devices")
    print("\n".join(lines(results, options.markdown)))
    return int(any(result.ours < LEAST_MATCHED for result in results))


def models(checkout: Path) -> list[str]:
    """Return the traces that both devices have; those that were not fetched are empty."""
    sides = [checkout / "tests" / "traces" / device for device in ("h100", "mi300")]
    names = {path.name for path in sides[0].glob("*.json.gz")}
    return sorted(
        name for name in names if all((side / name).is_file() and (side / name).stat().st_size for side in sides)
    )


def compared(checkout: Path, model: str) -> Result:
    paths = [checkout / "tests" / "traces" / device / model for device in ("h100", "mi300")]
    tables = [read_calls(path) for path in paths]
    share = match_tables(tables[0], tables[1]).share or 0.0
    groups = their_groups(paths)
    both = sum(sum(us for _, us in side) for group in groups if all(group) for side in group)
    whole = sum(sum(us for _, us in side) for group in groups for side in group)
    result = Result(model.partition("__")[0], share, both / whole if whole else 0.0)
    judge(result, groups, [pair_of_kernels(tables, side) for side in (0, 1)])
    return result


def pair_of_kernels(tables: list[CallTable], side: int) -> dict[Key, list[int]]:
    """Return for each kernel of one side the pairs of ours that its events are in, in the order of launches."""
    same, placed = align(tables[0].calls, tables[1].calls)
    number = {pair[side]: at for at, pair in enumerate([*same, *placed])}
    found: dict[Key, list[int]] = defaultdict(list)
    for at, call in enumerate(tables[side].calls):
        for key in kernel_keys(call):
            found[key].append(number.get(at, -1))
    return found


def kernel_keys(call: Call) -> Iterator[Key]:
    for kernel in call.kernels:
        yield kernel.name, round(kernel.us, _DIGITS)


def their_groups(paths: list[Path]) -> list[tuple[list[Key], list[Key]]]:
    """Return TraceDiff's groups: the kernels of both sides below each lowest common operator, without copies."""
    from TraceLens import TraceDiff
    from TraceLens.TreePerf import TreePerfAnalyzer

    with redirect_stdout(io.StringIO()):
        rows = _rows(TraceDiff, [TreePerfAnalyzer.from_file(str(path)).tree for path in paths])
    groups: dict[Any, tuple[list[Key], list[Key]]] = defaultdict(lambda: ([], []))
    for row in rows.itertuples():
        if not row.name.startswith(_COPIES):
            side = 0 if row.source == "trace1" else 1
            groups[row.lowest_common_ancestor_id][side].append((row.name, round(row.kernel_time, _DIGITS)))
    return list(groups.values())


def _rows(diff_of: Any, trees: list[Any]) -> Any:
    diff = diff_of(*trees)
    diff.generate_tracediff_report()
    return diff.get_diff_stats_df().sort_values("gpu_op_uid")


def judge(result: Result, groups: list[tuple[list[Key], list[Key]]], ours: list[dict[Key, list[int]]]) -> None:
    """Hold their groups against our pairs."""
    for group in sorted(groups, key=lambda group: sum(us for side in group for _, us in side), reverse=True):
        us = sum(us for side in group for _, us in side)
        if not all(group):
            continue
        # of events that are the same to the eye (name and duration), any that is not taken may be meant
        candidates = [[set(ours[side].get(key, [-2])) for key in group[side]] for side in (0, 1)]
        common = set.intersection(*(one for side in candidates for one in side))
        result.grouped_us += us
        if common - {-1, -2}:
            result.agreed_us += us
        else:
            names = [f"{'H100' if side == 0 else 'MI300X'}: {name[:60]} {took} µs"
                     for side in (0, 1) for name, took in group[side][:3]]  # fmt: skip
            result.differing.append((us, "their group lies in several pairs of ours", names))


def lines(results: list[Result], markdown: bool) -> Iterator[str]:
    lead = "| " if markdown else ""
    between = " | " if markdown else "  "
    yield lead + between.join(("model", "matched", "by TraceLens", "of its groups, agreeing"))
    if markdown:
        yield "| --- | ---: | ---: | ---: |"
    for one in results:
        agreed = one.agreed_us / one.grouped_us if one.grouped_us else 0.0
        yield lead + between.join((one.model, f"{one.ours:.1%}", f"{one.theirs:.1%}", f"{agreed:.1%}"))
    for one in results:
        for us, why, names in one.differing[:5]:
            yield f"{one.model}: {us:.0f} µs, {why}"
            yield from (f"    {name}" for name in names)


if __name__ == "__main__":
    sys.exit(main())
