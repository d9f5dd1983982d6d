"""A rank that is bound to fewer cores than the others of its host may run on, and waits for them: its run tells so."""

import pytest

from scalescope.records.rows import Device, RunInfo
from scalescope.report.text.cures.words import cure_elsewhere
from scalescope.report.text.findings import because
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.findings.cores import CoreShare, bound_cores, core_share
from scalescope.scaling.findings.derived import keep
from scalescope.scaling.run import _add_cores
from scalescope.scaling.verdicts.step_rows.steady import add_steps
from tests.report_samples import run_answer
from tests.test_core_waits import rows

ALONE = [[2.0, 130.0 + at % 3] for at in range(60)]


def info(*cores: str, threads: int = 1, hosts: str = "aaaa") -> RunInfo:
    devices = [
        Device(rank, hosts[rank], "cpu", "EPYC", threads=threads, cores=mine or None) for rank, mine in enumerate(cores)
    ]
    return RunInfo("train", "r", "done", 0.0, devices=devices)


def told(waits: list[list[float]], run_info: RunInfo, findings: list[Finding]) -> RunAnalysis:
    run = run_answer("unet", 2)
    run.activity, run.experts, run.pipelines, run.hosts = "cpu", [], [], 1
    add_steps(run, rows(waits))
    _add_cores(run, run_info)
    keep(run, findings)
    return run


@pytest.mark.parametrize(
    ("cores", "threads", "bound"),
    [
        (("0-1", "1"), 1, 1),
        (("0-3", "2-3", "0-3"), 1, 2),
        (("0-3", "2"), 1, 1),
        (("0-1", "2"), 2, 1),  # its threads take turns on a core that no other rank may use
        (("0-1", "0-1"), 1, None),
        (("0", "1"), 1, None),  # each has its own
        (("0-1", "2-3"), 2, None),
        (("1", "1"), 1, None),  # fewer cores than threads, of all of them alike
        (("1", "0-1"), 1, None),  # that the other is bound says nothing of this one
        (("0-1", ""), 1, None),
        (("", "1"), 1, None),
    ],
)
def test_a_binding_makes_a_rank_wait_where_others_use_its_cores_or_it_has_more_threads(
    cores: tuple[str, ...], threads: int, bound: int | None
) -> None:
    assert bound_cores(info(*cores, threads=threads), 1) == bound


def test_what_binds_a_rank_is_told_of_its_own_host() -> None:
    elsewhere = info("0-3", "0-1", "1", threads=1, hosts="abb")
    assert bound_cores(elsewhere, 2) == 1 and bound_cores(elsewhere, 1) is None
    assert core_share(elsewhere, 2) == CoreShare(2, 2, 2) and core_share(elsewhere, 0) == CoreShare(1, 1, 4)
    assert bound_cores(elsewhere, 7) is None and core_share(elsewhere, 7) is None


def test_the_first_sentence_names_the_binding_and_the_advice_is_more_cores_for_that_rank() -> None:
    """Of a rank bound to core 1, where both may run, *2 threads compute on 2 cores* was all: 136.8 ms of 266.9 ms."""
    run = told(ALONE, info("0-1", "1"), [])
    first = run.findings[0]
    assert first.rank == 1 and first.remedy is not None and first.remedy.cure == "more_cores_for_rank"
    named = "rank 1 is bound to 1 of the 2 cores on which 2 threads compute"
    assert because(first) == (
        f"its host could run, and waits for a core: {named}, and other processes or the job's own other threads have "
        "that one"
    )
    verdict = run_verdict(run)
    assert named in verdict.headline
    assert verdict.advice.startswith("let that rank run on more cores than it is bound to")
    assert "sched_setaffinity" in cure_elsewhere(first.remedy)
    keep(run, run.findings)
    assert len(run.findings) == 1, "told once, however often"
    assert sum(row.name == "bound_cores" for row in run.findings[0].evidence) == 1


@pytest.mark.parametrize(("cores", "cure"), [(("0-1", "0-1"), "core_for_rank"), (("1", "0-1"), "core_for_rank")])
def test_no_binding_is_named_of_a_rank_that_waits_unbound(cores: tuple[str, str], cure: str) -> None:
    first = told(ALONE, info(*cores), []).findings[0]
    assert first.remedy is not None and first.remedy.cure == cure and "bound" not in because(first)


def test_no_binding_is_named_where_several_ranks_wait() -> None:
    first = told([[60.0, 65.0 + at % 3] for at in range(60)], info("0-1", "1"), []).findings[0]
    assert first.rank is None and "bound" not in because(first)
    assert first.remedy is not None and first.remedy.cure == "free_cores"


def test_more_threads_than_cores_are_told_beside_the_binding() -> None:
    first = told(ALONE, info("0-1", "1", threads=2), []).findings[0]
    assert first.remedy is not None and first.remedy.cure == "fewer_threads"
    assert because(first).endswith("4 threads compute on 2 cores, and rank 1 is bound to 1 of these")


def test_where_traces_show_more_of_the_same_the_binding_is_told_all_the_same() -> None:
    traced = Finding(
        code="host_starved", rank=1, ms=200.0, low_ms=150.0, high_ms=220.0, fraction=0.8, backed="replay",
        evidence=(EvidenceRow(kind="figure", name="interruptions", ms=180.0, others_ms=2.0),),
        remedy=Remedy(cure="free_cores", backend="gloo"),
    )  # fmt: skip
    first = told(ALONE, info("0-1", "1"), [traced]).findings[0]
    assert first.ms == 200.0 and first.remedy is not None and first.remedy.cure == "more_cores_for_rank"
    assert "rank 1 is bound to 1 of 2 cores, where the job's other threads and other processes may run, too" in because(
        first
    )
