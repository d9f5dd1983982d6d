"""What all ranks' own code has devices do the long way: which kernels that are, by operators and names, and its cost.

tests/data/long_way: two steps of a small tagger on one H200 (benchmarks/own_tagger.py, whose causes the folders are),
cut down to two of its six layers, and to what launches, is launched, is numbered, or tells of float64.
"""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from scalescope import RunAnalysis
from scalescope.report.text.findings import because
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.finding.codes import Code
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.finding.order import behind_what_is_launched
from scalescope.scaling.findings.computing.double_precision import double_precision
from scalescope.scaling.findings.computing.unfused_normalisation import unfused_normalisation
from scalescope.scaling.findings.computing.unfused_optimizer import OF_CALLS, unfused_optimizer
from scalescope.scaling.findings.computing.unused_forward import unused_forward
from scalescope.scaling.rank.records.long_way import NO_LONG_WAY
from scalescope.scaling.rank.records.record import RankRecord
from scalescope.scaling.replay.build import build_graph
from scalescope.scaling.replay.ranks.side_by_side import lay_side_by_side
from scalescope.scaling.replay.removal import Removal, remove
from scalescope.scaling.trace.kernel_names import converts_to_double, is_in_double
from tests.gloo_traces import analysed
from tests.recorded import DATA, records_of

RECORDED = DATA / "long_way"
CODES: dict[str, Code] = {
    "single": "unfused_optimizer",
    "by_hand": "unfused_optimizer",
    "normalised": "unfused_normalisation",
    "double": "double_precision",
    "unused": "unused_forward",
}
DETECTORS = (unfused_optimizer, unfused_normalisation, double_precision, unused_forward)


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

    launching, little, much = of("host_bound", 10.0, at_most=True), of("double_precision", 2.0), of("copies", 4.0)
    assert behind_what_is_launched([launching, much, little]) == [launching, much, little]
    optimizer = of("unfused_optimizer", 3.0)
    assert behind_what_is_launched([launching, much, optimizer]) == [optimizer, launching, much]
    assert behind_what_is_launched([much, launching, optimizer]) == [much, launching, optimizer]


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
        scene: Any = SimpleNamespace(replayer=replayer, side=lay_side_by_side(graph), step_ms=50.0)
        return [(one.code, one.rank) for detect in DETECTORS for one in detect(scene)]

    one, same, other = _record(case), _record(case), _record(case)
    same.rank = other.rank = 1
    other.long_way, other.unused = NO_LONG_WAY, []
    assert proposed({0: one, 1: same}) == [(CODES[case], None)]
    assert not proposed({0: one, 1: other})
