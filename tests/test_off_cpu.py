"""Whether a host that stands still sleeps there or computes: by what its loop's thread had of a core in those steps."""

import msgspec
import pytest

from scalescope.records.rows import StepRow
from scalescope.report.text.cures.words import cure_text
from scalescope.report.text.findings import because
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import StepSplit
from scalescope.scaling.finding.figures import IN_STEPS
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.findings.derived import keep
from scalescope.scaling.findings.of_rows.off_cpu import OFF_CPU, ON_CPU
from scalescope.scaling.verdicts.step_rows.steady import add_steps
from tests.report_samples import run_answer

STEPS = 6
GAP = EvidenceRow(kind="figure", name="gap_before aten::linear", ms=40.0, others_ms=0.0, place="after_backward")
STALL = Finding(
    code="host_stall", rank=0, ms=40.0, low_ms=38.0, high_ms=42.0, fraction=0.33, backed="replay",
    evidence=(GAP,), remedy=Remedy(cure="look_at_host"),
)  # fmt: skip
#: Of each rank: a step's ms on a core, waiting for one, in exposed communication, loading.
Parts = tuple[float, float, float, float]
FREE: Parts = (70.0, 0.0, 50.0, 0.0)


def told(
    *ranks: Parts,
    stalls: tuple[Finding, ...] = (STALL,),
    step_ms: float = 120.0,
    activity: str = "cpu",
    once_ms: float = 0.0,
    untold: bool = False,
) -> RunAnalysis:
    """Return the answer of steps in which ranks' loops were so long on a core; in one they slept for `once_ms` more."""
    run = run_answer("mlp", len(ranks), steps=STEPS)
    run.activity, run.experts, run.pipelines, run.hosts = "cpu" if activity == "cpu" else "gpu", [], [], 1
    run.steps = [
        StepSplit(
            rank=rank, step=step, window_ms=step_ms, compute_ms=0.0, exposed_transfer_ms=exposed / 2,
            exposed_wait_ms=exposed / 2, exposed_unsplit_ms=0.0, exposed_memory_ms=0.0, idle_data_ms=loading,
            idle_launch_ms=45.0, idle_queued_ms=0.0,
        )
        for rank, (_, _, exposed, loading) in enumerate(ranks) for step in range(10, 10 + STEPS)
    ]  # fmt: skip
    rows = [
        StepRow(
            step=step,
            phase="profile" if 10 <= step < 10 + STEPS else "steady",
            step_ms=[step_ms + (once_ms if step == 12 else 0.0)] * len(ranks),
            samples_per_s=1.0,
            run_delay_ms=[waits for _, waits, _, _ in ranks],
            on_cpu_ms=[] if untold else [on for on, _, _, _ in ranks],
        )
        for step in range(4, 60)
    ]
    add_steps(run, rows)
    keep(run, list(stalls))
    return run


def known(run: RunAnalysis, at: int = 0) -> set[str]:
    return {row.name for row in run.findings[at].evidence} & {OFF_CPU, ON_CPU}


def test_a_host_that_is_off_its_core_for_as_long_as_it_stands_still_sleeps_there() -> None:
    """*Does nothing that is recorded (sleep, I/O, Python, a lock) for 41.2 ms* was all of a sleep of 40 ms."""
    run = told((70.0, 1.0, 8.0, 0.0), FREE)
    (found,) = run.findings
    assert known(run) == {OFF_CPU} and found.remedy is not None and found.remedy.cure == "find_wait"
    assert because(found).startswith(
        "its host sleeps, or waits for I/O or a lock, for 40.0 ms a step after the backward"
    )
    assert cure_text(found.remedy) == "find what that host waits for there, or why it sleeps"
    again: RunAnalysis = msgspec.json.decode(msgspec.json.encode(run), type=RunAnalysis)
    keep(again, again.findings)
    assert again.findings == run.findings


def test_a_host_that_has_its_core_while_it_stands_still_computes_there() -> None:
    run = told((111.0, 1.0, 8.0, 0.0), FREE)
    (found,) = run.findings
    assert known(run) == {ON_CPU} and found.remedy is not None and found.remedy.cure == "find_python"
    assert because(found).startswith("its host computes in Python, or a library, that no operator tells, for 40.0 ms")


@pytest.mark.parametrize(
    ("ranks", "why"),
    [
        (((91.0, 1.0, 8.0, 0.0), FREE), "half of it asleep"),
        (((30.0, 1.0, 8.0, 0.0), FREE), "asleep for twice as long, and the other rank is not"),
        (((91.0, 21.0, 8.0, 0.0), (91.0, 1.0, 28.0, 0.0)), "it waits for a core, and has it no longer than the other"),
        (((70.0, 1.0, 8.0, 40.0), FREE), "it loads for as long, asleep or not"),
        (((71.0, 1.0, 48.0, 0.0), FREE), "communication on its way as long as it stands still may hide a sleep"),
        (((111.0, 1.0, 40.0, 0.0), FREE), "it spins while it waits for others"),
    ],
)
def test_what_cannot_be_told_is_said_as_before(ranks: tuple[Parts, Parts], why: str) -> None:
    stall = STALL
    if why.startswith("communication"):
        stall = msgspec.structs.replace(STALL, evidence=(msgspec.structs.replace(GAP, ms=60.0),))
    run = told(*ranks, stalls=(stall,))
    assert known(run) == set(), why
    assert "does nothing that is recorded (Python runs, sleeps, or waits for a file or a lock)" in because(
        run.findings[0]
    )


def test_a_host_that_sleeps_beside_what_all_ranks_do_is_told_so() -> None:
    """Threads of their own make loops wait on both ranks: what this one is asleep for beyond the other is the stall."""
    assert known(told((40.0, 1.0, 8.0, 0.0), (40.0, 1.0, 48.0, 0.0))) == {OFF_CPU}


def test_a_rank_that_waits_for_its_core_computes_where_it_has_it_for_longer_than_the_other() -> None:
    assert known(told((88.0, 24.0, 8.0, 0.0), (50.0, 20.0, 50.0, 0.0))) == {ON_CPU}


def test_one_step_in_which_something_else_slept_is_no_sleep() -> None:
    run = told((111.0, 1.0, 8.0, 0.0), FREE, once_ms=400.0)
    assert known(run) == {ON_CPU}


def test_of_all_ranks_all_have_to_agree() -> None:
    both = msgspec.structs.replace(STALL, rank=None, evidence=(msgspec.structs.replace(GAP, others_ms=None),))
    asleep, computes = (70.0, 1.0, 8.0, 0.0), (111.0, 1.0, 8.0, 0.0)
    run = told(asleep, asleep, stalls=(both,))
    assert known(run) == {OFF_CPU} and because(run.findings[0]).startswith(
        "the hosts sleep, or wait for I/O or a lock,"
    )
    assert known(told(computes, computes, stalls=(both,))) == {ON_CPU}
    assert known(told(asleep, computes, stalls=(both,))) == set()


def test_stalls_at_two_places_of_which_one_sleeps_are_left_open() -> None:
    """They share one account: 40 ms asleep of 80 ms that stand still are those of one place or of the other."""
    other = msgspec.structs.replace(
        STALL, evidence=(msgspec.structs.replace(GAP, name="gap_before aten::add", place="in_forward"),), ms=39.0
    )
    assert known(told((70.0, 1.0, 8.0, 0.0), FREE, stalls=(STALL, other))) == set()
    run = told((30.0, 1.0, 8.0, 0.0), FREE, stalls=(STALL, other))
    assert known(run) == known(run, 1) == {OFF_CPU}


def test_a_rank_that_no_replay_prices_is_told_by_all_that_its_host_launches_nothing_for() -> None:
    whole = EvidenceRow(kind="figure", name="idle_launch", ms=41.0, others_ms=2.0)
    gap = msgspec.structs.replace(GAP, ms=41.0)
    for evidence in ((whole,), (gap, whole), (msgspec.structs.replace(whole, name="launch", others_ms=None),)):
        stall = msgspec.structs.replace(STALL, evidence=evidence, backed="bound")
        assert known(told((70.0, 1.0, 8.0, 0.0), FREE, stalls=(stall,))) == {OFF_CPU}


def test_gaps_at_each_pass_are_python_only_where_they_compute() -> None:
    """*Python there, such as a hook* was said of forty gaps a step in which a file was flushed to its disk."""
    each = EvidenceRow(kind="figure", name="each_pass_after aten::add", ms=1.0, calls=40.0)
    gap = msgspec.structs.replace(GAP, place="in_backward")
    stall = msgspec.structs.replace(STALL, evidence=(gap, each), remedy=Remedy(cure="less_python"))
    asleep = told((70.0, 1.0, 8.0, 0.0), FREE, stalls=(stall,)).findings[0]
    assert because(asleep).endswith(": it is off its core there, asleep or waiting for I/O or a lock")
    assert asleep.remedy is not None and asleep.remedy.cure == "find_wait"
    computes = told((111.0, 1.0, 8.0, 0.0), FREE, stalls=(stall,)).findings[0]
    assert because(computes).endswith(": it computes there, as in a hook in Python")
    assert computes.remedy is not None and computes.remedy.cure == "less_python"


def test_devices_rows_of_old_and_stalls_of_some_steps_tell_nothing() -> None:
    asleep = (70.0, 1.0, 8.0, 0.0)
    assert known(told(asleep, FREE, activity="gpu")) == known(told(asleep, FREE, untold=True)) == set()
    some = EvidenceRow(kind="figure", name=IN_STEPS, ms=40.0, calls=2.0, value=6.0)
    assert known(told(asleep, FREE, stalls=(msgspec.structs.replace(STALL, evidence=(GAP, some)),))) == set()


LOADING = Finding(
    code="data_loading", ms=40.0, low_ms=38.0, high_ms=42.0, fraction=0.33, backed="replay",
    evidence=(msgspec.structs.replace(GAP, name="gap_before batch", others_ms=None),),
    remedy=Remedy(cure="load_ahead", overrides=("data.workers=4",)),
)  # fmt: skip


@pytest.mark.parametrize(
    ("parts", "asleep"),
    [
        ((70.0, 1.0, 8.0, 40.0), True),
        ((111.0, 1.0, 8.0, 40.0), False),  # it computes
        ((91.0, 1.0, 8.0, 40.0), False),  # half of it
        ((40.0, 1.0, 8.0, 40.0), False),  # for longer: it sleeps elsewhere, too
    ],
)
def test_loading_that_waits_for_files_needs_no_core_on_full_ones(parts: Parts, asleep: bool) -> None:
    run = told(parts, parts, stalls=())
    run.cores_full = True
    keep(run, [LOADING])
    (found,) = run.findings
    assert known(run) == ({OFF_CPU} if asleep else set()) and found.remedy is not None
    assert found.remedy.lacks_cores != asleep and run.advice[0].at_most != asleep
    assert run.advice[0].overrides == (["data.workers=4"] if asleep else []), "no key makes a core for workers"
    assert cure_text(found.remedy).startswith("load batches ahead" if asleep else "make batches cheaper")


def test_who_stands_still_as_well_may_be_asleep_in_either() -> None:
    parts = (70.0, 1.0, 8.0, 40.0)
    run = told(parts, parts, stalls=(msgspec.structs.replace(STALL, ms=38.0), LOADING))
    assert [known(run, at) for at, one in enumerate(run.findings) if one.code == "data_loading"] == [set()]
