"""A rank whose loader's workers set the pace: what its steps tell, what the profiled ones do not, and what to do."""

from msgspec.structs import replace

from scalescope.report.of_traces import data_of_traces
from scalescope.report.panels.advice import advice_panels
from scalescope.report.text.findings import because, first_sentence
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.answer import AsRun, Replay, RunAnalysis
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
    assert "and all 32 steps tell what it costs, 25.0 ms more than in these; whether the others' workers" in told
    assert told.endswith("are as slow does not show, as these go on while their ranks wait.")
    assert "more than in these" not in because(replace(LATE_WORKERS, low_ms=40.0)), "its interval holds these 43.8 ms"


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
