"""Kernels of two steps side by side: matched by operator and place where their names differ."""

import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from scalescope.report.compare.sentences import further, headline
from scalescope.report.compare.tables import parts_table
from scalescope.report.text.findings import because
from scalescope.scaling.compare.alike.same_work import amounts
from scalescope.scaling.compare.answer import AmountChange, Comparison, CountedWork, PartChange
from scalescope.scaling.compare.compare import compare_paths
from scalescope.scaling.compare.kernels.alignment import align
from scalescope.scaling.compare.kernels.expected import bound_of, expected_ratio
from scalescope.scaling.compare.kernels.matching import match_tables
from scalescope.scaling.compare.kernels.operators import Call, CallTable, Kernel, read_calls
from scalescope.scaling.compare.kernels.work import rank_with_other_work, with_work
from scalescope.scaling.compare.measurement import Identity, Measurement, Repeat, Window
from scalescope.scaling.compare.read import read_side
from scalescope.scaling.compare.windows import read_windows
from scalescope.scaling.trace.kernel_kinds import KINDS
from tests.gloo_traces import GlooJob, analysed
from tests.trace_json import packed, unpacked

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
    assert by["aten::layer_norm"].bound == "unknown" and by["aten::layer_norm"].expected_ratio is None
    assert by["collective all_reduce"].other_name == "rcclGenericKernel"
    assert sum(row.share or 0 for row in found.rows) == pytest.approx(1.0)


def test_one_more_layer_is_found_to_be_one_more_and_slows_nothing() -> None:
    found = match_tables(table(layer("nvidia") * 4), table(layer("nvidia") * 5))
    extra = [row for row in found.rows if row.matched_by == "only_other"]
    assert sum(row.other_us for row in extra) == pytest.approx(sum(one.us for one in layer("nvidia")))
    assert all(row.ratio == pytest.approx(1.0) for row in found.rows if row not in extra)


def part(name: str, baseline_ms: float, other_ms: float, half_ms: float) -> PartChange:
    change = other_ms - baseline_ms
    return PartChange(name=name, change_ms=change, low_ms=change - half_ms, high_ms=change + half_ms,
                      baseline_ms=baseline_ms, other_ms=other_ms)  # fmt: skip


def counted(name: str, *windows: dict[str, int | None]) -> Measurement:
    """Return a side whose ranks launch so many kernels of each kind, window by window."""
    calls = [tuple(window.get(kind, 0) for kind in KINDS) for window in windows]
    found = [Window(ranks={}, steps={}, basis="profiled", traces={}, calls={0: one, 1: one}) for one in calls]
    identity = Identity(world_size=2, activity="gpu", device=H100)
    return Measurement(name=name, repeats=[Repeat(name=name, path=Path(name), identity=identity, windows=found)])


def test_what_is_done_besides_is_certain_though_its_part_lies_within_noise() -> None:
    matched = match_tables(table(layer("nvidia") * 12), table(layer("nvidia") * 13))
    parts = [part("matmul", 17.0, 18.4, 1.9), part("attention", 20.0, 20.1, 1.0)]
    sides = counted("before", {"matmul": 12, "attention": 24}), counted("after", {"matmul": 13, "attention": 24})
    product, attention = with_work(parts, *sides, matched.alone_us)
    assert product.within_noise and product.work is not None
    assert (product.work.baseline_calls, product.work.other_calls) == (12, 13)
    assert product.told_ms == pytest.approx(0.1) and (product.work.low_ms or 0) > 0, "as long as the added one takes"
    assert attention.work is not None and attention.work.change_ms is None and attention.told_ms is None
    back = with_work(
        parts[:1], *sides[::-1], match_tables(table(layer("nvidia") * 13), table(layer("nvidia") * 12)).alone_us
    )
    assert back[0].work is not None and back[0].work.change_ms == pytest.approx(-0.1)


def test_a_kernel_that_one_rank_alone_launches_besides_is_named_though_the_step_is_as_long_for_all_one_can_tell() -> (
    None
):
    before, after = counted("before", {"other": 3}), counted("after", {"other": 3})
    more = tuple(4 if kind == "other" else 0 for kind in KINDS)
    for window in after.repeats[0].windows:
        window.calls[1] = more
    assert rank_with_other_work(before, after) == 1 and rank_with_other_work(before, before) is None
    (told,) = with_work([part("other", 20.0, 20.9, 1.2)], before, after, {"other": (0.0, 1870.0)}, 1)
    assert told.within_noise and told.work is not None and told.work.rank == 1
    assert (told.work.baseline_calls, told.work.other_calls) == (3, 4)
    assert told.told_ms == pytest.approx(1.87) and (told.work.low_ms or 0) > 0
    (of_rank,) = with_work(
        [msgspec.structs.replace(told, rank=1, work=None)], before, after, {"other": (0.0, 1870.0)}, 1
    )
    assert of_rank.work is not None and of_rank.work.rank is None, "the part says whose it is"
    slow = msgspec.structs.replace(told, rank=0, change_ms=59.0, low_ms=20.0, high_ms=80.0, work=None)
    (surer,) = with_work([slow], before, after, {"other": (0.0, 1870.0)}, 1)
    assert surer.rank == 0 and surer.work is not None and surer.work.rank == 1, "a slow window is another rank's"
    assert not surer.within_noise and surer.told_ms == pytest.approx(1.87)
    alike = Comparison(
        baseline="a", other="b", verdict="same", change_ms=1.9, low_ms=-9.0, high_ms=9.9,
        baseline_ms=47.0, other_ms=48.9, parts=[surer],
    )  # fmt: skip
    assert "other 4 calls a step for 3 on rank 1 (+1.9 ms)" in headline(alike)
    several = counted("several", {"other": 4})
    assert rank_with_other_work(before, several) is None, "all ranks' is nobody's alone"
    unsteady = counted("unsteady", {"other": 3}, {"other": 4})
    assert rank_with_other_work(before, unsteady) is None


def test_a_real_step_with_a_layer_less_lacks_that_layers_kernels_and_nothing_else() -> None:
    whole = read_calls(DATA / "gpt_ddp_n2" / "rank0.json.gz")
    forward = [at for at, one in enumerate(whole.calls) if one.operator == "aten::layer_norm"]
    backward = [at for at, one in enumerate(whole.calls) if one.operator == "NativeLayerNormBackward0"]
    layer = {*range(forward[10], forward[12]), *range(backward[10] + 1, backward[12] + 1)}
    kept = [one for at, one in enumerate(whole.calls) if at not in layer or one.kind == "communication"]
    found = match_tables(CallTable(kept, whole.steps, whole.device), whole).alone_us
    lacking = sum(one.us for one in whole.calls) - sum(one.us for one in kept)
    assert sum(more for _, more in found.values()) == pytest.approx(lacking, rel=1e-3)
    assert all(fewer == 0 for fewer, _ in found.values()) and found["matmul"][1] > 900


def test_counts_that_differ_from_step_to_step_or_window_to_window_tell_nothing() -> None:
    parts, alone = [part("matmul", 17.0, 18.4, 1.9)], {"matmul": (0.0, 100.0)}
    for unsteady in (counted("after", {"matmul": None}), counted("after", {"matmul": 13}, {"matmul": 12})):
        (told,) = with_work(parts, counted("before", {"matmul": 12}), unsteady, alone)
        assert told.work is None and told.told_ms is None


def test_kernels_that_were_exchanged_for_others_are_no_work_besides() -> None:
    before, after = counted("eager", {"matmul": 4, "other": 0}), counted("compiled", {"matmul": 0, "other": 1})
    parts = [part("matmul", 7.0, 0.0, 9.0), part("other", 0.0, 6.0, 9.0)]
    told = with_work(parts, before, after, {"matmul": (7000.0, 0.0), "other": (0.0, 6000.0)})
    assert all(one.work is not None and one.work.change_ms is None for one in told)


def test_a_step_as_long_that_does_more_is_said_to_do_more() -> None:
    more = CountedWork(baseline_calls=48, other_calls=52, change_ms=1.44, low_ms=1.3, high_ms=1.6)
    parts = [msgspec.structs.replace(part("matmul", 17.0, 18.4, 1.9), work=more), part("rest", 30.0, 30.0, 2.0)]
    same = Comparison(baseline="a", other="b", verdict="same", change_ms=1.4, low_ms=-1.0, high_ms=3.8,
                      baseline_ms=47.0, other_ms=48.4, parts=parts)  # fmt: skip
    assert headline(same).startswith("“b” is as fast as “a”, within noise: +1.4 ms of 47.0 ms")
    assert further(same) == "“b” does not do the same work as “a”: matmul 52 calls a step for 48 (+1.44 ms)."
    sent = AmountChange(amount="sent_bytes", operation="all_reduce", baseline=1.9e6, other=5.7e6)
    for ms, told in (
        (9.5, "all_reduce of 5.7 MB a step for 1.9 MB; matmul 52 calls a step for 48 (+1.44 ms)"),
        (0.5, "matmul 52 calls a step for 48 (+1.44 ms); all_reduce of 5.7 MB a step for 1.9 MB"),
    ):
        exchanged = part("exposed_transfer", 5.0, 5.0 + ms, 20.0)
        both = msgspec.structs.replace(same, amounts=[sent], parts=[*parts, exchanged])
        assert further(both) == f"“b” does not do the same work as “a”: {told}.", "what costs more comes first"
    slower = msgspec.structs.replace(same, verdict="slower", low_ms=0.2)
    assert headline(slower).endswith("of which matmul +1.44 (52 calls a step for 48), the rest within noise.")
    shown = parts_table(slower)
    at = [column.key for column in shown.columns].index("calls")
    assert shown.rows[0][at : at + 2] == ["48 → 52", 1.44] and shown.rows[-1][at + 1] is None


def test_counted_work_is_named_however_wide_the_bounds_are_and_pieces_are_told_from_work() -> None:
    known = Identity(world_size=2, activity="cpu", device=None, samples_by_rank=(8, 8),
                     sent_bytes={"all_reduce": 900_000},
                     collectives={"all_reduce": 1, "barrier": None})  # fmt: skip
    window = Window(ranks={}, steps={}, basis="profiled", traces={})
    before = Repeat(name="a", path=Path("a"), identity=known, windows=[window])

    def said(**changed: object) -> str:
        after = msgspec.structs.replace(before, identity=msgspec.structs.replace(known, **changed))
        return headline(Comparison(baseline="a", other="b", verdict="same", change_ms=1.0, low_ms=-9.0, high_ms=9.0,
                                   baseline_ms=20.0, other_ms=21.0, amounts=amounts(before, after)))  # fmt: skip

    assert "a step for" not in said() and "a step for" not in said(collectives={"all_reduce": 1, "barrier": 3})
    pieces = said(collectives={"all_reduce": 7})
    assert pieces == "“b” has another number of collectives than “a”: 7 all_reduce calls a step for 1."
    assert said(sent_bytes={"all_reduce": 1_900_000}) == (
        "“b” does not do the same work as “a”: all_reduce of 1.9 MB a step for 0.9 MB."
    )
    few_more = said(sent_bytes={"all_reduce": 910_000}, collectives={"all_reduce": 7})
    assert few_more == pieces, "0.9 MB for 0.9 MB is no other work"
    after = msgspec.structs.replace(known, sent_bytes={"all_gather": 1_900_000})
    changed = amounts(before, msgspec.structs.replace(before, identity=after))
    slower = Comparison(baseline="a", other="b", verdict="slower", change_ms=9.0, low_ms=8.0, high_ms=10.0,
                        baseline_ms=20.0, other_ms=29.0, amounts=changed)  # fmt: skip
    assert headline(slower).startswith("“b” does other work than “a”, and is 45.0% slower")
    assert further(slower).count("work") == 1
    assert "The work that differs: all_gather of 1.9 MB a step for nothing, all_reduce of nothing" in further(slower)
    assert "The steps of “b” are of another batch than those of “a”: 10 samples a rank's step for 8." in said(
        samples_by_rank=(10, 10)
    )
    assert "a step for" not in said(sent_bytes={"all_reduce": None}), "sizes that are not told say nothing"
    assert "a step for" not in said(sent_bytes={}, collectives={"all_reduce": 1}, world_size=3)


def test_how_many_collectives_a_step_has_and_what_they_send_is_read_of_its_traces() -> None:
    (whole,) = read_side([DATA / "cpu_ddp_n2"])
    identity = whole.first.identity
    assert identity.collectives.keys() == identity.sent_bytes.keys() and identity.collectives["all_reduce"]
    assert all(sent is None or sent > 0 for sent in identity.sent_bytes.values())


def held_up(folder: Path, rank: int, stops: Sequence[tuple[float, float]]) -> Path:
    """Return a copy of a CPU job's traces in which a rank's loop stands still at moments (µs) for so long (µs)."""
    shutil.copytree(DATA / "cpu_ddp_n2", folder)
    path = next(folder.glob(f"rank{rank}.*"))
    whole = unpacked(path)
    for event in whole["traceEvents"]:
        if event.get("ph") == "X":
            end = event["ts"] + event["dur"]
            end += sum(us for at, us in stops if at <= end)
            event["ts"] += sum(us for at, us in stops if at <= event["ts"])
            event["dur"] = end - event["ts"]
    path.write_bytes(packed(whole))
    return folder


def test_a_sleep_is_found_at_its_place_though_others_take_more_of_the_steps(tmp_path: Path) -> None:
    events = unpacked(next((DATA / "cpu_ddp_n2").glob("rank1.*")))["traceEvents"]
    backward = sorted(one["ts"] for one in events if one["name"] == "aten::ones_like" and one["ph"] == "X")
    operators = sorted(one["ts"] for one in events if one.get("cat") == "cpu_op")
    dice = random.Random(0)
    late = [(at, 900.0) for at in backward]
    sides = [
        [held_up(tmp_path / f"{name}{at}", 1, [*own, *((dice.choice(operators), 6000.0) for _ in backward)])
         for at in range(3)] for name, own in (("calm", []), ("late", late))
    ]  # fmt: skip
    found = compare_paths(sides[0], sides[1])
    (gap,) = found.gaps
    assert gap.rank == 1 and gap.before == "autograd.backward" and gap.change_ms == pytest.approx(0.9, abs=0.05)
    assert gap.low_ms <= 0.9 <= gap.high_ms
    still = (
        "rank 1's loop stands still for 1.0 ms of nearly every step before the backward pass (aten::ones_like), in "
        "“calm0”, “calm1” and “calm2” for "
    )
    assert headline(found).startswith(f"In “late0”, “late1” and “late2” {still}") and "The whole step: " in further(
        found
    )
    back = compare_paths(sides[1], sides[0])
    assert [one.change_ms for one in back.gaps] == [-gap.change_ms]
    assert headline(back).startswith(f"In “late0”, “late1” and “late2” {still}"), "whichever of them is the baseline"


def test_a_cpus_operators_are_laid_side_by_side_and_counted() -> None:
    path = DATA / "cpu_ddp_n2"
    calls = read_calls(min(path.glob("*.json.gz")))
    assert calls.device is None and {"aten::linear", "AddmmBackward0"} <= {one.operator for one in calls.calls}
    assert not any((one.operator or "").startswith("c10d::") for one in calls.calls)
    found = match_tables(calls, calls)
    assert found.share == pytest.approx(1.0) and {row.bound for row in found.rows} == {"unknown"}
    window = (read_windows(path, None, 1) or pytest.fail("no windows")).windows[0]
    matmul = KINDS.index("matmul")
    assert window.calls[0] == window.calls[1] and window.calls[0][matmul] == sum(
        one.kind == "matmul" for one in calls.calls
    )


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


@pytest.mark.parametrize(
    ("operator", "name", "us", "bound"),
    [
        ("aten::relu_", "void at::native::vectorized_elementwise_kernel<4, launch_clamp_scalar>", 90, "memory"),
        ("SplitBackward0", "void at::native::CatArrayBatchedCopy_vectorized<OpaqueType<2>>", 150, "memory"),
        ("aten::_fused_adamw_", "void multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>", 1000, "memory"),
        ("aten::linear", "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", 400, "compute"),
        ("collective all_reduce", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 30, "communication"),
        ("aten::gelu", "void at::native::vectorized_elementwise_kernel<4, GeluCUDAKernelImpl>", 235, "unknown"),
        ("ToCopyBackward0", "void at::native::unrolled_elementwise_kernel<direct_copy_kernel_cuda>", 150, "unknown"),
        ("aten::batch_norm", "void batch_norm_collect_statistics_channels_last_kernel<float, 4>", 800, "unknown"),
        ("aten::conv2d", "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_TNN", 170, "unknown"),
        ("ConvolutionBackward0", "sm90_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32", 340, "unknown"),
        ("aten::relu_", "void at::native::vectorized_elementwise_kernel<4, launch_clamp_scalar>", 6, "unknown"),
    ],
)
def test_a_data_sheet_is_asked_of_kernels_that_counters_showed_to_be_bound_by_it(
    operator: str, name: str, us: float, bound: str
) -> None:
    """Normalisation was to take 0.70 of its time on an H200, and took 0.89: it moves half of what a copy does."""
    assert bound_of([call(operator, (name, us)), call(operator, (name, 0.9 * us + 5))]) == bound


def test_what_only_a_part_of_a_call_or_one_side_is_bound_by_is_not_expected() -> None:
    add, other = "vectorized_elementwise_kernel<add>", "unrolled_elementwise_kernel<add>"
    assert bound_of([call("aten::add", (add, 100.0)), call("aten::add", (other, 100.0))]) == "unknown"
    assert bound_of([call("ConvolutionBackward0", (add, 60.0), ("sm90_xmma_dgrad_implicit_gemm", 40.0))]) == "unknown"


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


def test_more_calls_of_smaller_size_are_no_more_work() -> None:
    """*Matmul +39 ms (56 calls a step for 14)* was said of a batch that is computed in quarters: matmul took +11 ms."""

    def step(batches: int) -> CallTable:
        own = [
            one
            for _ in range(batches)
            for name, us in (("aten::linear", 800.0), ("AddmmBackward0", 1600.0))
            for one in [call(name, (name, us / batches))] * 7
        ]
        return table([*own, call("aten::sqrt", ("aten::sqrt", 300.0))], None)

    whole, quarters = match_tables(step(1), step(4)), match_tables(step(4), step(1))
    wide = [part("matmul", 30.0, 41.0, 60.0)]
    kind = whole.rows[0].kind
    assert whole.resized == quarters.resized == {kind}
    wide = [msgspec.structs.replace(wide[0], name=kind)]
    sides = counted("whole", {kind: 14}), counted("quarters", {kind: 56})
    for found, pair in ((whole, sides), (quarters, sides[::-1])):
        (told,) = with_work(wide, *pair, found.alone_us, None, found.resized)
        assert told.work is not None and told.work.resized and told.work.change_ms is None and told.told_ms is None
    more = match_tables(
        table([call("aten::linear", ("gemm", 100.0))] * 4), table([call("aten::linear", ("gemm", 90.0))] * 5)
    )
    assert more.resized == frozenset(), "as large, and one more"
    slower = msgspec.structs.replace(wide[0], low_ms=5.0, high_ms=17.0)
    (told,) = with_work([slower], *sides, whole.alone_us, None, whole.resized)
    answer = Comparison(baseline="a", other="b", verdict="slower", change_ms=11.0, low_ms=5.0, high_ms=17.0,
                        baseline_ms=47.0, other_ms=58.0, parts=[told])  # fmt: skip
    assert "calls a step" not in headline(answer) and "+11" in headline(answer)


def test_what_is_done_besides_is_no_more_than_its_part_can_have_changed_by() -> None:
    before, after = counted("before", {"matmul": 14}), counted("after", {"matmul": 56})
    (told,) = with_work([part("matmul", 30.0, 41.0, 17.0)], before, after, {"matmul": (0.0, 39_000.0)})
    assert told.work is not None and told.work.change_ms is None and told.told_ms is None
    (told,) = with_work([part("matmul", 30.0, 41.0, 17.0)], before, after, {"matmul": (0.0, 15_000.0)})
    assert told.told_ms == pytest.approx(15.0)


def updating(folder: Path, sleeps_ms: float) -> Path:
    """Return traces of steps in which rank 1 sleeps before its optimizer's step, whose first operator is `add_`."""
    job = GlooJob()
    for number in range(2, 12):
        job.step(number)
        job.compute(20.0, calls=2)
        job.all_reduce(2.0)
        job.sleep(1, sleeps_ms)
        for rank in range(job.world_size):
            begun = job.now[rank]
            job.now[rank] += 50_000
            job.compute(1.0, "aten::add_", rank)
            job.annotate(rank, "Optimizer.step#Adagrad.step", begun, job.now[rank])
    return job.write(folder)


def test_a_place_before_a_call_is_named_by_it_as_of_a_run_alone(tmp_path: Path) -> None:
    """*Before aten::add_* was told of a sleep that `analyze` finds *before Optimizer.step#Adagrad.step*."""
    calm, asleep = updating(tmp_path / "calm", 0.5), updating(tmp_path / "asleep", 40.0)
    for found in (compare_paths([calm], [asleep]), compare_paths([asleep], [calm])):
        (gap,) = found.gaps
        assert gap.rank == 1 and gap.before == "Optimizer.step#Adagrad.step"
    assert "before Optimizer.step#Adagrad.step" in because(analysed(asleep).findings[0])
