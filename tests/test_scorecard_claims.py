"""Claims about devices get the verdict that physics and the published record give, each with its arithmetic."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scalescope.cli.front_door import main
from scalescope.collectives.show.published import published_for
from scalescope.hardware.claims.catalog import Catalog, own_catalog, read_claims
from scalescope.hardware.claims.claim import Claim, ClaimSource, JudgedClaim
from scalescope.hardware.claims.quantities import QUANTITIES
from scalescope.hardware.claims.verdicts import judge
from scalescope.hardware.peaks import PEAKS, find_peak
from scalescope.records.errors import UserError
from scalescope.records.scorecard.row import Conditions
from scalescope.train.models.resnet.config import resnet_multiply_adds

CATALOG = own_catalog()
GOLDEN = [
    ("matmul_h100_claim", "impossible", "1,580 TFLOP/s, above 989"),
    ("matmul_mi300x_claim", "implausible", "92.6% of 1,307"),
    ("all_reduce_h100_claim", "impossible", "= 1,591 GB/s, above 700 (reduced inside the switch (NVLS), 2 × 7 ÷ 9"),
    ("all_reduce_mi300x_claim", "impossible", "= 729.2 GB/s, above 448 (full mesh, 7 × 64 GB/s)"),
    ("resnet50_h100_claim", "far_below", "21% of 7,010 (MLPerf"),
    ("resnet50_mi300x_claim", "far_below", "16% of H200's 7,749"),
    ("gpt3_h100_claim", "plausible", "42.5% of 989"),
    ("gpt3_mi300x_claim", "plausible", "23.9% of 1,307"),
    ("rccl_of_nccl_claim", "self_contradictory", "= 46% by the same source, which says 60% to 70%"),
    ("miopen_of_cudnn_claim", "plausible", "= 86% by the same source"),
    ("fp16_h100_sheet_claim", "not_comparable", "989.5 dense; beside MI300X's 1,307 dense: 1.32 × as much there"),
    ("fp8_h100_sheet_claim", "not_comparable", "1,979 dense; beside MI300X's 2,610"),
    ("fp32_mi300x_sheet_claim", "impossible", "655 TFLOP/s, above 163.4"),
    ("per_sm_h100_claim", "impossible", "60 TFLOP/s, above 7.492"),
    ("fp16_70b_h100_claim", "impossible", "× 16 bit = 141.2 GB, above 80 GB"),
    ("fp16_70b_a100_claim", "impossible", "× 16 bit = 141.2 GB, above 80 GB"),
    ("q4_70b_7900xtx_claim", "impossible", "= 42.54 GB, above 24 GB"),
    ("q4_70b_4090_claim", "impossible", "= 42.54 GB, above 24 GB"),
    ("int8_70b_h100_claim", "plausible", "67 sequences at once, which leaves at most 244 tokens"),
    ("int8_70b_a100_claim", "plausible", "36.2% of 4,419 (624 TFLOP/s (INT8: at most 2 × fp16)"),
    ("bound_70b_mi300x_claim", "plausible", "the arithmetic is right"),
    ("bound_70b_h100_claim", "plausible", "gives 23.73 tokens/s: the arithmetic is right; but the weights do not fit"
     " one card: 70.6·10⁹ weights × 16 bit = 141.2 GB, above 80 GB (the memory of H100 SXM)"),
    ("q4_70b_mi300x_claim", "plausible", "16.1% of 124.6"),
    ("fp8_405b_mi300x_claim", "impossible", "405 GB, above 384 GB (the memory of 2 × MI300X)"),
    ("fp8_405b_h100_claim", "impossible", "405 GB, above 240 GB (the memory of 3 × H100 SXM)"),
    ("kv_70b_32k_claim", "implausible", "10.74 GB: 1.86 × too high"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "verdict", "arithmetic"), GOLDEN, ids=[name for name, *_ in GOLDEN])
def test_an_articles_claim_gets_the_verdict_that_physics_gives(name: str, verdict: str, arithmetic: str) -> None:
    judged = judge(CATALOG.claims[name], CATALOG)
    assert judged.verdict == verdict and arithmetic in judged.arithmetic and "\n" not in judged.arithmetic


def test_every_claim_of_ours_has_a_verdict_and_a_source() -> None:
    judged = [judge(claim, CATALOG) for claim in CATALOG.claims.values()]
    assert len(judged) > 100 and all(one.verdict is not None and one.source for one in judged)
    assert all(one.link for one in judged if one.source_kind != "claim")


def test_the_record_and_the_data_sheets_hold_themselves() -> None:
    """A data sheet is its own limit, and what was measured is its own record: neither is ever too much."""
    kinds = {claim.id: CATALOG.source_of(claim).kind for claim in CATALOG.claims.values()}
    told = {judge(claim, CATALOG).verdict for claim in CATALOG.claims.values() if kinds[claim.id] != "claim"}
    assert told <= {"plausible", "far_below"}


DEVICES = [peak.device for peak in PEAKS]


@given(
    quantity=st.sampled_from([name for name in QUANTITIES if name != "ratio"]),
    device=st.sampled_from(DEVICES),
    value=st.floats(1e-3, 1e9),
    conditions=st.builds(
        Conditions, precision=st.sampled_from(["fp32", "tf32", "bf16", "fp16", "fp8", None]), sparse=st.booleans(),
        devices=st.integers(1, 16), bytes=st.integers(1, 1 << 34), batch=st.sampled_from([None, 1, 8]),
        model=st.sampled_from([None, "resnet50", "llama-3-70b"]), bits_per_weight=st.sampled_from([None, 4.0, 16.0]),
        flops_per_sample=st.sampled_from([None, 2.45e10]), context=st.sampled_from([None, 1024]),
        in_switch=st.sampled_from([None, False, True]),
    ),
)  # fmt: skip
def test_above_the_limit_is_never_plausible(quantity: str, device: str, value: float, conditions: Conditions) -> None:
    assume(quantity != "all_reduce_time" or conditions.devices > 1)
    claim = Claim("one", "here", quantity, value, device, conditions=conditions)
    catalog = CATALOG.with_more({"here": ClaimSource("somebody", "claim")}, [claim])
    judged = judge(claim, catalog)
    reading = QUANTITIES[quantity].reading(claim)
    if judged.limit is not None and reading.value > judged.limit:
        assert judged.verdict in ("impossible", "not_comparable")
    peak = find_peak(device)
    if judged.verdict == "plausible" and peak is not None:
        assert judged.limit is not None or judged.best is not None or QUANTITIES[quantity].formula(claim, peak)


@given(st.sampled_from([claim for claim in CATALOG.claims.values() if claim.quantity != "ratio"]))
def test_a_figure_that_nobody_gives_gets_no_verdict(claim: Claim) -> None:
    with pytest.raises(UserError, match="there is no source"):
        judge(claim, Catalog({}, CATALOG.claims))


def test_claims_of_ones_own_stand_beside_ours(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "sources: {blog: {title: A blog, link: https://example.org, kind: claim}}\n"
        "figures:\n  - {id: mine, source: blog, device: H200, quantity: memory_bandwidth, value: 5.5}\n"
    )
    catalog = read_claims(file, CATALOG)
    assert judge(catalog.claims["mine"], catalog).verdict == "impossible"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("figures: [{id: a, source: nobody, quantity: matmul, value: 1}]", "there is no source 'nobody'"),
        (
            "sources: {b: {title: t, kind: claim}}\nfigures: [{id: a, source: b, quantity: speed, value: 1}]",
            "no quantity",
        ),
        (
            "sources: {b: {title: t, kind: claim}}\nfigures: [{id: a, source: b, quantity: matmul, value: -1}]",
            "above 0",
        ),
        (
            "sources: {b: {title: t, kind: measured}}\nfigures: [{id: a, source: b, quantity: all_reduce_time, "
            "value: 1, conditions: {devices: 8}}]",
            "give its conditions `bytes`",
        ),
        (
            "sources: {b: {title: t, kind: claim}}\nfigures: [{id: a, source: b, quantity: all_reduce_time, value: 1, "
            "conditions: {bytes: 8}}]",
            "`devices` of 2 or more",
        ),
        (
            "sources: {b: {title: t, kind: claim}}\nfigures: [{id: a, source: b, quantity: matmul, value: .inf}]",
            "above 0",
        ),
        ("sources: {b: {title: t, kind: rumour}}", "rumour"),
        ("figures: [{id: a, sourc: b}]", "sourc"),
        ("figures: [{id: a, source: b, quantity: weights, value: 1, conditions: {devices: 0}}]", "devices"),
        ("figures: ${oc.env:HOME}", "resolve"),
    ],
)
def test_a_file_of_claims_that_is_wrong_says_what_and_where(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(UserError, match=says) as raised:
        read_claims(file, CATALOG)
    assert str(file) in str(raised.value)


def test_a_model_has_as_many_flops_in_claims_as_in_training() -> None:
    told = CATALOG.claims["resnet50_h100_claim"].conditions.flops_per_sample
    assert told == pytest.approx(3 * 2 * resnet_multiply_adds(224, 1000), rel=0.01)


def test_a_sweep_is_told_the_same_record() -> None:
    known = published_for("NVIDIA H200", "all_reduce", 4)
    assert known is not None and known.bus_gb_s == 362.5 and "nccl-tests" in known.source
    with_switch = published_for("NVIDIA H100 80GB HBM3", "all_reduce", 8)
    assert with_switch is not None and with_switch.bus_gb_s == 367.0
    assert published_for("NVIDIA H200", "broadcast", 4) is None and published_for("NVIDIA L4", "all_reduce", 2) is None


def test_without_rows_the_claims_are_printed_with_their_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scorecard", "rows=[]", "devices=[mi300x]"]) == 0
    printed = capsys.readouterr().out
    assert "self-contradictory" not in printed and "implausible" in printed and "1,210 TFLOP/s" in printed


def test_claims_come_as_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scorecard", "rows=[]", "--json"]) == 0
    told = {one["id"]: one for one in json.loads(capsys.readouterr().out)}
    one = told["matmul_h100_claim"]
    assert (one["device"], one["value"], one["unit"], one["limit"]) == ("H100 SXM", 1580, "TFLOP/s", 989)
    assert one["verdict"] == "impossible" and one["arithmetic"] and one["source"]


def test_fp8_beside_fp16_is_not_comparable() -> None:
    claim = Claim("one", "here", "matmul", 1500, "H100 SXM", conditions=Conditions(precision="fp8"),
                  beside="matmul_mi300x_claim")  # fmt: skip
    judged = judge(claim, CATALOG.with_more({"here": ClaimSource("somebody", "claim")}, [claim]))
    assert (judged.verdict, judged.arithmetic) == ("not_comparable", "precision fp8 here, fp16 beside it")


def judged_70b(quantity: str, value: float, device: str, **conditions: object) -> JudgedClaim:
    of = msgspec.structs.replace(Conditions(model="llama-3-70b", bits_per_weight=16), **conditions)
    claim = Claim("one", "here", quantity, value, device, conditions=of)
    return judge(claim, CATALOG.with_more({"here": ClaimSource("somebody", "claim")}, [claim]))


@pytest.mark.parametrize(
    ("gb", "verdict"), [(35, "far_below"), (100, "implausible"), (140, "plausible"), (180, "implausible")]
)
def test_weights_are_held_against_parameters_and_bits(gb: float, verdict: str) -> None:
    judged = judged_70b("weights", gb, "MI300X")
    assert judged.verdict == verdict and "70.6·10⁹ weights × 16 bit gives 141.2 GB" in judged.arithmetic


def test_a_batch_shares_the_pass_over_the_weights_and_no_more() -> None:
    alone, two, many = (judged_70b("decode", 10, "MI300X", batch=batch) for batch in (1, 2, 100_000))
    assert alone.limit is not None and two.limit == pytest.approx(2 * alone.limit)
    assert many.limit is not None and many.limit_assumes is not None and "1,307 TFLOP/s (fp16)" in many.limit_assumes
    cached = judged_70b("decode", 10, "MI300X", batch=8, context=4096)
    weights, cache = 141.2, 8 * 4096 * 2 * 80 * 8 * 128 * 2 / 1e9
    assert cached.limit == pytest.approx(8 * 5300 / (weights + cache))


def test_the_bound_of_one_sequence_needs_no_batch() -> None:
    assert judged_70b("decode_bound", 37.5, "MI300X").verdict == "plausible"
