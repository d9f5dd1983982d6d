"""What one rank does beyond the others, told from the same work on larger shapes, a slower device, and turns."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import numpy as np
import pytest

from scalescope.report.text.findings import because, headline
from scalescope.scaling.finding.figures import BESIDES
from scalescope.scaling.finding.finding import EvidenceRow, Finding
from scalescope.scaling.finding.kinds import is_certain
from scalescope.scaling.findings.candidate import Scene
from scalescope.scaling.findings.detectors import own_work
from scalescope.scaling.findings.detectors.own_work import looks_for_nan
from scalescope.scaling.findings.detectors.small_collectives import handing_over_lost_ms
from scalescope.scaling.replay.graph import HostCall, Transfer
from scalescope.scaling.replay.ranks.side_by_side import align, with_substitutes
from tests import data_parallel
from tests.data_parallel import MS, Disturbance
from tests.synthetic import Json
from tests.test_scaling_findings import found
from tests.trace_json import packed, unpacked


def rewritten(folder: Path, change: Callable[[int, list[Json]], None]) -> Path:
    """Change each rank's kernels, in order of their begin, in place."""
    for path in sorted(folder.glob("rank*.json.gz")):
        trace = unpacked(path)
        kernels = sorted((one for one in trace["traceEvents"] if one.get("cat") == "kernel"), key=lambda one: one["ts"])
        change(int(path.name[4]), kernels)
        trace["traceEvents"] = [one for one in trace["traceEvents"] if one["name"] != "gone"]
        path.write_bytes(packed(trace))
    return folder


@pytest.mark.parametrize("late", [0, 1])
def test_other_kernels_for_the_same_products_are_the_same_work(late: int, tmp_path: Path) -> None:
    """Of two ranks one has a fifth more samples, and its library other kernels for these: whichever stands first."""

    def larger(rank: int, kernels: list[Json]) -> None:
        for one in kernels:
            if one["name"] == "forward_kernel":
                one["name"] = "nvjet_192x192" if rank == late else "nvjet_128x256"
            elif one["name"].startswith("backward_kernel"):
                one["name"] = one["name"].replace("backward", "vectorized_elementwise")
                one["args"]["grid"] = [120 if rank == late else 100, 1, 1]

    job = data_parallel.run(tmp_path, Disturbance(slower={late: 1.2}), world_size=2, ahead=True)
    findings = found(rewritten(job, larger))
    one = findings[0]
    assert (one.code, one.rank) == ("more_work", late)
    assert "computes on 1.20× as much data" in because(one) and is_certain(one)
    assert one.ms == pytest.approx(0.2 * (data_parallel.UNDISTURBED - data_parallel.TRANSFER) / MS, rel=0.1)
    assert all(other.rank in (None, late) and other.code != "own_work" for other in findings)


def test_what_runs_instead_is_of_one_kind_and_between_the_same_launches() -> None:
    reference = ["setup", "nvjet_a", "reduce_kernel", "collective all_reduce", "nvjet_b", "end"]
    own = ["setup", "nvjet_x", "reduce_kernel", "Memset (Device)", "collective all_reduce", "nvjet_y", "nvjet_z", "end"]
    place = align(own, reference)
    assert with_substitutes(own, reference, place).tolist() == [0, 1, 2, -1, 3, 4, -1, 5]
    place = align(["setup", "spin_kernel", "end"], ["setup", "wait_kernel", "end"])
    assert with_substitutes(["setup", "spin_kernel", "end"], ["setup", "wait_kernel", "end"], place)[1] == -1
    own, reference = ["setup", "cudnn_fprop", "end"], ["setup", "nvjet_a", "end"]
    assert with_substitutes(own, reference, align(own, reference)).tolist() == [0, 1, 2], "a convolution by a product"


def test_launches_of_a_kernel_that_the_others_run_elsewhere_are_a_ranks_own_work(tmp_path: Path) -> None:
    def alike(_rank: int, kernels: list[Json]) -> None:
        for one in kernels:
            one["name"] = one["name"].replace("spin_kernel", "optimizer_kernel")

    job = data_parallel.run(tmp_path, Disturbance(spin={2: 2 * MS}), ahead=True)
    (one,) = found(rewritten(job, alike))
    assert (one.code, one.rank) == ("own_work", 2) and one.ms == pytest.approx(2.0, rel=0.05)
    assert because(one) == "optimizer_kernel, 2.0 ms a step, in 1 launch a step that the others do not make"
    assert is_certain(one) and any(row.name == BESIDES and row.calls == 1 for row in one.evidence)


def test_a_rank_that_looks_for_nan_behind_each_node_of_its_backward_pass_detects_anomalies(tmp_path: Path) -> None:
    """That makes all operators longer: another process was said to have its cores by turns."""
    spin = Disturbance(spin={2: 2 * MS}, slower={2: 1.2})

    def looking(_rank: int, kernels: list[Json]) -> None:
        for one in kernels:
            if one["name"] == "spin_kernel":
                one["name"] = "aten::isnan"
            elif one["name"].startswith("backward_kernel"):
                one["name"] = "AddmmBackward0"

    def scene(looks: int, steps: int = 3, place: int = -1) -> Any:
        names = ["aten::linear", *["AddmmBackward0"] * 20, *["aten::isnan"] * looks]
        own = SimpleNamespace(
            activity=list(range(len(names))), stands_in=np.array([*range(21), *[place] * looks], np.int64)
        )
        side = SimpleNamespace(steps=range(steps), launches={(1, step): own for step in range(steps)})
        graph = SimpleNamespace(activities=[SimpleNamespace(name=name) for name in names])
        return SimpleNamespace(side=side, replayer=SimpleNamespace(graph=graph))

    assert looks_for_nan(scene(20), 1) == 20
    assert looks_for_nan(scene(9), 1) == 0  # a check of some tensors, as of the loss
    assert looks_for_nan(scene(20, place=3), 1) == 0  # the others do so as well
    job = rewritten(data_parallel.run(tmp_path, spin, ahead=True), looking)
    assert any(one.code == "slower_compute" for one in found(job)), "one look a step is none at each node"
    with patch.object(own_work, "_MANY", 1), patch.object(own_work, "_BEHIND", 0.0):
        (one,) = found(job)
    assert (one.code, one.rank) == ("own_work", 2) and is_certain(one)
    assert one.remedy is not None and one.remedy.cure == "no_anomaly_detection"
    assert "torch.autograd.set_detect_anomaly" in because(one)
    computed = data_parallel.UNDISTURBED - data_parallel.TRANSFER
    assert one.ms == pytest.approx(2.0 * 1.2 + 0.2 * computed / MS, rel=0.1)


def test_more_passes_of_what_all_run_are_more_work(tmp_path: Path) -> None:
    def alike(_rank: int, kernels: list[Json]) -> None:
        for one in kernels:
            if one["name"] == "spin_kernel" or one["name"].startswith("backward"):
                one["name"] = "backward_kernel"

    job = data_parallel.run(tmp_path, Disturbance(spin={2: 3 * MS}), ahead=True)
    (one,) = found(rewritten(job, alike))
    assert (one.code, one.rank) == ("more_work", 2)


def test_own_work_on_another_stream_is_why_the_kernels_beside_it_are_longer(tmp_path: Path) -> None:
    def beside(rank: int, kernels: list[Json]) -> None:
        for spin, forward in zip(
            (one for one in kernels if one["name"] == "spin_kernel"),
            (one for one in kernels if one["name"] == "forward_kernel"),
            strict=False,
        ):
            assert rank == 1
            end = forward["ts"] + forward["dur"]
            forward["ts"], forward["dur"] = spin["ts"], end - spin["ts"]
            spin["tid"] = spin["args"]["stream"] = 9
            spin["dur"] *= 2

    job = data_parallel.run(tmp_path, Disturbance(spin={1: 4 * MS}), ahead=True)
    findings = found(rewritten(job, beside))
    one = findings[0]
    assert (one.code, one.rank) == ("own_work", 1) and "spin_kernel" in because(one)
    assert one.ms == pytest.approx(4.0, rel=0.1)
    assert all(other.code != "slower_compute" for other in findings)


def test_ranks_that_take_turns_at_longer_kernels_wait_for_each_other_in_each_step(tmp_path: Path) -> None:
    computed = data_parallel.UNDISTURBED - data_parallel.TRANSFER
    job = Disturbance(longer_in_turns=1.3)
    one = found(data_parallel.run(tmp_path, job, world_size=2, steps=8, ahead=True))[0]
    assert (one.code, one.rank) == ("alternating_load", None) and one.ms == pytest.approx(0.3 * computed / MS, rel=0.1)


def test_a_tables_gradient_that_comes_last_and_bare_is_a_late_bucket_beside_others(tmp_path: Path) -> None:
    (one,) = found(data_parallel.run(tmp_path / "large", Disturbance(table=30 << 20), ahead=True))
    assert (one.code, one.rank, one.at_most) == ("late_bucket", None, True)
    assert one.ms == pytest.approx(data_parallel.TABLE / MS, rel=0.01) and one.low_ms == pytest.approx(
        data_parallel.TABLE / MS / 2, rel=0.01
    )
    assert "120.0 MiB" in because(one) and "in one piece at the end" in because(one)
    (fine,) = found(data_parallel.run(tmp_path / "small", Disturbance(table=20 << 20), ahead=True))
    assert fine.code == "nothing"


def test_what_a_host_takes_to_hand_figures_over_counts_as_far_as_devices_wait_for_launches() -> None:
    """Eight figures a step in two steps, 50 µs of the host each; all but one of each step's are lost."""
    calls = [HostCall(10_000.0, 0.0, 40_000.0, hands_over=at) for at in range(16)]
    small = [Transfer({0: at}, 4_000.0, "all_reduce", 4, "float32", 1, at // 8, 4_000.0, 0.0) for at in range(16)]

    def scene(idle_ms: float) -> Scene:
        graph = SimpleNamespace(calls={0: [*calls, HostCall(0.0, 0.0, 9e6)]}, ranks=[0])
        made: Any = SimpleNamespace(replayer=SimpleNamespace(graph=graph), share_ms=lambda _part: idle_ms)
        return cast(Scene, made)

    assert handing_over_lost_ms(scene(5.0), small) == pytest.approx(16 * 0.05 * 7 / 8)
    assert handing_over_lost_ms(scene(0.1), small) == pytest.approx(2 * 0.1)


def test_a_counted_cause_is_said_with_the_doubt_of_its_size_alone() -> None:
    besides = Finding(code="own_work", rank=0, ms=1.3, low_ms=0.0, high_ms=1.3, at_most=True, backed="replay",
                      evidence=(EvidenceRow(kind="figure", name=BESIDES, calls=68.0, value=68.0),))  # fmt: skip
    assert headline(besides, 7.0, 2).endswith("how much, the noise hides.")
    assert is_certain(besides)
