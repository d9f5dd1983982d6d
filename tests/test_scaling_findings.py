"""What is found is what was injected: its code, its rank, and what the step would be without it."""

from pathlib import Path

import msgspec
import pytest

from scalescope.records.rows import TrainFacts
from scalescope.report.as_run.recording import as_run_title
from scalescope.report.markdown import for_an_issue
from scalescope.report.of_traces import data_of_traces
from scalescope.report.panels.advice import tried_sentence, tried_table
from scalescope.report.panels.ranks import partition_panels, wait_panels
from scalescope.report.text.findings import because, first_sentence, first_to_do, headline
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.answer import RunAnalysis, read_run_answer
from scalescope.scaling.as_run.step import step_as_run, take_recording_out
from scalescope.scaling.finding.figures import HIDDEN, INPUTS
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.finding.kinds import is_certain
from scalescope.scaling.finding.order import as_costly, ranked, weight
from scalescope.scaling.findings.add import add_findings
from scalescope.scaling.findings.candidate import Candidate, Scene
from scalescope.scaling.findings.derived import advice_of, stragglers_of
from scalescope.scaling.findings.detectors.slower_compute import slower_compute
from scalescope.scaling.findings.in_range import hold
from scalescope.scaling.findings.late_root import late_root
from scalescope.scaling.ranks.summary import read_rank
from scalescope.scaling.replay.load import find_targets, open_replayer
from scalescope.scaling.replay.removal import Removal
from scalescope.scaling.run import explain_traces
from scalescope.scaling.study_answer import TriedAdvice, write_answer
from scalescope.scaling.trace.sources import find_sources
from tests import data_parallel
from tests.data_parallel import MS, Disturbance
from tests.trace_json import packed, unpacked

DATA = Path(__file__).parent / "data"


def analysed(folder: Path) -> RunAnalysis:
    explained = explain_traces(find_sources(folder), folder.name, 1, for_replay=True)
    add_findings(folder, [explained.analysis], [], explained.records, 1, host=explained.host)
    return explained.analysis


def found(folder: Path) -> list[Finding]:
    return analysed(folder).findings


def test_a_real_delay_on_one_device_is_found_with_what_the_untraced_step_would_be_without_it() -> None:
    """4 ms before each step of rank 1: untraced, 79.8 ms with it and 76.2 ms without."""
    analysis = analysed(DATA / "gpt8_ddp_delay4ms_rank1_n2")
    (one,) = analysis.findings
    assert (one.code, one.rank, one.evidence[0].name, one.backed) == ("own_work", 1, "spin_kernel", "replay")
    assert one.ms == pytest.approx(79.8 - 76.2, rel=0.06)
    assert one.low_ms is not None and one.high_ms is not None and one.ms is not None
    assert one.low_ms <= 3.6 <= one.high_ms and one.high_ms - one.low_ms <= 0.5 * one.ms
    assert [straggler.rank for straggler in analysis.stragglers] == [1]
    assert "rank 1 costs" in run_verdict(analysis).headline and "spin_kernel" in run_verdict(analysis).headline


def test_a_late_rank_behind_a_later_one_costs_what_it_brings_once_that_is_gone(tmp_path: Path) -> None:
    first, second = found(data_parallel.run(tmp_path, Disturbance(spin={1: 6 * MS, 3: 2 * MS}), ahead=True))
    assert (first.rank, second.rank) == (1, 3)
    assert first.ms == pytest.approx(4.0, rel=0.05) and second.ms == pytest.approx(2.0, rel=0.05)


def test_ranks_that_take_turns_are_nobodys_fault_alone(tmp_path: Path) -> None:
    (one,) = found(data_parallel.run(tmp_path, Disturbance(in_turns=3 * MS), steps=8, ahead=True))
    assert (one.code, one.rank) == ("alternating_load", None)
    assert one.ms == pytest.approx(3.0, rel=0.1)


def test_a_delay_of_a_hundredth_of_the_step_is_found(tmp_path: Path) -> None:
    (one,) = found(
        data_parallel.run(tmp_path, Disturbance(spin={2: round(0.012 * data_parallel.UNDISTURBED)}), ahead=True)
    )
    assert (one.code, one.rank) == ("own_work", 2)


def test_a_kernel_that_one_rank_alone_runs_is_found_however_short_where_the_step_feels_it(tmp_path: Path) -> None:
    spin = round(0.005 * data_parallel.UNDISTURBED)
    (one,) = found(data_parallel.run(tmp_path, Disturbance(spin={2: spin}), ahead=True))
    assert (one.code, one.rank) == ("own_work", 2) and one.ms == pytest.approx(spin / MS, rel=0.1)


def test_bounds_weigh_half_and_what_can_be_taken_away_what_is_sure_of_it() -> None:
    sure = Finding(code="host_bound", ms=4.0, low_ms=3.0, high_ms=5.0, backed="replay", at_most=True)
    doubtful = msgspec.structs.replace(sure, low_ms=-1.0)
    copies, late, contention = (
        msgspec.structs.replace(sure, code=code) for code in ("copies", "late_bucket", "contention")
    )
    assert [weight(one) for one in (sure, doubtful, copies, late, contention)] == [3.5, 2.0, 3.5, 3.5, 2.0]
    in_range = [weight(one, in_range=True) for one in (sure, doubtful, copies, late, contention)]
    assert in_range == [4.0, 2.0, 4.0, 4.0, 2.0], "as wide as recording's cost makes it"


def test_launching_whose_cost_recording_leaves_open_counts_by_what_is_expected_of_it() -> None:
    """A stall of 16.4 ms came first, before launching of which 2 to 59 ms were told: it cost 26."""
    stall = Finding(code="host_stall", ms=16.4, low_ms=15.0, high_ms=17.8, backed="replay")
    launching = Finding(code="host_bound", ms=31.2, low_ms=2.0, high_ms=59.1, backed="replay", at_most=True)
    assert ranked([stall, launching], in_range=True) == [launching, stall]
    assert ranked([launching, stall]) == [stall, launching]
    assert ranked([launching, msgspec.structs.replace(stall, ms=25.6)], in_range=True)[0].code == "host_stall"


def test_the_first_sentence_names_two_causes_where_either_may_cost_more() -> None:
    first = Finding(code="host_stall", rank=1, ms=4.0, low_ms=3.0, high_ms=5.0, backed="replay")
    second = Finding(code="host_bound", ms=3.5, low_ms=2.5, high_ms=4.5, backed="replay", at_most=True)
    assert as_costly([first, second]) is second
    assert "launching may cost as much, at most 3.5 ms" in first_sentence([first, second], 12.0, 2)
    surely_less = msgspec.structs.replace(second, high_ms=3.9)
    assert as_costly([first, surely_less]) is None
    assert first_sentence([first, surely_less], 12.0, 2) == headline(first, 12.0, 2)


def test_what_any_eager_step_of_cpus_has_is_no_tail_of_a_cause_that_is_sure() -> None:
    """*; launching may cost as much, at most 8.1 ms* doubled the sentence of a rank that slept for 8 ms."""
    first = Finding(code="host_stall", rank=1, ms=8.2, low_ms=6.0, high_ms=10.9, backed="replay")
    launching = Finding(code="host_bound", ms=8.1, low_ms=2.5, high_ms=9.5, backed="replay", at_most=True,
                        remedy=Remedy(cure="compile", on_cpu=True))  # fmt: skip
    third = Finding(code="small_collectives", ms=7.9, low_ms=6.1, high_ms=9.9, backed="replay")
    assert as_costly([first, launching]) is None
    assert first_sentence([first, launching], 90.0, 2) == headline(first, 90.0, 2)
    assert as_costly([first, launching, third]) is third, "which stood behind it"
    on_devices = msgspec.structs.replace(launching, remedy=Remedy(cure="compile"))
    assert as_costly([first, on_devices]) is on_devices


def test_launching_that_devices_hide_is_named_with_what_hides_it() -> None:
    late = Finding(code="own_work", rank=1, ms=2.5, low_ms=0.0, high_ms=9.0, backed="replay")
    behind = Finding(
        code="host_bound", ms=5.8, low_ms=-1.0, high_ms=11.0, backed="replay", at_most=True,
        evidence=(EvidenceRow(kind="figure", name=HIDDEN),),
    )  # fmt: skip
    sentence = first_sentence([behind, late], 12.0, 2)
    assert "without what devices do beyond that" in sentence and "hat comes before it is rank 1, 2.5 ms" in sentence


def test_what_may_cost_nothing_makes_nobody_a_straggler() -> None:
    most = Finding(code="own_work", rank=1, ms=4.0, low_ms=0.0, high_ms=4.0, backed="replay", at_most=True)
    assert stragglers_of([most]) == stragglers_of([msgspec.structs.replace(most, at_most=False)]) == []
    assert len(stragglers_of([msgspec.structs.replace(most, low_ms=0.5)])) == 1


def test_what_is_sure_at_least_is_so_in_the_advice_and_in_what_came_of_it() -> None:
    one = Finding(code="host_starved", ms=4.0, low_ms=4.0, high_ms=9.0, backed="replay", at_least=True,
                  remedy=Remedy(cure="fewer_threads", overrides=("launch.threads=1",)))  # fmt: skip
    (advice,) = advice_of([one])
    assert advice.at_least and not advice.at_most
    tried = TriedAdvice(base="a", run="b", what="fewer threads", overrides=["x=1"], at_most=False, at_least=True,
                        expected_ms=4.0, expected_low_ms=4.0, expected_high_ms=9.0, measured_ms=7.0)  # fmt: skip
    assert "at least 4.0 ms a step expected, 7.0 ms came" in tried_sentence([tried])
    assert tried_table([tried]).rows[0][3] == "at least"


@pytest.mark.parametrize("case", sorted(path.name for path in (DATA / "held_up_hosts").iterdir()))
def test_no_cause_costs_more_than_the_step(case: str) -> None:
    analysis = analysed(DATA / "held_up_hosts" / case)
    step_ms = step_as_run(analysis)[0].value
    assert all(one.high_ms is None or one.high_ms <= max(step_ms, one.ms or 0.0) + 1e-9 for one in analysis.findings)


def test_in_a_range_only_what_was_seen_is_kept_where_it_may_cost_nothing() -> None:
    folder = DATA / "gpt8_ddp_none_n2"
    (target,) = find_targets(folder)
    explained = explain_traces(find_sources(folder), folder.name, 1, for_replay=True)
    replayer = open_replayer(target, explained.analysis, [], explained.records, 1)
    explained.analysis.as_run = take_recording_out(replayer)
    scene = Scene(explained.analysis, replayer, step_ms=29.0)
    seen = Finding(code="own_work", rank=1, ms=2.0, low_ms=0.0, high_ms=4.0, backed="replay")
    inferred = msgspec.structs.replace(seen, code="host_starved")
    holding = msgspec.structs.replace(inferred, low_ms=1.0)
    assert hold(scene, [], [seen, inferred, holding]) == [seen, holding]
    loads = Candidate(code="copies", removals=(Removal("host", 1),))
    (most,) = hold(scene, [loads], [])
    assert most.at_most and most.low_ms == 0 and most.ms == most.high_ms and (most.ms or 0) > 2


def test_a_root_that_is_late_for_nothing_that_was_found_is_itself_the_finding(tmp_path: Path) -> None:
    folder = data_parallel.run(tmp_path, Disturbance(late_root=3 * MS), broadcast=True, ahead=True)
    explained = explain_traces(find_sources(folder), folder.name, 1, for_replay=True)
    replayer = open_replayer(find_targets(folder)[0], explained.analysis, [], explained.records, 1)
    scene = Scene(explained.analysis, replayer, step_ms=replayer.base_ns / 1e6)
    (one,) = late_root(scene, [])
    assert (one.code, one.rank) == ("late_root", 0) and one.ms == pytest.approx(3.0, rel=0.1)
    assert "broadcast" in because(one)
    deeper = Finding(code="own_work", rank=0, ms=3.0, low_ms=2.9, high_ms=3.1, backed="replay")
    assert late_root(scene, [deeper]) == []


def test_slower_kernels_of_all_kinds_are_the_devices_and_a_percent_is_no_finding(tmp_path: Path) -> None:
    (one,) = found(data_parallel.run(tmp_path / "slow", Disturbance(slower={3: 1.2}), ahead=True))
    assert (one.code, one.rank) == ("slower_compute", 3) and one.evidence[0].name == "times_as_long"
    assert one.evidence[0].value == pytest.approx(1.2, rel=0.01)
    assert one.remedy is not None and one.remedy.cure == "look_at_device"
    (natural,) = found(data_parallel.run(tmp_path / "natural", Disturbance(slower={3: 1.015}), ahead=True))
    assert natural.code == "nothing"


def test_kernels_that_are_longer_for_what_a_rank_computes_beside_them_are_no_slower_device(tmp_path: Path) -> None:
    """A rank with products of its own on another stream had *own work* and, by its lower clocks, *slower compute*: of
    7.3 ms that both cost, neither had more than 6.1.
    """
    beside = data_parallel.run(tmp_path, Disturbance(beside={2: 4 * MS}, slower={2: 1.06}), ahead=True)
    first, *others = found(beside)
    assert (first.code, first.rank) == ("own_work", 2) and "slower_compute" not in {one.code for one in others}
    longer = 0.06 * (data_parallel.UNDISTURBED - data_parallel.TRANSFER) / MS
    assert first.ms == pytest.approx(longer, rel=0.1)
    alone = found(data_parallel.run(tmp_path / "alone", Disturbance(slower={2: 1.06}), ahead=True))[0]
    assert (alone.code, alone.rank) == ("slower_compute", 2)


def with_shapes(folder: Path, rows: dict[int, int]) -> Path:
    """Add to each rank's trace what its host multiplies, as torch writes it where shapes are recorded."""
    for path in folder.glob("rank*.json.gz"):
        trace = unpacked(path)
        begin = next(one for one in trace["traceEvents"] if one.get("name", "").startswith("ProfilerStep"))
        batch = rows[int(path.name[4])]
        for name, dims in (("aten::mm", [[batch, 64], [64, 64]]), ("aten::addmm", [[64], [batch, 64], [64, 64], []])):
            trace["traceEvents"].append({**begin, "cat": "cpu_op", "name": name, "dur": 0.001,
                                         "args": {"Input Dims": dims, "External id": 7}})  # fmt: skip
        path.write_bytes(packed(trace))
    return folder


def test_a_rank_whose_shapes_are_larger_has_more_work_whatever_its_times_look_like(tmp_path: Path) -> None:
    """Its longest kernels alone were longer by a millisecond or so, which was told as another process's turns."""
    slow = Disturbance(taken={2: 3 * MS // 2})
    uneven = with_shapes(
        data_parallel.run(tmp_path / "uneven", slow, steps=8, ahead=True), {0: 32, 1: 32, 2: 48, 3: 32}
    )
    (one,) = found(uneven)
    assert (one.code, one.rank) == ("more_work", 2) and one.remedy is not None and one.remedy.cure == "even_out"
    assert one.ms == pytest.approx(1.5, rel=0.05)
    assert because(one) == "it computes on 1.50× as much data as the others, in the same operators"
    even = with_shapes(data_parallel.run(tmp_path / "even", slow, steps=8, ahead=True), dict.fromkeys(range(4), 32))
    assert [(one.code, one.evidence[0].name) for one in found(even)] == [("slower_compute", "by_turns")]
    little = Disturbance(slower={3: 1.5})
    hardly = with_shapes(data_parallel.run(tmp_path / "hardly", little, ahead=True), {0: 100, 1: 100, 2: 100, 3: 106})
    assert [(one.code, one.rank) for one in found(hardly)] == [("slower_compute", 3)], "6% more do not take 50% longer"


def with_calls(folder: Path, calls: dict[int, int]) -> Path:
    """Add to each step of each rank's trace so many products inside other operators, all of one shape."""
    for path in folder.glob("rank*.json.gz"):
        trace = unpacked(path)
        begins = [one for one in trace["traceEvents"] if one.get("name", "").startswith("ProfilerStep")]
        inside = {"cat": "cpu_op", "name": "aten::mm", "dur": 0.001,
                  "args": {"Input Dims": [[32, 64], [64, 64]], "External id": 7}}  # fmt: skip
        trace["traceEvents"] += [{**one, **inside} for one in begins for _ in range(calls[int(path.name[4])])]
        path.write_bytes(packed(trace))
    return folder


def test_activations_that_one_rank_computes_again_inside_the_same_operators_are_more_work(tmp_path: Path) -> None:
    """As many launches, each of them longer: that was another process's turns, or a slower device."""
    slow = Disturbance(slower={2: 1.4})
    again = with_calls(data_parallel.run(tmp_path / "again", slow, ahead=True), {0: 9, 1: 9, 2: 12, 3: 9})
    (one,) = found(again)
    assert (one.code, one.rank) == ("more_work", 2) and is_certain(one)
    assert because(one) == (
        "it multiplies 1.33× as much as the others, inside the same operators: aten::mm 12 times a step and not 9, "
        "as where activations are computed again"
    )
    even = with_calls(data_parallel.run(tmp_path / "even", slow, ahead=True), dict.fromkeys(range(4), 9))
    hardly = with_calls(data_parallel.run(tmp_path / "hardly", slow, ahead=True), {0: 9, 1: 9, 2: 10, 3: 9})
    for job in (even, hardly):  # a ninth more does not take two fifths longer
        assert [(one.code, one.rank) for one in found(job)] == [("slower_compute", 2)]


def test_what_a_script_told_of_its_samples_tells_it_too(tmp_path: Path) -> None:
    folder = data_parallel.run(tmp_path, Disturbance(slower={3: 1.5}), ahead=True)
    explained = explain_traces(find_sources(folder), folder.name, 1, for_replay=True)
    replayer = open_replayer(find_targets(folder)[0], explained.analysis, [], explained.records, 1)
    facts = TrainFacts("mine", "ddp", "fp32", 1, 0.0, "", 36, origin="script", samples_by_rank=(32, 32, 32, 48))
    step_ms = replayer.base_ns / 1e6
    (one,) = slower_compute(Scene(explained.analysis, replayer, facts, step_ms=step_ms))
    assert (one.code, one.rank, one.evidence[0].value) == ("more_work", 3, 1.5)
    (untold,) = slower_compute(Scene(explained.analysis, replayer, step_ms=step_ms))
    assert untold.code == "slower_compute"


def test_more_work_that_noise_hides_the_cost_of_is_there_all_the_same() -> None:
    inputs = EvidenceRow(kind="figure", name=INPUTS, value=1.5)
    one = Finding(code="more_work", rank=1, ms=14.3, low_ms=0.0, high_ms=43.1, evidence=(inputs,), backed="replay",
                  remedy=Remedy(cure="even_out"))  # fmt: skip
    told = headline(one, 91.9, 2)
    assert told.startswith("rank 1 may cost 14.3 ms (0.00 ms to 43.1 ms) of the 91.9 ms step: it computes on 1.50×")
    assert "no rank is late" not in told and "or nothing" not in told and told.endswith("how much, the noise hides.")
    sure = Finding(code="host_bound", ms=3.6, low_ms=1.0, high_ms=3.6, backed="bound", remedy=Remedy(cure="compile"))
    assert first_to_do([one, sure]) is one


def test_an_undisturbed_job_has_one_finding(tmp_path: Path) -> None:
    (one,) = found(data_parallel.run(tmp_path, Disturbance(), ahead=True))
    assert one.code == "nothing" and one.ms is None


@pytest.mark.parametrize("late_root", [0, 3 * MS])
def test_a_member_that_is_late_at_a_broadcast_is_found_and_not_called_transfer(tmp_path: Path, late_root: int) -> None:
    spin = {} if late_root else {2: 3 * MS}
    folder = data_parallel.run(tmp_path, Disturbance(spin=spin, late_root=late_root), broadcast=True, ahead=True)
    (one,) = found(folder)
    assert (one.code, one.rank) == ("own_work", 0 if late_root else 2)
    assert one.ms == pytest.approx(3.0, rel=0.1)


def test_what_recording_may_have_made_is_not_told_without_the_untraced_step() -> None:
    """Recorded, the step takes 47.8 ms and its devices seem to wait for hosts; without recording it takes 24.7."""
    analysis = analysed(DATA / "gpt8_ddp_none_n2")
    assert analysis.findings[0].code == "profiler_cost" and analysis.findings[0].ms is None
    assert not analysis.stragglers
    said = run_verdict(analysis).headline
    assert "GPU-bound or host-bound: cannot be told from this trace, since recording may cost" in said
    assert "--step-ms" in said


def test_figures_beside_what_cannot_be_told_say_what_they_rest_on() -> None:
    """The likeliest step of a range, and the step as profiled: neither is what users run for sure."""
    run = analysed(DATA / "gpt8_ddp_none_n2")
    verdict = run_verdict(run)
    assert "cannot be told from this trace" in verdict.headline and verdict.level == "unknown"
    assert verdict.sentences[0].startswith("If recording costs what it usually does, 88")
    assert run.stragglers == [] and run.advice == []
    title = "Where a step goes as run, likely: if recording costs what it usually does, a rank"
    assert title in for_an_issue([run]) and as_run_title(run) == title
    data = data_of_traces([run], "none")
    assert wait_panels(data)[0].sentence.startswith("The longest exposed wait as profiled is ")
    assert partition_panels(data, legends=False)[0].sentence.startswith("A mean step as profiled of 47.8 ms ")


def test_findings_are_in_the_answer_and_read_again(tmp_path: Path) -> None:
    analysis = analysed(data_parallel.run(tmp_path / "traces", Disturbance(spin={2: 4 * MS}), ahead=True))
    write_answer(tmp_path / "analysis.json", analysis)
    read = read_run_answer(tmp_path / "analysis.json")
    assert read.findings == analysis.findings and read.schema == 2
    assert [one.code for one in read.advice] == ["own_work"]


def test_an_answer_of_schema_1_is_read_and_shown_with_the_words_that_it_holds(tmp_path: Path) -> None:
    analysis = analysed(data_parallel.run(tmp_path / "traces", Disturbance(), ahead=True))
    old = msgspec.to_builtins(analysis)
    old |= {
        "schema": 1,
        "stragglers": [{"rank": 1, "steps_last": 3, "lost_ms": 2.0, "verdict": "its own delay: +2 ms"}],
    }
    old["advice"] = [{"what": "load ahead", "because": "it is late", "gain_ms": 1.0, "low_ms": 0.5, "high_ms": 1.5,
                      "fraction": 0.1}]  # fmt: skip
    del old["findings"]
    (tmp_path / "analysis.json").write_bytes(msgspec.json.encode(old))
    text = run_verdict(read_run_answer(tmp_path / "analysis.json")).text
    assert "its own delay: +2 ms" in text and "load ahead: 1.0 ms" in text


@pytest.mark.parametrize(
    ("case", "code"), [("front", "host_stall"), ("fetch", "data_loading"), ("loader", "data_loading")]
)
def test_what_holds_one_host_up_on_cpus_costs_what_it_takes_in_each_step(case: str, code: str) -> None:
    """40 ms a step of rank 1: also of the first, which begins as ever while the rank is late already."""
    first = found(DATA / "held_up_hosts" / case)[0]
    assert (first.code, first.rank) == (code, 1)
    assert first.ms == pytest.approx(40, rel=0.05)
    assert first.low_ms is not None and first.high_ms is not None
    assert first.low_ms <= 40 <= first.high_ms <= first.low_ms + 10


def test_a_slow_loader_of_one_rank_is_its_own_in_a_window_of_three_steps(tmp_path: Path) -> None:
    """What the first of them loads comes before all that a replay holds of it: it was taken for no loading at all."""
    for path in (DATA / "held_up_hosts" / "loader").glob("rank*"):
        trace = unpacked(path)
        steps = sorted({one["ts"] for one in trace["traceEvents"] if one.get("name", "").startswith("ProfilerStep#")})
        trace["traceEvents"] = [one for one in trace["traceEvents"] if one.get("ts", 0) < steps[3]]
        (tmp_path / path.name).write_bytes(packed(trace))
    first = found(tmp_path)[0]
    assert (first.code, first.rank) == ("data_loading", 1) and first.ms == pytest.approx(40, rel=0.1)
    assert because(first).startswith("its host loads data for 40."), "torch's mark of its loader is no name to show"


def test_hosts_that_stand_still_by_turns_are_nobodys_fault_alone() -> None:
    """40 ms a step, of the one rank in even steps and of the other in odd ones: not launching, which is the same."""
    first = found(DATA / "held_up_hosts" / "by_turns")[0]
    assert (first.code, first.rank) == ("alternating_load", None)
    assert first.ms == pytest.approx(40, rel=0.05)
    assert because(first).startswith("ranks 0 and 1 are late by turns: their hosts do nothing that is recorded before ")


def test_a_collective_ends_where_the_thread_that_waited_for_it_goes_on(tmp_path: Path) -> None:
    """A run loop may write its end down only once the thread that it woke has run for a while on the same core."""
    file = tmp_path / "rank0.json.gz"
    (source,) = (DATA / "cpu_fsdp2_n2").glob("rank0*")
    trace = unpacked(source)
    gathered = [one for one in trace["traceEvents"] if one.get("name") == "gloo:all_gather"]
    longest = max(gathered, key=lambda one: one["dur"])
    until = longest["ts"] + longest["dur"]
    longest["dur"] += 2_000
    file.write_bytes(packed(trace))
    record = read_rank(file, for_replay=True).record
    assert record is not None
    begun = trace["baseTimeNanoseconds"] + 1e3 * longest["ts"]
    (end,) = (
        record.end[at]
        for at, name in enumerate(record.name)
        if name == "all_gather" and abs(record.start[at] - begun) < 1_000
    )
    assert abs(end - trace["baseTimeNanoseconds"] - 1e3 * until) < 0.4 * MS


def test_a_host_that_sleeps_and_a_loader_of_all_ranks_are_told_apart() -> None:
    """On two CPU ranks: rank 1's host sleeps 10 ms before each step, and both load for 2 ms."""
    stall, loading = found(DATA / "cpu_ddp_n2")[:2]
    assert (stall.code, stall.rank) == ("host_stall", 1) and stall.remedy is not None
    assert stall.evidence[0].ms == pytest.approx(10, rel=0.1) and stall.remedy.cure == "look_at_host"
    assert (loading.code, loading.rank) == ("data_loading", None)
    assert loading.ms == pytest.approx(2.2, rel=0.1) and loading.evidence[0].name == "scalescope:data"
