"""Other tools' logs as rows, and two sweeps compared."""

import json
from pathlib import Path
from typing import Any

import pytest

from scalescope.cli import compare as compare_verb
from scalescope.cli import import_logs
from scalescope.records.errors import UserError
from scalescope.records.rows import SweepRow
from scalescope.scaling.sweeps.comparison import compare
from scalescope.scaling.sweeps.nccl_tests_log import read_log

LOGS = Path(__file__).parent / "data" / "nccl_tests"
#: Of one process with two H200s (nccl-tests 2.19.6, NCCL 2.28.9): each run's text and JSON; emptied of its environment.
BOTH = Path(__file__).parent / "data" / "nccl_tests_h200x2"
FIGURES = [(1024, 11.02, 10.11), (1048576, 30.55, 29.87), (1073741824, 5400.1, 5391.2)]  # bytes, out of place, in place
DEVICES = "".join(
    f"#  Rank {rank:2d} Group  0 Pid  4242 on     node-1 device {rank:2d} [0000:0{rank}:00] NVIDIA H200\n"
    for rank in range(4)
)


def head(program: str = "all_reduce_perf", graph: int = 0, version: str | None = "2.19.6") -> str:
    named = (
        f"# nccl-tests version {version} nccl-headers=22809 nccl-library=22809\n# Collective test starting: {program}\n"
        if version
        else ""
    )
    return (
        f"{named}# nThread 4 nGpus 1 minBytes 1024 maxBytes 1073741824 step: 1024(factor) warmup iters: 5 iters: 20 "
        f"agg iters: 1 validation: 1 graph: {graph}\n#\n# Using devices\n{DEVICES}#\n"
    )


def half(size: int, time_us: float, wrong: str = "0", spread: str = "") -> str:
    algbw = size / time_us / 1e3
    return f"  {time_us:7.2f}  {algbw:6.2f}  {algbw * 1.5:6.2f}  {wrong:>6}{spread}"


def columns(each: str = "time   algbw   busbw  #wrong", end: str = "") -> str:
    return (
        f"#{'':50}    out-of-place                       in-place          \n"
        f"#       size         count      type   redop    root  {each}  {each}{end}\n"
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)\n"
    )


END = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 200.1 \n#\n"


def text() -> str:
    rows = "".join(
        f"{size:12d}  {size // 4:12d}     float     sum      -1{half(size, out)}{half(size, inside)}\n"
        for size, out, inside in FIGURES
    )
    return head() + columns() + rows + END


def test_every_figure_of_a_text_log_becomes_a_row() -> None:
    log = read_log(text(), "log.txt")
    assert not log.faults
    assert [(row.bytes, row.mode, row.time_us) for row in log.rows] == [
        (size, mode, time_us)
        for size, out, inside in FIGURES
        for mode, time_us in (("out_of_place", out), ("in_place", inside))
    ]
    row = log.rows[-1]
    assert (row.operation, row.dtype, row.reduction, row.root, row.group_size) == (
        "all_reduce",
        "float32",
        "sum",
        None,
        4,
    )
    assert row.alg_gb_s == pytest.approx(199.16, abs=0.01) and row.wrong == 0 and row.iterations == 20
    assert (row.source, row.transport, row.execution) == ("nccl-tests 2.19.6", "direct", "eager")


def test_per_iteration_columns_timestamps_and_unchecked_rows_are_read() -> None:
    each = "time   algbw   busbw  #wrong   i_min   i_max   i_p99   i_cv%"
    spread = "     9.50    19.50    18.50     5.10"
    rows = "".join(
        f"{size:12d}  {size // 4:12d}     float    none       0{half(size, out, 'N/A', spread)}"
        f"{half(size, inside, '0', spread)}  2026-11-21 12:00:00\n"
        for size, out, inside in FIGURES
    )
    log = read_log(head("broadcast_perf", graph=10) + columns(each, "           timestamp") + rows + END, "x")
    assert len(log.rows) == 6 and not log.faults
    out, inside = log.rows[:2]
    assert (out.operation, out.root, out.reduction, out.execution) == ("broadcast", 0, None, "graph")
    assert out.wrong is None and inside.wrong == 0
    assert (inside.time_min_us, inside.time_max_us, inside.time_p99_us) == (9.5, 19.5, 18.5)
    assert inside.time_us == FIGURES[0][2]


def test_old_logs_without_a_name_need_to_be_told_the_operation() -> None:
    old = text().replace("#wrong", " error").replace("       0\n", "   0e+00\n")
    old = head(version=None) + old[len(head()) :]
    with pytest.raises(UserError, match="--operation"):
        read_log(old, "slurm-17.out")
    assert {row.operation for row in read_log(old, "slurm-17.out", "all_reduce").rows} == {"all_reduce"}
    assert {row.operation for row in read_log(old, "alltoall_perf.log").rows} == {"all_to_all"}
    assert {row.wrong for row in read_log(old, "x", "reduce").rows} == {None}  # an error is no count of elements


def test_rccl_tests_can_print_the_in_place_half_alone() -> None:
    rows = "".join(
        f"{size:12d}  {size // 4:12d}     float     sum      -1{half(size, inside)}\n" for size, _, inside in FIGURES
    )
    table = (
        f"#{'':50}           in-place          \n#       size         count      type   redop    root     time   algbw"
        "   busbw #wrong\n"
    )
    log = read_log(head(version=None) + "rccl-tests: Version develop:ae3e635\n" + table + rows + END, "reduce_perf.txt")
    assert [(row.mode, row.time_us) for row in log.rows] == [("in_place", inside) for _, _, inside in FIGURES]
    assert {row.source for row in log.rows} == {"rccl-tests"}


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.txt")), ids=lambda path: path.stem)
def test_real_logs_are_read_without_loss(path: Path) -> None:
    log = read_log(path.read_text(), path.name)
    lines = [line.split() for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
    width = 8 if path.stem == "I1" else 4
    expected = [
        (int(argv[0]), argv[2], float(argv[at]), float(argv[at + 2]), argv[at + 3])
        for argv in lines
        for at in (5, 5 + width)
    ]
    types = {"float": "float32", "half": "float16", "double": "float64", "f8e4m3": "float8_e4m3fn",
             "f8e5m2": "float8_e5m2"}  # fmt: skip
    assert not log.faults and len(log.rows) == len(expected) > 0
    for got, (size, dtype, time_us, bus_gb_s, wrong) in zip(log.rows, expected, strict=True):
        assert (got.bytes, got.dtype, got.time_us, got.bus_gb_s) == (size, types.get(dtype, dtype), time_us, bus_gb_s)
        assert got.wrong == (None if wrong == "N/A" else int(wrong)) and got.group_size == 2


def test_a_runs_json_and_text_are_the_same_rows() -> None:
    text_rows = read_log((LOGS / "json.txt").read_text(), "json.txt").rows
    json_rows = read_log((LOGS / "json.json").read_text(), "json.json").rows
    for one, other in zip(text_rows, json_rows, strict=True):
        assert (one.operation, one.bytes, one.mode, one.dtype, one.reduction, one.group_size, one.wrong) == (
            other.operation, other.bytes, other.mode, other.dtype, other.reduction, other.group_size, other.wrong
        )  # fmt: skip
        assert one.time_us == pytest.approx(other.time_us, abs=0.006)


@pytest.mark.parametrize("run", ["all_reduce", "all_gather", "alltoall", "sendrecv", "per_iteration"])
def test_one_process_with_two_devices_writes_the_same_in_json_and_text(run: str) -> None:
    """The JSON lists a process's first device alone; its two ranks are of one host all the same."""
    read = [read_log((BOTH / f"{run}.{kind}").read_text(), f"{run}.{kind}") for kind in ("txt", "json")]
    in_text, in_json = read
    assert len(in_text.rows) == len(in_json.rows) == 8 and not in_text.faults and not in_json.faults
    for one, other in zip(in_text.rows, in_json.rows, strict=True):
        for key in ("operation", "bytes", "mode", "dtype", "group_size", "wrong", "iterations"):
            assert getattr(one, key) == getattr(other, key)
        for key in ("time_us", "time_min_us", "time_max_us", "time_p99_us"):
            assert getattr(one, key) == pytest.approx(getattr(other, key), abs=0.006)
    assert in_text.devices == in_json.devices and len(in_json.devices) == 2
    known = [one.time_p50_us is not None for one in in_json.rows]
    assert all(known) if run == "per_iteration" else not any(known)


def test_every_dtype_of_a_json_log_is_read() -> None:
    rows = read_log((BOTH / "dtypes.json").read_text(), "dtypes.json").rows
    assert len(rows) == 96 and {row.group_size for row in rows} == {2}
    assert {row.dtype for row in rows} == {
        "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bfloat16",
        "float8_e4m3fn", "float8_e5m2",
    }  # fmt: skip


def test_a_run_that_refused_its_arguments_holds_no_table() -> None:
    with pytest.raises(UserError, match=r"refused\.txt holds no table of nccl-tests or rccl-tests"):
        read_log((BOTH / "refused.txt").read_text(), "refused.txt")


def test_processes_with_several_devices_each_are_all_of_a_json_logs_ranks() -> None:
    """Two hosts' processes of four threads each, as MPI starts them: eight ranks, four a host."""
    made = document()
    config = made["config"]
    assert isinstance(config, dict)
    config["devices"] = [
        {"rank": 4 * at, "group": 0, "hostname": f"node-{at}", "device_info": "NVIDIA H200"} for at in (0, 1)
    ]
    log = read_log(json.dumps(made, separators=(",", ":")), "x.json")
    assert {row.group_size for row in log.rows} == {8}
    assert [(one.rank, one.host) for one in log.devices] == [(rank, f"node-{rank // 4}") for rank in range(8)]


def test_several_programs_in_one_log_stay_apart() -> None:
    log = read_log(text() + text().replace("all_reduce_perf", "sendrecv_perf"), "both.log")
    assert [row.operation for row in log.rows] == ["all_reduce"] * 6 + ["send_recv"] * 6


@pytest.mark.parametrize("keep", range(20, 400, 17))
def test_a_text_log_cut_anywhere_is_read_up_to_the_cut_and_says_so(keep: int) -> None:
    whole, table = text(), text().index("        1024 ")
    rows, size = read_log(whole, "x").rows, whole.index(END) - table
    cut = whole[: table + keep]
    if keep < 90:  # not even the first half of the first line is whole
        with pytest.raises(UserError, match="holds no table"):
            read_log(cut, "x")
        return
    part = read_log(cut, "x")
    assert part.faults and part.rows == rows[: len(part.rows)]
    whole_lines = 3 * keep // size
    assert 2 * whole_lines <= len(part.rows) <= 2 * whole_lines + 1


def document() -> dict[str, object]:
    def mode(size: int, time_us: float) -> dict[str, object]:
        return {"time": time_us, "alg_bw": size / time_us / 1e3, "bus_bw": 1.5 * size / time_us / 1e3, "nwrong": 0.0}

    return {
        "version": 3,
        "args": ["./build/all_reduce_perf", "-J", "x.json"],
        "env": ["AWS_SECRET_ACCESS_KEY=hunter2"],
        "nccl_version": 22809,
        "config": {
            "nthreads": 4, "ngpus": 1, "iterations": 20, "aggregated_iterations": 1, "graph": 0,
            "devices": [{"rank": 0, "group": 0, "hostname": "node-1"}],
        },
        "results": [
            {"size": size, "count": size // 4, "type": "bfloat16", "redop": "sum", "root": "    -1",
             "out_of_place": mode(size, out), "in_place": mode(size, inside),
             "in_place_per_iter": {"min_us": 9.0, "max_us": 12.0, "p50_us": 10.0, "p95_us": 11.0, "p99_us": 11.5}}
            for size, out, inside in FIGURES
        ],
    }  # fmt: skip


def test_json_is_read_and_its_environment_is_not(tmp_path: Path) -> None:
    source = tmp_path / "x.json"
    source.write_text(json.dumps(document(), separators=(",", ":")))
    assert import_logs.run([str(source), "--out", str(tmp_path / "imported")]) == 0
    written = (tmp_path / "imported" / "sweep.jsonl").read_text()
    assert "hunter2" not in written + (tmp_path / "imported" / "run.json").read_text()
    rows = read_log(source.read_text(), "x.json").rows
    assert len(rows) == len(written.splitlines()) == 6
    assert (rows[1].dtype, rows[1].group_size, rows[1].time_p95_us, rows[1].wrong) == ("bfloat16", 4, 11.0, 0)


def test_json_cut_in_the_middle_gives_its_whole_results() -> None:
    whole = json.dumps(document(), separators=(",", ":"))
    second = whole.index('{"size":1048576')
    log = read_log(whole[: second + 120], "x.json")
    assert [row.bytes for row in log.rows] == [1024, 1024] and "cut" in log.faults[0]


def test_rccl_tests_records_are_read_as_csv_and_json() -> None:
    record = {"numCycle": 0, "name": "AllReduce", "nodes": 1, "ranks": 8, "ranksPerNode": 8, "gpusPerRank": 1,
              "size": 1024, "type": "half", "redop": "sum", "inPlace": 1, "time": 12.5, "algBw": 0.08, "busBw": 0.14,
              "wrong": "0"}  # fmt: skip
    as_csv = ",".join(record) + "\n" + ",".join(str(value) for value in record.values()) + "\n0,AllReduce,1,8\n"
    for log in (read_log(json.dumps([record]), "x"), read_log(as_csv, "x")):
        (row,) = log.rows
        assert (row.operation, row.group_size, row.mode, row.dtype, row.time_us) == (
            "all_reduce", 8, "in_place", "float16", 12.5
        )  # fmt: skip
    assert read_log(as_csv, "x").faults


def row(size: int, time_us: float | None, half_us: float | None = None, **axes: Any) -> SweepRow:
    interval = (time_us - half_us, time_us + half_us) if time_us and half_us else None
    return SweepRow(
        "all_reduce", size, "float32", 4, "measured" if time_us else "out_of_memory", time_us=time_us,
        interval_us=interval, reduction="sum", **axes,
    )  # fmt: skip


def test_a_ratio_comes_with_the_uncertainty_of_both_sides() -> None:
    (pair,) = compare([row(8, 10.0, 0.3)], [row(8, 12.5, 0.5)]).pairs
    assert pair.ratio == pytest.approx(0.8)
    assert pair.uncertainty == pytest.approx(0.8 * (0.03**2 + 0.04**2) ** 0.5)
    assert pair.fails(0.95) and not pair.fails(0.83)  # 0.84 is within what the intervals allow


def test_without_a_path_in_common_each_is_laid_beside_the_other() -> None:
    ours, theirs = [row(8, 17.0, transport="c10d")], [row(8, 8.5, transport="direct")]
    (pair,) = compare(theirs, ours).pairs
    assert pair.ratio == pytest.approx(0.5)
    assert not compare([*ours, *theirs], theirs).pairs[0].fails(0.99)


def test_compare_fails_a_regression_and_a_missing_point_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slower = text().replace("5391.20", "6391.20").replace("5400.10", "5401.10")
    good, bad, short = tmp_path / "good.txt", tmp_path / "bad.txt", tmp_path / "short.txt"
    good.write_text(text())
    bad.write_text(slower)
    short.write_text("".join(line for line in text().splitlines(keepends=True) if " 1048576 " not in line))
    assert compare_verb.run([str(good), str(good), "--fail-under", "0.95"]) == 0
    assert compare_verb.run([str(good), str(bad)]) == 0
    assert compare_verb.run([str(good), str(bad), "--fail-under", "0.95"]) == 1
    said = capsys.readouterr().out
    assert "5 of 6 points hold; all_reduce 1073741824 B float32 n=4 in_place" in said and "FAILED, busbw<-5%" in said
    assert compare_verb.run([str(good), str(short), "--fail-under", "0.95"]) == 1
    assert "; all_reduce 1048576 B float32 n=4 in_place eager direct: not measured" in capsys.readouterr().out


def test_what_holds_no_sweep_is_said(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello\n")
    with pytest.raises(UserError, match="holds no table"):
        import_logs.run([str(tmp_path / "notes.txt"), "--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()
    with pytest.raises(UserError, match="no such folder or file"):
        compare_verb.run([str(tmp_path / "a"), str(tmp_path / "b")])
