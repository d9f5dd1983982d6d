"""What all ranks' own code has devices do the long way: which kernels that are, by operators and names, and its cost.

tests/data/long_way: two steps of a small tagger on one H200 (benchmarks/own_tagger.py, whose causes the folders are),
cut down to two of its six layers, and to what launches, is launched, is numbered, or tells of float64.
"""

from collections import Counter
from dataclasses import replace as replace_record
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from scalescope import RunAnalysis
from scalescope.hardware.peaks import Peak, find_peak
from scalescope.report.text.findings import because
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.finding.codes import Code
from scalescope.scaling.finding.figures import NONE_WRITTEN
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.finding.order import behind_what_is_launched
from scalescope.scaling.findings.computing.unfused_normalisation import unfused_normalisation
from scalescope.scaling.findings.computing.unfused_optimizer import OF_CALLS, unfused_optimizer, updates_by_hand
from scalescope.scaling.findings.computing.unused_forward import unused_forward
from scalescope.scaling.findings.computing.wider_numbers import double_precision
from scalescope.scaling.rank.records.long_way import NO_LONG_WAY
from scalescope.scaling.rank.records.own_code.by_hand import loops_by_hand
from scalescope.scaling.rank.records.own_code.optimizers import single_operations
from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.replay.build import build_graph
from scalescope.scaling.replay.ranks.side_by_side import lay_side_by_side
from scalescope.scaling.replay.removal import Removal, remove
from scalescope.scaling.trace.kernel_names import converts_to_double, is_in_double
from tests.gloo_traces import analysed
from tests.recorded import DATA, records_of

RECORDED = DATA / "long_way"
CODES: dict[str, Code] = {
    "single": "unfused_optimizer",
    "by_hand": "updates_by_hand",
    "normalised": "unfused_normalisation",
    "double": "double_precision",
    "unused": "unused_forward",
}
DETECTORS = (unfused_optimizer, updates_by_hand, unfused_normalisation, double_precision, unused_forward)


def _record(case: str) -> RankRecord:
    (record,) = records_of(f"long_way/{case}").values()
    return record


def _of(answer: RunAnalysis, case: str) -> list[Finding]:
    return [one for one in answer.findings if one.code == CODES[case]]


def _names(record: RankRecord, rows: list[int]) -> Counter[str]:
    return Counter(record.operator_of(at) for at in rows)


def test_an_optimizer_of_single_operations_is_what_these_launch() -> None:
    record = _record("single")
    ((name, rows),) = record.long_way.single.items()
    assert name == "Optimizer.step#AdamW.step" and len(rows) == 2 * 29 * 8
    assert _names(record, rows)["aten::addcdiv_"] == 2 * 29


def test_a_loop_by_hand_is_told_with_its_parameters() -> None:
    record = _record("by_hand")
    updates = record.long_way.updates
    assert [(one.step, one.parameters, one.roots, one.anew) for one in updates] == [
        (number, 29, True, True) for number in record.steps
    ]
    assert _names(record, list(updates[0].activities))["aten::sqrt"] == 29


def test_written_out_normalisation_is_marked_forwards_and_backwards() -> None:
    """The backward pass runs on a thread of its own there."""
    record = _record("normalised")
    chains = record.long_way.chains
    assert Counter(bool(one.operators) for one in chains) == {True: 2 * 5, False: 2 * 5}
    assert all(len(one.activities) == 8 for one in chains if one.operators)
    assert all(len(one.activities) > 20 for one in chains if not one.operators)
    back = {record.operator_of(at) for one in chains if not one.operators for at in one.activities}
    assert {"VarBackward0", "DivBackward0", "SubBackward0"} <= back
    assert not any("AccumulateGrad" in name or "AddmmBackward" in name for name in back)


def test_kernels_tell_float64_and_operators_types_what_is_converted_from_it() -> None:
    long_way = _record("double").long_way
    norms = 2 * 5
    assert len(long_way.double) == 4 * norms, "two kernels of each norm forwards, and two backwards"
    assert len(long_way.converting) == 8 * norms, "three tensors to float64 and one back, and the other way round"
    record = _record("double")
    to_double = [at for at in long_way.converting if converts_to_double(record.name[at])]
    assert len(to_double) == 4 * norms


@pytest.mark.parametrize(
    ("name", "double"),
    [
        ("void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<double, double, false>(long, double)", True),
        ("void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float, float, false>(long, double)", False),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<double, at::native::MeanOps<double>>>()", True),
        ("void cub::detail::adjacent<512, 1, float, double>(double const*)", False),
        ("void multi_tensor_apply_kernel<Metadata<4>, FusedAdamMathFunctor<float, 4>, float const*, double>()", False),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<double>>(int)", True),
        ("sm90_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize64x64x16", True),
        ("void batch_norm_collect_statistics_kernel<at::native::InvStd, double, double, double, int>(int)", True),
        ("ampere_dgemm_128x64_nn", True),
        ("void implicit_convolve_dgemm<double, 128, 6, 7>(int)", True),
        ("ck::GridwiseBatchedGemmSoftmaxGemm_Xdl_CShuffle<bf16>", False),
        ("void cutlass::GroupedGemm<float>(int)", False),
        ("void gemv2T_kernel_val<int, int, double, double, double, 128>(int)", True),
        ("void splitKreduce_kernel<32, 16, int, float, float>(int)", False),
        ("Cijk_Ailk_Bljk_DB_MT64x64x16", True),
        ("naive_conv_nonpacked_fwd_nchw_double_double_double", True),
    ],
)
def test_of_a_kernel_the_first_of_its_types_tells_what_it_computes_on(name: str, double: bool) -> None:
    assert is_in_double(name) == double


def test_a_branch_whose_casts_another_pass_takes_up_leads_to_no_gradient_all_the_same() -> None:
    """Autocast keeps what it casts of weights: the branch's casts are in the backward pass of what follows it."""
    record = _record("unused")
    assert len(record.unused) == 2 * 46
    first = min(record.start[at] for at in record.unused)
    assert first < record.start[len(record.start) // 2], "in both steps"
    assert not any(_record(case).unused for case in CODES if case != "unused")


@pytest.mark.parametrize("case", [*CODES])
def test_all_of_it_is_told_of_devices(case: str) -> None:
    """*Launching costs at most …* was all that was said."""
    answer = analysed(RECORDED / case)
    (one,) = _of(answer, case)
    assert (one.rank, one.ranks, one.at_most, one.backed) == (None, (), case == "unused", "replay")
    assert one.fraction is not None and 0.05 < one.fraction < 0.5 and (one.low_ms or 0) > 0
    assert "kernels" in because(one) and "operators" not in because(one)
    assert {one.code for one in answer.findings} & {*CODES.values()} == {CODES[case]}


@pytest.mark.parametrize(
    ("case", "headline"),
    [("single", "an unfused optimizer costs"), ("by_hand", "updating by hand costs"),
     ("normalised", "hand-written normalisation costs")],
)  # fmt: skip
def test_what_makes_a_quarter_of_the_launching_is_said_before_that(case: str, headline: str) -> None:
    answer = analysed(RECORDED / case)
    assert [one.code for one in answer.findings[:2]] == [CODES[case], "host_bound"]
    assert headline in run_verdict(answer).headline


def test_launching_leads_where_what_is_known_of_it_is_little() -> None:
    def of(code: Code, ms: float, at_most: bool = False) -> Finding:
        return Finding(code=code, ms=ms, low_ms=0.9 * ms, high_ms=ms, fraction=0.1, backed="replay", at_most=at_most)

    launching, double, copies = of("host_bound", 10.0, at_most=True), of("double_precision", 4.0), of("copies", 2.0)
    assert behind_what_is_launched([launching, copies, double]) == [launching, copies, double], "no part of launching"
    optimizer = of("unfused_optimizer", 3.0)
    assert behind_what_is_launched([launching, copies, optimizer]) == [optimizer, launching, copies]
    assert behind_what_is_launched([copies, launching, optimizer]) == [copies, launching, optimizer]
    stall = replace(of("host_stall", 4.0), rank=1, remedy=Remedy(cure="look_at_host"))
    assert behind_what_is_launched([launching, stall, optimizer]) == [launching, stall, optimizer], "no larger fault's"
    assert behind_what_is_launched([launching, of("unfused_optimizer", 1.0)])[0] == launching


def test_what_is_given_back_of_launching_is_a_share_of_its_own() -> None:
    """A kernel for hundreds of parameters reads and writes nearly as much as many do, and is one launch."""
    graph = build_graph({0: _record("single")})
    work, calls = list(graph.work_ns), list(graph.calls[0])
    own = set(graph.optimizing)
    remove(graph, lay_side_by_side(graph), Removal("unfused", share=0.65, of_calls=OF_CALLS))
    assert own and all(graph.work_ns[at] == pytest.approx(0.35 * work[at]) for at in own)
    short = [
        (one, other) for one, other in zip(graph.calls[0], calls, strict=True)
        if other.launches in own and other.think_ns < 1e5
    ]  # fmt: skip
    assert short and all(one.duration_ns == pytest.approx((1 - OF_CALLS) * other.duration_ns) for one, other in short)


@pytest.mark.parametrize("case", [*CODES])
def test_what_one_of_two_ranks_alone_does_so_is_no_habit_of_all(case: str) -> None:
    def proposed(records: dict[int, RankRecord]) -> list[tuple[Code, int | None]]:
        graph = build_graph(records)
        gains = SimpleNamespace(predict=lambda *_, **__: SimpleNamespace(change_ms=-5.0))
        replayer = SimpleNamespace(on_cpu=False, records=records, graph=graph, predict=gains.predict)
        scene: Any = SimpleNamespace(replayer=replayer, side=lay_side_by_side(graph), step_ms=50.0, peak=None)
        return [(one.code, one.rank) for detect in DETECTORS for one in detect(scene)]

    one, same, other = _record(case), _record(case), _record(case)
    same.rank = other.rank = 1
    other.long_way, other.unused = NO_LONG_WAY, []
    assert proposed({0: one, 1: same}) == [(CODES[case], None)]
    assert not proposed({0: one, 1: other})


def test_a_loop_that_is_one_operator_and_one_that_writes_nothing_are_not_said_to_update() -> None:
    """*Updates 160 parameters … by no optimizer of torch's* was told of gradients that are scaled, copied or logged."""
    (found,) = _of(analysed(RECORDED / "by_hand"), "by_hand")
    assert "the job updates 29 parameters one at a time" in because(found)
    assert "and what its host takes to launch them" in because(found), "its kernels take far less than it costs"
    others = [row for row in found.evidence if row.kind != "operator"]
    scaled = replace(found, evidence=(*others, EvidenceRow(kind="operator", name="aten::mul_", ms=0.1)))
    assert "the job runs aten::mul_ for 29 parameters one at a time" in because(scaled)
    logged = replace(found, evidence=(*found.evidence, EvidenceRow(kind="figure", name=NONE_WRITTEN)))
    assert "the job goes through 29 parameters one at a time" in because(logged)
    assert "optimizer" not in because(scaled) + because(logged)


def test_a_fused_optimizer_beside_which_a_hook_runs_is_fused() -> None:
    record = _record("single")
    hook = host_of(["aten::_foreach_add_", "aten::_fused_adamw_", *["aten::lerp_"] * 20])
    assert not single_operations(hook)
    hook.name[1] = "aten::_foreach_lerp_"
    assert [len(rows) for rows in single_operations(hook).values()] == [22]
    assert record.long_way.single


def host_of(names: list[str]) -> RankRecord:
    """Return a CPU's record of operators that run in a row within one step of AdamW."""
    record = _record("single")
    count = len(names)
    return replace_record(
        record, activity="cpu", count=count, name=names, start=[10 * at for at in range(count)],
        end=[10 * at + 9 for at in range(count)], kind=[COMPUTE] * count, stream=[0] * count,
        step=[record.steps[0]] * count, phases=[(0, 10 * count, "Optimizer.step#AdamW.step")],
    )  # fmt: skip


@pytest.mark.parametrize(("peak", "told"), [(None, True), (find_peak("NVIDIA H200"), False)])
def test_products_in_float64_give_nothing_back_where_the_device_has_as_many_of_them(
    peak: Peak | None, told: bool
) -> None:
    """A workstation's has a thirtieth of them: of a device that nobody knows the interval is wide."""
    record = _record("double")
    record.name = ["ampere_dgemm_128x64_nn" if at in set(record.long_way.double) else name
                   for at, name in enumerate(record.name)]  # fmt: skip
    record.long_way = replace_record(record.long_way, converting=[])
    graph = build_graph({0: record})
    gains = SimpleNamespace(predict=lambda *_, **__: SimpleNamespace(change_ms=-5.0))
    replayer = SimpleNamespace(on_cpu=False, records={0: record}, graph=graph, predict=gains.predict)
    scene: Any = SimpleNamespace(replayer=replayer, side=lay_side_by_side(graph), step_ms=50.0, peak=peak)
    found = list(double_precision(scene))
    assert bool(found) == told
    within = found[0].known_within if found else None
    assert within is None or within == pytest.approx((0.0, 0.97 / 0.5))


def test_what_an_optimizer_around_another_runs_behind_it_is_no_loop_of_the_users_own() -> None:
    names = ["AddmmBackward0", *["torch::autograd::AccumulateGrad"] * 20, "aten::_fused_adamw_"]
    record = host_of([*names, *["aten::sub", "aten::mul", "aten::add_"] * 20])
    around = (205, 10 * len(record.name), "Optimizer.step#Lookahead.step")
    record.phases = [around, (210, 219, "Optimizer.step#AdamW.step")]
    assert not loops_by_hand(record)
    record.phases = record.phases[1:]
    assert [(one.parameters, len(one.activities)) for one in loops_by_hand(record)] == [(20, 60)]
