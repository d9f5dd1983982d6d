"""A rank whose host waits for the interpreter's lock in every step: it alone is late, for all that it does."""

import msgspec
import pytest

from scalescope.records.steps.worker_times import WorkerTime
from scalescope.report.text.findings import because
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import CoreWaits, LateInSteps, LongSteps
from scalescope.scaling.finding.figures import COUNTED_LOADS, LATE_RANK, LOCK_WAITS
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.findings.derived import keep
from scalescope.scaling.findings.of_rows.loads_by_turns import without_turns_of_one
from scalescope.scaling.findings.of_rows.locked_loading import without_locked_loading
from tests.report_samples import run_answer

STEP_MS = 564.3
LOCK = Finding(
    code="host_starved", rank=1, ms=142.8, low_ms=79.5, high_ms=424.5, backed="replay",
    evidence=(EvidenceRow(kind="figure", name=LOCK_WAITS, ms=198.1, calls=17.8),),
    remedy=Remedy(cure="free_interpreter"),
)  # fmt: skip
TURNS = Finding(
    code="alternating_load", ms=131.6, low_ms=73.3, high_ms=190.2, backed="replay",
    evidence=(
        EvidenceRow(kind="figure", name="gap_before aten::as_strided", ms=84.1),
        *(EvidenceRow(kind="figure", name=LATE_RANK, value=rank, ms=84.1, share=1.0) for rank in (0, 1)),
    ),
    remedy=Remedy(cure="look_at_host"),
)  # fmt: skip


def run(later_ms: float = 290.0, cores: float = 0.012, *, by_turns: bool = False) -> RunAnalysis:
    """Return a run on CPUs of which all steps say that rank 1 is late by 387 ms, and six long ones that it loads.

    In its profiled steps rank 1 does more by itself (`by_turns`: rank 0 in every second one), and the other one waits.
    """
    answer = run_answer("gpt", 2)
    answer.activity, answer.experts, answer.pipelines = "cpu", [], []
    answer.worker_times = [WorkerTime(rank=rank, processes=1, cores=cores, waiting=0.005) for rank in (0, 1)]
    idle = {"exposed_transfer_ms": 0.0, "idle_data_ms": 0.0, "idle_launch_ms": 0.0, "open_ended": False}
    firsts = {one.rank: one for one in reversed(answer.steps)}
    answer.steps = []
    for step in range(6):
        last = 0 if by_turns and step % 2 else 1
        for rank, first in firsts.items():
            own = {"compute_ms": 100.0 + later_ms * (rank == last), "exposed_wait_ms": later_ms * (rank != last)}
            answer.steps.append(msgspec.structs.replace(first, step=step, window_ms=100.0 + later_ms, **own, **idle))
    times = answer.step_times
    assert times is not None
    times.late = LateInSteps(
        rank=1, ms=387.1, low_ms=285.5, high_ms=488.8, mean_step_ms=STEP_MS, steps=27, delays_known=True
    )
    times.long_steps = LongSteps(
        count=6, each_ms=214.1, ms=47.6, low_ms=8.8, high_ms=86.3, mean_step_ms=STEP_MS, cause="loading", rank=1
    )
    times.loading = times.core_waits = times.last = None
    times.ranks, times.measured_steps = [], 27
    answer.recurring = None
    return answer


def test_all_steps_size_a_rank_that_waits_for_the_interpreters_lock() -> None:
    """142.8 ms (79.5 to 424.5) of the profiled step was told where all 27 steps say 387.1, and 416 came untraced."""
    answer = run()
    keep(answer, [LOCK])
    first = answer.findings[0]
    assert (first.code, first.ms, first.low_ms, first.high_ms) == ("host_starved", 387.1, 285.5, 488.8)
    assert first.fraction == pytest.approx(387.1 / STEP_MS) and first.backed == "measured"
    assert because(first).endswith("holds the interpreter's lock, and all 27 steps tell what it costs")


def test_waits_for_the_lock_that_are_little_of_what_a_rank_does_longer_are_not_all_that_it_is_late_by() -> None:
    few = msgspec.structs.replace(LOCK, evidence=(EvidenceRow(kind="figure", name=LOCK_WAITS, ms=60.0, calls=12.0),))
    answer = run()
    keep(answer, [few])
    assert next(one.ms for one in answer.findings if one.code == "host_starved") == 142.8


def test_a_rank_that_waits_for_the_lock_is_not_blamed_for_its_loader_while_its_workers_rest() -> None:
    """*In 6 of 27 steps its host waits 214.1 ms for a batch, which its loader makes too slowly* was told, at 47.6 ms.

    The rank's worker used 0.01 of a core: its host waits for the lock while it takes batches over, as at all times.
    """
    answer = run()
    keep(answer, [LOCK])
    assert [one.code for one in answer.findings] == ["host_starved"]
    busy = run(cores=0.9)
    keep(busy, [LOCK])
    assert "data_loading" in [one.code for one in busy.findings]
    little = run()
    keep(little, [msgspec.structs.replace(LOCK, ms=20.0, low_ms=15.0, high_ms=25.0)])
    assert "data_loading" in [one.code for one in little.findings], "the lock is less than what is waited for batches"
    for waits_ms in (0.1 * STEP_MS, 0.3 * STEP_MS):  # of 0.2 of a core: as a trifle, and as most of what ranks wait for
        some = run(cores=0.2)
        assert some.step_times is not None
        some.step_times.core_waits = CoreWaits(ms=waits_ms, low_ms=1.0, high_ms=999.0, mean_step_ms=STEP_MS, steps=27)
        late = [LOCK, msgspec.structs.replace(LOCK, code="data_loading", ms=47.6, evidence=())]
        assert (without_locked_loading(late, some) == late) == (waits_ms > 0.15 * STEP_MS)
    unknown = run()
    unknown.worker_times = []
    keep(unknown, [LOCK])
    assert "data_loading" in [one.code for one in unknown.findings]


def test_ranks_take_no_turns_where_one_of_them_is_the_last_in_every_step() -> None:
    """*Alternating load may cost as much, 131.6 ms: ranks 0 and 1 are late by turns* stood beside rank 1, which was the
    last in all 27 steps and had no exposed wait: rank 0's host waited for it.
    """
    answer = run()
    keep(answer, [LOCK, TURNS])
    assert "alternating_load" not in [one.code for one in answer.findings]
    counted = msgspec.structs.replace(
        TURNS, evidence=(*TURNS.evidence, EvidenceRow(kind="figure", name=COUNTED_LOADS, value=2.7))
    )
    assert without_turns_of_one([counted], run()) == [counted], "shapes tell of loads, whoever is the last"
    assert without_turns_of_one([TURNS], run(by_turns=True)) == [TURNS], (
        "in its window another one is the last at times"
    )
    nobody = run()
    assert nobody.step_times is not None
    nobody.step_times.late = None
    assert without_turns_of_one([TURNS], nobody) == [TURNS], "of few steps it may be chance"
