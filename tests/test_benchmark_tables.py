"""Tables of benchmarks are those of the rows: what was measured, what a page shows, and nothing else."""

import re
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "benchmarks"))

import tables  # noqa: E402
from measured.table import Table, read_tsv  # noqa: E402

CORES = tables.RESULTS / "2026-11-22_2_cores"
#: What tables are computed from, beside rows.
INPUTS = {"whatif_predicted", "read_by"}


@pytest.mark.parametrize("page", tables.PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_a_page_shows_what_was_measured(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == tables.written(page), "make docs"


def test_a_changed_figure_changes_the_page(tmp_path: Path) -> None:
    folder = shutil.copytree(CORES, tmp_path / CORES.name)
    data = folder / "trace_reading.tsv"
    *rest, last = data.read_text(encoding="utf-8").splitlines()
    cells = last.split("\t")
    cells[3] = "987.65"
    data.write_text("\n".join((*rest, "\t".join(cells), "")), encoding="utf-8")
    shown = set(tables.written(folder / "README.md").splitlines())
    unchanged = set((folder / "README.md").read_text(encoding="utf-8").splitlines())
    assert shown - unchanged == {f"| {' | '.join(cells)} |"}


@pytest.mark.parametrize(
    "folder", sorted(page.parent for page in tables.RESULTS.glob("*/README.md")), ids=lambda it: it.name
)
def test_whatever_was_measured_is_on_its_machines_page(folder: Path) -> None:
    page = (folder / "README.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^<!-- table (\w+)", page, re.MULTILINE))
    assert {path.stem for path in folder.glob("*.tsv")} <= shown | INPUTS
    named = set(re.findall(r"`([\w.*]+)`", page))
    rows = [path.name for path in folder.iterdir() if path.suffix not in (".tsv", ".md") or "check" in path.name]
    assert not [name for name in rows if not any(Path(name).match(f"{pattern}*") for pattern in named)]


def test_a_page_cannot_ask_for_what_there_is_not() -> None:
    for choice in ("columns traces; speed", "where traces = 5 MB; 6 MB", "rows 5 MB"):
        with pytest.raises(ValueError):
            tables.table(CORES, "trace_reading", f" | {choice}")
    with pytest.raises(ValueError, match="nothing computes it"):
        tables.table(CORES, "never_measured")


def test_a_table_is_refused_whose_cells_are_not_its_columns(tmp_path: Path) -> None:
    (tmp_path / "short.tsv").write_text("a\tb\n1\n")
    with pytest.raises(ValueError, match="1 cells of 2"):
        read_tsv(tmp_path / "short.tsv")
    with pytest.raises(ValueError, match="two columns have one name"):
        Table(("a", "a"), [])


def test_figures_of_the_study_are_those_of_its_rows() -> None:
    """By hand, from the rows of GPT on one GPU and four: medians of the slowest rank, tokens, and their ratio."""
    rows = tables.whole(tables.RESULTS / "2026-11-22_4xH200_A", "steps")
    gpt = rows.where("model", ["gpt_small"]).where("GPUs", ["1", "4"])
    assert gpt.only(("step ms", "throughput", "weak scaling")).rows == [
        ["119.17", "549,945 tokens/s", "100.0%"],
        ["123.81", "2,117,289 tokens/s", "96.3%"],
    ]
