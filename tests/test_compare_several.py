"""Every cause that one side of a comparison has for sure is told, largest first, and not one of several."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from scalescope.cli import front_door
from scalescope.report.compare.lead import beside_lead
from scalescope.report.compare.markdown import summary
from scalescope.report.compare.page import comparison_page
from scalescope.report.compare.sentences import headline, verdict_sentences
from scalescope.report.text.reference import gone_clause
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze_against, analyze_alone
from scalescope.scaling.compare.alone import causes_come
from scalescope.scaling.compare.answer import Comparison, CountedWork, FoundAlone, PartChange
from scalescope.scaling.finding.codes import Code
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from tests.gloo_traces import GlooJob, in_steps
from tests.test_compare_alone import compared
from tests.test_compare_sure import stall

NOTHING = [Finding(code="nothing", ms=None, low_ms=None, high_ms=None, backed="replay", remedy=None)]


def job(folder: Path, behind: Callable[[GlooJob], None] = lambda _: None) -> Path:
    """Return the traces of two ranks that do something behind each of their steps."""

    def of_step(one: GlooJob) -> None:
        one.compute(60.0, calls=20)
        one.all_reduce(2.0)
        behind(one)

    return in_steps(folder, range(2, 8), of_step)


def with_metrics(one: GlooJob) -> None:
    one.meet("barrier", 0.2)
    one.gather_objects(0.3, 0.4)


def cause(code: Code, ms: float, *rows: EvidenceRow) -> Finding:
    return Finding(code=code, ms=ms, low_ms=0.8 * ms, high_ms=1.2 * ms, backed="replay", remedy=None, evidence=rows)


def needless(ms: float) -> Finding:
    return cause(
        "needless_collectives",
        ms,
        EvidenceRow(kind="figure", name="barriers", calls=1.0, ms=2.0),
        EvidenceRow(kind="figure", name="collective_of_objects all_gather_object", calls=1.0, ms=ms),
    )


READS = cause("element_reads", 6.0, EvidenceRow(kind="operator", name="aten::item", calls=675.0))


@pytest.fixture
def both(tmp_path: Path) -> Comparison:
    """Return a comparison of a run with one whose steps have needless collectives and values read one by one."""
    sides = [job(tmp_path / "none")], [job(tmp_path / "both", with_metrics)]
    return compared(sides, {"none": NOTHING, "both": [needless(7.6), READS]})


def test_causes_are_told_largest_first_and_the_others_beside_the_first(both: Comparison) -> None:
    """Of needless collectives, 7.6 ms, and values read one by one, 6.0 ms, the smaller was named alone."""
    assert [(one.side, one.finding.code) for one in both.alone] == [
        ("other", "needless_collectives"),
        ("other", "element_reads"),
    ]
    first, *more = verdict_sentences(both)
    assert first.startswith("In “both”, and not in “none”, needless collectives cost a step 7.6 ms (")
    beside = "Beside it, in “both” alone too, reading one by one costs 6.0 ms (4.8 ms to 7.2 ms)."
    found = "Found in “both” alone: reading one by one: 6.0 ms ("
    assert beside in more
    assert all(one in summary(both) for one in (beside, found)), "in markdown alike"
    said = [f"{card.verdict.headline} {' '.join(card.verdict.sentences)}" for card in comparison_page(both).cards]
    assert any(beside in one and found in one for one in said), "and on the page"


def test_one_run_s_causes_stand_in_the_order_that_it_has_them_by_itself(both: Comparison, tmp_path: Path) -> None:
    """By itself a run began with one cause, and beside another run with another, which was not the dearer one there."""
    paths = [tmp_path / "calm"], [tmp_path / "two"]
    sides = [job(paths[0][0])], [job(paths[1][0], with_metrics)]
    first = compared(sides, {"calm": NOTHING, "two": [READS, needless(7.6)]})
    assert [one.finding.code for one in first.alone] == ["element_reads", "needless_collectives"]
    whose = compared(sides, {"calm": [cause("copies", 7.0), cause("recompilation", 5.0)], "two": [READS]})
    told = [(one.side, one.finding.code) for one in whose.alone if one.finding.code != "copies"]
    assert told == [("other", "element_reads"), ("baseline", "recompilation")], "of both sides the dearer one's first"


def test_what_is_counted_and_takes_longer_than_the_first_cause_does_not_stand_below_it(both: Comparison) -> None:
    """*Needless collectives cost 7.6 ms* came first, and below it elementwise operators of 15.1 ms a step besides."""
    counted = CountedWork(baseline_calls=17, other_calls=43, change_ms=15.1, low_ms=9.0, high_ms=21.0)
    part = PartChange(name="elementwise and reductions", change_ms=13.0, low_ms=-3.0, high_ms=29.0, baseline_ms=5.0,
                      other_ms=18.0, work=counted)  # fmt: skip
    answer = msgspec.structs.replace(both, parts=[part])
    first, then, *_ = verdict_sentences(answer)
    assert "elementwise and reductions 43 calls a step for 17 (+15.1 ms)" in first
    assert then.startswith("In “both”, and not in “none”, needless collectives cost")
    less = msgspec.structs.replace(counted, change_ms=5.1, low_ms=3.0, high_ms=8.0)
    answer.parts = [msgspec.structs.replace(part, work=less)]
    first, *more = verdict_sentences(answer)
    assert first.startswith("In “both”, and not in “none”, needless") and any("43 calls" in one for one in more)


def test_three_at_most_stand_beside_the_first_and_all_in_the_list(both: Comparison) -> None:
    more: list[FoundAlone] = [
        FoundAlone(side="other", finding=cause("data_loading", 5.0)),
        FoundAlone(side="baseline", finding=cause("copies", 4.0)),
        FoundAlone(side="other", finding=cause("recompilation", 3.0)),
    ]
    several = msgspec.structs.replace(both, alone=[*both.alone, *more])
    assert [one.finding.code for one in beside_lead(several)] == ["element_reads", "data_loading", "copies"]
    told = verdict_sentences(several)
    assert (
        "Beside it, in “both” alone too, reading one by one costs 6.0 ms (4.8 ms to 7.2 ms) and loading data" in told[2]
    )
    assert told[3].startswith("In “none”, and not in “both”, exposed copies cost 4.0 ms")
    assert (
        summary(several).count("Found in “both” alone: ") == 3
        and summary(several).count("Found in “none” alone: ") == 1
    )


def test_the_whole_step_is_told_without_the_first_of_several_causes(both: Comparison) -> None:
    """*Of which all else made +38 ms* stood behind two causes, of which the second is in these 38 ms."""
    longer = msgspec.structs.replace(both, change_ms=46.0, low_ms=-29.0, high_ms=97.0)
    assert "of which all but the first cause made +38 ms" in " ".join(verdict_sentences(longer))
    only = msgspec.structs.replace(longer, alone=longer.alone[:1])
    assert "of which all else made +38 ms" in " ".join(verdict_sentences(only))


def test_a_part_that_a_further_cause_makes_is_not_told_beside_it(both: Comparison) -> None:
    counted = CountedWork(baseline_calls=1, other_calls=70, change_ms=9.0, low_ms=5.0, high_ms=13.0)
    part = PartChange(name="optimiser", change_ms=9.0, low_ms=-9.0, high_ms=27.0, baseline_ms=1.0, other_ms=10.0,
                      rank=1, work=counted)  # fmt: skip
    adam = msgspec.structs.replace(both.alone[1], finding=cause("unfused_optimizer", 7.0))
    several = msgspec.structs.replace(both, parts=[part])
    assert "optimiser 70 calls a step for 1" in " ".join(verdict_sentences(several))
    several.alone = [both.alone[0], adam]
    assert "optimiser 70 calls" not in " ".join(verdict_sentences(several))
    far = msgspec.structs.replace(counted, change_ms=40.0, low_ms=30.0, high_ms=50.0)
    several.parts = [msgspec.structs.replace(part, work=far)]
    told = " ".join(verdict_sentences(several))
    assert "optimiser 70 calls a step for 1" in told, "which costs far more than that cause"


def test_collectives_that_both_sides_make_are_needless_on_neither_alone(tmp_path: Path) -> None:
    """They are counted: whether a machine without free cores makes them dear is no matter of whose they are."""

    def with_more_sums(one: GlooJob) -> None:
        with_metrics(one)
        for _ in range(4):
            one.all_reduce(0.3)

    without, metrics, more = (
        job(tmp_path / name, behind)
        for name, behind in (("none", lambda _: None), ("both", with_metrics), ("more", with_more_sums))
    )
    (found,) = compared(([metrics], [without]), {"none": NOTHING, "both": [needless(7.6)]}).alone
    assert (found.side, found.finding.code) == ("baseline", "needless_collectives")
    alike = {"both": NOTHING, "more": [needless(7.6)]}
    assert compared(([metrics], [more]), alike).alone == [], "of each operation, and not of sums"


def test_a_reference_without_needless_collectives_is_said_to_have_none(tmp_path: Path) -> None:
    found = analyze_against(job(tmp_path / "both", with_metrics), [job(tmp_path / "none")])
    assert found.findings[0].code == "needless_collectives" and found.findings[0].reference_ms == 0.0
    back = analyze_against(job(tmp_path / "again"), [job(tmp_path / "there", with_metrics)])
    assert [one.code for one in back.lost[0].gone] == ["needless_collectives"]
    gone = [cause("unfused_optimizer", 31.0), needless(8.7)]
    back.lost = [msgspec.structs.replace(one, gone=[*gone, READS]) for one in back.lost]
    assert "reading one by one costs a step 6.0 ms" in gone_clause(back), "all three, as a comparison names them"


def test_a_trifle_of_a_host_is_no_cause_that_a_reference_has_not(tmp_path: Path) -> None:
    """*Rank 0 costs 0.1 ms; there is no such cause in B* began an analysis where a comparison names nobody for that."""
    found = analyze_against(job(tmp_path / "both", with_metrics), [job(tmp_path / "none")])
    bound = msgspec.structs.replace(cause("host_bound", 5.0), at_most=True, reference_ms=5.0)
    stalls = msgspec.structs.replace(stall(0, 0.1), reference_ms=0.0)
    for ms, leads in ((0.1, False), (12.0, True)):
        found.findings = [bound, msgspec.structs.replace(stalls, ms=ms, low_ms=0.9 * ms, high_ms=1.1 * ms)]
        assert [one.code for one in causes_come(found)] == ["host_stall"] * leads


@pytest.mark.parametrize(("besides", "is_gone"), [(3, True), (30, False)])
def test_own_code_is_gone_though_some_steps_compute_more(besides: int, is_gone: bool, tmp_path: Path) -> None:
    """Of 69 optimizer calls that were gone nothing was told, as figures were averaged in each 10th step."""

    def made(folder: Path, calls: int, more: int) -> Path:
        one = GlooJob()
        for number in range(2, 8):
            one.step(number)
            one.compute(60.0, calls=20)
            one.compute(4.0, "aten::mul", calls=calls)
            if number == 4 and more:
                one.compute(0.3, "aten::mul", calls=more)
            one.all_reduce(2.0)
        return one.write(folder)

    by_single, at_once = made(tmp_path / "single", 50, 0), made(tmp_path / "fused", 8, besides)
    adam = msgspec.structs.replace(
        cause("unfused_optimizer", 20.0, EvidenceRow(kind="annotation", name="AdamW.step", calls=40.0, ms=30.0)),
        remedy=Remedy(cure="fuse_optimizer"), fraction=0.3,
    )  # fmt: skip
    alone = compared(([by_single], [at_once]), {"single": [adam], "fused": NOTHING}).alone
    assert [one.finding.code for one in alone] == ["unfused_optimizer"] * is_gone


def test_the_terminal_and_json_have_them_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def behind(one: GlooJob) -> None:
        with_metrics(one)
        one.sleep(1, 4.0)

    sides = job(tmp_path / "none"), job(tmp_path / "both", behind)
    out = tmp_path / "out.json"
    assert front_door.main(["compare", *map(str, sides), "--json", str(out)]) == 0
    told = msgspec.json.decode(out.read_bytes(), type=Comparison)
    assert {"needless_collectives", "host_stall"} == {one.finding.code for one in told.alone}
    assert "needless collectives" in capsys.readouterr().out


def test_what_evening_out_brings_stands_beside_what_a_rank_with_more_to_do_costs(tmp_path: Path) -> None:
    """*In A, and not in B, rank 1 costs a step 53.1 ms* was told where the advice of A itself brings 26.6."""
    even = Remedy(cure="even_out", size=2)
    work = msgspec.structs.replace(cause("more_work", 12.0), rank=1, remedy=even, fraction=0.2)
    brings = "evening out the ranks' load brings 6.0 ms"

    def late(one: GlooJob) -> None:
        one.compute(12.0, rank=1, calls=4)

    calm, more = job(tmp_path / "calm"), job(tmp_path / "more", late)
    found = compared(([calm], [more]), {"calm": NOTHING, "more": [work]})
    costs = f"rank 1 costs a step 12.0 ms (9.6 ms to 14.4 ms; {brings})"
    assert verdict_sentences(found)[0].startswith(f"In “more”, and not in “calm”, {costs}")
    larger = msgspec.structs.replace(found.alone[0], finding=cause("element_reads", 13.0))
    two = msgspec.structs.replace(found, alone=[larger, *found.alone])
    listed = f"rank 1, more work, costs 12.0 ms (9.6 ms to 14.4 ms; {brings})"
    assert any(one.startswith("Beside it, ") and listed in one for one in verdict_sentences(two))
    sure = msgspec.structs.replace(found, verdict="slower", change_ms=12.0, low_ms=10.0, high_ms=14.0)
    assert f"in it alone rank 1, more work, costs 12.0 ms (9.6 ms to 14.4 ms; {brings})" in headline(sure)
    run = analyze_against(more, [calm])
    run.findings = [msgspec.structs.replace(work, reference_ms=0.0)]
    assert f"rank 1 costs 12.0 ms (9.6 ms to 14.4 ms; {brings}) of the 74.1 ms step" in run_verdict(run).headline
    back = analyze_against(calm, [more])
    back.lost = [msgspec.structs.replace(one, gone=[work]) for one in back.lost]
    assert f"in “more”, and not in “calm”, {costs}" in gone_clause(back)
    alone = analyze_alone(more)
    alone.findings = [work]
    assert brings not in run_verdict(alone).headline, "which its advice says right behind it"
