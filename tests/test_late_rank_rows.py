"""The rank that the others wait for, by all of a job's steps: three of them size a loader that stalls by chance."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from scalescope.records.folder import RunFolder
from scalescope.records.rows import StepRow, TrainFacts
from scalescope.report.text.findings import because
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import PipelineRow
from scalescope.scaling.answer_steps import StepTimes
from scalescope.scaling.evidence.host_cause import HostCause
from scalescope.scaling.finding.figures import IN_STEPS
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.findings.derived import keep
from scalescope.scaling.findings.detectors.host_causes import _annotated
from scalescope.scaling.findings.of_rows.late_rank import with_late_rank
from scalescope.scaling.run import add_run_folder
from scalescope.scaling.verdicts.step_rows.late import late_rank
from tests.report_samples import run_answer

NOISE = np.random.default_rng(3)


def rows(own: list[list[float]], every: int = 1) -> list[StepRow]:
    """Return steps that take 2 ms beyond what the slowest rank does by itself; of one in `every`, ranks' own times."""
    return [
        StepRow(
            step=5 + at,
            phase="steady",
            step_ms=[max(times) + 2.0] * len(times),
            samples_per_s=1.0,
            own_ms=times if at % every == 0 else [],
        )
        for at, times in enumerate(own)
    ]


def stalls(steps: int, mean_ms: float, rank: int = 1) -> list[list[float]]:
    waits = np.random.default_rng(3).exponential(mean_ms, steps)
    return [[8.0 + (wait if rank == 0 else 0.0), 8.0 + (wait if rank == 1 else 0.0)] for wait in waits.tolist()]


def test_a_rank_that_stalls_at_random_is_sized_by_all_steps() -> None:
    own = stalls(120, 100.0)
    found = late_rank(rows(own))
    mean = sum(mine - other for other, mine in own) / len(own)
    assert found is not None and (found.rank, found.steps) == (1, 120)
    assert found.ms == pytest.approx(mean) and found.low_ms < mean < found.high_ms
    assert found.mean_step_ms == pytest.approx(mean + 10.0) and found.high_ms <= found.mean_step_ms


def test_own_times_of_some_steps_tell_of_all() -> None:
    """They are marked in one of eight short steps, and a stall every fourth step is met by each of those."""
    own = [[4.0, 4.0 + (400.0 if at % 4 == 0 else 0.0)] for at in range(160)]
    found = late_rank(rows(own, every=8))
    assert found is not None and found.ms == pytest.approx(100.0, rel=0.1)
    assert found.ms < found.mean_step_ms


@pytest.mark.parametrize(
    "own",
    [
        [[8.0, 8.3]] * 60,  # by 3%
        [[8.0 + 90.0 * (at % 2), 8.0 + 90.0 * (1 - at % 2)] for at in range(60)],  # by turns
        [[50.0 * float(np.exp(0.4 * NOISE.standard_normal())) for _ in range(2)] for _ in range(60)],
        stalls(5, 100.0),
        [[8.0]] * 60,
        [[-2.0, -2.0]] * 60,  # of no length: the file is damaged
    ],
)
def test_ranks_that_are_late_alike_hardly_or_in_few_steps_are_nobody(own: list[list[float]]) -> None:
    assert late_rank(rows(own)) is None
    assert late_rank([]) is None


def test_what_others_have_a_ranks_core_for_is_none_of_its_lateness() -> None:
    delayed = [
        msgspec.structs.replace(row, run_delay_ms=[0.0, max(0.0, row.own_ms[1] - 8.0)])
        for row in rows(stalls(60, 100.0))
    ]
    assert late_rank(delayed) is None
    known = late_rank([msgspec.structs.replace(row, run_delay_ms=[0.0, 0.0]) for row in rows(stalls(60, 100.0))])
    assert known is not None and known.delays_known
    for activity, named in (("gpu", ["unsteady"]), ("cpu", [])):
        answer = told([])
        answer.activity = activity  # type: ignore[assignment]
        keep(answer, [])
        assert [one.code for one in answer.findings] == named  # nothing tells whose doing it is on a CPU


LOADING = Finding(
    code="data_loading", rank=1, ms=16.7, low_ms=14.0, high_ms=19.0, backed="replay",
    evidence=(EvidenceRow(kind="annotation", name="loading", ms=17.0),),
)  # fmt: skip


def told(findings: list[Finding], idle_data_ms: float = 0.0) -> RunAnalysis:
    """Return an answer whose rows say that rank 1 is late by about 100 ms, with such findings of its window."""
    answer = run_answer("gpt", 2)
    answer.experts, answer.pipelines = [], []
    assert answer.step_times is not None
    answer.step_times.late = late_rank(rows(stalls(120, 100.0)))
    for one in answer.steps:
        if one.rank == 1:
            one.idle_data_ms += idle_data_ms
            one.window_ms += idle_data_ms
    keep(answer, findings)
    return answer


def test_waits_for_cores_behind_the_first_exchange_make_no_other_rank_late() -> None:
    """Undisturbed ranks on shared cores: the one that waited less for them was late by 6.8 ms *by all steps*."""
    waits = np.random.default_rng(5).normal(0.0, 1.5, (40, 2)).tolist()

    def steps(more_ms: float) -> list[StepRow]:
        own = rows([[37.0 + more_ms + left, 35.8 + right] for left, right in waits])
        length = 52.0 + more_ms
        return [msgspec.structs.replace(row, step_ms=[length] * 2, run_delay_ms=[12.2, 17.6]) for row in own]

    assert late_rank(steps(0.0)) is None
    found = late_rank(steps(25.0))
    assert found is not None and found.rank == 0


def test_ranks_that_are_late_by_turns_by_chance_are_nobody() -> None:
    """One of two ranks that are alike is later by something in any ten steps: 21 of 200 such jobs had a late rank."""
    noise = np.random.default_rng(11)
    named = sum(late_rank(rows(noise.normal(40.0, 8.0, (10, 2)).tolist())) is not None for _ in range(200))
    assert named <= 12


def test_loading_that_a_window_sized_by_chance_is_what_all_steps_say() -> None:
    answer = told([LOADING])
    late = answer.step_times.late if answer.step_times is not None else None
    assert late is not None
    (found,) = answer.findings
    assert (found.code, found.rank, found.ms, found.backed) == ("data_loading", 1, late.ms, "measured")
    headline = run_verdict(answer).headline
    assert " a step in the mean, " in headline and "and all 120 steps tell what it costs" in headline
    again: RunAnalysis = msgspec.json.decode(msgspec.json.encode(answer), type=RunAnalysis)
    before = list(again.findings)
    keep(again, again.findings)
    assert again.findings == before


def test_loading_in_some_of_a_windows_steps_is_sized_by_all_steps_and_not_told_as_theirs() -> None:
    """Before, `in 1 of 12 steps its host waits 120 ms for a batch` stood for what all 120 steps cost."""
    often = EvidenceRow(kind="figure", name=IN_STEPS, ms=120.0, calls=1.0, value=12.0)
    once = msgspec.structs.replace(LOADING, low_ms=0.0, evidence=(*LOADING.evidence, often))
    (found,) = told([once]).findings
    assert "of 12 steps" not in because(found) and "and all 120 steps tell what it costs" in because(found)


def test_a_window_that_came_to_the_same_and_other_causes_of_a_rank_stay() -> None:
    late = told([]).step_times
    assert late is not None and late.late is not None
    same = msgspec.structs.replace(LOADING, ms=late.late.ms, low_ms=late.late.low_ms + 1, high_ms=late.late.high_ms - 1)
    assert told([same]).findings == [same]
    other = Finding(code="own_work", rank=1, ms=100.0, low_ms=90.0, high_ms=110.0, backed="replay")
    assert told([other, LOADING]).findings == [other, LOADING]


def test_a_late_rank_whose_script_gave_it_more_samples_has_more_work() -> None:
    """*Unsteady steps, and no window shows why* was said of a rank with 11 samples for 8."""
    answer = told([])
    assert answer.step_times is not None and answer.step_times.late is not None
    answer.step_times.late = msgspec.structs.replace(answer.step_times.late, times_the_samples=11 / 8)
    keep(answer, [])
    (found,) = answer.findings
    assert (found.code, found.rank, found.remedy and found.remedy.cure) == ("more_work", 1, "even_out")
    assert "it computes on 1.38× as much data as the others" in because(found)
    assert "all 120 steps tell what it costs" in because(found)


@pytest.mark.parametrize(("samples", "code"), [((8, 11), "more_work"), ((11, 8), "unsteady"), ((), "unsteady")])
def test_a_run_folder_tells_whether_its_late_rank_has_more_samples(
    tmp_path: Path, samples: tuple[int, ...], code: str
) -> None:
    folder = RunFolder.create(tmp_path / "run", "train", "what: mlp\n")
    folder.write_facts(TrainFacts("mlp", "ddp", "fp32", 1, 0.0, "", 10, origin="script", samples_by_rank=samples))
    folder.steps.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows(stalls(120, 100.0))))
    answer = told([])
    add_run_folder(answer, folder)
    assert [one.code for one in answer.findings if one.rank == 1] == [code]


def test_a_late_rank_that_no_window_met_is_told_with_that_doubt() -> None:
    (found,) = told([]).findings
    assert (found.code, found.rank) == ("unsteady", 1)
    assert "no window shows why" in because(found)
    assert found.remedy is not None and found.remedy.cure == "profile_longer"
    drowned = msgspec.structs.replace(LOADING, low_ms=0.0, high_ms=40.0)
    assert [one.backed for one in told([drowned]).findings] == ["measured"]


def test_a_rank_is_not_named_by_its_lateness_alone_where_in_its_window_another_is_late_by_as_much() -> None:
    """A clean job's *rank 1 costs 6.6 ms by all 39 steps* stood above a window in which rank 0 takes 14 ms longer."""
    for more_ms, named in ((60.0, ["unsteady"]), (120.0, [])):
        answer = told([])
        for one in answer.steps:
            if one.rank == 0:
                one.compute_ms += more_ms
                one.window_ms += more_ms
        keep(answer, [])
        assert [one.code for one in answer.findings] == named


@pytest.mark.parametrize(("activity", "more_ms", "named"), [
    ("cpu", 6.0, []), ("cpu", 12.0, ["unsteady"]), ("gpu", 6.0, ["unsteady"]),
])  # fmt: skip
def test_hosts_that_compute_are_late_by_little_for_no_reason_that_shows(
    activity: str, more_ms: float, named: list[str]
) -> None:
    """An undisturbed run on two cores began with *rank 0 costs 4.2 ms, 5.2% of the step, and no window shows why*."""
    answer = told([])
    noise = np.random.default_rng(5).normal(0.0, 1.0, (60, 2)).tolist()
    steps = [[80.0 + here, 80.0 + more_ms + there] for here, there in noise]
    known = [msgspec.structs.replace(row, run_delay_ms=[0.0, 0.0]) for row in rows(steps)]
    assert answer.step_times is not None
    answer.step_times.late = late_rank(known)
    assert answer.step_times.late is not None
    answer.activity = activity  # type: ignore[assignment]
    keep(answer, [])
    assert [one.code for one in answer.findings] == named


def test_a_late_rank_without_a_trace_is_to_be_recorded_and_not_to_be_looked_for_in_more_windows() -> None:
    answer = told([])
    answer.ranks = [one for one in answer.ranks if one.rank != 1]
    keep(answer, [])
    (found,) = answer.findings
    assert (found.code, found.rank) == ("unsteady", 1)
    assert because(found).endswith("and its trace, which would show why, is missing")
    assert found.remedy is not None and found.remedy.cure == "profile_rank"


def test_of_one_rank_of_several_nothing_is_said_of_the_others_hosts() -> None:
    """*Stalled hosts … the hosts do nothing* was said of rank 1's trace alone, of a job whose rank 1 alone slept."""
    stall = Finding(
        code="host_stall", ms=25.0, low_ms=24.0, high_ms=26.0, fraction=0.2, backed="replay",
        evidence=(EvidenceRow(kind="figure", name="gap_before aten::linear", ms=25.4),),
        remedy=Remedy(cure="look_at_host"),
    )  # fmt: skip
    answer = run_answer("one", 2)
    keep(answer, [stall])
    both = run_verdict(answer)
    assert "stalled hosts cost" in both.headline and "Whether" not in " ".join(both.sentences)
    answer.ranks = answer.ranks[:1]
    keep(answer, [stall])
    alone = run_verdict(answer)
    assert "a stalled host costs" in alone.headline and "hosts" not in alone.headline
    assert alone.sentences[0].startswith("Whether other ranks' hosts do so, too, or wait for this one")


def test_work_that_is_there_for_sure_is_why_whatever_the_windows_noise_hides_of_its_cost() -> None:
    inputs = EvidenceRow(kind="figure", name="times_the_inputs", value=2.0)
    longer = Finding(
        code="more_work", rank=1, ms=90.0, low_ms=0.0, high_ms=180.0, backed="replay", evidence=(inputs,),
        remedy=Remedy(cure="even_out"),
    )  # fmt: skip
    answer = told([longer])
    late = answer.step_times.late if answer.step_times is not None else None
    assert late is not None
    (found,) = answer.findings
    assert (found.code, found.ms, found.low_ms) == ("more_work", late.ms, late.low_ms)
    headline = run_verdict(answer).headline
    assert "2.00× as much data" in headline and " a step in the mean, " in headline and "may cost" not in headline
    for other in (
        msgspec.structs.replace(longer, ms=20.0),  # too little to be all of it
        msgspec.structs.replace(longer, evidence=()),  # noise may have made it
        msgspec.structs.replace(
            longer, ms=late.low_ms - 16.0, high_ms=late.low_ms - 15.0
        ),  # less than the rank is late by
    ):
        assert "unsteady" in [one.code for one in told([other]).findings]


def test_a_host_that_stands_still_for_what_its_rank_is_late_by_is_why() -> None:
    """Of a rank that slept 15 ms a step, *no window shows why* stood first, and the sleep behind it, within noise."""

    def stall(ms: float, *more: EvidenceRow) -> Finding:
        gap = EvidenceRow(kind="figure", name="gap_before aten::view", ms=ms + 0.2, others_ms=0.2, calls=1.0)
        return Finding(
            code="host_stall", rank=1, ms=0.55 * ms, low_ms=0.0, high_ms=2 * ms, backed="replay",
            evidence=(gap, *more), remedy=Remedy(cure="look_at_host"),
        )  # fmt: skip

    answer = told([stall(100.0)])
    late = answer.step_times.late if answer.step_times is not None else None
    assert late is not None
    (found,) = answer.findings
    assert (found.code, found.ms, found.low_ms, found.backed) == ("host_stall", late.ms, late.low_ms, "measured")
    because_of = because(found)
    assert "before aten::view" in because_of and "and all 120 steps tell what it costs" in because_of
    some = EvidenceRow(kind="figure", name=IN_STEPS, ms=100.0, calls=1.0, value=3.0)
    for other in (stall(40.0), stall(250.0), stall(100.0, some)):
        assert "unsteady" in [one.code for one in told([other]).findings]


def test_stages_of_a_pipeline_wait_for_the_first_by_their_schedule() -> None:
    answer = told([])
    assert answer.findings
    answer.pipelines = run_answer("gpt", 2).pipelines or [
        PipelineRow(group="pp", stages=[0, 1], micro_batches=4, bubble_ms=1.0, bubble=0.1, schedule_bubble=0.1,
                    slow_rank=None, compute_ms={0: 1.0, 1: 1.0}, steps=3)
    ]  # fmt: skip
    assert not any(one.code == "unsteady" for one in with_late_rank([], answer))


def test_what_the_window_has_it_do_is_why() -> None:
    (found,) = told([], idle_data_ms=60.0).findings
    assert (found.code, found.rank) == ("data_loading", 1)


def test_a_recurring_stall_that_the_late_rank_has_is_no_other_news() -> None:
    answer = told([LOADING])
    assert answer.step_times is not None
    times = answer.step_times
    times.unsteady, times.profiling_overhead_fraction, times.placebo_ms = True, -0.6, 400.0
    assert isinstance(times, StepTimes)
    assert "unsteady" not in run_verdict(answer).text  # whose steps differ, and why, is known
    assert "the profiled steps are not like the mean one" in run_verdict(answer).text


def test_what_is_loaded_before_the_bounding_step_counts_as_loading() -> None:
    """A stall of every other step is in a window's first step, which the graph lacks, and before its last one."""
    launches: Any = {(rank, step): SimpleNamespace(data_ns=np.array([ms * 1e6]))
                     for rank, step, ms in ((0, 0, 1.0), (0, 1, 1.0), (1, 0, 2.0), (1, 1, 189.0))}  # fmt: skip
    cause = HostCause(
        code="data_loading", rank=1, steps=(22, 23, 24), ns=(185_000_000, 500_000, 187_000_000), evidence=()
    )
    for edge, known in ((1, True), (None, False)):
        side = SimpleNamespace(ranks=[0, 1], steps=[0], edge=edge, launches=launches)
        assert _annotated(SimpleNamespace(side=side), 1, [cause]) == known  # type: ignore[arg-type]


def test_waits_for_cores_until_the_exchange_are_taken_where_they_are_known() -> None:
    """A rank that is late by 25 ms waits for cores behind its exchange alone; by the whole step's it is nobody."""
    own = rows([[62.0, 37.0]] * 20)
    whole = [msgspec.structs.replace(row, step_ms=[80.0] * 2, run_delay_ms=[30.0, 2.0]) for row in own]
    assert late_rank(whole) is None
    found = late_rank([msgspec.structs.replace(row, own_run_delay_ms=[0.0, 2.0]) for row in whole])
    assert found is not None and found.rank == 0 and found.ms == pytest.approx(27.0)


def test_what_a_few_disturbed_steps_size_vaguely_all_steps_size_where_hosts_compute() -> None:
    """Products of 22 ms beside a busy machine: `11.3 ms (9.7 to 12.5)` of two steps, where 39 say 23.9."""
    work = EvidenceRow(kind="activity", name="aten::matmul", ms=100.0, calls=3.0)
    counted = EvidenceRow(kind="figure", name="launches_besides", calls=3.0, value=0.0)
    vague = Finding(code="own_work", rank=1, ms=60.0, low_ms=40.0, high_ms=110.0, backed="replay",
                    evidence=(work, counted), remedy=Remedy(cure="look_at_rank"))  # fmt: skip

    def found(one: Finding, activity: str) -> Finding:
        answer = told([])
        answer.activity = activity  # type: ignore[assignment]
        assert answer.step_times is not None and answer.step_times.late is not None
        answer.step_times.late = msgspec.structs.replace(
            answer.step_times.late, saved_ms=95.0, saved_low_ms=85.0, saved_high_ms=105.0, delays_known=True
        )
        answer.findings = []
        keep(answer, [one])
        return next(other for other in answer.findings if other.code == "own_work")

    assert (found(vague, "cpu").low_ms, found(vague, "cpu").backed) == (85.0, "measured")
    assert found(vague, "gpu").low_ms == 40.0
    for other in (
        msgspec.structs.replace(vague, ms=98.0, low_ms=96.0, high_ms=100.0),  # known better
        msgspec.structs.replace(vague, ms=20.0, low_ms=10.0, high_ms=30.0,
                                evidence=(msgspec.structs.replace(work, ms=30.0), counted)),  # too little to be why
    ):  # fmt: skip
        assert found(other, "cpu").ms == other.ms
        assert found(other, "cpu").high_ms == other.high_ms
    contradicted = msgspec.structs.replace(vague, ms=48.0, low_ms=45.0, high_ms=51.0)
    assert found(contradicted, "cpu").ms == 95.0, (
        "the window shows 100 ms of it a step, and all steps say what it costs"
    )


def late_by(ms: float, half_ms: float, finding: Finding) -> Finding:
    """Return what is told of a late rank's only finding where all steps say how late it is."""
    answer = told([])
    answer.activity = "cpu"
    assert answer.step_times is not None and answer.step_times.late is not None
    answer.step_times.late = msgspec.structs.replace(
        answer.step_times.late, ms=ms, low_ms=ms - half_ms, high_ms=ms + half_ms, saved_ms=ms,
        saved_low_ms=ms - half_ms, saved_high_ms=ms + half_ms, delays_known=True,
    )  # fmt: skip
    answer.findings = []
    keep(answer, [finding])
    return next(one for one in answer.findings if one.code == finding.code)


def test_what_all_steps_contradict_is_told_as_uncertain_as_that() -> None:
    """A window's 11.3 ms (10.6 to 12.0) stood beside 23.1 ms by which all steps said that the rank was late."""
    slower = Finding(code="slower_compute", rank=1, ms=11.3, low_ms=10.6, high_ms=12.0, backed="replay",
                     remedy=Remedy(cure="look_at_rank"))  # fmt: skip
    found = late_by(23.1, 2.0, slower)
    assert (found.ms, found.low_ms, found.high_ms) == (11.3, 10.6, 25.1)
    found = late_by(5.0, 2.0, slower)
    assert (found.ms, found.low_ms, found.high_ms) == (11.3, 3.0, 12.0)
    found = late_by(10.0, 2.0, slower)
    assert (found.ms, found.low_ms, found.high_ms) == (11.3, 10.6, 12.0), "what agrees stays where it is known better"


def test_a_host_that_stands_still_for_what_all_steps_say_costs_that_whatever_its_window_was_priced_at() -> None:
    gap = EvidenceRow(kind="figure", name="gap_before aten::view", ms=22.6, others_ms=0.2, calls=1.0)
    stall = Finding(code="host_stall", rank=1, ms=10.0, low_ms=9.5, high_ms=10.5, backed="replay", evidence=(gap,),
                    remedy=Remedy(cure="look_at_host"))  # fmt: skip
    found = late_by(23.1, 2.0, stall)
    assert (found.ms, found.low_ms, found.high_ms, found.backed) == (23.1, 21.1, 25.1, "measured")
