"""What scalescope says of traces that others published, and what it withholds: a row a trace.

    python benchmarks/public_traces.py FOLDER [--markdown FILE] [--operators]

FOLDER holds the files, wherever they are below it. Nothing is fetched here and nothing of it is committed: PUBLISHED
names repositories and paths, and a copy of a repository in `FOLDER/<owner>+<name>/` is recognised. `--operators` lists
instead where a kernel's kind by its name is another one than that of the operator that launched it, with the time.
"""

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scalescope.records.errors import UserError
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.run import explain_traces
from scalescope.scaling.trace.kernel_kinds import COMMUNICATION, OTHER, kind_of
from scalescope.scaling.trace.reader import read_trace
from scalescope.scaling.trace.sources import Source, find_sources
from scalescope.scaling.trace.trace import KERNEL
from scalescope.scaling.trace.xla.read import XPLANE, is_profile

#: Repository → where its traces lie.
PUBLISHED = {
    "facebookresearch/HolisticTraceAnalysis": "tests/data",
    "AMD-AGI/TraceLens": "tests/traces",
    "ROCm/aorta": "misc",
}
_NO_TRACES = ("execution_details.json", "cpu_op_map", "_et.json")


@dataclass(frozen=True)
class Row:
    """One trace: what is said of it."""

    name: str
    read: str
    steps: str
    told: str
    withheld: str
    other: float | None  # share of the compute whose kernels' names say nothing


def main(argv: list[str] | None = None) -> None:
    """Read all traces of a folder, print a row each, and how many have more than 5% other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--markdown", type=Path, help="write the table here")
    parser.add_argument("--operators", action="store_true", help="hold kinds by name against launching operators")
    options = parser.parse_args(argv)
    if options.operators:
        for line in disagreements(options.folder):
            print(line)
        return
    rows = [row_of(path, options.folder) for path in files_of(options.folder)]
    table = markdown(rows)
    print(table)
    known = [row.other for row in rows if row.other is not None]
    print(f"{len(rows)} traces; other is above 5% in {sum(share > 0.05 for share in known)} of {len(known)}")
    if options.markdown is not None:
        options.markdown.write_text(f"{table}\n")


def files_of(folder: Path) -> list[Path]:
    """Return the files that may be traces."""
    found = (path for path in sorted(folder.rglob("*")) if path.name.endswith((".json", ".json.gz", XPLANE)))
    return [path for path in found if path.is_file() and not any(word in path.name for word in _NO_TRACES)]


def row_of(path: Path, folder: Path) -> Row:
    """Return what is told of one trace, read by itself."""
    name = _name(path, folder)
    try:
        sources = find_sources(path) if is_profile(path) else [Source(path, None)]
        explained = explain_traces(sources, path.name, jobs=1)
    except UserError as error:
        return Row(name, f"refused: {str(error).partition(' is ')[2][:60]}", "", "", "", None)
    run = explained.analysis
    compute = sum(row.ms for row in run.kinds if row.kind != COMMUNICATION)
    other = sum(row.ms for row in run.kinds if row.kind == OTHER)
    return Row(
        name,
        f"{run.quality.verdict}, {run.activity}",
        f"{max((rank.steps for rank in run.ranks), default=0)} by {run.steps_by}" if run.steps_by else "none",
        _told(run),
        _withheld(run),
        other / compute if compute and run.quality.verdict != "unusable" else None,
    )


def _name(path: Path, folder: Path) -> str:
    parts = list(path.relative_to(folder).parts)
    parts[0] = parts[0].replace("+", "/", 1)
    return "/".join(parts)


def _told(run: RunAnalysis) -> str:
    if run.quality.verdict == "unusable" or not run.ranks:
        return "–"
    rank = max(run.ranks, key=lambda rank: rank.compute_ms)  # a profile of XLA holds all of a process
    share = rank.compute_ms / rank.window_ms if rank.window_ms else 0.0
    if run.steps_by is None:
        return f"{share:.0%} compute of {rank.window_ms:.1f} ms recorded"
    kinds = sorted({step.kind for step in run.steps if step.kind})
    what = f"{'/'.join(kinds)} iteration" if kinds else "step"
    return f"{share:.0%} compute of a {rank.window_ms / max(1, rank.steps):.1f} ms {what}"


def _withheld(run: RunAnalysis) -> str:
    missing = []
    if run.quality.verdict == "unusable":
        return "all: the device's activity is not in it"
    if run.steps_by is None:
        missing.append("a step's time, findings")
    if run.world_size > 1 and len(run.ranks) < run.world_size:
        missing.append("wait and transfer apart, balance")
    if run.collectives and not any(one.bytes for one in run.collectives):
        missing.append("sizes, busbw")
    if any(one.operation == "unknown" for one in run.collectives):
        missing.append("some operations")
    return "; ".join(missing) or "nothing"


def markdown(rows: list[Row]) -> str:
    """Return the rows as a table."""
    lines = ["| trace | read | steps | told | withheld | other |", "|---|---|---|---|---|---|"]
    for row in rows:
        other = "–" if row.other is None else f"{row.other:.1%}"
        lines.append(f"| {row.name} | {row.read} | {row.steps} | {row.told} | {row.withheld} | {other} |")
    return "\n".join(lines)


def disagreements(folder: Path) -> Iterator[str]:
    """Yield, longest first, where kernels' kinds differ from those of the operators that launched them."""
    found: dict[tuple[str, str], Counter[tuple[str, str]]] = defaultdict(Counter)
    for path in files_of(folder):
        try:
            trace = read_trace(path)
        except UserError:
            continue
        operators, activities = trace.operators, trace.activities
        by_external = {int(external): row for row, external in enumerate(operators.external.tolist()) if external > 0}
        if bool(((activities.external == activities.correlation) | (activities.external <= 0)).all()):
            continue  # old profilers give the correlation once more: it leads to no operator
        for row in np.flatnonzero((activities.kind == KERNEL) & (activities.external > 0)).tolist():
            launched_by = by_external.get(int(activities.external[row]))
            if launched_by is None:
                continue
            kernel, operator = trace.names[activities.name[row]], trace.names[operators.name[launched_by]]
            kinds = kind_of(kernel), kind_of(operator)
            if kinds[0] != kinds[1]:
                found[kinds][kernel[:90], operator] += int(activities.end[row] - activities.start[row])
    for (by_name, by_operator), pairs in sorted(found.items(), key=lambda item: -item[1].total()):
        yield f"{by_name}, launched by {by_operator}: {pairs.total() / 1e6:.2f} ms"
        for (kernel, operator), ns in pairs.most_common(5):
            yield f"    {ns / 1e6:8.2f} ms  {kernel}  by {operator}"


if __name__ == "__main__":
    main()
