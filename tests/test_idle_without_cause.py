"""Time in which nothing runs and of which no single cause is found: the advice is about that time."""

from pathlib import Path

import pytest

from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.finding.codes import Cure
from scalescope.scaling.finding.figures import BETWEEN, IDLE
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.findings.candidate import Scene
from scalescope.scaling.findings.computing import nothing
from tests.gloo_traces import GlooJob, analysed


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunAnalysis:
    """Of 64.7 ms nothing runs for 10.3: what hosts do between 700 operators, a little after each of 300."""
    job = GlooJob()
    for number in range(8):
        job.step(3 + number)
        job.compute(40.0, calls=400)
        for rank in (0, 1):
            for _ in range(300):
                job.compute(0.03, "aten::add", rank=rank)
                job.sleep(rank, 0.03)
        job.compute(4.0, "Optimizer.step#SGD.step")
        job.all_reduce(2.0)
    return analysed(job.write(tmp_path_factory.mktemp("idle")))


def test_of_time_in_which_nothing_runs_no_faster_operators_are_advised(run: RunAnalysis) -> None:
    """*Nothing runs for 10.3 ms of the 64.7 ms step* was followed by *make the operators themselves faster*; then by
    that *no single cause of it is found*, of what any eager step has between its operators.
    """
    names = {row.name for row in run.findings[0].evidence}
    assert run.findings[0].code == "nothing" and BETWEEN in names and IDLE not in names
    verdict = run_verdict(run)
    assert (
        "nothing between the ranks is wrong. Between the 702 operators of a step nothing runs for 10.3 ms, as in any "
        "eager step of CPUs; the compute is "
    ) in verdict.headline
    assert verdict.advice.startswith("launch less: compile the step: at most 6.3 ms a step"), verdict.advice
    assert "beyond that" not in verdict.advice and "operators themselves" not in verdict.advice


@pytest.mark.parametrize(
    ("most", "cure"), [("idle_launch", "look_at_host"), ("idle_data", "load_ahead"), ("idle_queued", "profile_longer")]
)
def test_what_most_of_that_time_is_says_what_to_do_where_launching_is_none_of_it(most: str, cure: Cure) -> None:
    class Idle(Scene):
        def __init__(self) -> None:
            """Of a scene that has nothing but idle time."""

        def share_ms(self, part: str) -> float:
            return 9.0 if part == most else 1.0

        def for_longer_ones_ms(self, *parts: str) -> float:
            return 0.0

    found: list[Finding] = []
    assert nothing._idle_cure(Idle(), found) == cure


def test_faster_operators_are_advised_where_next_to_all_of_a_step_is_compute(tmp_path: Path) -> None:
    job = GlooJob()
    for number in range(8):
        job.step(3 + number)
        job.compute(60.0, calls=400)
        job.all_reduce(2.0)
    run = analysed(job.write(tmp_path))
    assert run.findings[0].code == "nothing"
    assert run_verdict(run).advice.startswith("make the operators themselves faster")
