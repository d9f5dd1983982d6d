"""Normalisation that is written out in single operators, on CPUs: which ones are such, and what built-in ones give.

tests/data/normalised: a small convolutional network on two ranks, by tests/normalised_job.py.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from scalescope import RunAnalysis
from scalescope.report.text.cures.words import cure_elsewhere, cure_text
from scalescope.report.text.findings import because
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze_against, analyze_alone
from scalescope.scaling.answer_rows import SurePart
from scalescope.scaling.compare.compare import compare_paths
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.findings.computing.unfused_normalisation import GIVEN_BACK, GIVEN_BACK_HIGH, GIVEN_BACK_LOW
from scalescope.scaling.trace.kernel_kinds import ELEMENTWISE, NORMALISATION
from tests.gloo_traces import GlooJob, analysed

RECORDED = Path(__file__).parent / "data" / "normalised"
#: A normalisation's operators, and the nodes of its backward pass.
CHAIN = ("mean", "sub", "mul", "mean", "add", "sqrt", "div", "reshape", "mul", "add")
NODES = ("Add", "Mul", "View", "Div", "Sqrt", "Add", "Mean", "Mul", "Sub", "Mean")
#: What runs behind the node that scales by a weight.
OF_WEIGHTS = ("aten::sum", "torch::autograd::AccumulateGrad")


def _of(answer: RunAnalysis) -> list[Finding]:
    return [one for one in answer.findings if one.code == "unfused_normalisation"]


@pytest.mark.parametrize(
    ("case", "times", "operators", "named"),
    [
        ("group", 4, 9, "aten::mul"),  # GroupNorm by means of squares
        ("layer", 4, 7, "aten::std"),  # LayerNorm by a deviation
        ("fused", 4, 6, "aten::var_mean"),  # … by var_mean, clamped, and addcmul
        ("batch", 4, 14, "aten::sub"),  # BatchNorm, that averages its statistics in between
        ("unscaled", 4, 6, "aten::var"),  # LayerNorm without a weight and a bias
        ("modulated", 4, 7, "aten::var"),  # … with a scale and a shift of another layer's
        ("again", 8, 9, "aten::mul"),  # GroupNorm, whose forward pass runs once more in the backward pass
    ],
)
def test_normalisation_in_single_operators_leads_with_what_a_built_in_one_gives_back(
    case: str, times: int, operators: int, named: str
) -> None:
    """Of a 188 ms step 44.6 went there, and *an unfused optimizer costs 7.1 ms* was all that was said; of these steps
    of 130 to 190 ms it was that nothing is wrong.
    """
    answer = analysed(RECORDED / case)
    (one,) = _of(answer)
    assert answer.findings[0] is one and "hand-written normalisation costs" in run_verdict(answer).headline
    assert (one.rank, one.ranks, one.at_most, one.backed) == (None, (), False, "replay")
    assert one.ms is not None and one.fraction is not None and 0.25 < one.fraction < 0.6
    assert one.low_ms is not None and one.high_ms is not None and 0 < one.low_ms < one.ms < one.high_ms
    assert f"{times} times a step it runs {operators} operators in a row" in because(one) and named in because(one)
    assert one.remedy is not None and "built-in normalisation" in cure_text(one.remedy)
    assert "nn.GroupNorm, nn.LayerNorm" in cure_elsewhere(one.remedy)


@pytest.mark.parametrize(
    "case",
    [
        "built_in",
        "root",  # RMSNorm: on CPUs the built-in one is as many operators
        "exchanged",  # a batch norm of all ranks, whose statistics are reduced in between
        "pearson",  # correlations of several outputs, in a loss
        "masked",  # what masks leave of them, likewise
        "standardised",  # outputs and targets, by themselves, likewise
        "weights",  # standardised weights of convolutions
        "others",  # batches, a loss, a metric, a softmax, clipping, Adam and averages of weights, by hand
    ],
)
def test_what_is_built_in_or_no_normalisation_of_a_networks_is_not_told(case: str) -> None:
    assert not _of(analysed(RECORDED / case))


def test_it_is_named_where_one_side_of_a_comparison_alone_has_it() -> None:
    told = compare_paths([RECORDED / "built_in"], [RECORDED / "group"], analysis_of=analyze_alone)
    assert [(one.side, one.finding.code) for one in told.alone] == [("other", "unfused_normalisation")]


def test_its_operators_are_normalisation_wherever_kinds_are_told() -> None:
    """*4.09 ms more normalisation* of a run without hand-written norms: these were elementwise, the built-in one's not.

    By kind `compare` had +27.7 ms and −3.9 ms of one cause.
    """
    told = compare_paths([RECORDED / "group"], [RECORDED / "built_in"])
    parts = {one.name: one for one in told.parts}
    changed = parts[NORMALISATION]
    assert not changed.within_noise and changed.change_ms < -30 and changed.work is not None
    assert changed.work.baseline_calls > 100 and changed.work.other_calls == 8
    assert changed.work.change_ms == pytest.approx(changed.change_ms, rel=0.2)
    assert parts[ELEMENTWISE].within_noise and abs(parts[ELEMENTWISE].change_ms) < 5
    answer = analysed(RECORDED / "group")
    takes = next(row.ms for row in _of(answer)[0].evidence if row.ms is not None)
    assert answer.as_run is not None
    for rows in (answer.kinds, answer.as_run.kinds):
        (row,) = (one for one in rows if one.kind == NORMALISATION)
        assert row.calls > 100 and row.ms == pytest.approx(takes, rel=0.15)
    assert "aten::mean" in [one.name for one in answer.kernels if one.kind == NORMALISATION]


def test_that_it_is_gone_is_said_of_a_run_beside_one_that_has_it() -> None:
    shorter = analyze_against(RECORDED / "built_in", [RECORDED / "group"])
    assert [one.code for one in shorter.lost[0].gone] == ["unfused_normalisation"]
    told = run_verdict(shorter)
    assert told.sentences[0].startswith("In “group”, and not in “built_in”, hand-written normalisation costs a step 52")
    less = SurePart(part=NORMALISATION, change_ms=-53.0, low_ms=-60.0, high_ms=-40.0)
    unsure = [replace(one, step_low_ms=-90.0, step_high_ms=20.0, sure_parts=[less]) for one in shorter.lost]
    first = run_verdict(replace(shorter, lost=unsure)).headline
    words = "built_in · 2 CPU ranks: in “group”, and not in “built_in”, hand-written normalisation costs "
    assert first.startswith(words) and "less normalisation" not in first
    assert "; a step cannot be told in length from “group”'s, within noise" in first
    assert not analyze_against(RECORDED / "built_in", [RECORDED / "built_in"]).lost[0].gone
    longer = analyze_against(RECORDED / "group", [RECORDED / "built_in"])
    assert not longer.lost[0].gone


def _job(
    folder: Path,
    *,
    ms: float = 30.0,
    ranks: Sequence[int] = (0, 1),
    places: int = 5,
    operators: Sequence[str] = CHAIN,
    nodes: Sequence[str] = NODES,
    of_weights: Sequence[str] = OF_WEIGHTS,
    reduced: bool = False,
    stands_ms: float = 0.0,
) -> RunAnalysis:
    """Ranks compute for 40 ms and normalise for so long, as often; rank 1 stands still, where that is told."""
    job = GlooJob()
    each = ms / places / (len(operators) + len(NODES))
    for step in range(8):
        job.step(3 + step)
        for rank in (0, 1):
            for _ in range(places):
                job.compute(4.0, "aten::conv2d", rank)
                for at, name in enumerate(operators if rank in ranks else ()):
                    job.compute(each, f"aten::{name}", rank)
                    if reduced and at == 0:
                        job.compute(0.01, "aten::relu", rank)
        job.sleep(1, stands_ms)
        job.compute(2.0, "aten::sum")
        for rank in (0, 1):
            for _ in range(places):
                for at, name in enumerate(nodes if rank in ranks else ()):
                    job.compute(each, f"{name}Backward0", rank)
                    for of_weight in of_weights if at == 0 else ():
                        job.compute(0.001, of_weight, rank)
                job.compute(4.0, "ConvolutionBackward0", rank)
        job.all_reduce(2.0)
        job.compute(2.0, "aten::_foreach_add_")
    return analysed(job.write(folder))


def test_of_which_most_is_still_there_it_is_not_gone(tmp_path: Path) -> None:
    """Of four hand-written norms two were mended, and *in hand, and not in hand_half, …* was said: two are not told."""
    whole = tmp_path / "whole"
    _job(whole)
    _job(tmp_path / "few", places=2)
    _job(tmp_path / "one_rank", ranks=(0,))
    _job(tmp_path / "none", ranks=())
    gone = {name: [one.code for one in analyze_against(tmp_path / name, [whole]).lost[0].gone]
            for name in ("few", "one_rank", "none")}  # fmt: skip
    assert gone == {"few": [], "one_rank": [], "none": ["unfused_normalisation"]}
    told = compare_paths([whole], [tmp_path / "few"], analysis_of=analyze_alone)
    assert not any(one.finding.code == "unfused_normalisation" for one in told.alone)


def test_it_costs_what_was_measured_of_built_in_ones_forwards_and_backwards(tmp_path: Path) -> None:
    (one,) = _of(_job(tmp_path))
    whole = 30.0 + 5 * 2 * len(CHAIN) * 0.002
    assert one.ms == pytest.approx(GIVEN_BACK * whole, rel=0.02)
    assert one.low_ms is not None and one.low_ms == pytest.approx(GIVEN_BACK_LOW * whole, rel=0.1)
    assert one.high_ms is not None and one.high_ms == pytest.approx(GIVEN_BACK_HIGH * whole, rel=0.1)
    assert "5 times a step it runs 9 operators in a row" in because(one)
    assert "30.0 ms of a profiled step with the backward pass" in because(one)


@pytest.mark.parametrize(
    "operators",
    [
        "sum div sub pow sum div sub add sqrt div mul add",  # by sums over a number
        "mul mean mean mul sub clamp sub add rsqrt mul mul add",  # by a mean of squares, less the square of a mean
        "mean sub pow mean sub add sqrt div mul unsqueeze add",  # of channels before the others, as ConvNeXt's
        "mean var sub add pow mul mul add",  # by a power
        "var add sqrt mean sub div mul add",  # by the root of a variance, first
        "mean var sub add sqrt reciprocal mul",  # times one over the root, without a scale
        "mean std sub div mul add",  # by a deviation, with nothing added
        "std_mean sub clamp div to mul add",  # … by both at once, clamped, in another precision
    ],
)
def test_each_way_of_writing_it_is_known(operators: str, tmp_path: Path) -> None:
    names = operators.split()
    nodes = [name.title().replace("_", "") for name in reversed(names)]
    (one,) = _of(_job(tmp_path, operators=names, nodes=nodes))
    assert one.ms is not None and one.ms > 0.6 * GIVEN_BACK * 30.0 * 2 * len(names) / (len(names) + len(NODES))


def test_what_is_short_rare_not_differentiated_in_another_order_or_of_one_rank_is_not_told(tmp_path: Path) -> None:
    assert not _of(_job(tmp_path / "short", ms=1.0))
    assert not _of(_job(tmp_path / "rare", places=2))
    assert not _of(_job(tmp_path / "not_differentiated", nodes=()))
    assert not _of(_job(tmp_path / "in_another_order", nodes=NODES[::-1]))
    assert not _of(_job(tmp_path / "not_in_a_row", reduced=True))
    centred, back = ("mean", "sub", "mul", "add", "pow", "mul"), ("Mul", "Pow", "Add", "Mul", "Sub", "Mean")
    assert not _of(_job(tmp_path / "centred", operators=centred, nodes=back))  # a polynomial of it
    assert not _of(_job(tmp_path / "one_rank", ranks=(1,)))


def test_without_a_weight_that_learns_it_goes_on_into_layers_and_divides_many_values(tmp_path: Path) -> None:
    """Correlations of a loss's outputs, and outputs that are standardised in it, were told as normalisation."""
    assert _of(_job(tmp_path / "layers", of_weights=("aten::sum",))), "four of five have a layer behind them"
    averaged = (*CHAIN, "pow", "mean")
    assert not _of(_job(tmp_path / "averaged", of_weights=("aten::sum",), operators=averaged))
    assert not _of(_job(tmp_path / "one_by_one", of_weights=OF_WEIGHTS[1:]))
    assert _of(_job(tmp_path / "pooled", operators=averaged)), "its weight learns"


def test_a_rank_that_stands_still_comes_first_and_a_built_in_one_gives_nothing_of_it_back(tmp_path: Path) -> None:
    first, second = _job(tmp_path, stands_ms=12.0).findings[:2]
    assert (first.code, first.rank) == ("host_stall", 1)
    assert second.code == "unfused_normalisation"
    assert second.ms == pytest.approx(GIVEN_BACK * (30.0 + 0.2), rel=0.05)
