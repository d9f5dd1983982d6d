"""The cost model: it finds known costs again, says how sure it is, is tested by itself, and refuses to guess."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scalescope.cli import front_door
from scalescope.records.rows import SweepRow
from scalescope.scaling.costs.fit import fit
from scalescope.scaling.costs.holdout import hold_out
from scalescope.scaling.costs.model import CostModel, NotKnown
from scalescope.scaling.costs.nonnegative import solve
from scalescope.scaling.costs.points import Launch, Point, plain_points, read_launches
from scalescope.scaling.costs.topology import Topology

DATA = Path(__file__).parent / "data"
MIB = 1 << 20
SIZES = [8 * 2**power for power in range(0, 30, 2)]


def known_us(size: float, n: float) -> float:
    """A machine with two protocols: 10 µs of latency a message, then, beyond 1 MiB, cheap bytes and a dear start."""
    if size < MIB:
        return 10 + 3 * 2 * (n - 1) + 2 * (n - 1) / n * size / 20e3
    return 40 + 4 * 2 * (n - 1) + 2 * (n - 1) / n * size / 350e3


def points_of(groups: list[int], seed: int = 0, spread: float = 0.01, launch: int = 0) -> list[Point]:
    generator = np.random.default_rng(seed)
    return [
        Point(launch, size, n, known_us(size, n) * (1 + spread * generator.standard_normal()), 0.002)
        for n in groups
        for size in SIZES
    ]


def rows_of(groups: list[int], operation: str = "all_reduce", **fields: object) -> list[SweepRow]:
    return [
        SweepRow(operation=operation, bytes=size, dtype="float32", group_size=n, status="measured", mode="in_place",
                 time_us=known_us(size, n), interval_us=(0.99 * known_us(size, n), 1.01 * known_us(size, n)), **fields)  # type: ignore[arg-type]
        for n in groups
        for size in SIZES
    ]  # fmt: skip


def test_a_known_machine_is_found_again_and_followed_to_a_group_that_was_not_measured() -> None:
    fitted = fit("all_reduce", "float32", points_of([2, 3, 4]))
    for n in (2, 3, 4, 8):
        for size in SIZES:
            said = fitted.time_us(size, n)
            assert said.value == pytest.approx(known_us(size, n), rel=0.04 if n <= 4 else 0.12)
            assert said.low <= said.value <= said.high


def test_intervals_hold_what_they_promise() -> None:
    """Of machines drawn anew, about 95 of 100 new measurements lie in the interval; here at least 88, at most all."""
    inside = []
    for seed in range(25):
        fitted = fit("all_reduce", "float32", points_of([2, 3], seed))
        fresh = points_of([4], 1000 + seed)
        inside += [point.time_us in fitted.time_us(point.bytes, point.group_size) for point in fresh]
    assert 0.88 <= sum(inside) / len(inside) <= 1.0
    width = fitted.time_us(256 * MIB, 4)
    assert width.half < 0.15 * width.value


def test_one_group_size_alone_leaves_open_how_time_grows_with_ranks() -> None:
    fitted = fit("all_reduce", "float32", points_of([2]))
    at = fitted.time_us(256 * MIB, 4)
    known = fitted.time_us(256 * MIB, 2)
    assert known.half < 0.05 * known.value  # where it was measured it is sure
    # between bytes that cost the same whoever shares them, and a ring's 1.5 times
    assert at.low < 1.05 * known.value and at.high > 1.45 * known.value
    assert known_us(256 * MIB, 4) in at


def test_curves_are_cut_where_the_protocol_changes() -> None:
    edges = fit("all_reduce", "float32", points_of([2, 4], spread=0.003)).branches[0].cut.edges
    assert edges
    assert any(MIB / 5 < edge < 5 * MIB for edge in edges)


def test_three_launches_are_drawn_with_replacement() -> None:
    """One launch of three is 10% slow as a whole: that is in the interval, and would not be in one launch's."""
    steady = [point for launch in range(3) for point in points_of([2, 4], launch, launch=launch)]
    slow = [
        Point(p.launch, p.bytes, p.group_size, p.time_us * (1.1 if p.launch == 2 else 1.0), p.error) for p in steady
    ]
    narrow = fit("all_reduce", "float32", steady).time_us(64 * MIB, 4)
    wide = fit("all_reduce", "float32", slow).time_us(64 * MIB, 4)
    assert wide.half > 2 * narrow.half
    assert wide.high > 1.08 * known_us(64 * MIB, 4)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(4, 12))
def test_non_negative_least_squares_is_the_best_of_all_non_negative_answers(seed: int, terms: int, rows: int) -> None:
    generator = np.random.default_rng(seed)
    x, y = generator.standard_normal((rows, terms)), generator.standard_normal(rows)
    found = solve(x.T @ x, x.T @ y)
    assert (found >= 0).all()
    error = float(((x @ found - y) ** 2).sum())
    for _ in range(200):
        other = np.maximum(found + generator.standard_normal(terms) * generator.choice([1e-3, 0.1, 1.0]), 0)
        assert error <= ((x @ other - y) ** 2).sum() + 1e-9
    # Karush-Kuhn-Tucker: no coefficient at zero would lower the error by growing
    slope = x.T @ (x @ found - y)
    assert (slope >= -1e-6 * max(1.0, float(np.abs(slope).max()))).all()


def test_the_largest_group_is_predicted_from_the_smaller_ones() -> None:
    held = hold_out("all_reduce", "float32", points_of([2, 3, 4]))
    assert held is not None
    assert (held.group_size, held.from_group_sizes) == (4, [2, 3])
    assert held.close == len(held.judged) == sum(size >= MIB for size in SIZES)
    assert held.inside >= len(held.judged) - 1  # of 95% intervals one may miss
    bent = [
        Point(p.launch, p.bytes, p.group_size, p.time_us * (2 if p.group_size == 4 else 1), p.error)
        for p in points_of([2, 3, 4])
    ]
    missed = hold_out("all_reduce", "float32", bent)
    assert missed is not None
    assert missed.close == 0 and missed.inside < len(missed.judged)  # a machine that bends the rule is found out
    assert hold_out("all_reduce", "float32", points_of([4])) is None


def test_real_times_of_2_and_3_h200s_tell_those_of_4() -> None:
    """nccl-tests 2.19 on H200s of one host, NCCL 2.28.9, NVLS off: busbw in GB/s (1 MiB to 4 GiB), and µs."""
    measured = {
        2: {MIB: 69.5, 8 * MIB: 171.3, 64 * MIB: 268.8, 1024 * MIB: 328.7, 4096 * MIB: 344.2},
        3: {MIB: 81.5, 8 * MIB: 184.1, 64 * MIB: 302.4, 1024 * MIB: 347.9, 4096 * MIB: 360.1},
        4: {MIB: 84.3, 8 * MIB: 204.9, 64 * MIB: 314.2, 1024 * MIB: 356.5, 4096 * MIB: 362.5},
    }
    latency = {2: (6.6, 7.8), 3: (8.8, 10.7), 4: (8.6, 11.0)}
    points = [
        Point(0, size, n, size / rate / 1e3 * 2 * (n - 1) / n, 0.003)
        for n, rates in measured.items()
        for size, rate in rates.items()
    ]
    points += [
        Point(0, size, n, us, 0.01) for n, pair in latency.items() for size, us in zip((8, 32768), pair, strict=True)
    ]
    held = hold_out("all_reduce", "float32", points)
    assert held is not None
    assert held.close == held.inside == len(held.judged) == 5


def test_points_of_other_ways_to_run_a_collective_are_not_mixed_in() -> None:
    rows = rows_of([2])
    others = (
        rows_of([2], contention="matmul") + rows_of([2], algorithm="Tree") + rows_of([2], execution="graph")
        + rows_of([2], channels=4) + rows_of([2], placement="spread") + rows_of([2], transport="mpi")
        + rows_of([2], transport="xla") + rows_of([4], transport="xla")
    )  # fmt: skip
    for row in others:
        assert row.time_us is not None
    fast = [
        SweepRow(**{name: getattr(row, name) for name in row.__struct_fields__} | {"time_us": 0.1}) for row in others
    ]
    found = plain_points([Launch("one", [*fast, *rows])], "all_reduce", "float32")
    assert sorted((point.bytes, point.time_us) for point in found) == [(size, known_us(size, 2)) for size in SIZES]
    both = plain_points([Launch("one", [*rows_of([2], transport="direct"), *rows])], "all_reduce", "float32")
    assert len(both) == len(SIZES)  # what training gets stands for both


def test_a_model_refuses_what_no_sweep_tells() -> None:
    with pytest.raises(NotKnown, match="there is no sweep"):
        CostModel([])
    with pytest.raises(NotKnown, match="different devices"):
        CostModel([Launch("a", rows_of([2]), "NVIDIA H200"), Launch("b", rows_of([2]), "AMD Instinct MI300X")])
    model = CostModel([Launch("a", rows_of([2, 4]), "NVIDIA H200", 4)])
    with pytest.raises(NotKnown, match=r"operations=\[all_gather\]"):
        model.time_us("all_gather", MIB, "float32", 4)
    with pytest.raises(NotKnown, match="links of no more than 4 ranks were measured"):
        model.time_us("all_reduce", MIB, "float32", 8)
    assert model.cost("all_reduce", MIB, "float32", 3).assumed == ()
    assert "bytes of float32" in model.cost("all_reduce", MIB, "bfloat16", 4).assumed[0]
    assert model.time_us("all_reduce", MIB, "bfloat16", 4) == model.time_us("all_reduce", MIB, "float32", 4)


def test_beyond_the_node_the_users_figures_count_and_are_named() -> None:
    launches = [Launch("a", rows_of([2, 4]), "NVIDIA H200", 4)]
    wide = CostModel(launches, Topology(gpus_per_node=8))
    inside = wide.cost("all_reduce", 256 * MIB, "float32", 8)
    assert "8 ranks share one host" in inside.assumed[0]
    with pytest.raises(NotKnown, match="--nic-gb-s"):
        wide.time_us("all_reduce", MIB, "float32", 16)
    model = CostModel(launches, Topology(gpus_per_node=4, nic_gb_s=50, nic_latency_us=10))
    node = model.time_us("all_reduce", 256 * MIB, "float32", 4)
    two = model.cost("all_reduce", 256 * MIB, "float32", 8)
    moving = 2 * (1 / 2) * 256 * MIB / (4 * 50e3)  # of two nodes, each of four NICs
    assert two.time_us.low == pytest.approx(max(node.low, moving) + 2 * 10)
    assert two.time_us.high == pytest.approx(node.high + moving + 2 * 10)
    assert "50 GB/s" in two.assumed[0]
    times = [model.time_us("all_reduce", 256 * MIB, "float32", n).value for n in (8, 64, 1024, 8192)]
    assert times == sorted(times)
    assert times[-1] < 3 * moving + node.value + 10 * 2 * math.log2(8192)


def test_groups_within_a_host_and_across_hosts_are_fitted_by_themselves() -> None:
    """Two hosts of four: across them everything takes five times as long, and that must not bend the fit inside."""
    across = [
        SweepRow(**{name: getattr(row, name) for name in row.__struct_fields__} | {"time_us": 5 * (row.time_us or 0)})
        for row in rows_of([6, 8])
    ]
    model = CostModel([Launch("two hosts", [*rows_of([2, 4]), *across], "NVIDIA H200", 4)])
    inside, outside = (model.time_us("all_reduce", 64 * MIB, "float32", n) for n in (4, 8))
    assert inside.value == pytest.approx(known_us(64 * MIB, 4), rel=0.05)
    assert outside.value == pytest.approx(5 * known_us(64 * MIB, 8), rel=0.05)
    assert model.time_us("all_reduce", 64 * MIB, "float32", 16).value > outside.value  # measured links: no refusal


def test_a_log_of_nccl_tests_is_a_sweep_with_its_device() -> None:
    launch = read_launches(DATA / "nccl_tests" / "plain.txt")[0]
    assert (launch.device, launch.ranks_per_host) == ("NVIDIA H200", 2)
    assert read_launches(DATA / "nccl_tests" / "json.json")[0].device == "NVIDIA H200"
    largest = max((row for row in launch.rows if row.mode == "in_place"), key=lambda row: row.bytes)
    said = CostModel([launch]).time_us("all_reduce", largest.bytes, "float32", 2)
    assert largest.time_us is not None and largest.time_us in said
    assert said.value == pytest.approx(largest.time_us, rel=0.15)


def test_the_verb_teaches_fits_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        front_door.main(["fit", "--help"])
    assert stop.value.code == 0
    assert "2(n-1)/n" in capsys.readouterr().out
    log = tmp_path / "all_reduce.txt"
    shutil.copy(DATA / "nccl_tests" / "plain.txt", log)
    out, page = tmp_path / "fit.json", tmp_path / "fit.html"
    assert front_door.main(["fit", str(log), "--json", str(out), "--html", str(page)]) == 0
    printed = capsys.readouterr().out
    assert "one group size alone checks nothing" in printed
    answer = json.loads(out.read_text())
    assert answer["device"] == "NVIDIA H200"
    (operation,) = answer["operations"]
    assert sum(form["weight"] for form in operation["forms"]) == pytest.approx(1)
    assert all(point["fitted_us"]["low"] <= point["fitted_us"]["value"] for point in operation["points"])
    last = operation["points"][-1]
    assert last["ceiling_us"] == pytest.approx(last["bytes"] / 450e3)
    assert "What collectives cost" in page.read_text()
    assert front_door.main(["fit", str(tmp_path / "nothing")]) == 2
