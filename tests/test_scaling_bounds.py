"""What steps tell by themselves, where no replay prices it or the largest finding is small beside what is lost."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scalescope.report.drawing.parts import BY_KEY
from scalescope.report.text.cures.words import cure_text
from scalescope.report.text.findings import because, first_sentence, headline, headline_of_all, todo, todo_elsewhere
from scalescope.report.text.unexplained import unexplained_loss
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.answer import AsRun, Quality, RunAnalysis
from scalescope.scaling.answer_rows import Collective, RankSplit, Split, StepSplit
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Reason, Remedy
from scalescope.scaling.finding.kinds import is_all_of_it
from scalescope.scaling.finding.order import as_costly, ranked
from scalescope.scaling.findings.bounds.bare_transfer import (
    bare_transfer,
    broadcasts_buffers,
)
from scalescope.scaling.findings.bounds.needless_exchanges import needless_exchanges
from scalescope.scaling.findings.bounds.of_steps import with_bounds
from scalescope.scaling.findings.bounds.rank_apart import ranks_apart, with_ranks_apart
from scalescope.scaling.findings.derived import keep
from scalescope.scaling.rank.collective import RankCollective
from scalescope.scaling.rank.records.record import RankRecord
from tests.gloo_traces import GlooJob, analysed

PARTS: dict[str, float] = dict.fromkeys(
    ("compute", "exposed_transfer", "exposed_wait", "exposed_unsplit", "exposed_memory", "idle_data", "idle_queued"),
    0.0,
)


def split(rank: int, step: int, **parts: float) -> StepSplit:
    told: dict[str, Any] = {f"{part}_ms": ms for part, ms in {**PARTS, "idle_launch": 0.0, **parts}.items()}
    return StepSplit(rank=rank, step=step, window_ms=sum(told.values()), **told)


def run_of(steps: list[StepSplit]) -> RunAnalysis:
    ranks = sorted({one.rank for one in steps})
    return RunAnalysis(
        name="x",
        world_size=len(ranks),
        activity="cpu",
        quality=Quality(verdict="good"),
        ranks=[whole_of([one for one in steps if one.rank == rank]) for rank in ranks],
        steps=steps,
    )


def whole_of(steps: list[StepSplit]) -> RankSplit:
    """A rank's window of these steps."""
    parts: dict[str, Any] = {f"{part}_ms": sum(one.part_ms(part) for one in steps) for part in (*PARTS, "idle_launch")}
    return RankSplit(
        rank=steps[0].rank,
        steps=len(steps),
        window_ms=sum(one.window_ms for one in steps),
        communication_ms=0.0,
        overlap_fraction=None,
        before_window_ms=0.0,
        **parts,
    )


def two_ranks(steps: int, idle: float = 52.0, wait: str = "exposed_wait") -> RunAnalysis:
    rows = []
    for step in range(steps):
        rows.append(split(0, step, compute=8, exposed_transfer=18, idle_launch=1, **{wait: 46.0}))
        rows.append(split(1, step, compute=8, exposed_transfer=13, idle_launch=idle))
    return run_of(rows)


@pytest.mark.parametrize("wait", ["exposed_wait", "exposed_unsplit"])
def test_a_rank_apart_is_named_also_where_waits_cannot_be_dealt_out(wait: str) -> None:
    """Before, no rank was named, and the advice was to send less."""
    (found,) = ranks_apart(two_ranks(4, wait=wait))
    assert (found.code, found.rank, found.backed) == ("host_stall", 1, "bound")
    assert found.ms == pytest.approx(46) and (found.low_ms or 0) > 40 and (found.high_ms or 0) >= 51


def test_a_rank_apart_is_named_also_where_another_one_is_held_up_once() -> None:
    """Four ranks in groups that are not known: rank 3 is late in each step, and rank 2 for 30 ms in one of three."""
    rows = []
    for step in range(3):
        for rank in range(4):
            idle = 72.0 if rank == 3 else 42.0 if (rank, step) == (2, 2) else 12.0
            rows.append(split(rank, step, compute=7, idle_launch=idle, exposed_unsplit=110.0 - idle))
    (found,) = ranks_apart(run_of(rows))
    assert (found.code, found.rank) == ("host_stall", 3) and 45 < (found.ms or 0) <= 60


def stall(ms: float, rank: int = 1) -> Finding:
    rows = (EvidenceRow(kind="figure", name="gap_before aten::mm", ms=ms),)
    return Finding(code="host_stall", rank=rank, ms=ms, low_ms=ms, high_ms=ms, evidence=rows, backed="replay")


def test_a_rank_apart_is_told_where_less_than_half_of_it_was_and_where_it_stands_still() -> None:
    nothing = Finding(code="nothing", ms=None, low_ms=None, high_ms=None, backed="replay")
    enough = [stall(30.0)]
    assert with_ranks_apart(two_ranks(4), enough) == enough
    (found,) = with_ranks_apart(two_ranks(4), [stall(10.0), nothing])
    assert found.ms == pytest.approx(46)
    assert [row.name for row in found.evidence] == ["gap_before aten::mm", "idle_launch"]
    assert "before aten::mm" in because(found)
    assert [one.rank for one in with_ranks_apart(two_ranks(4), [stall(50.0, rank=0)])] == [0, 1]


@pytest.mark.parametrize(
    ("idle", "others_idle", "waits"),
    [([52.0] * 4, 30.0, 22.0), ([52.0, 52.0, 1.0, 1.0], 1.0, 50.0), ([52.0] * 4, 1.0, 0.0)],
    ids=["not twice the others'", "in half of the steps", "while it waits as long as they do"],
)
def test_no_rank_is_apart(idle: list[float], others_idle: float, waits: float) -> None:
    rows = []
    for step, ms in enumerate(idle):
        rows.append(split(0, step, compute=8, idle_launch=others_idle, exposed_wait=50.0))
        rows.append(split(1, step, compute=8, idle_launch=ms, exposed_wait=50.0 - waits))
    assert not ranks_apart(run_of(rows))


def test_one_step_names_the_rank_and_says_that_it_is_one() -> None:
    run = two_ranks(1)
    (found,) = with_ranks_apart(run, [])
    assert found.low_ms == 0 and found.ms == pytest.approx(46)
    told = headline(found, 73.0, 2)
    assert told.startswith("rank 1 costs 46.0 ms of the 73.0 ms step, the only one that is recorded")
    assert "one step does not tell" in told


def test_ranks_that_idle_alike_or_that_nobody_waits_for_are_not_apart() -> None:
    assert not ranks_apart(two_ranks(4, idle=1.5))
    alone = [split(rank, step, compute=8, idle_launch=52.0 * rank) for step in range(4) for rank in (0, 1)]
    assert not ranks_apart(run_of(alone))


@pytest.mark.parametrize("code", ["unfaithful", "lost", "other_steps", "unknown_collectives"])
def test_no_rank_is_apart_by_what_its_trace_lacks(code: Any) -> None:
    """Before, a rank whose collectives the profiler lost cost 46 ms a step: it seemed to do nothing meanwhile."""
    run = two_ranks(4)
    run.unpriced = Reason(code, "")
    assert [one.rank for one in with_bounds(run, {}) or []] == ([1] if code == "unfaithful" else [])
    run.quality.lossy_ranks = [1]
    assert not with_bounds(run, {})


def launching(ms: float) -> Finding:
    row = EvidenceRow(kind="figure", name="idle_launch", ms=ms)
    return Finding(
        code="host_bound",
        ms=ms,
        low_ms=ms / 2,
        high_ms=ms,
        evidence=(row,),
        backed="replay",
        at_most=True,
        fraction=0.04,
    )


@pytest.mark.parametrize(("ms", "leads"), [(5.5, True), (60.0, False)])
def test_a_loss_that_the_findings_hardly_explain_comes_before_them(ms: float, leads: bool) -> None:
    """Before, `launching costs at most 5.5 ms` was all that was said first of a step that loses 116."""
    run = run_of([split(0, 0, compute=5, exposed_wait=106, idle_launch=10)])
    run.findings = [launching(ms)]
    lead = unexplained_loss(run, 121.0, 5 / 121, [(BY_KEY["exposed_wait"], 106.0), (BY_KEY["idle_launch"], 10.0)])
    assert lead.startswith("106.0 ms of the 121.0 ms step are exposed wait") is leads
    assert bool(lead) is leads


def test_communication_that_traces_hardly_split_is_one_loss() -> None:
    """Of a gather a step whose root no trace tells, a rank's 2.8 ms were all that was said of 15 that nothing hides."""
    run = run_of([split(0, 0, compute=19, exposed_unsplit=7.5, exposed_transfer=7, idle_launch=5.5)])
    run.findings = [launching(2.8)]
    lost = [
        (BY_KEY[key], ms) for key, ms in (("exposed_unsplit", 7.5), ("exposed_transfer", 7.0), ("idle_launch", 5.5))
    ]
    assert unexplained_loss(run, 39.0, 19 / 39, lost).startswith(
        "14.5 ms of the 39.0 ms step are exposed communication"
    )
    alone = [(BY_KEY["exposed_unsplit"], 7.5), (BY_KEY["idle_launch"], 7.0), (BY_KEY["exposed_memory"], 5.5)]
    assert not unexplained_loss(run, 39.0, 19 / 39, alone), "no part is most of what is lost"


def test_what_is_bare_is_said_once() -> None:
    """Before: `40.0 ms … are exposed transfer …; exposed transfer costs at most 20.0 ms …: nothing hides 40.0 ms`."""
    run = bare_run(8, 2.0)
    (transfer,) = needless_exchanges(run, record([12, 15, 32, 35], [10, 30], [90]))
    run.findings = [transfer]
    lost = [(BY_KEY["exposed_transfer"], 30.0), (BY_KEY["exposed_wait"], 25.0)]
    assert transfer.ms == pytest.approx(15.0) and not unexplained_loss(run, 115.0, 60 / 115, lost)
    run.findings = [launching(5.5)]
    assert unexplained_loss(run, 115.0, 60 / 115, lost)


def test_what_the_job_sends_stands_behind_a_fault_that_is_there_for_sure() -> None:
    """Before, of a host that stands still for 12 ms a step the first sentence said that no fault was found."""
    run = bare_run(8, 2.0)
    (transfer,) = needless_exchanges(run, record([12, 15, 32, 35], [10, 30], [90]))
    bare = msgspec.structs.replace(
        transfer, ms=30.0, high_ms=30.0, evidence=transfer.evidence[:1], remedy=Remedy(cure="send_less")
    )
    assert is_all_of_it(bare)
    fault = stall(12.0)
    assert ranked([bare, fault]) == [fault, bare] and as_costly([fault, bare]) is None
    for other in (stall(2.0), msgspec.structs.replace(fault, low_ms=0.0)):  # far below it, or perhaps nothing
        assert ranked([other, bare]) == [bare, other]


def record(
    reduces: list[int], forwards: list[int], updates: list[int], broadcasts: Sequence[int] = ()
) -> dict[int, RankRecord]:
    phases = [(at, at + 5, "DistributedDataParallel.forward") for at in forwards]
    phases += [(at, at + 2, "Optimizer.step#SGD.step") for at in updates]
    told: dict[str, Any] = {
        name: [] for name in ("start", "end", "kind", "stream", "step", "name", "collective", "calls", "steps")
    }
    collectives = [RankCollective(start=at, end=at + 4, operation="all_reduce") for at in reduces]
    collectives += [RankCollective(start=at, end=at + 2, operation="broadcast") for at in broadcasts]
    one = RankRecord(
        rank=0, host="", device=None, activity="cpu", count=0, collectives=collectives, data=None,  # type: ignore[arg-type]
        edges=[0, 100], phases=sorted(phases), **told,
    )  # fmt: skip
    return {0: one}


def moved(operation: str, size: int, us: float, dtype: str = "float32") -> Collective:
    return Collective(
        index=0, operation=operation, bytes=size, dtype=dtype, group="0", group_size=2, step=1, transfer_us=us
    )


@pytest.mark.parametrize(
    ("held", "cure", "words"),
    [
        ([moved("all_reduce", 27 << 20, 4e4, "float64")], "reduce_in_fp32", ", in fp64"),
        ([moved("all_reduce", 27 << 20, 4e4)], "send_less", "in the median"),
        ([moved("all_reduce", 4, 400.0)] * 50 + [moved("all_reduce", 1 << 20, 9e3)], "merge_collectives", "small ones"),
        ([moved("all_reduce", 1536, 400.0)] * 50 + [moved("all_reduce", 1 << 20, 9e3)], "merge_tensors", "small ones"),
        ([moved("all_reduce", 4, 100.0)] * 50 + [moved("all_reduce", 1 << 20, 9e4)], "send_less", "in the median"),
        (
            [moved("broadcast", 4 << 20, 9e3), moved("all_reduce", 1 << 20, 4e3)],
            "broadcast_less",
            "buffers before each",
        ),
        ([moved("broadcast", 4 << 20, 3e3), moved("all_reduce", 1 << 20, 9e3)], "send_less", "in the median"),
    ],
)
def test_what_most_of_a_bare_transfer_is_tells_what_helps(held: list[Collective], cure: str, words: str) -> None:
    """Gradients as bf16 were the advice for 50 all-reduces of 4 bytes, and for broadcasts of buffers."""
    run = run_of([split(rank, step, compute=20, exposed_transfer=20) for step in range(3) for rank in (0, 1)])
    parts: dict[str, Any] = {f"{part}_ms": ms for part, ms in {**PARTS, "compute": 20, "exposed_transfer": 20}.items()}
    ranks = [Split(rank=rank, window_ms=40, idle_launch_ms=0, **parts) for rank in (0, 1)]
    run.as_run, run.collectives = AsRun(step_ms=40, source="steps", steps=1, ranks=ranks), held
    (found,) = bare_transfer(run, record([30], [10], [90], broadcasts=[12]), [])
    assert found.remedy is not None and found.remedy.cure == cure and found.ms == pytest.approx(20)
    assert words in because(found)


def test_broadcasts_of_buffers_are_those_in_the_forward_passes() -> None:
    assert broadcasts_buffers(record([30], [10, 50], [90], broadcasts=[11, 52]))
    assert not broadcasts_buffers(record([30], [10, 50], [90], broadcasts=[11, 80]))
    assert not broadcasts_buffers(record([30], [10, 50], [90]))


def gloo_job(*transfers_ms: list[float], compute_ms: float = 60.0) -> GlooJob:
    """Steps of one backward pass before all-reduces that take so long each, one list a step."""
    job = GlooJob()
    for number, transfers in enumerate(transfers_ms):
        job.step(3 + number)
        job.compute(compute_ms, calls=20)
        for ms in transfers:
            job.all_reduce(ms)
        job.compute(4.0, "Optimizer.step#SGD.step")
    return job


def test_transfer_that_is_what_the_job_sends_is_told_as_that_and_not_as_a_fault(tmp_path: Path) -> None:
    """Before, a job that nothing is the matter with began with `exposed transfer costs at most 30.0 ms of …`, and to
    send less was what may help most, as if that were a cure.
    """
    verdict = run_verdict(analysed(gloo_job(*[[7.5] * 4] * 6).write(tmp_path)))
    _, told = verdict.headline.split(": ", 1)
    assert (
        told.startswith("30.0 ms of the ") and " step are transfer that nothing hides, in 4 collectives a step" in told
    )
    assert told.endswith("hat is what the job sends, and no fault is found in it.")
    assert verdict.advice.startswith(
        "no fault is found in what the job sends; who would change that can send less, or less often: at most 30.0 ms a"
    )


@pytest.mark.parametrize("transfers_ms", [(17.7, 11.2, 9.4), (23.4, 14.3, 8.1), (16.1, 8.6, 3.0), (7.1, 7.3, 7.0)])
def test_runs_of_one_clean_job_begin_alike_however_much_of_their_steps_is_transfer(
    transfers_ms: tuple[float, ...], tmp_path: Path
) -> None:
    """Of three the third sent for 9.2% of its steps, and began with: make the operators themselves faster."""
    steps = [[ms / 2] * 2 for ms in (*transfers_ms, transfers_ms[-1])]
    verdict = run_verdict(analysed(gloo_job(*steps, compute_ms=88.0).write(tmp_path)))
    assert " step are transfer that nothing hides, in 2 collectives a step, most of them all_reduce" in verdict.headline
    assert "can send less, or less often: at most " in verdict.advice


def test_transfer_is_not_called_faultless_ahead_of_a_stall_that_noise_may_be(tmp_path: Path) -> None:
    (transfer,) = bare_transfer(bare_run(4, 0.3), {}, [])
    stall = Finding(code="host_stall", rank=1, ms=12.0, low_ms=0.0, high_ms=25.0, fraction=0.1, backed="replay")
    assert "no fault is found" in first_sentence([transfer], 90.0, 2)
    told = first_sentence([transfer, stall], 90.0, 2)
    assert (
        "no fault is found" not in told and "beside it rank 1 may cost 12.0 ms (0.00 ms to 25.0 ms), or nothing" in told
    )
    large = msgspec.structs.replace(stall, ms=80.0, high_ms=200.0)
    lead = headline_of_all([large, transfer], 200.0, 2, "")
    assert "that is what the job sends" not in lead.text or "no fault is found" not in lead.text


def bare_run(
    operations: int,
    transfer_ms: float,
    *,
    steps: int = 3,
    size: int | None = None,
    wait_ms: float = 0.0,
    bare_ms: float = 30.0,
) -> RunAnalysis:
    """A run of which each step computes for 60 ms and sends for so long, in collectives that take so long each."""
    parts = {"compute": 60.0, "exposed_transfer": bare_ms} | ({"exposed_wait": wait_ms} if wait_ms else {})
    run = run_of([split(rank, step, **parts) for step in range(steps) for rank in (0, 1)])
    run.collectives = [
        Collective(index=at, operation="all_reduce", bytes=size, dtype=None, group="0", group_size=2, step=step,
                   transfer_us=1e3 * transfer_ms * (1 if (step + at) % steps == 0 else 4))
        for step in range(steps) for at in range(operations)
    ]  # fmt: skip
    return run


@pytest.mark.parametrize(
    ("operations", "transfer_ms", "size", "cure", "most_ms"),
    [(12, 0.3, None, "record_sizes", 27.5), (12, 1.5, None, "send_less", 30.0), (4, 0.3, None, "send_less", 30.0),
     (12, 0.3, 25 << 20, "send_less", 30.0)],
    ids=["many that are quick at their quickest", "many that never are", "a few", "of known sizes"],
)  # fmt: skip
def test_only_many_quick_collectives_of_unknown_sizes_may_be_small_ones(
    operations: int, transfer_ms: float, size: int | None, cure: str, most_ms: float
) -> None:
    (found,) = bare_transfer(bare_run(operations, transfer_ms, size=size), {}, [])
    assert found.remedy is not None and (found.remedy.cure, found.at_most) == (cure, True)
    assert [found.low_ms, found.ms, found.high_ms] == pytest.approx([0.0, most_ms, most_ms])
    assert ("no fault is found" in because(found)) is (cure == "send_less")


def transfer_found(ms: float) -> Finding:
    return Finding(code="small_buckets", ms=ms, low_ms=ms, high_ms=ms, backed="replay")


def test_bare_transfer_is_no_finding_where_others_explain_it_or_devices_replay_it() -> None:
    run = bare_run(4, 7.5)
    assert bare_transfer(run, {}, [transfer_found(9.0)]) and not bare_transfer(run, {}, [transfer_found(11.0)])
    # of a bound half counts, and of launching what is sure
    assert bare_transfer(run, {}, [launching(12.0)]) and not bare_transfer(run, {}, [launching(14.0)])
    other = bare_run(4, 7.5)
    for one in (*other.steps, *other.ranks):  # beside what else is lost
        one.idle_launch_ms += 29.0 * getattr(one, "steps", 1)
        one.window_ms += 29.0 * getattr(one, "steps", 1)
    assert bare_transfer(other, {}, [launching(14.0)]) and not bare_transfer(other, {}, [transfer_found(11.0)])
    turns = Remedy(cure="fewer_threads")
    known = Finding(code="host_starved", ms=1.0, low_ms=1.0, high_ms=1.0, remedy=turns, backed="none")
    assert not bare_transfer(run, {}, [known])  # threads that take turns move data as slowly as they compute
    run.activity = "gpu"
    assert not bare_transfer(run, {}, [])
    waiting = run_of([split(rank, 0, compute=60, exposed_transfer=30, exposed_wait=31) for rank in (0, 1)])
    little = run_of([split(rank, 0, compute=500, exposed_transfer=30) for rank in (0, 1)])
    unsplit = run_of([split(rank, 0, compute=60, exposed_transfer=30, exposed_unsplit=2) for rank in (0, 1)])
    for other in (waiting, little, unsplit):
        other.collectives = bare_run(4, 7.5).collectives
        assert not bare_transfer(other, {}, [])


def test_advice_for_what_only_infers_speaks_of_no_gradients() -> None:
    run = bare_run(4, 7.5)
    run.trains = False
    keep(run, bare_transfer(run, {}, []))
    assert "gradient" not in f"{cure_text(run.findings[0].remedy)} {todo_elsewhere(run.findings[0])}"  # type: ignore[arg-type]


@pytest.mark.parametrize("part", ["compute", "idle_data", "idle_launch", "exposed_memory"])
@pytest.mark.parametrize("steps", [1, 4])
def test_what_a_rank_apart_does_is_told_without_steps_that_are_not_there(part: str, steps: int) -> None:
    """Before: `in 1 of 1 steps`, and all that the rank computes as what it does longer than the others."""
    rows = [split(0, step, **{part: 2.0, "exposed_wait": 50.0}) for step in range(steps)]
    rows += [split(1, step, **{part: 52.0}) for step in range(steps)]
    (found,) = ranks_apart(run_of(rows))
    told = headline(found, 52.0, 2)
    assert "1 of 1" not in told and "+52" not in told
    assert ("record" in todo(found)) is (steps == 1)
    if part in ("compute", "idle_launch"):
        assert "52.0 ms a step, the others" in told and "2.0 ms at most" in told


def test_what_cannot_be_priced_stands_behind_ranks_apart() -> None:
    unknown = Finding(code="profiler_cost", ms=None, low_ms=None, high_ms=None, backed="none")
    assert [one.code for one in with_ranks_apart(two_ranks(4), [unknown])] == ["host_stall", "profiler_cost"]


def test_advice_is_not_given_twice_where_no_finding_has_a_remedy() -> None:
    """Before: `find the rank that comes last …; beyond that, find the rank that comes last …`."""
    run = run_of([split(0, 0, compute=5, exposed_wait=106, idle_launch=10), split(1, 0, compute=5, exposed_wait=116)])
    run.findings = [launching(5.5)]
    verdict = run_verdict(run)
    assert "exposed wait" in verdict.headline and "beyond that" not in verdict.advice


def test_a_bound_stands_behind_a_fault_that_costs_nearly_as_much() -> None:
    """A sleep of 20 ms a step stood behind what launching the rest of it costs at most, 24 ms."""
    bound = Finding(code="host_bound", ms=24.0, low_ms=23.0, high_ms=26.0, at_most=True, backed="replay")
    assert ranked([bound, stall(20.0)]) == [stall(20.0), bound]
    for other in (stall(15.0), msgspec.structs.replace(stall(20.0), low_ms=0.0)):  # well below it, or perhaps nothing
        assert ranked([other, bound]) == [bound, other]
    larger = msgspec.structs.replace(bound, ms=26.0, low_ms=25.0)
    assert ranked([bound, larger, stall(20.0)]) == [stall(20.0), larger, bound]
