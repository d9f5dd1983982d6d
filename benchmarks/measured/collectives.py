"""Tables of sweeps, and of sweeps beside nccl-tests."""

import re
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from measured.table import Maker, Table, figure, percent, read_answer, read_markdown, read_rows, signed, size

_MIB = 2**20
_WIDE = 0.1  # as sweeps say it of a point


def all_reduce(folder: Path) -> Table:
    """The study's all-reduces, and what the cost model says of the most GPUs from fewer."""
    by_bytes: dict[int, dict[int, dict[str, Any]]] = {}
    for row in read_rows(folder / "study.sweep.jsonl.gz"):
        by_bytes.setdefault(row["bytes"], {})[row["group_size"]] = row
    groups = sorted(next(iter(by_bytes.values())))
    held_out = read_answer(folder / "study.analysis.json.gz")["costs"]["operations"][0]["holdout"]
    points = {point["bytes"]: point for point in held_out["points"]} if held_out else {}
    header = ["size", *(f"{count} GPUs {unit}" for count in groups for unit in ("µs", "busbw GB/s"))]
    if points:
        header += ["predicted µs", "off", "inside"]
    rows = []
    for count, of_size in by_bytes.items():
        cells = [size(count)]
        for group in groups:
            low, high = of_size[group]["interval_us"]
            half = (high - low) / 2 / of_size[group]["time_us"]
            wide = f" ± {percent(half, 0)}" if half > _WIDE else ""
            cells += [
                figure(of_size[group]["time_us"], 1) + wide,
                figure(of_size[group]["bus_gb_s"], 1 if count >= _MIB else 3),
            ]
        if points:
            point = points[count]
            cells += [figure(point["predicted_us"]["value"], 1), f"{signed(100 * point['off'], 1)}%",
                      "yes" if point["inside"] else "no"]  # fmt: skip
        rows.append(cells)
    return Table(header, rows)


def pairs(folder: Path) -> Table:
    """Every pair of GPUs by itself."""
    rows: dict[str, list[str]] = {}
    for row in read_rows(folder / "pairs.sweep.jsonl.gz"):
        cells = rows.setdefault("{} and {}".format(*row["ranks"]), [])
        cells.append(figure(row["time_us"], 1) if row["bytes"] < _MIB else figure(row["bus_gb_s"], 1))
    return Table(("GPUs", "8 B µs", "256 MiB GB/s"), [(pair, *cells) for pair, cells in rows.items()])


def by_setting(sweep: str, name: str, says: Callable[[dict[str, Any]], str]) -> Maker:
    """A row a setting, two columns a size."""

    def made(folder: Path) -> Table:
        settings: dict[str, list[str]] = {}
        sizes: list[str] = []
        for row in read_rows(folder / f"{sweep}.sweep.jsonl.gz"):
            if size(row["bytes"]) not in sizes:
                sizes.append(size(row["bytes"]))
            settings.setdefault(says(row), []).extend((figure(row["time_us"], 1), figure(row["bus_gb_s"], 1)))
        header = (name, *(f"{each} {unit}" for each in sizes for unit in ("µs", "GB/s")))
        return Table(header, [(setting, *cells) for setting, cells in settings.items()])

    return made


def contention(folder: Path) -> Table:
    """Each all-reduce alone and beside a matrix product."""
    rows = read_rows(folder / "contention.sweep.jsonl.gz")
    alone = {(row["group_size"], row["bytes"]): row["time_us"] for row in rows if not row["contention"]}
    header = ("GPUs", "size", "alone µs", "beside µs", "longer", "longer than alone in between", "matmul longer")
    made = []
    for row in rows:
        if row["contention"]:
            before = alone[row["group_size"], row["bytes"]]
            made.append((str(row["group_size"]), size(row["bytes"]), figure(before, 1), figure(row["time_us"], 0),
                         f"{row['time_us'] / before:.1f} ×", f"{row['slowdown']:.1f} ×",
                         f"{row['compute_slowdown']:.2f} ×"))  # fmt: skip
    return Table(header, made)


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+)(B|KiB|MiB|GiB)", text)
    assert found is not None, text
    return int(found[1]) << {"B": 0, "KiB": 10, "MiB": 20, "GiB": 30}[found[2]]


def _within(ratios: Sequence[float], share: float) -> str:
    # as the benchmark judges: neither slower nor faster than theirs by more
    good = sum(abs(ratio - 1) <= share for ratio in ratios)
    return f"{good} of {len(ratios)}, median {statistics.median(ratios):.3f}"


def nccl_tests(folder: Path) -> Table:
    """How many rows of a sweep lie beside nccl-tests' as promised; ratios are their time over ours."""
    path = folder / "nccl_tests_side_by_side.md"
    rows = [dict(zip(read_markdown(path).header, row, strict=True)) for row in read_markdown(path).rows]
    groups = sorted({row["n"] for row in rows}, key=int)
    limits: tuple[tuple[str, str, Callable[[dict[str, str]], bool], float], ...] = (
        ("direct from 4 MiB within 5%", "direct/theirs", lambda row: _bytes(row["size"]) >= 4 * _MIB, 0.05),
        ("direct from 1 MiB within 5%", "direct/theirs", lambda row: _bytes(row["size"]) >= _MIB, 0.05),
        ("direct, eager, below 1 MiB, within 10%", "direct/theirs",
         lambda row: row["as"] == "eager" and _bytes(row["size"]) < _MIB, 0.1),
        ("direct, as a graph, below 1 MiB, within 10%", "direct/theirs",
         lambda row: row["as"] == "graph" and _bytes(row["size"]) < _MIB, 0.1),
        ("c10d, eager, from 16 MiB, within 5%", "c10d/theirs",
         lambda row: row["as"] == "eager" and _bytes(row["size"]) >= 16 * _MIB, 0.05),
    )  # fmt: skip
    made: list[list[str]] = []
    for what, column, chosen, share in limits:
        cells = [[float(row[column]) for row in rows if row["n"] == group and chosen(row)] for group in groups]
        made.append([what, *(_within(ratios, share) for ratios in cells)])
    for kind in ("eager", "graph"):
        cells = [
            [float(row["dispatch µs"]) for row in rows
             if row["n"] == group and row["as"] == kind and _bytes(row["size"]) < _MIB] for group in groups
        ]  # fmt: skip
        made.append([f"c10d − direct below 1 MiB, {kind}, median µs", *(figure(statistics.median(each), 1)
                                                                        for each in cells)])  # fmt: skip
    for buffer in ("64MiB", "4GiB"):
        large = [
            row for group in groups for row in rows
            if (row["operation"], row["n"], row["size"], row["as"]) == ("all_reduce", group, buffer, "eager")
        ]  # fmt: skip
        paths = [[float(row[f"{path} µs"]) for path in ("theirs", "direct", "c10d")] for row in large]
        if _bytes(buffer) >= 2**30:  # as busbw, which ranks reach whatever their number
            factors = [2 * (int(row["n"]) - 1) / int(row["n"]) for row in large]
            paths = [[factor * _bytes(buffer) / each / 1e3 for each in times]
                     for factor, times in zip(factors, paths, strict=True)]  # fmt: skip
        unit = "GB/s" if _bytes(buffer) >= 2**30 else "µs"
        made.append([f"all_reduce of {size(_bytes(buffer))}: theirs, direct, c10d, {unit}",
                     *(", ".join(figure(each, 1) for each in cells) for cells in paths)])  # fmt: skip
    spent = re.search(r"theirs ([\d.]+) s, ours ([\d.]+) s", path.read_text(encoding="utf-8"))
    assert spent is not None, path
    made.append(["time for the same points, all groups: theirs, ours a path", f"{spent[1]} s, {spent[2]} s",
                 *[""] * (len(groups) - 1)])  # fmt: skip
    return Table(("rows", *(f"N = {group}" for group in groups)), made)


def nccl_tests_large(folder: Path) -> Table:
    """The same from 1 MiB up, of a sitting with batches that are long beside the clock's own work."""
    table = read_markdown(folder / "nccl_tests_longer_batches.md")
    rows = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    made = []
    for path, least, share in (("direct", 1, 0.05), ("direct", 1, 0.03), ("c10d", 16, 0.05)):
        ratios = [float(row[f"{path}/theirs"]) for row in rows if _bytes(row["size"]) >= least * _MIB]
        made.append((f"{path}, eager, from {least} MiB, within {percent(share, 0)}", _within(ratios, share)))
    return Table(("rows", "N = 2"), made)


def nccl_tests_processes(folder: Path) -> Table:
    """nccl-tests with a thread a GPU over nccl-tests with a process a GPU, in time; of a sitting of its own if any."""
    own = folder / "nccl_tests_processes.md"
    table = read_markdown(own if own.is_file() else folder / "nccl_tests_side_by_side.md")
    rows = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    made = []
    for kind, large in (("eager", True), ("eager", False), ("graph", False)):
        ratios = [
            float(row["theirs µs"]) / float(row["theirs, a process a GPU µs"])
            for row in rows
            if row["as"] == kind and (_bytes(row["size"]) >= _MIB) == large
        ]
        if ratios:
            made.append((f"{kind}, {'from' if large else 'below'} 1 MiB, within 2%", _within(ratios, 0.02)))
    return Table(("rows", "threads ÷ processes"), made)


def nccl_tests_slower(folder: Path) -> Table:
    """Rows from 4 MiB up that direct takes more than 5% longer for than nccl-tests."""
    table = read_markdown(folder / "nccl_tests_side_by_side.md")
    rows = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    slower = [row for row in rows if _bytes(row["size"]) >= 4 * _MIB and float(row["direct/theirs"]) < 0.95]
    columns = ("operation", "n", "size", "as", "theirs µs", "direct µs", "direct/theirs")
    return Table(columns, [[row[name] for name in columns] for row in slower])


def beside_xla(folder: Path) -> Table:
    """The same operations by four ways, of the table that the benchmark wrote."""
    columns = ("operation", "size", "theirs µs", "xla µs", "direct µs", "c10d µs", "xla/theirs", "direct/theirs",
               "c10d/theirs", "xla dispatch µs")  # fmt: skip
    return read_markdown(folder / "xla_beside_nccl_tests.md").only(columns)


def beside_xla_within(folder: Path) -> Table:
    """How many of them lie beside nccl-tests as promised."""
    table = beside_xla(folder)
    rows = []
    for path, share in (("xla", 0.1), ("direct", 0.05), ("c10d", 0.05)):
        ratios = [float(row[0]) for row in table.only([f"{path}/theirs"]).rows]
        rows.append((path, percent(share, 0), _within(ratios, share)))
    return Table(("transport", "within", "rows"), rows)
