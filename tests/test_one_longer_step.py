"""One step of a window that is far longer than its others, and what is said of a step that is longer than the job's."""

from pathlib import Path

import msgspec
import pytest

from scalescope.records.folder import RunFolder
from scalescope.records.rows import StepRow
from scalescope.report.advice import first
from scalescope.report.text.findings import because, headline
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.finding.figures import IDLE
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.finding.kinds import is_now_and_then
from tests.gloo_traces import GlooJob
from tests.report_samples import run_with_traces


def _traces(path: Path, longer_ms: float, others_ms: float = 0.3) -> Path:
    """Write traces of seven steps of some 92 ms, of which rank 0 stands still for so long in the third."""
    job = GlooJob()
    for number in range(22, 29):
        job.step(number)
        for at in range(24):
            job.compute(3.5, ("aten::linear", "aten::gelu", "aten::mul", "aten::add")[at % 4])
            for rank in range(2):
                job.sleep(rank, others_ms * (1 + (at + number + rank) % 3 / 10))
            if number == 24 and at in (3, 8, 13, 21):
                job.sleep(0, longer_ms / 4)
        job.all_reduce(2.0)
        job.compute(3.0, "aten::lerp_")
    return job.write(path)


def _told(path: Path) -> RunAnalysis:
    (answer,) = analyze([path], jobs=1)
    assert isinstance(answer, RunAnalysis)
    return answer


def test_a_host_that_stands_still_for_most_of_a_step_once_is_told_with_how_often_that_was(tmp_path: Path) -> None:
    """Of a step of seven that was 126 ms longer than the others' 147 on rank 0, plain traces told *nothing runs for
    18.0 ms of the 155.1 ms step, and no single cause of it is found*, and torch.compile was advised. Then a job whose
    other steps were even began with *rank 0 may cost 10.7 ms a step in the mean, or nothing*.
    """
    run = _told(_traces(tmp_path / "once", 75.0))
    stall = next(one for one in run.findings if is_now_and_then(one))
    assert (stall.code, stall.rank, stall.low_ms) == ("host_stall", 0, 0.0)
    verdict = run_verdict(run)
    assert ": one step of 7 took 75.0 ms longer on rank 0, which tells nothing of the others. " in verdict.headline
    assert "In 1 of 7 profiled steps (24) its host" in verdict.headline and "may cost" not in verdict.headline
    assert verdict.advice.startswith("profile more steps") and verdict.advice_title == "What may help most"
    assert "no single cause" not in verdict.text and "operators themselves" not in verdict.text, verdict.text


@pytest.mark.parametrize(("steps", "of"), [(2.0, 7.0), (1.0, 3.0)])
def test_what_is_in_two_steps_or_in_one_of_few_is_told_by_what_it_may_cost(
    steps: float, of: float, tmp_path: Path
) -> None:
    run = _told(_traces(tmp_path / "once", 75.0))
    stall = next(one for one in run.findings if is_now_and_then(one))
    rows = [msgspec.structs.replace(row, calls=steps, value=of) if row.calls == 1 else row for row in stall.evidence]
    assert "rank 0 may cost" in headline(msgspec.structs.replace(stall, evidence=tuple(rows)), 109.6, 2)


def test_what_is_no_more_than_hosts_are_held_up_for_by_chance_is_no_step_of_its_own(tmp_path: Path) -> None:
    assert not any(map(is_now_and_then, _told(_traces(tmp_path / "once", 35.0)).findings))


def test_what_no_cause_is_found_of_and_what_the_compute_is_are_two_sentences() -> None:
    """*No single cause of it is found: the compute is 70% convolution* gave that as the reason."""
    rows = (
        EvidenceRow(kind="figure", name="compute", ms=117.0, share=0.78),
        EvidenceRow(kind="figure", name=IDLE, ms=24.4, share=0.16),
        EvidenceRow(kind="activity", name="convolution", ms=82.3, calls=50.0, share=0.7),
    )
    found = Finding(code="nothing", ms=None, low_ms=None, high_ms=None, evidence=rows, backed="replay")
    told = headline(found, 150.5, 2)
    assert told == "nothing runs for 24.4 ms of the 150.5 ms step, and no single cause of it is found. " + (
        "The compute is 70% convolution."
    )


@pytest.mark.parametrize(("own_ms", "named"), [(60.0, " ms step "), (99.0, " ms profiled step")])
def test_a_part_that_is_longer_than_the_job_s_step_is_told_of_one_with_its_length(
    own_ms: float, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """*At least 1,093 ms of the profiled step* stood above *as run a step takes 853.7 ms*; of ranks that compute with
    4 threads on 2 cores *measure again on a quiet machine* came before *compute with no more threads*.
    """
    folder, recorded = run_with_traces(tmp_path / "run", _traces(tmp_path / "traces", 0.0))
    with folder.step_writer() as writer:
        for step in range(80):
            phase = "profile" if step in recorded else "steady"
            writer.append(StepRow(step=step, phase=phase, step_ms=[own_ms, own_ms], samples_per_s=1.0))  # type: ignore[arg-type]
    run = _told(RunFolder(folder.path).path)
    starved = Finding(code="host_starved", ms=80.0, low_ms=80.0, high_ms=90.0, fraction=0.85, backed="replay",
                      at_least=True, remedy=Remedy(cure="fewer_threads", size=1.0, on_cpu=True),
                      evidence=(EvidenceRow(kind="figure", name="threads", value=4.0),
                                EvidenceRow(kind="figure", name="cores", value=2.0)))  # fmt: skip
    run.findings = [starved]
    verdict = run_verdict(run)
    assert "at least 80.0 ms of the" in verdict.headline and named in verdict.headline, verdict.headline
    assert verdict.advice.startswith("compute with no more threads"), verdict.advice
    monkeypatch.setattr(first, "is_doubtful", lambda _: True)
    told = first.best_advice(run, "").text
    assert told.startswith("compute with no more threads than there are cores; then measure again"), told
    run.findings = [msgspec.structs.replace(starved, remedy=Remedy(cure="free_cores", on_cpu=True))]
    assert first.best_advice(run, "").text.startswith("measure again"), "whoever has the cores may be gone"


def _with_two_long(path: Path) -> Path:
    """Write traces of ten steps of some 92 ms, in two of which, in a row, rank 0 computes for 90 ms longer."""
    job = GlooJob()
    for number in range(22, 32):
        job.step(number)
        for at in range(24):
            job.compute(3.5, ("aten::linear", "aten::gelu", "aten::mul", "aten::add")[at % 4])
            if number in (26, 27) and at == 12:
                job.compute(90.0, "aten::addmm", rank=0)
        job.all_reduce(2.0)
        job.compute(3.0, "aten::lerp_")
    return job.write(path)


@pytest.mark.parametrize(("longest_ms", "code"), [(96.0, "unsteady"), (180.0, "more_work")])
def test_what_a_window_met_once_and_none_of_many_other_steps_has_is_no_rank_s_work(
    longest_ms: float, code: str, tmp_path: Path
) -> None:
    """Two slow steps of a window of ten were *rank 0, more work: 17.6 ms (5.0 ms to 44.8 ms)*, with advice about
    validation, though none of the job's 27 other steps was longer.
    """
    folder, recorded = run_with_traces(tmp_path / "run", _with_two_long(tmp_path / "traces"))
    with folder.step_writer() as writer:
        for step in range(62):
            phase = "profile" if step in recorded else "steady"
            ms = longest_ms if step in (3, 17) else 90.0 + step % 3
            writer.append(StepRow(step=step, phase=phase, step_ms=[ms, ms], samples_per_s=1.0))  # type: ignore[arg-type]
    run = _told(RunFolder(folder.path).path)
    found = next(one for one in run.findings if is_now_and_then(one))
    assert (found.code, found.rank) == (code, None if code == "unsteady" else 0)
    if code == "unsteady":
        assert found.ms == pytest.approx(2 * 90 / 62, rel=0.02) and found.low_ms == 0.0
        assert "in 2 of 10 profiled steps (26 and 27), and in none of the job's 52 others" in because(found)
    else:
        assert found.ms == pytest.approx(18.0, rel=0.05)
