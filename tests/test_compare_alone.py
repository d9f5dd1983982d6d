"""A cause that is sure in one of two runs and not in the other is named where the step as a whole is within noise."""

import json
from pathlib import Path

import msgspec
import pytest

from scalescope import api
from scalescope.cli import front_door
from scalescope.report.compare.markdown import summary
from scalescope.report.compare.page import comparison_page
from scalescope.report.compare.sentences import further, headline, verdict_sentences
from scalescope.report.compare.tables import parts_sentence
from scalescope.scaling.analyze import analyze_against, analyze_alone
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import RecurringChange, RecurringSteps
from scalescope.scaling.compare.alone import beside_parts, doing_of
from scalescope.scaling.compare.answer import (
    Comparison,
    CountedWork,
    FoundAlone,
    GapChange,
    LateChange,
    PartChange,
)
from scalescope.scaling.compare.compare import compare_paths
from scalescope.scaling.compare.read import read_side
from scalescope.scaling.finding.codes import Code, Cure
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.verdicts.reference import beside_reference, is_not_in_reference
from tests.gloo_traces import GlooJob, in_steps
from tests.report_samples import run_answer
from tests.test_compare_sure import sleeping, stall
from tests.test_core_waits import BESIDE_OTHERS, BY_ITSELF, rows
from tests.test_core_waits import told as told_waits


def compared(sides: tuple[list[Path], list[Path]], findings: dict[str, list[Finding]]) -> Comparison:
    """Return two sides' comparison, where these are the runs' findings by name."""

    def analysis_of(path: Path) -> RunAnalysis:
        run = msgspec.structs.replace(run_answer(path.name, 2), activity="cpu")
        run.findings = findings[path.name]
        return run

    return compare_paths(*sides, analysis_of=analysis_of)


def test_a_cause_that_one_side_alone_has_is_named_beside_a_step_within_noise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All that was said of a rank that sleeps in each step of one run was that the two cannot be told apart."""
    calm, late = sleeping(tmp_path / "calm", 0.0), sleeping(tmp_path / "late", 4.0)
    out = tmp_path / "out.json"
    assert front_door.main(["compare", str(calm), str(late), "--json", str(out)]) == 0
    (told,) = json.loads(out.read_text())["alone"]
    assert (told["side"], told["finding"]["code"], told["finding"]["rank"]) == ("other", "host_stall", 1)
    assert "Found in" not in capsys.readouterr().out, "what stands still at a place is told by that place, once"
    (gone,) = api.compare(late, calm).alone
    assert (gone.side, gone.finding.code) == ("baseline", "host_stall")
    found = api.compare(calm, late)
    found.gaps = []
    words = "In “late”, and not in “calm”, rank 1 costs a step 4.0 ms (3.8 ms to 4.2 ms)"
    assert headline(found).startswith(words) and "ts host does nothing that" in " ".join(verdict_sentences(found))
    assert "Found in" not in summary(found)
    found.baseline_ms = 3000.0  # a tenth of which noise does not hide
    beside = "the whole step as measured does not tell it apart from noise."
    words = "Found in “late” alone: rank 1, a stalled host: 4.0 ms (3.8 ms to 4.2 ms), 6.0%. Its host does nothing that"
    assert words in summary(found) and beside in summary(found)
    assert any(words in sentence for card in comparison_page(found).cards for sentence in card.verdict.sentences)
    assert "is slower" not in headline(found)


def test_what_a_cause_takes_what_it_costs_and_the_step_s_change_are_told_once_each(tmp_path: Path) -> None:
    """*+18.4 ms*, *16 ms longer*, *+10 ms* and *14.5 ms* stood beside each other of one product that a rank runs."""
    calm, late = sleeping(tmp_path / "calm", 0.0), sleeping(tmp_path / "late", 12.0)
    work = Finding(
        code="own_work", rank=1, ms=14.5, low_ms=13.2, high_ms=15.8, backed="replay", remedy=None,
        evidence=(EvidenceRow(kind="activity", name="aten::mm", ms=18.4, calls=2.0),),
    )  # fmt: skip
    nothing = [Finding(code="nothing", ms=None, low_ms=None, high_ms=None, backed="replay", remedy=None)]
    found = compared(([calm], [late]), {"calm": nothing, "late": [work]})
    assert found.verdict == "same"
    counted = CountedWork(baseline_calls=36, other_calls=38, change_ms=18.4, low_ms=15.0, high_ms=21.8)
    parts = [
        PartChange(name="matmul", change_ms=14.7, low_ms=-23.0, high_ms=52.0, baseline_ms=85.0, other_ms=99.7, rank=1,
                   work=counted),
        PartChange(name="exposed_wait", change_ms=-12.0, low_ms=-20.0, high_ms=-4.0, baseline_ms=13.0, other_ms=1.0,
                   rank=1),
        PartChange(name="idle_data", change_ms=5.0, low_ms=4.0, high_ms=6.0, baseline_ms=1.0, other_ms=6.0, rank=1),
    ]  # fmt: skip
    waits = LateChange(rank=1, change_ms=16.0, low_ms=5.0, high_ms=28.0, baseline_ms=0.0, other_ms=16.0)
    found = msgspec.structs.replace(found, gaps=[], parts=parts, late=waits)
    first, less, besides, whole, *_ = verdict_sentences(found)
    assert first == (
        "In “late”, and not in “calm”, rank 1 costs a step 14.5 ms (13.2 ms to 15.8 ms): aten::mm, 18.4 ms a step, "
        "which the others do not run."
    )
    assert less == "Not all of the 18.4 ms is lost: without it rank 1 would wait for the others."
    assert besides.endswith("a step has 5.0 ms more idle (loading data) than in “calm” (rank 1).")
    assert whole.startswith("The whole step of 62.1 ms changed by +12 ms, of which all else made −2 ms ")
    told = " ".join(verdict_sentences(found))
    assert told.count("within noise") == 1 and "calls a step" not in told and "keeps the others" not in told
    assert "exposed wait" not in told and "Found in" not in summary(found)
    other = msgspec.structs.replace(waits, rank=0)
    assert "rank 0 keeps the others waiting" in " ".join(verdict_sentences(msgspec.structs.replace(found, late=other)))


def test_no_cause_is_named_that_noise_or_the_other_side_may_have_as_well(tmp_path: Path) -> None:
    calm, late, later = (sleeping(tmp_path / name, ms) for name, ms in (("calm", 0.0), ("late", 4.0), ("later", 4.1)))
    nothing = [Finding(code="nothing", ms=None, low_ms=None, high_ms=None, backed="replay", remedy=None)]

    def alone(code: Code, *, at_most: bool = False, low_ms: float = 3.5, there: float | None = None) -> int:
        own = Finding(code=code, rank=1, ms=4.0, low_ms=low_ms, high_ms=4.5, at_most=at_most, backed="replay",
                      remedy=None)  # fmt: skip
        reference = nothing if there is None else [stall(0, there)]
        return len(compared(([calm], [late]), {"calm": reference, "late": [own]}).alone)

    assert alone("host_stall") == 1
    assert alone("host_stall", at_most=True) == alone("host_stall", low_ms=-0.5) == alone("unsteady") == 0
    assert alone("host_stall", there=3.0) == 0, "on whatever rank"
    assert alone("host_starved") == alone("late_bucket") == 0, "on CPUs others on its cores may make these"
    assert alone("unfused_optimizer") == alone("batch_preparation") == 0, "which are told from a share of the step on"
    little = msgspec.structs.replace(stall(1, 0.1), low_ms=0.05, high_ms=0.15)
    assert not compared(([calm], [late]), {"calm": nothing, "late": [little]}).alone, "of a host on shared cores"
    repeats = ([calm], [late, later])
    assert not compared(repeats, {"calm": nothing, "late": [stall(1, 4.0)], "later": nothing}).alone
    assert compared(repeats, {"calm": nothing, "late": [stall(1, 4.0)], "later": [stall(1, 4.1)]}).alone


def test_where_the_step_tells_it_nothing_is_analysed_besides(tmp_path: Path) -> None:
    sides = sleeping(tmp_path / "calm", 0.0), sleeping(tmp_path / "late", 900.0)
    found = compared(([sides[0]], [sides[1]]), {})
    assert found.verdict == "slower" and found.alone == []


def loading(folder: Path, ms: float) -> Path:
    """Return the traces of two ranks that load data in each step."""
    job = GlooJob()
    for number in range(2, 8):
        job.step(number)
        for rank in range(2):
            begun = job.now[rank]
            job.sleep(rank, ms)
            job.annotate(rank, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", begun, job.now[rank])
        job.compute(60.0, calls=20)
        job.all_reduce(2.0)
    return job.write(folder)


def test_loading_that_both_sides_do_is_no_cause_of_one_though_it_is_told_of_one(tmp_path: Path) -> None:
    """*Sure of calm, beside gc: loading data costs a step 0.65 ms* was said of two runs that load the same data."""
    there, here, fast = (loading(tmp_path / name, ms) for name, ms in (("A", 3.0), ("B", 3.0), ("C", 0.2)))
    told = Finding(code="data_loading", ms=2.5, low_ms=2.0, high_ms=3.0, backed="replay", remedy=None)
    nothing = [Finding(code="nothing", ms=None, low_ms=None, high_ms=None, backed="replay", remedy=None)]
    assert compared(([there], [here]), {"A": [told], "B": nothing}).alone == []
    (found,) = compared(([there], [fast]), {"A": [told], "C": nothing}).alone
    assert found.side == "baseline" and found.finding.code == "data_loading"


def test_loading_that_noise_may_have_made_is_no_cause_of_one_side(tmp_path: Path) -> None:
    """*In A, and not in C, loading data costs a step 1.1 ms* was said of two undisturbed runs, of 1.9 ms and 0.6 ms."""
    more, less = loading(tmp_path / "A", 1.9), loading(tmp_path / "C", 0.6)
    told = Finding(code="data_loading", ms=1.1, low_ms=0.44, high_ms=2.8, backed="replay", remedy=None)
    nothing = [Finding(code="nothing", ms=None, low_ms=None, high_ms=None, backed="replay", remedy=None)]
    assert compared(([more], [less]), {"A": [told], "C": nothing}).alone == []
    assert compared(([less], [more]), {"A": [told], "C": nothing}).alone == []


def test_loading_of_which_a_reference_has_some_is_no_cause_that_it_has_not(tmp_path: Path) -> None:
    """*Loading data costs 1.1 ms; there is no such cause in C* was said first, of 1.9 ms and 0.6 ms of one job."""
    (loads,) = (
        one
        for one in analyze_against(loading(tmp_path / "A", 1.9), [loading(tmp_path / "C", 0.4)]).findings
        if one.code == "data_loading"
    )
    assert loads.reference_ms == pytest.approx(0.4, abs=0.1)


def test_exchanges_that_are_counted_on_one_side_alone_come_first(tmp_path: Path) -> None:
    """Of 50 figures exchanged one by one, 14.9 ms (truth 16.3), a comparison began with 1.1 ms of loading."""

    def exchanged(folder: Path, figures: int) -> Path:
        def of_step(job: GlooJob) -> None:
            job.compute(60.0, calls=20)
            for _ in range(2 + figures):
                job.all_reduce(0.3)

        return in_steps(folder, range(2, 8), of_step)

    few, many = exchanged(tmp_path / "few", 0), exchanged(tmp_path / "many", 50)
    rounds = Finding(
        code="small_collectives", ms=14.9, low_ms=7.8, high_ms=20.4, backed="replay", remedy=None,
        evidence=(EvidenceRow(kind="figure", name="collectives", calls=50.0),),
    )  # fmt: skip
    nothing = [Finding(code="nothing", ms=None, low_ms=None, high_ms=None, backed="replay", remedy=None)]
    for sides, side in (((few, many), "other"), ((many, few), "baseline")):
        (found,) = compared(([sides[0]], [sides[1]]), {"few": nothing, "many": [rounds]}).alone
        assert (found.side, found.finding) == (side, msgspec.structs.replace(rounds, reference_ms=0.0))
    again = exchanged(tmp_path / "again", 50)
    assert compared(([again], [many]), {"again": nothing, "many": [rounds]}).alone == [], "as many on both sides"


def test_what_costs_most_is_said_before_a_cause_that_costs_less(tmp_path: Path) -> None:
    """*Loading data costs a step 0.65 ms* came before *every 4th step takes 190.8 ms longer: +48 ms*."""
    told = Finding(code="data_loading", ms=0.65, low_ms=0.6, high_ms=0.7, backed="replay", remedy=None)
    often = RecurringChange(baseline_every=None, other_every=4, baseline_each_ms=0.0, other_each_ms=190.8,
                            change_ms=47.7, low_ms=37.0, high_ms=59.0, differs=True)  # fmt: skip
    wait = PartChange(name="exposed_wait", change_ms=5.0, low_ms=4.0, high_ms=6.0, baseline_ms=2.0, other_ms=7.0)
    answer = Comparison(
        baseline="calm", other="gc", verdict="same", basis="untraced", baseline_ms=56.4, other_ms=54.4, change_ms=-2.0,
        low_ms=-14.9, high_ms=10.8, parts=[wait], recurring=often, alone=[FoundAlone(side="baseline", finding=told)],
    )  # fmt: skip
    assert verdict_sentences(answer)[:2] == [
        "In “gc” every 4th step takes 190.8 ms longer, and in “calm” none does: +48 ms (95%: 37 to 59) "
        "in the mean step.",
        "In “gc” a step has 5.0 ms more exposed wait than in “calm”.",
    ]
    assert "Found in “calm” alone: loading data: 0.65 ms" in summary(answer)
    gap = GapChange(rank=0, before="aten::mm", change_ms=2.0, low_ms=1.5, high_ms=2.5, baseline_ms=0.0, other_ms=2.0)
    assert headline(msgspec.structs.replace(answer, gaps=[gap])).startswith("In “gc” every 4th step")
    dear = msgspec.structs.replace(told, ms=65.0, low_ms=60.0, high_ms=70.0)
    leads = msgspec.structs.replace(answer, alone=[FoundAlone(side="baseline", finding=dear)])
    assert headline(leads).startswith("In “calm”, and not in “gc”, loading data costs a step 65.0 ms")


def test_what_longer_steps_do_is_known_where_every_run_that_has_them_shows_it(tmp_path: Path) -> None:
    calm, gc, again = (sleeping(tmp_path / name, 0.0) for name in ("calm", "gc", "again"))
    often = RecurringChange(baseline_every=None, other_every=4, baseline_each_ms=0.0, other_each_ms=190.8,
                            change_ms=47.7, low_ms=37.0, high_ms=59.0, differs=True)  # fmt: skip
    collecting = Finding(code="host_stall", ms=140.0, low_ms=138.0, high_ms=142.0, backed="replay",
                         remedy=Remedy(cure="collect_less"))  # fmt: skip

    def known(path: Path, doing: dict[str, Finding]) -> RunAnalysis:
        run = run_answer(path.name, 2)
        run.findings = [stall(1, 4.0)]
        run.recurring = RecurringSteps(every=4, phase=0, phases=[0], rank=None, longer_ms=190.8, usual_ms=56.4,
                                       mean_ms=47.7, doing=doing.get(path.name))  # fmt: skip
        return run

    def told(doing: dict[str, Finding], *others: Path) -> Finding | None:
        sides = read_side([calm])[0], read_side(list(others))[0]
        return doing_of(*sides, often, lambda path: known(path, doing))

    assert told({"gc": collecting}, gc) == collecting
    assert told({"calm": collecting}, gc) is None, "which has none of them"
    assert told({"gc": collecting, "again": collecting}, gc, again) == collecting
    assert told({"gc": collecting}, gc, again) is None


def test_longer_steps_that_are_sure_are_no_change_of_the_profiled_steps_alone() -> None:
    """*No part of the job's steps changed for sure* stood below *every 4th step takes 190.8 ms longer: +48 ms*."""
    often = RecurringChange(baseline_every=None, other_every=4, baseline_each_ms=0.0, other_each_ms=190.8,
                            change_ms=47.7, low_ms=37.0, high_ms=59.0, differs=True)  # fmt: skip
    idle = PartChange(name="idle_launch", change_ms=60.0, low_ms=41.0, high_ms=81.0, baseline_ms=3.0, other_ms=63.0)
    rest = PartChange(name="rest", change_ms=-75.0, low_ms=-99.0, high_ms=-40.0, baseline_ms=2.0, other_ms=-73.0)
    answer = Comparison(baseline="calm", other="gc", verdict="same", basis="untraced", baseline_ms=56.4, other_ms=54.4,
                        change_ms=-2.0, low_ms=-14.9, high_ms=10.8, parts=[idle, rest], recurring=often)  # fmt: skip
    assert parts_sentence(answer).startswith(
        "Of the steps between the longer ones no part changed for sure. By the longer steps among the profiled ones "
        "idle (host late) changed."
    )
    unlike = parts_sentence(msgspec.structs.replace(answer, recurring=None))
    assert unlike.startswith("Beyond noise idle (host late) changed"), "nothing else says why"


def test_what_the_longer_side_alone_finds_first_is_named_before_parts_that_tell_little(tmp_path: Path) -> None:
    """Of 48 ms more *idle +9.4* was named, and not that gradients are exchanged in each of 4 backward passes."""
    calm, often = exchanging(tmp_path / "calm", 1), exchanging(tmp_path / "often", 40)
    whole = [bare_transfer("send_less", 7.6)]
    each = [bare_transfer("exchange_once", 30.4)]
    found = compared(([calm], [often]), {"calm": whole, "often": each})
    assert found.verdict == "slower" and [one.finding.code for one in found.alone] == ["exposed_transfer"]
    assert "Exposed transfer costs more in “often”: " in further(found) and "Found in" not in summary(found)
    untraced = msgspec.structs.replace(found, parts=[])
    assert "Exposed transfer costs more in “often”: at most 30.4 ms a step, for at most 7.6 ms in “calm”" in further(
        untraced
    )
    assert "Where it lies is not known" in further(untraced)
    (only,) = found.alone
    sole = msgspec.structs.replace(untraced, alone=[msgspec.structs.replace(only, like_ms=None)])
    assert "Found in “often” alone: exposed transfer: at most 30.4 ms" in further(sole)
    assert summary(sole).count("Found in") == 1, "once"
    back = compared(([often], [calm]), {"calm": whole, "often": each})
    assert back.verdict == "faster" and " more in “often”: " in further(back)
    assert compared(([calm], [often]), {"calm": each, "often": each}).alone == []
    assert compared(([calm], [often]), {"calm": whole, "often": whole}).alone == [], "no fault is found in it"


def bare_transfer(cure: Cure, ms: float) -> Finding:
    passes = (EvidenceRow(kind="figure", name="backward_passes", calls=4.0),) if cure == "exchange_once" else ()
    shown = (
        EvidenceRow(kind="figure", name="exposed_communication", ms=ms, share=0.3),
        EvidenceRow(kind="activity", name="all_reduce", calls=8.0, ms=ms),
    )
    return Finding(code="exposed_transfer", ms=ms, low_ms=0.0, high_ms=ms, at_most=True, backed="bound",
                   remedy=Remedy(cure=cure), evidence=(*shown, *passes))  # fmt: skip


def exchanging(folder: Path, times: int) -> Path:
    """Return the traces of two ranks whose steps exchange gradients so often."""

    def of_step(job: GlooJob) -> None:
        job.compute(60.0, calls=20)
        for _ in range(times):
            job.all_reduce(2.0)

    return in_steps(folder, range(2, 8), of_step)


def test_more_calls_of_smaller_size_are_neither_more_compute_nor_less_slow(tmp_path: Path) -> None:
    """*51.7 ms more compute; 18.1 ms slower compute came back* was told of a batch computed in four pieces."""

    def in_pieces(folder: Path, pieces: int, ms: float) -> Path:
        def of_step(job: GlooJob) -> None:
            job.compute(ms, calls=4 * pieces)
            job.all_reduce(2.0)

        return in_steps(folder, range(2, 8), of_step)

    whole, quarters = in_pieces(tmp_path / "A", 1, 40.0), in_pieces(tmp_path / "B", 4, 60.0)
    for run, reference, ms in ((quarters, whole, 20.0), (whole, quarters, -20.0)):
        for loss in analyze_against(run, [reference]).lost:
            assert loss.compute_more_work_ms is None and loss.compute_inflation_ms is None
            assert next(part.ms for part in loss.parts if part.part == "compute") == pytest.approx(ms, abs=0.2)
    (more, _) = analyze_against(in_pieces(tmp_path / "C", 2, 80.0), [whole]).lost
    assert more.compute_more_work_ms == pytest.approx(40.0, abs=0.2), "as large ones, and twice as many"


def test_recomputation_of_one_side_alone_is_named() -> None:
    """*checkpoint is 27.2% slower: +33 ms, of which attention +10.0 (3 calls a step for 2), matmul +7.8* was all that
    was told of a job whose other run kept its activations. As much as 3% of the step would have been told there, too.
    """
    data = Path(__file__).parent / "data" / "recomputed"
    told = compare_paths([data / "kept"], [data / "unpacked"], analysis_of=analyze_alone)
    assert [(one.side, one.finding.code) for one in told.alone] == [("other", "recomputation")]
    assert headline(told).startswith("In “unpacked”, and not in “kept”, activation checkpointing costs a step")
    alike = compare_paths([data / "unpacked"], [data / "unpacked"], analysis_of=analyze_alone)
    assert not alike.alone


def test_what_a_reference_waits_for_cores_is_there_though_it_is_no_finding_of_its_own() -> None:
    """*There is no such cause* was told of 104 ms beside a reference whose ranks waited 49."""
    run, reference = told_waits(rows(BESIDE_OTHERS), []), told_waits(rows(BY_ITSELF), [])
    nothing = Finding(code="nothing", ms=None, low_ms=None, high_ms=None, backed="none")
    (waits,) = beside_reference(run.findings, [[nothing]])
    assert waits.reference_ms == 0.0 and is_not_in_reference(waits)
    counted = reference.step_times.core_waits if reference.step_times is not None else None
    (beside,) = beside_parts([waits], [reference])
    assert counted is not None and beside.reference_ms == counted.ms and not is_not_in_reference(beside)
