"""A rank whose loader's workers set the pace: what its steps tell, what the profiled ones do not, and what to do."""

import msgspec
import pytest
from msgspec.structs import replace

from scalescope.report.of_traces import data_of_traces
from scalescope.report.panels.advice import advice_panels, causes_of, findings_table
from scalescope.report.text.findings import because, first_sentence, priced, todo
from scalescope.report.text.of_step import basis_sentence
from scalescope.report.top.bars import run_bars
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.answer import AsRun, Replay, RunAnalysis
from scalescope.scaling.answer_rows import PARTS, Split
from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.finding.figures import LATE, STEADY_STEPS
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from tests.report_samples import run_answer

WAITS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
LATE_WORKERS = Finding(
    code="data_loading",
    rank=1,
    ms=68.8,
    low_ms=60.8,
    high_ms=76.9,
    fraction=0.348,
    backed="measured",
    evidence=(
        EvidenceRow(kind="annotation", name=WAITS, ms=43.8),
        EvidenceRow(kind="figure", name=LATE, ms=68.8, value=32.0),
        EvidenceRow(kind="figure", name=STEADY_STEPS, ms=197.6),
    ),
    remedy=Remedy(cure="load_faster", on_cpu=True),
)


def run_of(finding: Finding) -> RunAnalysis:
    """Return the answer of a run whose profiled steps are shorter than its own, of which a replay is 3% off."""
    run = run_answer("r", 2)
    run.findings = [finding]
    run.as_run = AsRun(step_ms=199.4, source="steps", untraced_ms=Interval(199.4, 197.0, 201.0), untraced_by="steps",
                       contradicts="too_long", contradicted_ms=167.1)  # fmt: skip
    run.replay = Replay(traced_ms=171.3, replayed_ms=176.7, error=0.0318, unexplained_ms=0.0, faithful=False)
    return run


def test_what_is_more_than_in_the_profiled_steps_stands_with_the_cost_and_not_with_the_others_workers() -> None:
    """*The others' workers go on meanwhile, and may be as slow, 25.0 ms more than in these* was no sentence."""
    told = first_sentence([LATE_WORKERS], 199.4, 2)
    assert "and all 32 steps tell what it costs: 25.0 ms more than that; whether the others' workers" in told
    assert told.endswith("are as slow does not show, as these go on while their ranks wait.")
    assert "more than that" not in because(replace(LATE_WORKERS, low_ms=40.0)), "its interval holds these 43.8 ms"


def test_profiled_steps_that_found_batches_ready_are_no_job_that_ran_unevenly() -> None:
    """*199.4 ms contradicts the traces: there the step takes 167.1 ms. The job did not run evenly*: the first three of
    seven profiled steps waited 4, 1 and 12 ms for batches, the others 65 to 79, as all steps before them had.
    """
    text = run_verdict(run_of(LATE_WORKERS)).text
    assert "step takes 199.4 ms, and in the traces 167.1 ms: while the profiler starts, the workers" in text
    assert "evenly" not in text and "contradict" not in text
    computed = replace(LATE_WORKERS, evidence=(replace(LATE_WORKERS.evidence[0], name="loading"),
                                               *LATE_WORKERS.evidence[1:]))  # fmt: skip
    for other in (computed, replace(LATE_WORKERS, ms=44.0, low_ms=40.0, high_ms=48.0)):
        assert "did not run evenly" in run_verdict(run_of(other)).text, "no worker goes on, or none was found ready"


def test_what_to_do_is_said_of_a_replay_that_is_some_per_cent_off_too() -> None:
    """*On 2 CPU ranks the profiled steps are not like the mean one* was all that *What to do next* began with."""
    (panel,) = advice_panels(data_of_traces([run_of(LATE_WORKERS)], "traces"))
    most = "Most would come, on rank 1, of: make batches faster than the job takes them, by more loader workers"
    assert panel.sentence.startswith(most), panel.sentence
    assert "Causes that are there are priced all the same" in panel.sentence


def test_a_page_says_on_which_rank_to_begin_as_a_terminal_does() -> None:
    """*What may help most, on rank 1* stood on the terminal, and on the page *most would come of: make batches faster*,
    as if all ranks' workers were slow.
    """
    run = run_of(LATE_WORKERS)
    (panel,) = advice_panels(data_of_traces([run], "traces"))
    assert run_verdict(run).advice_title.endswith(", on rank 1") and ", on rank 1, of: " in panel.sentence
    of_all = run_of(replace(LATE_WORKERS, rank=None))
    (panel,) = advice_panels(data_of_traces([of_all], "traces"))
    assert run_verdict(of_all).begins_on is None and "on rank" not in panel.sentence.split(".")[0]


#: What a rank does longer than the other in profiled steps that found batches ready, and what all steps tell of it.
READY = replace(LATE_WORKERS, ms=65.6, low_ms=48.1, high_ms=83.1, fraction=65.6 / 206.3,
                evidence=(EvidenceRow(kind="annotation", name=WAITS, ms=27.9, others_ms=8.3),
                          EvidenceRow(kind="figure", name=LATE, ms=65.6, value=25.0),
                          EvidenceRow(kind="figure", name=STEADY_STEPS, ms=206.3)))  # fmt: skip


def with_ready_batches(*findings: Finding) -> RunAnalysis:
    """Return the answer of a run of 209.5 ms a step, whose profiled ones take 175.9 ms for the batches they found."""
    run = run_answer("r", 2)
    run.activity, run.findings = "cpu", list(findings)

    def split(rank: int, wait_ms: float, data_ms: float) -> Split:
        own = {f"{part}_ms": 0.0 for part in PARTS}
        own |= {"exposed_wait_ms": wait_ms, "idle_data_ms": data_ms, "compute_ms": 175.9 - wait_ms - data_ms}
        return Split(rank=rank, window_ms=175.9, **own)

    run.as_run = AsRun(step_ms=209.5, low_ms=201.9, high_ms=217.1, source="steps", steps=1, untraced_by="steps",
                       replayed_ms=Interval(175.9, 173.2, 178.0), recording_ms=Interval(6.5, 6.0, 7.0),
                       ranks=[split(0, 17.2, 7.8), split(1, 3.6, 29.2)])  # fmt: skip
    run.replay = Replay(traced_ms=182.4, replayed_ms=182.4, error=0.0, unexplained_ms=0.0, faithful=True)
    assert run.step_times is not None
    run.step_times.measured_step_ms = 209.5
    return run


def test_a_bar_draws_what_all_steps_tell_of_a_rank_and_not_what_its_profiled_steps_show() -> None:
    """*Rank 1 costs 65.6 ms, 31.8% of the step* stood above a bar of 209.5 ms of which *rank 1 alone* was 11%."""
    drawn = run_bars(with_ready_batches(READY))
    assert drawn is not None and {bar.value for bar in drawn.bars} == {"209.5 ms"}
    late, other = drawn.bars[-2:]
    assert late.stretches[0].label == "rank 1 alone 31%", "as the sentence has it"
    assert float(late.stretches[0].weight) == pytest.approx(31.3, abs=0.1)
    (waits,) = (one for one in other.stretches if one.label.startswith("exposed wait"))
    assert float(waits.weight) == pytest.approx(31.3, abs=0.1), "the other one waits for it meanwhile"
    for bar in drawn.bars:
        assert sum(float(one.weight) for one in bar.stretches) == pytest.approx(100, abs=0.5)
    assert "by all 25 steps" in drawn.title and "cut by its shares of the profiled steps" in drawn.title


def test_a_bar_whose_profiled_steps_show_what_all_steps_tell_is_cut_by_their_shares() -> None:
    as_long = replace(READY, ms=22.0, low_ms=15.0, high_ms=29.0, fraction=22.0 / 206.3)
    drawn = run_bars(with_ready_batches(as_long))
    assert drawn is not None and "cut by the shares that its parts have" in drawn.title
    assert drawn.bars[-2].stretches[0].label == "rank 1 alone 11%"


def test_a_mean_step_as_long_as_the_step_as_run_has_no_second_length() -> None:
    """209.5 ms as run, 206.3 in the mean, 175.9 without recording, 182.4 with it: four lengths of one step; and *31.8%
    of the mean step*, without its length, was a share of nothing that was told.
    """
    other = replace(READY, code="host_stall", ms=10.0, low_ms=9.0, high_ms=11.0, fraction=10.0 / 175.9)
    run = with_ready_batches(READY, other)
    told = run_verdict(run)
    assert "31.3% of the 209.5 ms step." in told.headline and "206.3" not in told.text
    assert todo(READY, run).endswith(", 31.3%") and todo(other, run).endswith(", 4.8%"), "all are of that one"
    assert basis_sentence(run, run.findings) == "All shares are of the 209.5 ms step as run."
    table = findings_table(run)
    shares = [row[[one.key for one in table.columns].index("fraction")] for row in table.rows]
    assert shares == [pytest.approx(65.6 / 209.5), pytest.approx(10.0 / 209.5)]
    assert run.as_run is not None
    run.as_run.step_ms = 190.0  # beside which the mean one is another
    run.as_run.low_ms, run.as_run.high_ms = 180.0, 200.0
    assert "31.8% of the 206.3 ms mean step." in run_verdict(run).headline


def test_loading_of_all_ranks_says_what_it_is_beside_that_of_one() -> None:
    """*1. rank 1, loading data: 65.6 ms* and *3. loading data: 20.7 ms* had one advice, and no word of a sum."""
    everyone = replace(READY, rank=None, ms=20.7, low_ms=0.3, high_ms=36.5, fraction=0.118,
                       evidence=(EvidenceRow(kind="annotation", name=WAITS, ms=8.3),))  # fmt: skip
    run = with_ready_batches(READY, everyone)
    of_rank, of_all = causes_of(run)
    assert of_rank.told.startswith("rank 1, loading data: 65.6 ms")
    assert of_all.told.startswith("loading data on all ranks, beside what rank 1 loads longer: 20.7 ms")
    assert of_all.todo == "the same as for rank 1, on all ranks" and "DataLoader(num_workers" in of_rank.todo
    alone = replace(READY, evidence=tuple(msgspec.structs.replace(row, others_ms=None) for row in READY.evidence))
    assert priced(everyone, run, [alone, everyone]).startswith(
        "loading data on all ranks, in part the same as rank 1's"
    )
    assert priced(everyone, run, [everyone]).startswith("loading data: 20.7 ms")
