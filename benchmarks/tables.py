"""Write the tables of the benchmarks' pages anew, from what was measured.

    python benchmarks/tables.py            # docs/benchmarks.md, docs/performance.md, benchmarks/results/*/README.md
    python benchmarks/tables.py --check    # writes nothing; exits with 1 where a page differs from its data

Prose is the pages' own. Where a table is to stand, a page says of what, and which columns and rows it shows:

    <!-- table 2026-11-22_4xH200_A/steps | columns model; GPUs; step ms | where GPUs = 1; 4 -->

The lines of the table follow that one. `steps` is a file of the folder, `steps.tsv`, or what COMPUTED makes of the rows
that lie there. On the page of a folder its own tables need no folder's name.
"""

import argparse
import re
import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bounds import joined
from measured import claims, collectives, training, whatif
from measured.table import Maker, Table, read_tsv

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGES = (ROOT / "docs" / "benchmarks.md", ROOT / "docs" / "performance.md", *sorted(RESULTS.glob("*/README.md")))
COMPUTED: Mapping[str, Maker] = {
    "steps": training.steps_of("study"),
    "eager_steps": training.steps_of("whatif_base_eager"),
    "strategy_steps": training.steps_of("strategies"),
    "bf16_steps": training.steps_of("bf16"),
    "fsdp2_steps": training.steps_of("fsdp2"),
    "growth": training.growth_of("study"),
    "eager_growth": training.growth_of("whatif_base_eager"),
    "slower_kinds": training.slower_kinds,
    "alone": training.alone,
    "alone_throughput": training.alone_throughput,
    "projections": training.projections,
    "whatif": whatif.whatif,
    "strategies": training.strategies,
    "fsdp2": training.pairs_of_jobs("fsdp2.plain", "fsdp2.cta_zero"),
    "tensor": training.pairs_of_jobs("tensor.eager", "tensor.compiled"),
    "devices": training.devices,
    "device_kinds": training.device_kinds,
    "kernel_steps": training.kernel_steps,
    "kernel_bounds": lambda folder: joined.rows_of(joined.joined(folder), 0.1),
    "kernel_bounds_by_kind": lambda folder: joined.summary_of(joined.joined(folder)),
    "kernel_bounds_covered": lambda folder: joined.covered_of(joined.joined(folder)),
    "gpt": training.side_by_side("gpt_side_by_side.log"),
    "resnet": training.side_by_side("resnet_side_by_side.log"),
    "resnet_rows": training.side_by_side_rows("resnet.jsonl.gz"),
    "resnet_rows_h200": training.side_by_side_rows("resnet_h200.jsonl.gz"),
    "all_reduce": collectives.all_reduce,
    "pairs": collectives.pairs,
    "protocols": collectives.by_setting(
        "protocols", "algorithm, protocol", lambda row: f"{row['algorithm']}, {row['protocol']}"
    ),
    "channels": collectives.by_setting("channels", "channels", lambda row: str(row["channels"])),
    "contention": collectives.contention,
    "cta_policies": collectives.by_setting("cta_policies", "policy", lambda row: str(row["cta_policy"])),
    "windows": collectives.by_setting(
        "windows", "operation, policy", lambda row: f"{row['operation']}, {row['cta_policy'] or 'none, no windows'}"
    ),
    "gathers_in_place": collectives.by_setting(
        "gathers_in_place", "policy", lambda row: row["cta_policy"] or "none, no windows"
    ),
    "nccl_tests": collectives.nccl_tests,
    "nccl_tests_large": collectives.nccl_tests_large,
    "nccl_tests_processes": collectives.nccl_tests_processes,
    "nccl_tests_slower": collectives.nccl_tests_slower,
    "beside_xla": collectives.beside_xla,
    "beside_xla_within": collectives.beside_xla_within,
    "truth_claims": claims.truth_claims,
    "truth_growth": claims.truth_growth,
    "parallel_truth": claims.parallel_truth,
    "faults": claims.faults,
    "hta_time": claims.hta_time,
    "compared": claims.compared,
    "compared_alike": claims.compared_alike,
}
BLOCK = re.compile(r"^(<!-- table ([^|>]+?)((?: \| [^|>]+)*) -->\n)(?:\|.*\n)*", re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 where a page differs")
    check = parser.parse_args().check
    differ = [page for page in PAGES if page.read_text(encoding="utf-8") != written(page)]
    for page in differ:
        if not check:
            page.write_text(written(page), encoding="utf-8")
        print(f"{page.relative_to(ROOT)}: {'differs from its data' if check else 'written'}")
    return int(check and bool(differ))


def written(page: Path) -> str:
    """Return a page with its tables as the data have them. Raises ValueError for what the data have not."""
    text = page.read_text(encoding="utf-8")
    return BLOCK.sub(lambda found: f"{found[1]}{table(page.parent, found[2], found[3]).markdown()}\n", text)


def table(folder: Path, name: str, choices: str = "") -> Table:
    """Return the table of this name, seen from a page in `folder`, with the columns and rows that are chosen."""
    machine, _, what = name.rpartition("/")
    made = whole(RESULTS / machine if machine else folder, what)
    columns = made.header
    for choice in filter(None, choices.split(" | ")):
        kind, _, chosen = choice.partition(" ")
        if kind == "columns":
            columns = chosen.split("; ")
        elif kind == "where":
            column, _, values = chosen.partition(" = ")
            made = made.where(column, values.split("; "))
        else:
            raise ValueError(f"{name}: neither columns nor where: {choice}")
    return made.only(columns)


def whole(folder: Path, what: str) -> Table:
    """Return a folder's table: of its .tsv, or computed. Raises ValueError where there is neither."""
    path = folder / f"{what}.tsv"
    if path.is_file():
        return read_tsv(path)
    if what not in COMPUTED:
        raise ValueError(f"{folder.name} has no {what}.tsv, and nothing computes it")
    return COMPUTED[what](folder)


if __name__ == "__main__":
    sys.exit(main())
