"""A place at which hosts stand still is named as a loop's writer knows it, alike wherever it is told."""

from pathlib import Path

import numpy as np
import pytest
from host_traces import KERNEL_US, HostTrace, backward, causes_of, forward, optimise

from scalescope.report.compare.sentences import headline, verdict_sentences
from scalescope.report.text.findings import because, todo, todo_elsewhere
from scalescope.report.text.late.together import cure_of
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.compare.compare import compare_paths
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.trace.backward_calls import backward_begins
from scalescope.scaling.trace.reader import read_trace
from tests.gloo_traces import GlooJob, analysed
from tests.test_compare_sure import run_of

BACKWARD = "before the backward pass (aten::ones_like)"


def test_a_rank_that_stands_still_before_backward_is_told_so_of_a_run_and_beside_another(tmp_path: Path) -> None:
    """*Before aten::ones_like* was told, which no loop calls: it is how `loss.backward()` begins."""
    late = run_of(tmp_path / "late", "sleep_15ms_rank1_1", 1)
    first = analysed(late / "traces").findings[0]
    assert first.rank == 1 and f"for 15.1 ms a step {BACKWARD}" in because(first), because(first)
    assert f"{BACKWARD}, which it does not in “calm”" in headline(
        compare_paths([run_of(tmp_path / "calm", "clean_1")], [late])
    )


@pytest.mark.parametrize("name", ["cpu_ddp_n2", "cpu_fsdp2_n2", "gpt_ddp_n2", "gpt_ddp_compile_n4", "resnet50_ddp_n4"])
def test_of_real_steps_on_cpus_and_on_gpus_each_begins_one_backward_pass(name: str) -> None:
    trace = read_trace(min((Path(__file__).parent / "data" / name).glob("rank0.*")), None)
    spans = trace.operators
    rows = np.argsort(spans.start, kind="stable")
    begins = backward_begins(spans.start[rows], spans.end[rows], spans.name[rows], trace.names)
    assert begins.size == 3 == sum(one.startswith("ProfilerStep#") for one in trace.names)


@pytest.mark.parametrize("follows", ["nodes", "an operator"])
def test_the_operator_that_begins_a_backward_pass_keeps_its_name_where_it_begins_none(
    follows: str, tmp_path: Path
) -> None:
    """On a GPU, autograd's nodes run on a thread of their own."""

    def step(trace: HostTrace, late: bool) -> None:
        forward(trace, KERNEL_US)
        if late:
            trace.idle(8e3)
        with trace.inside("cpu_op", "aten::ones_like"):
            trace.kernel("aten::fill_", 10.0)
        if follows == "an operator":
            trace.kernel("aten::mul", KERNEL_US)
        backward(trace, KERNEL_US)
        optimise(trace)

    (found,) = causes_of(tmp_path, lambda trace, _: step(trace, False), lambda trace, _: step(trace, True))
    assert (found.code, found.rank) == ("host_stall", 1)
    (answer,) = analyze([tmp_path], jobs=1)
    assert isinstance(answer, RunAnalysis)
    loop = "after the forward pass and before the backward pass (before aten::ones_like)"
    place = BACKWARD if follows == "nodes" else loop
    assert because(answer.findings[0]).endswith(place), because(answer.findings[0])


def ends_late(folder: Path, ms: float, keeps_loss: bool = True) -> Path:
    """Return the traces of two ranks that sleep at the end of each step; between two steps their loops keep a loss."""
    job = GlooJob()
    for number in range(2, 10):
        job.step(number)
        job.compute(30.0, calls=10)
        job.all_reduce(2.0)
        job.compute(3.0, name="aten::add_")
        for rank in range(2):
            job.sleep(rank, ms)
        job.end_step()
        job.begun = {}
        if keeps_loss:
            job.compute(0.02, name="aten::detach")
    return job.write(folder)


def test_the_end_of_a_step_is_called_so_of_a_run_and_beside_another(tmp_path: Path) -> None:
    """*Before aten::detach* was told beside another run, which keeps a loss between two steps."""
    calm, late = ends_late(tmp_path / "calm", 0.1), ends_late(tmp_path / "late", 40.0)
    first = analysed(late).findings[0]
    assert first.code == "host_stall" and because(first).endswith("before the end of the step"), because(first)
    found = compare_paths([calm], [late])
    assert found.gaps and {one.before for one in found.gaps} == {None}
    told = " ".join(verdict_sentences(found))
    assert "before the end of the step" in told and "detach" not in told
    assert todo(first, None).startswith("find what holds the hosts up: ")


def stall(rank: int | None, ranks: tuple[int, ...] = (), alone: bool = False) -> Finding:
    gap = EvidenceRow(kind="figure", name="gap_before the end of the step", ms=12.0)
    return Finding(code="host_stall", rank=rank, ranks=ranks, ms=12.0, low_ms=11.0, high_ms=13.0, backed="replay",
                   evidence=(gap,), remedy=Remedy(cure="look_at_host", alone=alone))  # fmt: skip


def test_what_all_hosts_do_is_looked_for_on_the_hosts_and_not_on_that_rank() -> None:
    """*Find what holds that host up: py-spy dump on that rank* was advised of a job whose hosts all stood still."""
    every, one, some = stall(None), stall(1), stall(0, (0, 2))
    assert cure_of(every) == "find what holds the hosts up"
    assert todo_elsewhere(every).startswith("py-spy dump on one of the ranks; ")
    assert cure_of(one) == "find what holds that host up" == cure_of(stall(None, alone=True))
    assert todo_elsewhere(one).startswith("py-spy dump on that rank; ")
    assert cure_of(some) == "find what holds the hosts of ranks 0 and 2 up"
    assert todo_elsewhere(some).startswith("py-spy dump on one of the ranks; ")
    waits = Finding(
        code="host_starved", ms=12.0, low_ms=11.0, high_ms=13.0, backed="replay", remedy=Remedy(cure="free_interpreter")
    )
    assert todo_elsewhere(waits).startswith("py-spy dump on one of the ranks names the thread; ")
