"""What is sure of two runs is said first, whatever noise hides of their steps."""

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from scalescope.report.compare.parts import part_name
from scalescope.report.compare.sentences import further, headline, kernels_sentence, verdict_sentences
from scalescope.report.compare.tables import parts_sentence, parts_table
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze, analyze_against, analyze_run
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import SurePart
from scalescope.scaling.answer_steps import RecurringChange
from scalescope.scaling.as_run.of_job import kinds_of_step
from scalescope.scaling.compare.alone import causes_come
from scalescope.scaling.compare.answer import Comparison, PartChange
from scalescope.scaling.compare.compare import compare, compare_paths, of_accused, read_both
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.verdicts.reference import beside_reference, is_not_in_reference, tells_where
from tests.gloo_traces import GlooJob, in_steps
from tests.test_compare_alike import STEPS
from tests.test_compare_kernels import held_up
from tests.trace_json import unpacked

RUN = Path(__file__).parent / "data" / "runs_v0.1" / "train"
TRACES = Path(__file__).parent / "data" / "cpu_ddp_n2"
#: At the backward pass's first operator the loop stands still for so long, µs.
SLEEP_US = 15_000.0


def moments(rank: int, name: str, *, of_each: int, after: float) -> list[float]:
    """Return when so much of every so many-th event of a name is over, on a rank."""
    events = unpacked(next(TRACES.glob(f"rank{rank}.*")))["traceEvents"]
    own = sorted(one["ts"] + after * one["dur"] for one in events if one["name"] == name and one["ph"] == "X")
    return own[::of_each]


def run_of(folder: Path, rows: str, stands_still: int | None = None, place: str = "aten::ones_like") -> Path:
    """Return a run of few recorded steps and these rows; in each, a rank's loop stands still before something, and the
    other waits.
    """
    shutil.copytree(RUN, folder, ignore=shutil.ignore_patterns("traces", "checkpoints", "analysis.json"))
    (folder / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in STEPS[rows]))
    traces = folder / "traces"
    shutil.copytree(TRACES, traces)
    if stands_still is not None:
        stops = {
            stands_still: moments(stands_still, place, of_each=1, after=0.0),
            1 - stands_still: moments(1 - stands_still, "gloo:all_reduce", of_each=3, after=0.5),
        }
        for rank, begins in stops.items():
            held = held_up(folder.parent / f"{folder.name}{rank}", rank, [(at, SLEEP_US) for at in begins])
            file = next(held.glob(f"rank{rank}.*"))
            shutil.copy(file, traces / file.name)
    return folder


def test_a_rank_that_stands_still_in_every_step_is_said_before_that_the_step_is_within_noise(tmp_path: Path) -> None:
    """*S may take as long as A* was said first of a rank that slept in each step of S, and in none of A."""
    calm, late = run_of(tmp_path / "A", "clean_1"), run_of(tmp_path / "S", "sleep_15ms_rank1_1", 1)
    found = compare_paths([calm], [late])
    assert found.verdict == "same" and found.late is not None and found.late.rank == 1
    (gap,) = found.gaps
    assert gap.rank == 1 and gap.change_ms == pytest.approx(15.0, abs=0.2)
    told = headline(found)
    assert told.startswith(
        "In “S” rank 1's loop stands still for 15.1 ms of nearly every step before the backward pass (aten::ones_like),"
        " which it does not in “A” (0.11 ms)."
    )
    assert further(found).startswith("The whole step of 73.3 ms changed by +") and "rank 1" not in further(found)
    assert headline(compare_paths([late], [calm])).startswith("In “S” rank 1's loop stands still for 15.1 ms")


@pytest.mark.parametrize(
    ("place", "in_loop", "words"),
    [
        ("Optimizer.step#AdamW.step", "after_backward", "after the backward pass and before the optimizer's step"),
        ("DistributedDataParallel.forward", "before_forward",
         "before the forward pass of DistributedDataParallel"),
    ],
)  # fmt: skip
def test_a_place_is_told_in_the_loops_words_as_an_analysis_tells_it(
    tmp_path: Path, place: str, in_loop: str, words: str
) -> None:
    """*Before Optimizer.step#AdamW.step* was told of 15.0 ms that an analysis places *after the backward pass*."""
    calm, late = run_of(tmp_path / "A", "clean_1"), run_of(tmp_path / "S", "sleep_15ms_rank1_1", 1, place)
    for pair in ([calm, late], [late, calm]):
        found = compare_paths(pair[:1], pair[1:])
        assert [(one.rank, one.before, one.place) for one in found.gaps] == [(1, place, in_loop)]
        assert f" ms of nearly every step {words}, " in headline(found)
    sure = msgspec.structs.replace(compare_paths([calm], [late]), verdict="slower", low_ms=1.0)
    assert f" in “S” than in “A”, {words}" in further(sure)


def sleeping(folder: Path, ms: float) -> Path:
    """Return the traces of two ranks, of which one sleeps in each step, at one place."""
    job = GlooJob()
    for number in range(2, 8):
        job.step(number)
        job.compute(30.0, calls=10)
        job.sleep(1, ms)
        job.compute(30.0, name="aten::gelu", calls=10)
        job.all_reduce(2.0)
    return job.write(folder)


def test_a_cause_that_the_reference_has_not_is_said_before_that_the_step_is_within_noise(tmp_path: Path) -> None:
    """*A step cannot be told in length from A's* was said first, and the rank that sleeps in each step after it."""
    late = sleeping(tmp_path / "S", 12.0)
    found = analyze_against(late, [sleeping(tmp_path / "A", 0.0)])
    first = found.findings[0]
    assert (first.code, first.rank, first.reference_ms) == ("host_stall", 1, 0.0)
    told = run_verdict(found).headline
    assert ": rank 1 costs 1" in told and ". There is no such cause in “A”. Against “A” the step is " in told
    assert " longer, and without that cause as long, within noise (" in told and "cannot be told" not in told
    assert analyze_run(late).findings[0].reference_ms is None
    asleep_too = analyze_against(late, [sleeping(tmp_path / "T", 11.0)])
    assert asleep_too.findings[0].reference_ms == pytest.approx(11.0, abs=0.5)
    assert "no such cause" not in run_verdict(asleep_too).headline


def test_that_a_reference_has_no_such_cause_is_said_behind_the_cause_that_it_is_said_of(tmp_path: Path) -> None:
    """*Beside it waits for cores cost 161.6 ms. There is no such cause in B* was told, where B's ranks wait as well."""
    found = analyze_against(sleeping(tmp_path / "S", 12.0), [sleeping(tmp_path / "A", 0.0)])
    starved = Finding(
        code="host_starved", ms=20.0, low_ms=15.0, high_ms=25.0, fraction=0.3, backed="measured", reference_ms=18.0,
        evidence=(EvidenceRow(kind="figure", name="run_delay", ms=20.0),),
    )  # fmt: skip
    rival = Finding(code="data_loading", ms=11.9, low_ms=11.0, high_ms=12.8, fraction=0.2, backed="replay",
                    remedy=Remedy(cure="load_ahead"), reference_ms=11.9)  # fmt: skip
    first = found.findings[0]
    for other, words in ((starved, "Beside it waits for cores cost "), (rival, "Loading data may cost as much, 11.9")):
        found.findings = [first, other]
        told = run_verdict(found).headline
        cause, _, rest = told.partition(". There is no such cause in “A”. ")
        assert ": rank 1 costs 1" in cause and words.lower() not in cause.lower(), told
        assert rest.startswith(words) and ". Against “A” the step is " in rest


def test_a_cause_that_the_reference_has_not_comes_before_what_both_have(tmp_path: Path) -> None:
    """*Exposed wait grew by 6 ms; by itself: launching costs at most 17.0 ms* was told of a rank whose log is synced 40
    times a step, 6.5 ms, where a comparison of the same two folders begins with that rank.
    """
    found = analyze_against(sleeping(tmp_path / "S", 12.0), [sleeping(tmp_path / "A", 0.0)])
    own = found.findings[0]
    bound = Finding(code="host_bound", ms=17.0, low_ms=0.0, high_ms=17.0, at_most=True, backed="bound",
                    reference_ms=16.7)  # fmt: skip
    loads = Finding(code="data_loading", ms=14.0, low_ms=13.0, high_ms=15.0, backed="replay", reference_ms=14.0)
    found.findings = [bound, loads, own]
    assert causes_come(found) == [own] and found.findings == [bound, loads, own], "and it keeps its place"
    wait = SurePart(part="exposed_wait", change_ms=6.0, low_ms=4.0, high_ms=8.0)  # which is that rank's doing
    more = SurePart(part="matmul", change_ms=40.0, low_ms=30.0, high_ms=50.0)  # which is not
    found.lost = [msgspec.structs.replace(one, sure_parts=[wait]) for one in found.lost]
    assert causes_come(found)[0] is own
    plain = run_verdict(msgspec.structs.replace(found, lost=[]))
    beside = [msgspec.structs.replace(one, come=[own]) for one in found.lost]
    told = run_verdict(msgspec.structs.replace(found, lost=beside))
    assert told.headline.startswith(f"{told.whose}: in “S”, and not in “A”, rank 1, a stalled host, costs a step 1")
    assert ". Against “A” the step is 1" in told.headline and told.advice == plain.advice, "most goes to one cause"
    assert told.headline.endswith(plain.headline.removeprefix(f"{plain.whose}: ")), "behind it the run's own order"
    found.lost = [msgspec.structs.replace(one, sure_parts=[wait, more]) for one in found.lost]
    assert causes_come(found) == []
    found.findings = [bound, msgspec.structs.replace(own, reference_ms=11.0)]
    assert causes_come(found) == []


def test_the_parts_are_those_of_the_rank_that_the_first_cause_names(tmp_path: Path) -> None:
    """Tables of rank 1 stood below *rank 0 costs a step 18.9 ms*: others came to wait less for rank 1 as the machine
    was slower.
    """
    calm, late = sleeping(tmp_path / "A", 0.0), sleeping(tmp_path / "S", 15.0)
    (before,), (after,) = read_both([calm], [late])
    found = msgspec.structs.replace(compare([before], [after]), gaps=[])
    other = Finding(code="host_stall", rank=0, ms=9.0, low_ms=8.0, high_ms=10.0, backed="replay")
    for rank in (0, 1):
        named = of_accused(found, before, after, [msgspec.structs.replace(other, rank=rank)])
        assert {one.rank for one in named.parts} == {rank} == {named.of_accused} and named.kernels_rank == rank
        assert sum(one.change_ms for one in named.parts) == pytest.approx(found.change_ms)
        assert (named.change_ms, named.low_ms, named.high_ms) == (found.change_ms, found.low_ms, found.high_ms)
        assert f"They are rank {rank}'s, which is named above." in parts_sentence(named)
        assert kernels_sentence(named).startswith(f"The kernels of rank {rank}'s step side by side")
    many = msgspec.structs.replace(other, rank=None, ranks=(0, 1))
    alone = msgspec.structs.replace(found, late=None)
    assert [of_accused(alone, before, after, first).of_accused for first in ([many], [])] == [None, None]


def test_a_cause_that_the_reference_has_not_is_said_before_parts_of_slower_profiled_steps(tmp_path: Path) -> None:
    """*As profiled 42 ms longer: 19.6 ms slower compute* came before the sleep that was all of a change of 24 ms."""
    late = sleeping(tmp_path / "S", 12.0)
    found = analyze_against(late, [sleeping(tmp_path / "A", 0.0)])
    grown = sum(one.growth_ms for one in found.lost) / len(found.lost)
    slow = [msgspec.structs.replace(one, step_change_ms=0.5 * grown, step_low_ms=0.3 * grown, step_high_ms=0.7 * grown)
            for one in found.lost]  # fmt: skip
    assert not tells_where(slow)
    found.lost = slow
    told = run_verdict(found).headline
    assert ": rank 1 costs 1" in told and ". There is no such cause in “A”. Against “A” the step is " in told
    assert "as profiled" not in told and "within noise" not in told and "By itself" not in told
    assert tells_where([msgspec.structs.replace(one, step_high_ms=2 * grown) for one in slow])


def test_a_reference_has_a_cause_on_whatever_rank_and_is_not_said_to_lack_what_it_does_not_tell() -> None:
    late, other = stall(1, 12.0), stall(0, 11.0)
    assert beside_reference([late], [[other]])[0].reference_ms == 11.0
    hidden = msgspec.structs.replace(other, ms=2.0, low_ms=0.0, high_ms=14.0)  # within noise
    assert beside_reference([late], [[hidden]])[0].reference_ms == 14.0
    unknown = msgspec.structs.replace(other, code="profiler_cost", ms=None, low_ms=None, high_ms=None, rank=None)
    for reference in ([], [unknown]):
        (told,) = beside_reference([late], [reference])
        assert told.reference_ms is None and not is_not_in_reference(told)
    assert is_not_in_reference(beside_reference([late], [[stall(0, 0.5)]])[0])


def test_a_counted_fault_is_in_no_reference_that_has_as_much_transfer_and_not_the_fault() -> None:
    """Gradients exchanged in each of 4 backward passes came after *51.7 ms more compute; 18.1 ms slower came back*."""
    whole = Finding(code="exposed_transfer", ms=7.6, low_ms=0.0, high_ms=7.6, at_most=True, backed="bound",
                    remedy=Remedy(cure="send_less"))  # fmt: skip
    each = msgspec.structs.replace(whole, ms=30.4, high_ms=30.4, remedy=Remedy(cure="exchange_once"))
    assert is_not_in_reference(beside_reference([each], [[whole]])[0])
    assert not is_not_in_reference(beside_reference([each], [[whole], [each]])[0])
    assert not is_not_in_reference(beside_reference([whole], [[each]])[0]), "no fault is found in it"


def stall(rank: int, ms: float) -> Finding:
    return Finding(code="host_stall", rank=rank, ms=ms, low_ms=0.9 * ms, high_ms=1.1 * ms, backed="replay",
                   remedy=Remedy(cure="look_at_host"))  # fmt: skip


def test_few_steps_tell_no_place_that_the_rows_of_all_steps_do_not_speak_for(tmp_path: Path) -> None:
    """Two recorded steps may both meet another process at one place."""
    calm = run_of(tmp_path / "calm", "clean_9")
    assert compare_paths([calm], [run_of(tmp_path / "chance", "clean_10", 1)]).gaps == []
    other = run_of(tmp_path / "other", "sleep_15ms_rank1_1", 0)
    assert compare_paths([calm], [other]).gaps == [], "all steps say that it is the other rank"


def test_a_table_begins_with_what_changed_for_sure_and_says_what_a_length_below_zero_is() -> None:
    """A row of -7.95 ms stood first among parts of a step, and did not say of what it is: *other steps than the
    profiled*.
    """
    parts = [
        PartChange(name="rest", change_ms=-10.2, low_ms=-50.7, high_ms=31.1, baseline_ms=2.2, other_ms=-7.95),
        PartChange(name="idle_data", change_ms=9.1, low_ms=1.8, high_ms=17.3, baseline_ms=0.1, other_ms=9.2),
        PartChange(name="matmul", change_ms=2.2, low_ms=-3.0, high_ms=7.0, baseline_ms=9.5, other_ms=11.7),
    ]
    answer = Comparison(baseline="a", other="b", verdict="same", basis="untraced", baseline_ms=73.9, other_ms=75.0,
                        change_ms=1.1, low_ms=-19.1, high_ms=10.3, parts=parts)  # fmt: skip
    table = parts_table(answer)
    rest, whole = part_name(parts[0]), table.rows[2][1:4]
    assert [row[0] for row in table.rows] == ["idle (loading data)", "matmul", "the profiled step", rest,
                                              "step as run, measured"]  # fmt: skip
    assert rest == "not seen in the profiled steps" and whole == pytest.approx([9.6, 20.9, 11.3])
    assert table.note.startswith(f"“{rest}”: the step as run, which is the median of those without a profiler, less")
    assert "below zero the profiled steps were the longer ones. What it changed by is within noise" in table.note
    assert parts_sentence(answer).startswith("Beyond noise idle (loading data) changed; each other part's")
    answer.parts = [one for one in parts if one.within_noise]
    assert parts_sentence(answer).startswith("No part changed beyond noise.")
    answer.parts = answer.parts[1:]
    assert not parts_table(answer).note, "where all that is compared is in the traces"


def exchanging(folder: Path, collectives: int) -> Path:
    """Return the traces of two ranks that exchange so many figures a step, with some Python before each."""

    def of_step(job: GlooJob) -> None:
        job.compute(30.0, calls=10)
        for _ in range(collectives):
            job.sleep(1, 0.2)
            job.all_reduce(1.0)
        job.compute(10.0, name="aten::add_", calls=5)

    return in_steps(folder, range(2, 10), of_step)


def test_the_loop_between_more_collectives_is_no_place_at_which_it_stands_still(tmp_path: Path) -> None:
    """Beside 30 small collectives of a step, Python between them was told as a rank that stands still."""
    few, many = exchanging(tmp_path / "few", 2), exchanging(tmp_path / "many", 30)
    found = compare_paths([few], [many])
    assert found.change_ms is not None and found.change_ms > 20.0 and found.gaps == []
    told = " ".join(verdict_sentences(found))
    assert "30 all_reduce calls a step for 2" in told and "stands still" not in told
    slept = compare_paths([sleeping(tmp_path / "A", 0.0)], [sleeping(tmp_path / "S", 12.0)])
    assert [one.rank for one in slept.gaps] == [1], "as many collectives on both sides"


def test_a_place_is_named_beside_a_sure_change_only_where_it_is_no_trifle_of_it(tmp_path: Path) -> None:
    found = compare_paths([sleeping(tmp_path / "A", 0.0)], [sleeping(tmp_path / "S", 12.0)])
    sure = msgspec.structs.replace(found, verdict="slower", change_ms=60.0, low_ms=40.0, high_ms=80.0)
    assert "rank 1's loop stands still 12 ms longer" in further(sure)
    much = msgspec.structs.replace(sure, change_ms=300.0, low_ms=250.0, high_ms=350.0)
    assert "stands still" not in " ".join(verdict_sentences(much))


def slowed_window(**also: object) -> Comparison:
    """Return the answer of two runs whose steps are as long, of which one's profiled steps were slower than these."""
    parts = [
        PartChange(name="convolution", change_ms=30.8, low_ms=1.2, high_ms=60.0, baseline_ms=56.6, other_ms=87.4),
        PartChange(name="elementwise and reductions", change_ms=4.5, low_ms=0.4, high_ms=8.5, baseline_ms=7.2,
                   other_ms=11.7),
        PartChange(name="rest", change_ms=-35.9, low_ms=-76.2, high_ms=5.1, baseline_ms=1.0, other_ms=-34.9),
    ]  # fmt: skip
    answer = Comparison(baseline="a", other="b", verdict="same", basis="untraced", baseline_ms=84.5, other_ms=91.4,
                        change_ms=6.9, low_ms=-6.3, high_ms=20.1, parts=parts)  # fmt: skip
    return msgspec.structs.replace(answer, **also)


def test_a_slow_windows_operators_are_not_sure_to_be_slower_in_the_job() -> None:
    """*Sure: convolution +31 ms* was said of a healthy run whose step was longer by 7 ms, within noise."""
    answer = slowed_window()
    told = " ".join(verdict_sentences(answer))
    assert told.startswith("“b” cannot be told from “a”: ") and ". The whole step: +7 ms of" in told
    assert "onvolution" not in told
    whole = parts_sentence(answer)
    assert whole.startswith("No part of the job's steps changed for sure. In the profiled steps alone, convolution and")
    slower = msgspec.structs.replace(answer, verdict="slower", low_ms=1.0)
    assert "of which elementwise and reductions +4" in headline(slower), "as much as the step may be longer by"
    assert "convolution" not in " ".join(verdict_sentences(slower)), "more than the step can be longer by"
    shown = slowed_window(parts=answer.parts[:2])
    assert headline(shown).startswith("In “b” a step has 31 ms more convolution"), "no other steps speak against it"


def test_what_the_profiled_steps_do_not_show_is_never_what_is_sure() -> None:
    """*Not seen in the profiled steps −48 ms* was the first thing that was sure of a run that saves every 6th step."""
    often = RecurringChange(baseline_every=None, other_every=6, baseline_each_ms=0.0, other_each_ms=79.6,
                            change_ms=13.3, low_ms=3.8, high_ms=22.8, differs=True)  # fmt: skip
    idle = PartChange(name="idle_launch", change_ms=26.5, low_ms=16.9, high_ms=37.6, baseline_ms=5.6, other_ms=32.0)
    rest = PartChange(name="rest", change_ms=-47.9, low_ms=-91.7, high_ms=-3.1, baseline_ms=1.0, other_ms=-46.9)
    answer = slowed_window(parts=[idle, rest], recurring=often)
    told = " ".join(verdict_sentences(answer))
    assert told.startswith("In “b” every 6th step takes 79.6 ms longer, and in “a” none does: +13.3 ms")
    assert "not seen" not in told and "idle" not in told
    assert "not seen" not in parts_sentence(answer)
    steady = " ".join(verdict_sentences(msgspec.structs.replace(answer, recurring=None)))
    assert steady.startswith("In “b” a step has 26 ms more idle (host late) than in “a”") and "not seen" not in steady


def test_what_takes_back_a_slow_windows_change_leads_no_sentence() -> None:
    """*+34 ms, of which not seen in the profiled steps +85 (rank 1), loading +30*: 74 of these 85 only take back that
    the baseline's profiled steps computed longer; all of the job's own change was loading.
    """
    slow = PartChange(name="elementwise and reductions", change_ms=-51.4, low_ms=-71.4, high_ms=-28.2,
                      baseline_ms=66.2, other_ms=14.8, rank=1)  # fmt: skip
    slower = PartChange(name="embedding and indexing", change_ms=-22.2, low_ms=-31.6, high_ms=-11.5, baseline_ms=30.7,
                        other_ms=8.5, rank=1)  # fmt: skip
    loads = PartChange(name="idle_data", change_ms=29.6, low_ms=4.1, high_ms=113.1, baseline_ms=0.7, other_ms=30.3)
    rest = PartChange(name="rest", change_ms=84.8, low_ms=2.2, high_ms=165.0, baseline_ms=-84.8, other_ms=0.0, rank=1)
    answer = slowed_window(verdict="slower", baseline_ms=57.6, other_ms=92.0, change_ms=34.5, low_ms=16.8, high_ms=50.7,
                           parts=[slow, slower, loads, rest])  # fmt: skip
    assert headline(answer).endswith("of which idle (loading data) +30.")
    assert parts_sentence(answer).startswith("Beyond noise idle (loading data) changed; no other part's change is sure")
    alone = msgspec.structs.replace(answer, parts=[loads, rest])
    assert "of which not seen in the profiled steps +85 (rank 1)" in headline(alone), "it takes nothing back"


def test_a_side_consists_of_what_an_analysis_of_it_says(tmp_path: Path) -> None:
    """Of one run 48.0 ms of recurrent layers stood in a comparison and 59.9 in the analysis: many small copies beside
    them, of which recording makes the most, kept their share of the profiled compute.
    """
    run = run_of(tmp_path / "A", "clean_1")
    parts = {one.name: one.baseline_ms for one in compare_paths([run], [run_of(tmp_path / "B", "clean_9")]).parts}
    (analysis,) = analyze([run], jobs=1)
    assert isinstance(analysis, RunAnalysis)
    kinds = {one.kind: one.ms for one in kinds_of_step(analysis)}
    assert kinds and {name: parts[name] for name in kinds} == pytest.approx(kinds, rel=0.01)
