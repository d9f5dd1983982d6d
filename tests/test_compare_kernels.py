"""Kernels of two steps side by side: matched by operator and place where their names differ."""

from pathlib import Path

import pytest

from scalescope.scaling.compare.kernels.alignment import align
from scalescope.scaling.compare.kernels.expected import expected_ratio
from scalescope.scaling.compare.kernels.matching import match_tables
from scalescope.scaling.compare.kernels.operators import Call, CallTable, Kernel, read_calls

DATA = Path(__file__).parent / "data"
H100, MI300X = "NVIDIA H100 80GB HBM3", "AMD Instinct MI300X VF"


def call(operator: str | None, *kernels: tuple[str, float], blocks: int | None = None) -> Call:
    return Call(operator, tuple(Kernel(name, us, blocks) for name, us in kernels))


def layer(vendor: str, scale: float = 1.0) -> list[Call]:
    """One layer's calls, by the libraries of a vendor."""
    product, attention, backward = {
        "nvidia": ("nvjet_tst_128x256", "flash_fwd_kernel", "ScaledDotProductFlashAttentionBackward0"),
        "amd": ("Cijk_Ailk_Bljk_MT256x256", "FmhaFwdKernel", "ScaledDotProductEfficientAttentionBackward0"),
    }[vendor]
    return [
        call("aten::layer_norm", ("vectorized_layer_norm_kernel", 20 * scale)),
        call("aten::linear", (product, 100 * scale)),
        call("aten::scaled_dot_product_attention", (attention, 50 * scale)),
        call(backward, (f"{attention}_bwd", 120 * scale)),
        call("collective all_reduce", ("ncclDevKernel_AllReduce" if vendor == "nvidia" else "rcclGenericKernel", 30)),
    ]


def table(calls: list[Call], device: str | None = H100) -> CallTable:
    return CallTable(calls, 3, device)


def test_two_vendors_kernels_stand_side_by_side_by_operator() -> None:
    found = match_tables(table(layer("nvidia") * 3), table(layer("amd", 1.5) * 3, MI300X))
    assert found.share == pytest.approx(1.0) and found.work_ratio is None
    by = {row.operator: row for row in found.rows}
    product = by["aten::linear"]
    assert (product.baseline_name, product.other_name) == ("nvjet_tst_128x256", "Cijk_Ailk_Bljk_MT256x256")
    assert product.matched_by == "operator" and product.ratio == pytest.approx(1.5) and product.bound == "compute"
    assert product.expected_ratio == pytest.approx(989 / 1307)
    assert by["ScaledDotProductFlashAttentionBackward0"].other_name == "FmhaFwdKernel_bwd"
    assert by["aten::layer_norm"].expected_ratio == pytest.approx(3.35 / 5.3)
    assert by["collective all_reduce"].other_name == "rcclGenericKernel"
    assert sum(row.share or 0 for row in found.rows) == pytest.approx(1.0)


def test_one_more_layer_is_found_to_be_one_more_and_slows_nothing() -> None:
    found = match_tables(table(layer("nvidia") * 4), table(layer("nvidia") * 5))
    extra = [row for row in found.rows if row.matched_by == "only_other"]
    assert sum(row.other_us for row in extra) == pytest.approx(sum(one.us for one in layer("nvidia")))
    assert all(row.ratio == pytest.approx(1.0) for row in found.rows if row not in extra)


def test_kernels_of_one_name_and_two_sizes_are_told_apart() -> None:
    short, long = call("aten::mm", ("gemm", 72.0)), call("aten::mm", ("gemm", 172.0))
    found = match_tables(table([short, long, short, long]), table([short, long, short, long, long]))
    kept = {row.baseline_calls: row for row in found.rows if row.matched_by == "name"}
    assert [row.ratio for row in kept.values()] == [pytest.approx(1.0)] * len(kept)
    assert sorted(row.baseline_us for row in found.rows if row.matched_by == "name") == [144.0, 344.0]
    assert [row.other_us for row in found.rows if row.matched_by == "only_other"] == [172.0]
    grids = [call("aten::add", ("add_kernel", 10.0), blocks=count) for count in (64, 128)]
    assert len(match_tables(table(grids), table(grids)).rows) == 2


def test_grids_tell_another_batch() -> None:
    here = [call("aten::add", ("vectorized_elementwise_kernel<add>", 10.0 * at), blocks=8 * at) for at in (1, 2, 3)]
    there = [call("aten::add", ("vectorized_elementwise_kernel<add>", 40.0 * at), blocks=32 * at) for at in (1, 2, 3)]
    assert match_tables(table(here), table(there)).work_ratio == pytest.approx(4.0)
    assert match_tables(table(here), table(here)).work_ratio == pytest.approx(1.0)


def test_where_operators_are_gone_kinds_stand_side_by_side() -> None:
    eager = read_calls(DATA / "gpt_ddp_n2" / "rank0.json.gz")
    compiled = read_calls(DATA / "gpt_ddp_compile_n4" / "rank0.json.gz")
    assert eager.named > 0.9 and compiled.compiled and not eager.compiled
    found = match_tables(eager, compiled)
    assert found.notes and {row.matched_by for row in found.rows} <= {"name", "kind", "only_baseline", "only_other"}
    assert found.share is not None and found.share > 0.9


def test_a_real_step_is_wholly_its_own_counterpart() -> None:
    calls = read_calls(DATA / "gpt_ddp_n2" / "rank0.json.gz")
    found = match_tables(calls, calls)
    assert found.share == pytest.approx(1.0) and {row.matched_by for row in found.rows} == {"name"}
    assert {one.operator for one in calls.calls} >= {"aten::linear", "AddmmBackward0", "collective all_reduce"}


def test_pairs_ascend_where_steps_are_aligned_as_a_whole() -> None:
    one, other = layer("nvidia") * 3, layer("nvidia") * 2 + [call("aten::dropout", ("dropout", 5.0))]
    same, placed = align(one, other)
    assert same == sorted(same) and [right for _, right in same] == sorted(right for _, right in same)
    assert all(one[left].token == other[right].token for left, right in same)
    assert len({left for left, _ in [*same, *placed]}) == len(same) + len(placed)


def test_what_is_not_in_the_data_sheets_is_not_expected() -> None:
    assert expected_ratio("memory", H100, "NVIDIA H100 80GB HBM3") == 1.0
    assert expected_ratio("memory", H100, "Somebody's accelerator") is None
    assert expected_ratio("unknown", H100, MI300X) is None
    assert expected_ratio("compute", H100, MI300X, "fp8") == pytest.approx(1979 / 2610)


def test_what_is_matched_by_kind_is_told_as_so_many_kernels_and_calls() -> None:
    here = table(
        [call(None, ("elementwise_a", 5.0)), call(None, ("elementwise_b", 7.0)), call(None, ("elementwise_a", 6.0))]
    )
    there = table([call(None, ("triton_poi_fused_add_0", 9.0))])
    (row,) = match_tables(here, there).rows
    assert row.matched_by == "kind" and (row.baseline_name, row.baseline_calls) == ("2 kernels", 3)
    assert (row.other_name, row.other_calls) == ("triton_poi_fused_add_0", 1)
    assert row.ratio == pytest.approx(9.0 / 6.0)
