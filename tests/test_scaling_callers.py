"""Where stacks were recorded, what a rank alone runs is told with the line of the script that calls it."""

from pathlib import Path

import pytest

from scalescope import RunAnalysis
from scalescope.report.text.cures.words import cure_elsewhere, cure_text
from scalescope.report.text.findings import because
from scalescope.report.verdict.run import run_verdict
from tests.gloo_traces import GlooJob, analysed

#: As the profiler names functions, outermost first; of these the last one that is the script's is told.
FRAMES = (
    "job.py(44): train", "widgets/board.py(23): dashboard", "torch/functional.py(1775): histc",
    "<built-in method histc of type object at 0x7ff2e0ecea40>",
)  # fmt: skip


def _job(folder: Path, *frames: str) -> RunAnalysis:
    """Of two ranks that compute for 40 ms rank 0 counts histograms for 10 ms, within such frames."""
    job = GlooJob()
    for step in range(8):
        job.step(3 + step)
        begun = job.now[0]
        for _ in range(10):
            job.compute(1.0, "aten::histc", 0)
        for depth, name in enumerate(frames):  # as nested as they are told
            job.stack(0, name, begun - 900 + 200 * depth, job.now[0] + 900 - 200 * depth)
        job.compute(40.0, "aten::linear", calls=20)
        job.all_reduce(2.0)
        job.compute(2.0, "aten::_foreach_add_")
    return analysed(job.write(folder))


def test_the_line_that_calls_what_a_rank_alone_runs_is_in_the_first_sentence(tmp_path: Path) -> None:
    """*profile_steps(…, stacks=True) puts the lines into the trace*, was the advice of a trace that had them."""
    answer = _job(tmp_path, *FRAMES)
    first = answer.findings[0]
    assert first.code == "own_work" and first.remedy is not None
    assert first.remedy.line == "widgets/board.py(23): dashboard"
    headline = run_verdict(answer).headline
    assert "aten::histc, 10.0 ms a step, which the others do not run, called in widgets/board.py(23): dash" in headline
    assert cure_text(first.remedy) == "look at widgets/board.py(23): dashboard, which launches that on this rank alone"
    assert "stacks" not in cure_elsewhere(first.remedy) and "if rank ==" in cure_elsewhere(first.remedy)


@pytest.mark.parametrize(
    "frames", [(), FRAMES[2:], ("threading.py(1075): run", "lib/python3.12/site-packages/x.py(3): f")]
)
def test_without_a_line_of_a_scripts_own_stacks_are_advised(frames: tuple[str, ...], tmp_path: Path) -> None:
    first = _job(tmp_path, *frames).findings[0]
    assert first.code == "own_work" and first.remedy is not None and first.remedy.line is None
    assert "find what launches that" in cure_text(first.remedy) and "stacks=True" in cure_elsewhere(first.remedy)


def test_what_a_rank_has_beyond_the_others_is_told_with_its_own_caller(tmp_path: Path) -> None:
    """The network of both calls the same operators, and more of them: *called in net.py(3): forward* was told."""
    job = GlooJob()
    for step in range(8):
        job.step(3 + step)
        for rank in range(2):
            begun = job.now[rank]
            job.compute(30.0, "aten::histc", rank, calls=40)
            job.stack(rank, "net.py(3): forward", begun - 100, job.now[rank] + 100)
        begun = job.now[0]
        job.compute(12.0, "aten::histc", 0, calls=16)
        job.stack(0, FRAMES[1], begun - 100, job.now[0] + 100)
        job.compute(40.0, "aten::linear", calls=20)
        job.all_reduce(2.0)
        job.compute(2.0, "aten::_foreach_add_")
    first = analysed(job.write(tmp_path)).findings[0]
    assert first.code == "own_work" and first.remedy is not None
    assert first.remedy.line == FRAMES[1]


@pytest.mark.parametrize("frame", ["", "job.py(5): save"])
def test_what_a_stall_is_stacks_would_tell_and_where_they_do_none_are_advised(frame: str, tmp_path: Path) -> None:
    """Of a host that does something that no operator tells, the advice was py-spy alone."""
    job = GlooJob()
    for step in range(6):
        job.step(3 + step)
        job.compute(20.0, calls=10)
        begun = job.now[1]
        job.sleep(1, 6.0)
        if frame:
            job.stack(1, frame, begun + 100, job.now[1] - 100)
        job.compute(20.0, "aten::relu", calls=10)
        job.all_reduce(2.0)
    first = analysed(job.write(tmp_path)).findings[0]
    assert first.code == "host_stall" and first.remedy is not None
    assert "does nothing that is recorded (Python runs, sleeps, or waits for a file or a lock)" in because(first)
    assert ("stacks=True) puts the function that does it" in cure_elsewhere(first.remedy)) == (not frame)
