"""What a sweep comes to, and whether it is normal: ceilings, records, overhead and the matrix of pairs."""

import csv
from pathlib import Path

import msgspec
import pytest
import torch

from scalescope.collectives.ceiling import ceiling_of
from scalescope.collectives.plan import PlannedPoint
from scalescope.collectives.show.summary import matrix, summarise, verdict
from scalescope.collectives.show.table import write_csv
from scalescope.hardware.detect import describe
from scalescope.records.rows import Device, SweepRow
from tests.amd_machine import Chip, Machine, use_amdsmi

GIB = 1 << 30


def devices(name: str, count: int = 4, hosts: int = 1) -> list[Device]:
    return [Device(rank, f"host{rank * hosts // count}", "cuda", name) for rank in range(count)]


def point(ranks: tuple[int, ...], operation: str = "all_reduce") -> PlannedPoint:
    return PlannedPoint(operation, GIB, "float32", ranks, "sum", "in_place", "eager", "c10d", None, None)


def row(bus_gb_s: float, size: int = GIB, ranks: tuple[int, ...] = (0, 1, 2, 3), **more: object) -> SweepRow:
    n = len(ranks)
    time_us = size / bus_gb_s / 1e3 * 2 * (n - 1) / n
    measured = SweepRow("all_reduce", size, "float32", n, "measured", reduction="sum", ranks=list(ranks),
                        time_us=time_us, bus_gb_s=bus_gb_s)  # fmt: skip
    return msgspec.structs.replace(measured, **more)


def test_the_ceiling_is_the_links_of_the_group_and_names_what_it_assumes() -> None:
    assert ceiling_of(point((0, 1, 2, 3)), devices("NVIDIA H200"))[0] == 450
    mesh = devices("AMD Instinct MI300X", 8)
    assert ceiling_of(point((0, 1)), mesh)[0] == 64  # two of a full mesh have one edge between them
    assert ceiling_of(point(tuple(range(8))), mesh)[0] == 7 * 64
    assert ceiling_of(point((0, 1, 2, 3), "send_recv"), mesh) == (64, "one edge of the full mesh, 64 GB/s")
    ceiling, why = ceiling_of(point((0, 1, 2, 3)), devices("NVIDIA H200", hosts=2))
    assert ceiling is None and "network" in (why or "")
    assert ceiling_of(point((0, 1)), devices("Some CPU"))[0] is None
    assert ceiling_of(point((0, 1), "barrier"), devices("NVIDIA H200")) == (None, None)


#: An MI250X node's links, GB/s one way: four between the two devices of a package, two and one to others.
_MI250X_NODE = {
    **dict.fromkeys([(0, 1), (2, 3), (4, 5), (6, 7)], 200.0),
    **dict.fromkeys([(0, 2), (1, 5), (3, 7), (4, 6)], 100.0),
    **dict.fromkeys([(0, 6), (1, 3), (2, 4), (5, 7)], 50.0),
}


@pytest.mark.parametrize("told", ["by amdsmi", "by the kernel"])
def test_the_ceiling_of_devices_with_unlike_links_is_of_the_pairs_in_the_group(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: str
) -> None:
    machine = Machine([Chip(bus=0xC0 + at, architecture="gfx90a", compute_units=110, memory_gib=63.98,
                            name="AMD Instinct MI250X") for at in range(8)], _MI250X_NODE)  # fmt: skip
    use_amdsmi(monkeypatch, machine.amdsmi() if told == "by amdsmi" else None)
    machine.lay_out(tmp_path)
    if told == "by amdsmi":  # older kernels write no bandwidth
        for path in tmp_path.glob("sys/class/kfd/kfd/topology/nodes/*/io_links/*/properties"):
            path.write_text(path.read_text().replace("max_bandwidth", "recommended_transfer_size"))
    machine.be_torchs(monkeypatch)
    node = [describe(rank, torch.device("cuda", rank), tmp_path) for rank in range(8)]
    pairs = {ranks: ceiling_of(point(ranks), node)[0] for ranks in ((0, 1), (0, 2), (0, 6))}
    assert pairs == {(0, 1): 200, (0, 2): 100, (0, 6): 50}
    assert ceiling_of(point((0, 1, 2, 3)), node) == (
        250, "ring over the links that the driver tells, 200 + 50 GB/s from member 1"
    )  # fmt: skip
    assert ceiling_of(point(tuple(range(8))), node)[0] == 350
    assert ceiling_of(point((0, 1), "send_recv"), node)[0] == 200
    assert "above" not in verdict(row(170.0, ranks=(0, 1), ceiling_gb_s=pairs[0, 1]), node)
    without = [msgspec.structs.replace(device, peer_gb_s={}) for device in node]
    assert ceiling_of(point((0, 2)), without)[0] == 200  # by the board: two that are linked best
    assert ceiling_of(point(tuple(range(8))), without)[0] == 350


def test_the_figure_of_an_amd_device_is_not_excused_by_a_switch_that_it_has_not() -> None:
    mesh = [Device(rank, "host0", "rocm", "AMD Instinct MI300X") for rank in range(8)]
    own = row(729.0, ranks=tuple(range(8)), ceiling_gb_s=448.0, ceiling_assumes="full mesh, 7 × 64 GB/s")
    assert verdict(own, mesh) == "above what the link can carry if full mesh, 7 × 64 GB/s: not right"
    parts = [msgspec.structs.replace(device, name=f"{device.name}, one of 8 partitions", partitions=8, partition=0)
             for device in mesh]  # fmt: skip
    assert "nothing on record" in verdict(row(40.0, ranks=tuple(range(8))), parts)
    assert ceiling_of(point(tuple(range(8))), parts)[0] is None


@pytest.mark.parametrize(
    ("bus_gb_s", "said"), [(356.5, "normal"), (290.0, "low"), (480.0, "above what the link can carry")]
)
def test_a_bandwidth_is_normal_low_or_above_its_ceiling(bus_gb_s: float, said: str) -> None:
    own = row(bus_gb_s, ceiling_gb_s=450.0, ceiling_assumes="a ring through the switch")
    argv = verdict(own, devices("NVIDIA H200"))
    assert argv.startswith(said)
    if said.startswith("above"):
        assert "NVLS" in argv and "a ring through the switch" in argv  # never impossible without the algorithm


def test_small_messages_and_unknown_devices_are_not_judged() -> None:
    assert "not judged" in verdict(row(1.0, size=1024), devices("NVIDIA H200"))
    assert "nothing on record" in verdict(row(100.0), devices("NVIDIA B200"))


def test_the_summary_has_peak_latency_and_half_of_the_peak() -> None:
    rows = [row(0.001, 8), row(100.0, 1 << 20), row(200.0, 1 << 24), row(360.0)]
    (line,) = summarise(rows, devices("NVIDIA H200"))
    assert "at 8B" in line and "peak busbw 360.00 GB/s at 1GiB" in line
    assert "the smallest message that gets half of that is 16MiB" in line
    assert "normal: 99.3%" in line


def test_the_dispatch_overhead_is_the_two_paths_apart() -> None:
    rows = [row(1.0, 8, time_us=16.7), row(1.0, 8, time_us=8.6, transport="direct")]
    assert "torch.distributed adds 8.10 µs to the library's 8.60 µs at 8B" in summarise(rows, [])[-1]


def test_figures_that_python_issued_are_said_to_be_the_hosts() -> None:
    rows = [row(1.0, 8, transport="direct", issued_by="python"), row(1.0, 8, issued_by="python")]
    assert "for want of the C helper" in summarise(rows, [])[-1]
    rows = [row(1.0, 8, transport="direct", issued_by="c"), row(1.0, 8, issued_by="python")]
    assert not any("compiler" in line for line in summarise(rows, []))


def test_the_matrix_is_symmetric_and_has_every_pair() -> None:
    pairs = {(0, 1): 300.0, (0, 2): 310.0, (1, 2): 320.0}
    lines = matrix([row(value, ranks=ranks, placement="pairs") for ranks, value in pairs.items()])
    assert [line.split() for line in lines[2:5]] == [
        ["0", "–", "300.00", "310.00"],
        ["1", "300.00", "–", "320.00"],
        ["2", "310.00", "320.00", "–"],
    ]


def test_wrong_elements_and_missing_points_are_said() -> None:
    rows = [row(1.0, wrong=7), row(1.0, status="out_of_memory", time_us=None, reason="full")]
    lines = summarise(rows, [])
    assert "WRONG: 7 elements" in lines[-2] and lines[-1] == "not measured: 1 out_of_memory"


def test_the_table_holds_every_row(tmp_path: Path) -> None:
    write_csv(tmp_path / "x.csv", [row(1.0, 8), row(2.0, 16)])
    with (tmp_path / "x.csv").open() as file:
        cells = list(csv.DictReader(file))
    assert [cell["bytes"] for cell in cells] == ["8", "16"] and cells[0]["ranks"] == "0 1 2 3"


def test_a_slow_pair_and_a_slow_host_are_named() -> None:
    four = devices("some", 4, hosts=4)
    usual = {(one, other): 40.0 for one in range(4) for other in range(one + 1, 4)}

    def said(**slower: float) -> list[str]:
        speeds = usual | {(int(name[1]), int(name[2])): value for name, value in slower.items()}
        rows = [row(speed, ranks=pair, placement="pairs") for pair, speed in speeds.items()]
        return [line for line in summarise(rows, four) if line.startswith("SLOW")]

    assert said() == []
    (line,) = said(p13=4.0)
    assert (
        "the pair of rank 1 (host1) and rank 3 (host3): 4 GB/s at 1GiB, where other pairs across hosts have 40" in line
    )
    (line,) = said(p02=4.0, p12=5.0, p23=4.5)
    assert "rank 2 (host2), with every other: 4 GB/s" in line
    first, *others = said(p02=0.4, p12=15.0, p23=15.0)
    assert "the pair of rank 0 (host0) and rank 2 (host2): 0.4 GB/s" in first and len(others) == 2


def test_a_pair_that_noise_alone_may_have_slowed_is_not_called_slow() -> None:
    """*Rank 2, with every other* was said where one of its two links was slow and the other measured on busy cores."""
    three = devices("some", 3, hosts=3)
    rows = []
    for pair, speed, half_width in (((0, 1), 1.53, 0.05), ((0, 2), 0.0117, 0.05), ((1, 2), 0.7, 0.6)):
        one = row(speed, ranks=pair, placement="pairs")
        assert one.time_us is not None
        within = (one.time_us * (1 - half_width), one.time_us * (1 + half_width))
        rows.append(msgspec.structs.replace(one, interval_us=within))
    (line,) = [line for line in summarise(rows, three) if line.startswith("SLOW")]
    assert "the pair of rank 0 (host0) and rank 2 (host2): 0.0117 GB/s" in line


def test_a_pair_within_a_host_is_not_measured_by_those_across() -> None:
    speeds = {(0, 1): 400.0, (2, 3): 400.0, (0, 2): 40.0, (0, 3): 40.0, (1, 2): 40.0, (1, 3): 40.0}
    rows = [row(speed, ranks=pair, placement="pairs") for pair, speed in speeds.items()]
    assert not [line for line in summarise(rows, devices("some", 4, hosts=2)) if line.startswith("SLOW")]


def test_wide_intervals_are_counted_and_cut_the_digits() -> None:
    rows = [row(0.0133, 1024, interval_us=(80.0, 140.0)), row(200.0, 1 << 24, interval_us=(125.5, 126.1))]
    line, said = summarise(rows, [])
    assert "µs at 1KiB" in line and "115 µs" in line and "peak busbw 200.00 GB/s" in line
    assert said.startswith("wide: of 2 points, 1 ")
