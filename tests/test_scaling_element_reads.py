"""Loops of Python that read tensors value by value: what they take, and what is none of theirs.

Of real traces counts are known; what a loop costs is known of jobs that are made up.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from scalescope import RunAnalysis, analyze
from scalescope.report.text.cures.words import cure_elsewhere, cure_text
from scalescope.report.text.findings import because
from scalescope.scaling.finding.finding import Finding
from tests.gloo_traces import GlooJob, analysed
from tests.host_traces import HostTrace, backward, forward, optimise
from tests.loops_job import COLUMNS, KINDS, ROWS
from tests.made_once import made_once

KERNEL_US = 40.0


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Traces of small jobs that torch has recorded, one of each kind of loop."""

    def make(folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "tests.loops_job", str(folder), *KINDS], check=True, capture_output=True)

    return made_once(tmp_path_factory, "element_loops", make)


def _of(answer: RunAnalysis, code: str) -> list[Finding]:
    return [one for one in answer.findings if one.code == code]


def test_values_that_are_read_one_by_one_are_counted_and_read_all_at_once(traces: Path) -> None:
    """Before, it was launching: `launch less: compile the step`, which does nothing there."""
    answer = analyze(traces / "read")
    (first,) = _of(answer, "element_reads")
    assert (first.rank, first.at_most, first.backed) == (None, False, "replay")
    assert f"reads {ROWS * COLUMNS:,} values a step one by one" in because(first) and "aten::item" in because(first)
    assert first.remedy is not None and first.remedy.cure == "read_at_once"
    assert "all at once" in cure_text(first.remedy) and ".tolist()" in cure_elsewhere(first.remedy)
    assert not _of(analyze(traces / "read_at_once"), "element_reads")


def test_what_is_launched_beside_values_that_are_read_is_the_models(tmp_path: Path) -> None:
    """2,000 reads a step are none of the 200 operators between which hosts do other things."""
    job = GlooJob(view_ns=None)
    for step in range(6):
        job.step(3 + step)
        for number in range(200):
            job.compute(0.05, f"aten::kind_{number % 20}")
            job.sleep(0, 0.05)
            job.sleep(1, 0.05)
        job.compute(10.0, "aten::item", calls=2_000)
        job.all_reduce(2.0)
    answer = analysed(job.write(tmp_path), step_ms=36.1)
    (launching,) = _of(answer, "host_bound")
    (launches,) = (row.calls for row in launching.evidence if row.name == "launches")
    assert _of(answer, "element_reads") and launches is not None and 200 <= launches < 210


def test_what_python_computes_between_two_reads_is_not_for_the_reads(tmp_path: Path) -> None:
    """Python that takes 100 µs for each value is still there once they are read at once."""
    job = GlooJob(view_ns=None)
    for step in range(6):
        job.step(3 + step)
        job.compute(30.0, calls=10)
        for _ in range(300):
            job.compute(0.005, "aten::item")
            job.sleep(0, 0.1)
            job.sleep(1, 0.1)
        job.all_reduce(2.0)
    first, *others = analysed(job.write(tmp_path), step_ms=64.4).findings
    assert first.code in ("host_stall", "host_bound") and (first.ms or 0.0) > 25.0
    (reads,) = (one for one in others if one.code == "element_reads")
    assert 0.0 < (reads.ms or 0.0) < 300 * 0.011


@pytest.mark.parametrize("inside", [None, "Optimizer.step#AdamW.step"])
def test_a_loop_of_other_operators_is_named_with_its_place(tmp_path: Path, inside: str | None) -> None:
    """Before, `between the 1,210 operators of a step the hosts do other things`, and the advice was to compile."""
    job = GlooJob(view_ns=None)
    for step in range(6):
        job.step(3 + step)
        job.compute(20.0, calls=10)
        begun = dict(job.now)
        for _ in range(600):
            for name in ("aten::abs", "aten::sum"):
                job.compute(0.004, name)
                job.sleep(0, 0.004)
                job.sleep(1, 0.004)
        if inside is not None:
            for rank, begin in begun.items():
                job.annotate(rank, inside, begin - 1_000, job.now[rank] + 1_000)
        job.all_reduce(2.0)
    (one,) = [one for one in analysed(job.write(tmp_path), step_ms=34.5).findings if one.code == "host_bound"]
    told = "1,200 of which are run by a loop of Python after aten::mm (aten::abs 600 times and aten::sum 600 times)"
    assert (told in because(one)) == (inside is None)  # an optimizer goes through its parameters so
    assert one.remedy is not None and one.remedy.cure == ("whole_tensors" if inside is None else "compile")


def test_norms_of_a_few_parameters_that_are_read_are_neither_a_loop_nor_anything_else(traces: Path) -> None:
    """Fourteen pairs of a norm and a read take 0.1 ms: what is said must not be about them."""
    answer = analyze(traces / "norms")
    assert any(row.name == "aten::item" and row.calls >= 14 for row in answer.kernels), "they are read in these traces"
    assert answer.replay is not None and answer.replay.faithful and answer.findings, "and looked for"
    assert not _of(answer, "element_reads")
    assert all(
        one.remedy is None or one.remedy.cure not in ("whole_tensors", "read_at_once") for one in answer.findings
    )


def test_reading_costs_its_operators_and_calling_them(tmp_path: Path) -> None:
    """2,000 reads of 5 µs, 2 µs apart; long gaps between some of them stay with what makes those."""
    job = GlooJob(view_ns=None)
    for step in range(6):
        job.step(3 + step)
        job.compute(30.0, calls=10)
        job.compute(10.0, "aten::item", calls=2_000)
        job.all_reduce(2.0)
    (first, *_) = analysed(job.write(tmp_path), step_ms=46.1).findings
    assert first.code == "element_reads" and first.rank is None
    assert first.ms == pytest.approx(2_000 * 0.007, rel=0.05)
    assert "the hosts read 2,000 values a step" in because(first)


def test_what_recording_costs_is_the_reads_where_these_are_most_of_what_is_recorded(tmp_path: Path) -> None:
    """*6.0 ms (4.6 to 7.4)* and *5.5 ms (4.9 to 6.1)* were told of 675 values a step whose reads took 2.5 without a
    profiler, as long as recording was charged to each operator alike: these are the shortest of all.
    """
    job = GlooJob(view_ns=None)
    for step in range(6):
        job.step(3 + step)
        job.compute(30.0, calls=10)
        job.compute(10.0, "aten::item", calls=2_000)
        job.all_reduce(2.0)
    (first, *_) = analysed(job.write(tmp_path), step_ms=42.0).findings
    assert first.code == "element_reads" and first.ms is not None and first.low_ms is not None
    assert first.ms == pytest.approx(2_000 * 0.007 - (46.1 - 42.0), rel=0.05)
    assert first.low_ms < 0.41 * 14.0 * 1.05, "they may take two fifths of what they do recorded"


def test_what_compares_single_values_goes_with_reading_them(tmp_path: Path) -> None:
    """`if p == t` over tensors is a comparison and a read for each value; over lists it is Python's own.

    Of 15,362 a step the reads alone were told, 6.3 ms, where the loop took 17 and more; a norm of 60 µs is of
    many values.
    """
    job = GlooJob(view_ns=None)
    for step in range(6):
        job.step(3 + step)
        job.compute(30.0, calls=10)
        for name in ["aten::eq", "aten::item"] * 1_000 + ["aten::linalg_vector_norm", "aten::item"] * 50:
            job.compute(0.06 if "norm" in name else 0.005, name)
        job.all_reduce(2.0)
    (first, *_) = analysed(job.write(tmp_path), step_ms=49.6).findings
    assert first.code == "element_reads"
    assert first.ms == pytest.approx(2_050 * 0.007, rel=0.05)


def test_an_optimizer_that_reads_its_own_steps_and_a_rank_that_reads_alone_are_no_such_loop(tmp_path: Path) -> None:
    """Adam reads a counter for each parameter; what one rank alone does on a CPU is work of its own."""
    job = GlooJob(view_ns=None)
    for step in range(6):
        job.step(3 + step)
        job.compute(30.0, calls=10)
        for _ in range(300):
            job.compute(0.02, "aten::item")
            for name in ("aten::lerp_", "aten::mul_", "aten::addcmul_"):
                job.compute(0.02, name)
        job.compute(10.0, "aten::item", rank=1, calls=2_000)
        job.all_reduce(2.0)
    found = analysed(job.write(tmp_path), step_ms=70.0).findings
    assert "element_reads" not in {one.code for one in found}
    assert (found[0].code, found[0].rank) == ("own_work", 1)


def _beside_a_device(folder: Path, reads: int, *, of_device: bool = False, step_ms: float | None = None) -> RunAnalysis:
    """A device's job whose host reads so many values between its backward pass and its optimizer's step."""

    def step(trace: HostTrace, number: int) -> None:
        forward(trace, KERNEL_US)
        backward(trace, KERNEL_US)
        for _ in range(reads):
            if of_device:
                trace.item()
                continue
            with trace.inside("cpu_op", "aten::item"):
                trace.python(2.0)
            trace.python(1.0)
        optimise(trace)

    HostTrace().steps(6, step).write(folder)
    return analyze(folder, step_ms=step_ms)


def test_a_device_that_waits_for_a_host_which_reads_its_own_tensors_is_told_the_same(tmp_path: Path) -> None:
    """Before, `the device waits for launches`, and to compile. Without the reads a step takes 2.68 ms."""
    (first, *others) = _beside_a_device(tmp_path / "reads", 1_500, step_ms=9.0).findings
    assert first.code == "element_reads" and "the host reads 1,500 values a step one by one" in because(first)
    assert first.ms == pytest.approx(9.0 - 2.68, rel=0.05)
    assert "host_bound" not in {one.code for one in others}
    hidden = _beside_a_device(tmp_path / "few", 100)  # the host is far enough ahead
    assert not _of(hidden, "element_reads")


def test_what_torchs_own_optimizer_reads_for_each_parameter_is_nobodys_loop(tmp_path: Path) -> None:
    """AdamW reads its step's number twice a parameter, on the host, with no launch between: it was told as a loop."""

    def step(trace: HostTrace, number: int) -> None:
        forward(trace, KERNEL_US)
        backward(trace, KERNEL_US)
        with trace.inside("user_annotation", "Optimizer.step#AdamW.step"):
            for _ in range(1_500):
                with trace.inside("cpu_op", "aten::item"):
                    trace.python(2.0)
                trace.python(1.0)
            trace.kernel("aten::_foreach_add_", 20.0, "multi_tensor_apply_kernel")

    HostTrace().steps(6, step).write(tmp_path)
    answer = analyze(tmp_path, step_ms=9.0)
    assert answer.findings[0].code == "host_bound" and not _of(answer, "element_reads")


def test_values_that_are_read_off_a_device_are_waits_for_it(tmp_path: Path) -> None:
    answer = _beside_a_device(tmp_path, 100, of_device=True, step_ms=6.0)
    assert answer.findings[0].code == "synchronising" and not _of(answer, "element_reads")
