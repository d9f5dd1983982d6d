"""A disturbance of known size is found again, in the right place, and on the right rank."""

from pathlib import Path

import numpy as np
import pytest

from scalescope.records.errors import UserError
from scalescope.report.text import findings as finding_text
from scalescope.scaling.analyze import analyze_against
from scalescope.scaling.answer_rows import PARTS
from scalescope.scaling.compare.lost import lost_time
from scalescope.scaling.finding.kinds import is_certain
from scalescope.scaling.findings.measured import measured_findings
from scalescope.scaling.join.explained import Explained
from scalescope.scaling.rank.kernels import KernelTable, kernel_table
from scalescope.scaling.rank.partition import Partition, Windows
from scalescope.scaling.run import explain_traces
from scalescope.scaling.trace.intervals import Intervals
from scalescope.scaling.trace.kernel_names import short_name
from scalescope.scaling.trace.sources import find_sources
from scalescope.scaling.verdicts.stragglers import Late, name_late_ranks
from scalescope.scaling.verdicts.waterfall import mean_step, waterfall
from tests import data_parallel, oracle
from tests.data_parallel import MS, Disturbance
from tests.trace_json import packed, unpacked


def explain(folder: Path) -> Explained:
    return explain_traces(find_sources(folder), folder.name, 1)


@pytest.fixture
def undisturbed(tmp_path: Path) -> Explained:
    return explain(data_parallel.run(tmp_path / "undisturbed", Disturbance()))


def because(explained: Explained) -> str:
    """Return what the first finding says."""
    return finding_text.because(explained.analysis.findings[0])


def growth(calm: Explained, other: Explained, ranks: list[int]) -> dict[str, float]:
    """Return by how much each part of a step grew on the given ranks, in ms."""
    means = [mean_step([one.partitions[rank] for rank in ranks]) for one in (calm, other)]
    kernels = [[one.kernels[rank] for rank in ranks] for one in (calm, other)]
    fall = waterfall("x", (4, means[0], kernels[0]), (4, means[1], kernels[1]))
    assert fall.compute_inflation_ms is not None and fall.compute_more_work_ms is not None
    parts = {part.part: part.ms for part in fall.parts}
    assert sum(parts.values()) == pytest.approx(fall.growth_ms, abs=1e-9)
    return parts | {"all": fall.growth_ms, "inflation": fall.compute_inflation_ms, "more": fall.compute_more_work_ms}


def raw_wait_ms(explained: Explained, rank: int) -> float:
    """Return a rank's wait in collectives, hidden or not, in ms a step."""
    waits = sum(one.wait_us.get(rank, 0.0) for one in explained.analysis.collectives)
    return waits / 1e3 / len(explained.partitions[rank])


def test_an_undisturbed_job_has_no_straggler_and_waits_for_nobody(undisturbed: Explained) -> None:
    assert undisturbed.analysis.stragglers == []
    assert all(raw_wait_ms(undisturbed, rank) == 0 for rank in range(4))
    assert undisturbed.analysis.quality.verdict == "good"


def test_a_rank_delayed_on_its_device_is_named_and_the_others_growth_is_exposed_wait(
    tmp_path: Path, undisturbed: Explained
) -> None:
    delayed = explain(data_parallel.run(tmp_path / "delayed", Disturbance(spin={2: 4 * MS})))
    (straggler,) = delayed.analysis.stragglers
    assert straggler.rank == 2 and straggler.code == "own_work"
    assert because(delayed) == "spin_kernel, 4.0 ms a step, which the others do not run"
    (kernel,) = (row for row in delayed.analysis.findings[0].evidence if row.kind == "activity")
    assert kernel.name == "spin_kernel" and kernel.ms == pytest.approx(4.0)
    others = growth(undisturbed, delayed, [0, 1, 3])
    assert others["all"] == pytest.approx(4.0, rel=0.05)
    # the delay of 4 ms also bares the transfer of the last bucket but one, which compute hid before
    assert others["exposed_wait"] == pytest.approx(3.5, rel=0.05)
    assert others["exposed_transfer"] == pytest.approx(0.5, rel=0.05)
    assert straggler.lost_ms == pytest.approx(3.5, rel=0.05)
    assert others["inflation"] == pytest.approx(0.0, abs=0.01)
    # every bucket waits again for the same delay: raw wait is several times what is lost
    assert raw_wait_ms(delayed, 0) >= 3 * straggler.lost_ms
    own = growth(undisturbed, delayed, [2])
    assert own["more"] == pytest.approx(4.0, rel=0.05) and own["exposed_wait"] == pytest.approx(0.0, abs=0.01)


def test_a_rank_with_slower_compute_is_named_and_its_kernels_are_inflated(
    tmp_path: Path, undisturbed: Explained
) -> None:
    slow = explain(data_parallel.run(tmp_path / "slow", Disturbance(slower={3: 1.2})))
    (straggler,) = slow.analysis.stragglers
    excess = 0.2 * (data_parallel.FORWARD + data_parallel.BUCKETS * data_parallel.BUCKET) / MS
    assert straggler.rank == 3 and straggler.code == "slower_compute"
    assert growth(undisturbed, slow, [0, 1, 2])["all"] == pytest.approx(excess + 0.2, rel=0.05)
    assert excess - 0.5 <= straggler.lost_ms <= excess
    own = growth(undisturbed, slow, [3])
    assert own["inflation"] == pytest.approx(own["compute"]) and own["more"] == 0
    assert own["inflation"] == pytest.approx(excess + 0.2, rel=0.05)  # the optimizer is slower too


def test_a_rank_that_is_slow_in_loading_data_is_named_for_it(tmp_path: Path, undisturbed: Explained) -> None:
    loading = explain(data_parallel.run(tmp_path / "loading", Disturbance(loading={1: 5 * MS})))
    (straggler,) = loading.analysis.stragglers
    # the last step ends before the loading that follows it: the figure is of the steps that hold one
    assert straggler.rank == 1 and straggler.code == "data_loading"
    assert loading.analysis.findings[0].evidence[0].ms == pytest.approx(5.0, rel=0.002)
    assert 4.5 <= straggler.lost_ms <= 5.1
    # all steps but the first, before which nothing bounds the wait
    assert loading.analysis.ranks[1].idle_data_ms == pytest.approx(5 * 5.0, rel=0.05)
    assert growth(undisturbed, loading, [0, 2, 3])["all"] == pytest.approx(5.0, rel=0.20)


def test_a_broadcast_with_a_late_root_makes_the_others_wait_for_the_root_alone(tmp_path: Path) -> None:
    calm = explain(data_parallel.run(tmp_path / "calm", Disturbance(), broadcast=True))
    late = explain(data_parallel.run(tmp_path / "late", Disturbance(late_root=3 * MS), broadcast=True))
    assert calm.analysis.stragglers == []
    (straggler,) = late.analysis.stragglers
    assert straggler.rank == 0 and "spin_kernel" in because(late)
    assert straggler.lost_ms == pytest.approx(3.0, rel=0.05)
    assert growth(calm, late, [1, 2, 3])["exposed_wait"] == pytest.approx(3.0, rel=0.05)
    waits = [one.wait_us for one in late.analysis.collectives if one.operation == "broadcast"]
    assert waits and all(wait[0] == 0 and wait[1] == pytest.approx(3000, rel=0.01) for wait in waits)


def test_a_delay_is_told_in_full_where_waiting_slows_the_others_compute(tmp_path: Path) -> None:
    slowed = dict.fromkeys([0, 1, 3], 1.08)  # 2 of the 4 ms come back as slower compute
    delayed = explain(data_parallel.run(tmp_path, Disturbance(spin={2: 4 * MS}, slower=slowed)))
    (straggler,) = delayed.analysis.stragglers
    assert straggler.code == "own_work" and because(delayed).startswith("spin_kernel, 4.0 ms a step")


def steps_of(compute: int, wait: int) -> list[Partition]:
    part = Partition(
        window=compute + wait, compute=compute, transfer=0, wait=wait, unsplit=0, memory=0, data=0, launch=0, queued=0
    )
    return [part] * 3


def kernels_of(*names_and_times: tuple[str, int]) -> KernelTable:
    """Return the kernels of three like steps, one after the other."""
    names = sorted({name for name, _ in names_and_times})
    identities = np.array([names.index(name) for name, _ in names_and_times] * 3, np.int64)
    times = np.array([time for _, time in names_and_times] * 3, np.int64)
    edges = np.concatenate(([0], np.cumsum(times)))
    step = int(edges[-1]) // 3
    spans = Intervals(edges[:-1], edges[1:])
    windows = Windows([1, 2, 3], np.array([0, step, 2 * step, 3 * step], np.int64), False)
    whole = Intervals(edges[:1], edges[-1:])
    return kernel_table(spans, identities, whole, windows, names)


def what_is_late(first: KernelTable, second: KernelTable, compute: tuple[int, int], wait: int) -> Late:
    """Return what rank 1 is told to do as rank 0 waits for it."""
    partitions = {0: steps_of(compute[0], wait), 1: steps_of(compute[1], 0)}
    (late,) = name_late_ranks(partitions, {0: {1: [wait] * 3}}, {0: first, 1: second})
    assert late.rank == 1
    return late


def test_a_kernel_that_a_rank_runs_more_often_is_its_own_work() -> None:
    first = kernels_of(("mm", 5 * MS), ("gelu", 5 * MS))
    second = kernels_of(("mm", 4 * MS), ("mm", 4 * MS), ("gelu", 3 * MS))
    late = what_is_late(first, second, (10 * MS, 11 * MS), MS)
    assert (late.code, late.kernel) == ("more_work", "mm") and late.excess_ms == pytest.approx(3.0)


def test_what_a_rank_does_besides_is_told_by_all_its_kernels_together() -> None:
    """An average of the weights, by products and sums: neither is half of what makes the rank's compute longer."""
    first = kernels_of(("mm", 10 * MS), ("mul", MS))
    second = kernels_of(("mm", 10 * MS), *[("mul", MS), ("add", MS)] * 4)
    late = what_is_late(first, second, (11 * MS, 18 * MS), 7 * MS)
    assert (late.code, late.kernel, late.besides, late.besides_known) == ("own_work", "add", 7, 3)
    assert late.excess_ms == pytest.approx(4.0), "of the kernel that is named"


def test_what_is_counted_beside_a_rank_that_is_slower_is_told_by_itself() -> None:
    """Its machine may make all its compute longer or not; that it does more, chance does not make."""
    first = kernels_of(("mm", 10 * MS), ("mul", MS))
    second = kernels_of(("mm", 20 * MS), *[("mul", MS)] * 4)
    partitions = {0: steps_of(11 * MS, 10 * MS), 1: steps_of(24 * MS, 0)}
    slower = [9 * MS, 12 * MS, 12 * MS]
    own, rest = sorted(
        name_late_ranks(partitions, {0: {1: slower}}, {0: first, 1: second}), key=lambda late: late.excess_ms
    )
    assert (own.code, own.rank, own.besides) == ("own_work", 1, 3) and own.lost_ms == pytest.approx((3.0,) * 3)
    assert (rest.code, rest.kernel) == ("slower_compute", None) and rest.excess_ms == pytest.approx(10.0)
    assert [one + other for one, other in zip(own.lost_ms, rest.lost_ms, strict=True)] == pytest.approx([9, 12, 12])
    (_, told) = measured_findings([rest, own], 30.0, ranks=2, on_cpu=True)
    assert is_certain(told) and "in 3 launches a step that the others do not make" in finding_text.because(told)


def test_another_kernel_for_the_same_work_is_no_delay_but_slower_compute() -> None:
    first = kernels_of(("mm_128x128", 8 * MS), ("gelu", 2 * MS))
    second = kernels_of(("mm_64x64", 8 * MS), ("gelu", 6 * MS))
    late = what_is_late(first, second, (10 * MS, 14 * MS), 4 * MS)
    assert (late.code, late.kernel) == ("slower_compute", None) and late.excess_ms == pytest.approx(4.0)


def test_two_ranks_that_are_late_in_turn_within_a_step_are_both_named_and_the_last_step_counts_for_nothing() -> None:
    part = steps_of(10 * MS, 2 * MS)
    kernels = {rank: kernels_of(("mm", 10 * MS)) for rank in range(3)}
    lost = {0: {1: [MS, MS, 0], 2: [MS // 2, MS // 2, 90 * MS]}}
    late = name_late_ranks({0: part, 1: part, 2: part}, lost, kernels, open_ended={0, 1, 2})
    assert [(one.rank, one.lost_ms) for one in late] == [(1, (0.5, 0.5)), (2, (0.25, 0.25))]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("at::cuda::(anonymous namespace)::spin_kernel(long)", "spin_kernel"),
        ("void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int)", "vectorized_gather_kernel"),
        (
            "void at::native::vectorized_elementwise_kernel<8, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, "
            "at::native::GeluType)::{lambda()#1}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul> >(int)",
            "vectorized_elementwise_kernel",
        ),
        (
            "void at_cuda_detail::cub::detail::DeviceScanKernel<at_cuda_detail::cub::detail::policy_hub<long, "
            "long>::Policy1000, at::cuda::cub::(anonymous namespace)::SumOp<long> >(long const*)",
            "DeviceScanKernel",
        ),
        (
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(cutlass_80_simt_sgemm::Params)",
            "Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>",
        ),
        ("nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_TNN", "nvjet_sm90_tst_192x192_64x4_2x1_v_bz_coopB_TNN"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("aten::mm", "aten::mm"),
        ("void cut_off<int, at::native", "void cut_off<int, at::native"),
        ("", ""),
    ],
)
def test_a_kernel_is_called_by_its_own_name(name: str, short: str) -> None:
    assert short_name(name) == short


def test_what_a_delay_cost_each_rank_adds_up_to_the_growth_of_its_step(tmp_path: Path, undisturbed: Explained) -> None:
    # so long a delay that the delayed rank computes more that is its own than half of what it did before
    delayed = explain(data_parallel.run(tmp_path / "delayed", Disturbance(spin={2: 15 * MS})))
    losses = lost_time([undisturbed], delayed)
    assert [one.rank for one in losses] == [0, 1, 2, 3]
    for one in losses:
        parts = {part.part: part.ms for part in one.parts}
        assert list(parts) == list(PARTS)
        assert sum(parts.values()) == pytest.approx(one.growth_ms, abs=1e-9)
        assert one.growth_ms == pytest.approx(15.0, rel=0.01) == one.to_step_ms - one.from_step_ms
        assert one.compute_inflation_ms == pytest.approx(0.0, abs=0.01)
        assert one.compute_more_work_ms == pytest.approx(15.0 if one.rank == 2 else 0.0, rel=0.01)
        lost = parts["exposed_wait"] + parts["exposed_transfer"]
        assert lost == pytest.approx(0.0 if one.rank == 2 else 15.0, rel=0.01)


def test_a_rank_that_loads_data_slowly_grows_by_all_of_it_though_the_last_step_holds_none(tmp_path: Path) -> None:
    calm = data_parallel.run(tmp_path / "calm", Disturbance())
    loading = data_parallel.run(tmp_path / "loading", Disturbance(loading={1: 5 * MS}))
    answer = analyze_against(loading, [calm, calm])
    (itself,) = (one for one in answer.lost if one.rank == 1)
    assert {part.part: part.ms for part in itself.parts}["idle_data"] == pytest.approx(5.0, rel=0.01)
    assert [one.growth_ms for one in answer.lost] == pytest.approx([itself.growth_ms] * 4, rel=0.02)
    assert itself.reference == "calm, calm"


def test_lost_time_is_told_only_against_a_run_on_as_many_ranks(tmp_path: Path, undisturbed: Explained) -> None:
    two = explain(data_parallel.run(tmp_path / "two", Disturbance(), world_size=2))
    with pytest.raises(UserError, match="two ran on 2 ranks and undisturbed on 4"):
        lost_time([two], undisturbed)
    with pytest.raises(UserError, match="no rank has profiled steps"):
        lost_time([], undisturbed)


def test_two_hosts_with_clocks_3_ms_apart_give_the_figures_of_one(tmp_path: Path) -> None:
    one = explain(data_parallel.run(tmp_path / "one host", Disturbance(spin={2: 4 * MS})))
    folder = data_parallel.run(tmp_path / "two hosts", Disturbance(spin={2: 4 * MS}))
    for rank in range(4):
        path = folder / f"rank{rank}.json.gz"
        trace = unpacked(path)
        trace["host_name"] = "ab"[rank // 2]
        trace["baseTimeNanoseconds"] += rank // 2 * 3 * MS
        path.write_bytes(packed(trace))
    two = explain(folder)
    assert any("host b: clock -3000" in reason for reason in two.analysis.quality.reasons)
    (straggler,) = two.analysis.stragglers
    assert straggler.rank == 2 and straggler.lost_ms == pytest.approx(one.analysis.stragglers[0].lost_ms, rel=0.1)
    for rank in range(4):
        for ours, theirs in zip(two.partitions[rank], one.partitions[rank], strict=True):
            assert ours.wait + ours.transfer == theirs.wait + theirs.transfer
            assert ours.wait == pytest.approx(theirs.wait, abs=MS // 2)


@pytest.mark.parametrize(
    "disturbance",
    [Disturbance(), Disturbance(spin={2: 4 * MS}), Disturbance(slower={3: 1.2}), Disturbance(loading={1: 5 * MS})],
)
def test_the_disturbed_jobs_equal_the_slow_account_too(tmp_path: Path, disturbance: Disturbance) -> None:
    explained = explain(data_parallel.run(tmp_path, disturbance))
    traces = {source.rank: oracle.load(source.path) for source in find_sources(tmp_path) if source.rank is not None}
    slow = oracle.device_partitions(traces, 4)
    for rank, steps in explained.partitions.items():
        for part, should in zip(steps, slow[rank].values(), strict=True):
            assert dict(zip(oracle.PARTS, part.parts, strict=True)) | {"window": part.window} == should
