"""Compute in which ranks wait for cores: it is none, and no figure says otherwise beside a first sentence of them."""

import io

import msgspec
import pytest
from rich.console import Console

from scalescope.report.markdown import for_an_issue
from scalescope.report.panels.ranks import _waits_sentence
from scalescope.report.terminal.run import print_run
from scalescope.report.text.cures.words import cure_elsewhere
from scalescope.report.top.bars import run_bars
from scalescope.report.top.cards import _run_figures
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.answer import Efficiency, RunAnalysis
from scalescope.scaling.answer_steps import CoreWaits
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.findings.derived import keep
from tests.report_samples import run_answer

TURNS = Finding(
    code="host_starved", ms=90.0, low_ms=90.0, high_ms=100.0, fraction=0.9, backed="replay", at_least=True,
    evidence=tuple(
        EvidenceRow(kind="figure", name=name, value=value) for name, value in (("threads", 4.0), ("cores", 2.0))
    ),
    remedy=Remedy(cure="fewer_threads", size=1.0, on_cpu=True),
)  # fmt: skip
STALL = Finding(
    code="host_stall", rank=1, ms=8.0, low_ms=6.0, high_ms=9.0, fraction=0.08, backed="replay",
    evidence=(EvidenceRow(kind="figure", name="gap_before aten::linear", ms=9.0, others_ms=0.0),),
    remedy=Remedy(cure="look_at_host"),
)  # fmt: skip


def on_cpus(waits_ms: list[float], findings: list[Finding], rank: int | None = None) -> RunAnalysis:
    """Return a run of steps of 100 ms on two CPU ranks, 90 of them in operators, whose ranks wait so long for cores."""
    run = run_answer("mlp", 2)
    run.activity, run.pipelines, run.experts, run.hosts = "cpu", [], [], 1
    run.ranks = [
        msgspec.structs.replace(
            one, window_ms=300.0, compute_ms=270.0, exposed_transfer_ms=30.0, exposed_wait_ms=0.0,
            exposed_memory_ms=0.0, idle_queued_ms=0.0,
        )
        for one in run.ranks
    ]  # fmt: skip
    run.steps = [
        msgspec.structs.replace(
            one, window_ms=100.0, compute_ms=90.0, exposed_transfer_ms=10.0, exposed_wait_ms=0.0,
            exposed_memory_ms=0.0, idle_queued_ms=0.0,
        )
        for one in run.steps
    ]  # fmt: skip
    run.efficiency = Efficiency(parallel=0.9, load_balance=1.0, serialisation=1.0, transfer=0.9, memory=1.0,
                                orchestration=1.0)  # fmt: skip
    assert run.step_times is not None
    run.step_times.core_waits = CoreWaits(
        ms=max(waits_ms), low_ms=min(waits_ms) / 2, high_ms=max(waits_ms) + 2, mean_step_ms=100.0, steps=30, rank=rank,
        profiled_ms=waits_ms, threads=2, cores=2,
    )  # fmt: skip
    keep(run, findings)
    return run


def printed(run: RunAnalysis) -> str:
    stream = io.StringIO()
    print_run(run, Console(file=stream, width=400))
    return stream.getvalue()


def left(run: RunAnalysis) -> float | None:
    assert run.efficiency is not None
    return run.efficiency.on_cores_at_most


def test_what_of_compute_waits_for_a_core_is_hatched_in_the_drawing_of_the_step() -> None:
    """*Compute 87.8%* was one stretch of a bar whose ranks had a core for at most 50.4% of the step."""
    (alone,) = [drawn for drawn in [run_bars(on_cpus([0.0, 0.0], []))] if drawn is not None]
    (waits,) = [drawn for drawn in [run_bars(on_cpus([50.0, 48.0], [TURNS]))] if drawn is not None]
    whole, rest, own = alone.bars[0].stretches[0], *waits.bars[0].stretches[:2]
    assert whole.label.startswith("compute") and own.label == "compute that waits for a core: at least 80.0%"
    assert float(rest.weight) + float(own.weight) == pytest.approx(float(whole.weight), abs=0.01)
    assert float(own.weight) == pytest.approx(80.0, abs=0.1) and "repeating-linear-gradient" in own.colour
    assert [one.label for one in waits.legend][1] == "of the compute, at least 80% of the step waits for a core"
    assert len(waits.legend) == len(alone.legend) + 1


def test_threads_that_take_turns_leave_no_more_than_the_step_without_them() -> None:
    """*Starved hosts cost at least 1,093 ms of 1,208 ms* stood over *parallel efficiency 92.7%*, and 92.7% compute."""
    run = on_cpus([50.0, 48.0], [TURNS])
    assert left(run) == pytest.approx(0.1), "the loops' own waits are less: threads that they wait for wait, too"
    text = printed(run)
    assert "Parallel efficiency at most 10.0%, without waits for cores; with these as compute 90.0% = load" in text
    included = "(waits for cores included: at most 10.0% of the step is on a core)"
    assert f"90.0% of the 100.0 ms step is compute, 90.0 ms {included}" in text
    assert "rank 0, ready to run, waits for one for 50.0 ms, rank 1 for 48.0 ms." in text
    assert "waits for cores included: at most 10.0% of the step is on a core" in for_an_issue([run])
    figures = {one.label: one.value for one in _run_figures(run)}
    assert figures["parallel efficiency, without waits for cores"] == "≤ 10.0%"
    assert figures["compute, waits for cores included"] == "90.0%"


def test_what_each_of_few_ranks_waits_for_cores_stands_beside_the_bars_too() -> None:
    """Of a rank that waited 76.3 ms beside one that waited 1.7 ms, *the mean rank for 39.0 ms* was told: nobody's. The
    page told it nowhere: over its bars, which hold the waits as compute, stood a bound alone.
    """
    run = on_cpus([2.0, 50.0], [], rank=1)
    told = "holds what operators wait for a core: in the step rank 1, ready to run, waits for one for 50.0 ms, "
    assert f"compute {told}rank 0 for 2.0 ms; how much" in printed(run)
    assert f"Compute {told}rank 0 for 2.0 ms; how much" in _waits_sentence(run)
    quiet = on_cpus([2.0, 3.0], [])
    assert not _waits_sentence(quiet)


def test_what_a_rank_waits_beyond_the_rest_of_its_step_is_no_compute_and_the_rank_is_given_cores() -> None:
    """A rank that waited 136.8 of 267 ms for a core was *69.4% parallel efficiency*, and *each rank* needed cores."""
    run = on_cpus([2.0, 50.0], [], rank=1)
    # of 50 ms at most 10 lie in transfer; the other rank's may do so altogether
    assert left(run) == pytest.approx(0.9 - 0.4 / 2)
    first = run.findings[0]
    assert first.rank == 1 and first.remedy is not None and first.remedy.cure == "core_for_rank"
    assert run_verdict(run).advice.startswith("give that rank cores of its own")
    how = cure_elsewhere(first.remedy)
    assert "OMP_NUM_THREADS" in how and "--cpu-bind=cores" in how
    assert msgspec.json.decode(msgspec.json.encode(run), type=RunAnalysis).efficiency == run.efficiency
    keep(run, run.findings)
    assert left(run) == pytest.approx(0.7), "told once, however often"


def test_what_ranks_wait_and_what_of_compute_is_on_a_core_are_of_one_figure() -> None:
    """Ranks that waited 31.2 and 30.5 of 97.4 ms for a core stood under *70.7% compute (waits for cores included: at
    most 68.3% is on a core)*: by the one 39% was left, by the other 68%, and neither was said of the other.
    """
    run = on_cpus([45.0, 35.0], [])
    # all 40 ms of the mean rank may lie in compute; of 45 and 35 at least 35 and 25 do, the rest fits into transfer
    assert left(run) == pytest.approx(0.9 - 0.3) and run.efficiency is not None
    assert run.efficiency.on_cores_at_least == pytest.approx(0.9 - 0.4)
    text = printed(run)
    assert "Parallel efficiency 50.0% to 60.0%, without waits for cores; with these as compute 90.0% = load" in text
    included = "(waits for cores included: 50.0% to 60.0% of the step is on a core)"
    assert f"90.0% of the 100.0 ms step is compute, 90.0 ms {included}" in text
    assert "waits for one for 45.0 ms, rank 1 for 35.0 ms; how much of that lies in compute no trace tells." in text
    figures = {one.label: one.value for one in _run_figures(run)}
    assert figures["parallel efficiency, without waits for cores"] == "50.0% to 60.0%"
    drawn = run_bars(run)
    assert drawn is not None and drawn.legend[1].label == "of the compute, 30% to 40% of the step waits for a core"


def test_several_ranks_that_wait_are_given_cores_each() -> None:
    run = on_cpus([45.0, 50.0], [])
    remedy = run.findings[0].remedy
    assert remedy is not None and remedy.cure == "free_cores" and run.findings[0].rank is None


@pytest.mark.parametrize(("waits_ms", "activity"), [([9.0, 5.0], "cpu"), ([45.0, 50.0], "gpu")])
def test_where_no_finding_is_of_waits_for_cores_compute_is_what_it_was(waits_ms: list[float], activity: str) -> None:
    """Own threads take turns with the loops for up to 14% of a step; a host's waits are no device's."""
    run = on_cpus(waits_ms, [STALL])
    run.activity = activity  # type: ignore[assignment]
    keep(run, [STALL])
    assert left(run) is None
    text = printed(run)
    assert "Parallel efficiency 90.0% = load balance" in text and "waits for cores" not in text
