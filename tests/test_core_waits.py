"""Ranks that are ready to run and wait for a core: how much of the step that is, said first where it costs most."""

import threading
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest

from scalescope.records.folder import RunFolder
from scalescope.records.rows import StepRow
from scalescope.records.steps.busy_threads import BusyThread
from scalescope.records.steps.recording import RecordingFacts
from scalescope.records.steps.worker_times import WorkerTime
from scalescope.report.text.cures.words import cure_elsewhere, cure_text
from scalescope.report.text.findings import because, cost
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.finding.figures import AT_LEAST, BESIDES, BY_TURNS, IN_EVERY_STEP, LOCK_WAITS
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.finding.order import worth_telling
from scalescope.scaling.findings.derived import keep
from scalescope.scaling.run import _add_own_threads
from scalescope.scaling.verdicts.step_rows.core_waits import core_waits
from scalescope.scaling.verdicts.step_rows.steady import add_steps
from scalescope.train.script.own_threads import OwnThreads
from tests.report_samples import run_answer

STALL = Finding(
    code="host_stall", rank=1, ms=11.8, low_ms=7.5, high_ms=16.4, fraction=0.06, backed="replay",
    evidence=(EvidenceRow(kind="figure", name="gap_before aten::linear", ms=15.5, others_ms=0.0),),
    remedy=Remedy(cure="look_at_host"),
)  # fmt: skip
SLOWER = Finding(
    code="slower_compute", rank=1, ms=21.1, low_ms=0.0, high_ms=29.5, fraction=0.11, backed="replay",
    remedy=Remedy(cure="look_at_device"),
)  # fmt: skip


def rows(waits: list[list[float]], free_ms: float = 110.0) -> list[StepRow]:
    """Return a step a pair of waits of two ranks, as long as the longer one makes it; steps 10 to 12 are profiled."""
    noise = np.random.default_rng(7).normal(0.0, 3.0, len(waits)).tolist()
    return [
        StepRow(
            step=step,
            phase="profile" if step in (10, 11, 12) else "steady",
            step_ms=[free_ms + off + max(both)] * 2,
            samples_per_s=1.0,
            run_delay_ms=both,
        )
        for step, (both, off) in enumerate(zip(waits, noise, strict=True))
    ]


def told(steps: list[StepRow], findings: list[Finding], cores: tuple[int, int] | None = (2, 2)) -> RunAnalysis:
    run = run_answer("mlp", 2)
    run.activity, run.experts, run.pipelines, run.hosts = "cpu", [], [], 1
    add_steps(run, steps)
    assert run.step_times is not None
    if cores is not None and run.step_times.core_waits is not None:
        run.step_times.core_waits = msgspec.structs.replace(run.step_times.core_waits, threads=cores[0], cores=cores[1])
    keep(run, findings)
    return run


#: Beside another process, by turns; of a job whose own threads take turns with the loops on two cores.
BESIDE_OTHERS = [[40.0, 65.0] if at % 2 else [60.0, 45.0] for at in range(60)]
BY_ITSELF = [[9.0, 5.0] if at % 2 else [4.0, 11.0] for at in range(60)]


def test_a_run_says_first_what_its_ranks_wait_for_cores_and_beside_it_the_cause_that_is_sure() -> None:
    """*Rank 1 costs 11.8 ms of the 185.1 ms step* was all, of steps in which a rank waited 58.8 ms for a core."""
    run = told(rows(BESIDE_OTHERS), [SLOWER, STALL])
    first = run.findings[0]
    assert (first.code, first.rank, first.backed) == ("host_starved", None, "measured")
    assert first.ms == pytest.approx(62.5, abs=0.2) and first.low_ms is not None and 22.0 < first.low_ms < 32.0
    verdict = run_verdict(run)
    assert "waits for cores cost 62.5 ms (" in verdict.headline
    assert (
        "The hosts could run, and wait for a core, which other processes, loaders' workers or own threads have (2 "
        "threads compute on 2 cores). Beside it rank 1 costs 11.8 ms (7.5 ms to 16.4 ms): its host does nothing"
    ) in verdict.headline
    assert verdict.advice.startswith("give the ranks cores that nothing else uses: 62.5 ms (")
    assert "; beside that, on rank 1, find what holds that host up: 11.8 ms" in verdict.advice
    assert not any("11.8 ms" in note for note in verdict.notes)  # it is said already
    again: RunAnalysis = msgspec.json.decode(msgspec.json.encode(run), type=RunAnalysis)
    keep(again, again.findings)
    assert again.findings == run.findings


def test_a_cause_that_is_little_of_the_step_is_not_told_beside_the_waits() -> None:
    """*Beside it loading data costs 1.8 ms* was in the first sentence, and the advice, of steps of 62 to 94 ms.

    What a rank launches beyond the others is no chance, however little.
    """
    little = Finding(code="data_loading", ms=3.0, low_ms=1.0, high_ms=5.0, fraction=0.02, backed="replay",
                     remedy=Remedy(cure="load_ahead"))  # fmt: skip
    counted = EvidenceRow(kind="figure", name=BESIDES, calls=3.0, value=3.0)
    own = msgspec.structs.replace(little, code="own_work", rank=1, evidence=(counted,), remedy=Remedy(cure="even_out"))
    much = msgspec.structs.replace(little, ms=9.0, low_ms=7.0, high_ms=11.0, fraction=0.05)
    for finding, told_beside in ((little, False), (own, True), (much, True)):
        run = told(rows(BESIDE_OTHERS), [finding])
        assert {one.code for one in run.findings} == {"host_starved", finding.code}
        verdict = run_verdict(run)
        assert ("Beside it" in verdict.headline) == ("beside that" in verdict.advice) == told_beside


def test_a_cause_that_costs_more_comes_first_and_the_waits_beside_it() -> None:
    dear = msgspec.structs.replace(STALL, ms=90.0, low_ms=80.0, high_ms=99.0)
    headline = run_verdict(told(rows(BESIDE_OTHERS), [dear])).headline
    assert headline.index("rank 1 costs 90.0 ms") < headline.index("eside it waits for cores cost 62.5 ms (")


def test_loading_leads_the_waits_for_cores_that_its_slow_workers_may_make() -> None:
    """*Waits for cores cost 41.9 ms*, of which *other processes, loaders' workers or own threads* might be the reason,
    stood before rank 1's loading of 38.8: both came of its one worker, without which 78 ms came back in turns. *As long
    as they compute* was told of workers that used 0.97 of a core.
    """
    waiting = EvidenceRow(kind="annotation", ms=30.1, name="enumerate(DataLoader)#_MultiProcessingDataLoaderIter.next")
    loading = Finding(code="data_loading", rank=1, ms=38.8, low_ms=28.2, high_ms=49.5, fraction=0.2, backed="measured",
                      evidence=(waiting,), remedy=Remedy(cure="load_faster"))  # fmt: skip
    run = told(rows(BESIDE_OTHERS), [loading])
    assert [one.code for one in run.findings] == ["data_loading", "host_starved"]
    headline = run_verdict(run).headline
    assert headline.index("rank 1 costs 38.8 ms (") < headline.index("eside it waits for cores cost 62.5 ms (")
    assert headline.endswith(
        "wait for a core, which rank 1's loader workers have as long as they compute (2 threads compute on 2 cores "
        "beside them): faster batches there may bring back both, 101.3 ms."
    )
    again: RunAnalysis = msgspec.json.decode(msgspec.json.encode(run), type=RunAnalysis)
    keep(again, again.findings)
    assert again.findings == run.findings
    for used, words in (
        (0.97, "of which rank 1's loader workers use 0.97 (2 threads"),
        (0.3, "as long as they compute"),
    ):
        known = told(rows(BESIDE_OTHERS), [])
        known.worker_times = [WorkerTime(rank=0, processes=1, cores=0.9), WorkerTime(rank=1, processes=1, cores=used)]
        keep(known, [*known.findings, loading])
        assert [one.code for one in known.findings] == ["data_loading", "host_starved"]
        assert words in because(known.findings[1])
    idle = told(rows(BESIDE_OTHERS), [])  # they wait for files: who has the cores is somebody else
    idle.worker_times = [WorkerTime(rank=1, processes=1, cores=0.03, waiting=0.4)]  # or would compute
    keep(idle, [*idle.findings, loading])
    assert idle.findings[0].code == "data_loading"
    idle = told(rows(BESIDE_OTHERS), [])
    idle.worker_times = [WorkerTime(rank=1, processes=1, cores=0.03, waiting=0.01)]
    keep(idle, [*idle.findings, loading])
    assert idle.findings[0].code == "host_starved" and "rank 1's loader" not in because(idle.findings[0])
    little = msgspec.structs.replace(loading, ms=9.0, low_ms=7.0, high_ms=11.0, fraction=0.05)
    assert told(rows(BESIDE_OTHERS), [little]).findings[0].code == "host_starved"  # and who may have them is said
    itself = msgspec.structs.replace(loading, evidence=(msgspec.structs.replace(waiting, name="load batch"),))
    for others, cores in (
        (itself, (2, 2)),
        (loading, (2, 4)),
        (loading, None),
    ):  # no worker; cores left; unknown
        first = told(rows(BESIDE_OTHERS), [others], cores=cores).findings[0]
        assert first.code == "host_starved" and "rank 1's loader" not in because(first)


def test_hosts_that_are_all_interrupted_are_not_told_again_of_one_of_them() -> None:
    """*Starved hosts cost 5.6 ms (5.0 to 5.9)* and *rank 1 may cost 5.6 ms (0.0 to 6.0), or nothing* were one time."""
    everyone = Finding(code="host_starved", ms=5.6, low_ms=5.0, high_ms=5.9, fraction=0.06, backed="replay",
                       remedy=Remedy(cure="free_cores"))  # fmt: skip
    more = msgspec.structs.replace(everyone, rank=1, low_ms=0.0)
    assert worth_telling([everyone, more], on_cpus=True) == [everyone]
    assert worth_telling([more], on_cpus=True) == [more]


@pytest.mark.parametrize(
    ("waits", "activity"),
    [
        (BY_ITSELF, "cpu"),  # 9% of the step: its own threads take turns with its loops
        ([[60.0, 45.0] if at < 15 else [4.0, 9.0] for at in range(60)], "cpu"),  # at first alone
        (BESIDE_OTHERS, "gpu"),  # a host may wait while its device computes
    ],
)
def test_waits_that_are_few_or_of_a_part_of_the_run_or_of_hosts_alone_are_no_finding(
    waits: list[list[float]], activity: str
) -> None:
    run = told(rows(waits), [])
    run.activity = activity  # type: ignore[assignment]
    keep(run, [STALL])
    assert [one.code for one in run.findings] == ["host_stall"] and "core" not in run_verdict(run).headline


def test_waits_that_came_and_stayed_are_told_though_steps_wait_for_30_ms_and_for_100() -> None:
    """Beside another process from step 22 on *rank 0 costs 13.5 ms, and no window shows why* was said of two
    ranks that waited for 10 ms in each step, and then for 24 to 132.
    """
    then = [24, 72, 58, 65, 77, 65, 99, 70, 88, 55, 132, 83, 82, 67, 36, 28, 6, 80, 80, 39, 35, 27]
    waits = [[8.0 + step % 5, 9.0] for step in range(17)] + [[float(ms), 0.8 * ms] for ms in then]
    found = core_waits(steady := [one for one in rows(waits) if one.phase == "steady"], steady, set())
    assert found is not None and found.since is not None and found.since.step == 18
    assert found.since.before_ms < 12 and found.since.after_ms > 60
    order = np.random.default_rng(5).permutation(len(waits)).tolist()
    mixed = [one for one in rows([waits[at] for at in order]) if one.phase == "steady"]
    other = core_waits(mixed, mixed, set())
    assert other is not None and other.since is None


def test_what_is_known_of_who_has_the_cores_is_said() -> None:
    many = told(rows(BESIDE_OTHERS), [], cores=(8, 2)).findings[0]
    assert many.remedy is not None and (many.remedy.cure, many.remedy.size) == ("fewer_threads", 1.0)
    assert because(many) == "the hosts could run, and wait for a core: 8 threads compute on 2 cores"
    single = told(rows(BESIDE_OTHERS), [], cores=(2, 1)).findings[0]  # *one thread a rank* was the advice, as they had
    assert single.remedy is not None and single.remedy.cure == "cores_for_ranks"
    assert "they are more than the cores that they may run on" in cure_text(single.remedy)
    alone = told(rows([[2.0, 60.0 + at % 3] for at in range(60)]), [], cores=None).findings[0]
    assert alone.rank == 1
    assert because(alone) == (
        "its host could run, and waits for a core, which other processes, loaders' workers or own threads have"
    )


def test_a_thread_of_the_ranks_own_is_named_where_it_uses_as_much_as_is_waited_for(tmp_path: Path) -> None:
    """*Give each rank cores* was advised of a loop whose own process computes in a second thread."""
    steps = rows([[60.0 + at % 3, 2.0] for at in range(60)])
    for cores, named in ((0.5, True), (0.1, False)):
        folder = RunFolder.create(tmp_path / str(cores), "train", "what: mlp\n")
        spins = BusyThread(rank=0, name="Thread-1 (spin)", cores=cores)
        other = BusyThread(rank=1, name="Thread-1 (other)", cores=0.9)
        folder.write_recording(RecordingFacts(threads=[spins, other]))
        run = told(steps, [])
        _add_own_threads(run, folder)
        keep(run, [])
        first = run.findings[0]
        assert first.rank == 0 and first.remedy is not None
        told_so = "Thread-1 (spin), uses 0.50 of one beside the 2 threads that compute on 2 cores"
        assert (told_so in because(first)) == named, because(first)
        assert first.remedy.cure == ("core_for_thread" if named else "core_for_rank")
        keep(run, run.findings)
        assert len(run.findings) == 1, "told once, however often"


@pytest.mark.parametrize(("cores", "named"), [((2, 2), True), (None, True), ((2, 4), False)])
def test_a_thread_that_takes_turns_with_its_loop_needs_a_core_and_no_other_process(
    tmp_path: Path, cores: tuple[int, int] | None, named: bool
) -> None:
    """*Let another process do what a thread does in Python* was advised on two cores that two ranks compute on: tried,
    the steps were as long, as the process took the same core. Where cores are left, others have those waited for.
    """
    folder = RunFolder.create(tmp_path / "run", "train", "what: mlp\n")
    folder.write_recording(RecordingFacts(threads=[BusyThread(rank=1, name="Thread-1 (spin)", cores=0.62)]))
    run = told(rows(BESIDE_OTHERS), [], cores)
    _add_own_threads(run, folder)
    keep(run, [])
    verdict = run_verdict(run)
    assert ("Thread-1 (spin)" in verdict.headline) == named and "interpreter's lock" not in verdict.headline
    advised = "give the thread beside the training loop a core of its own, or let it do less while steps run: 62.5 ms"
    assert verdict.advice.startswith(advised if named else "give the ranks cores that nothing else uses: 62.5 ms"), (
        verdict.advice
    )
    assert "another process" not in verdict.advice
    remedy = run.findings[0].remedy
    assert remedy is not None
    how = cure_elsewhere(remedy)
    assert ("in another process it needs a core just the same" in how) == named and "work in another process" not in how


@pytest.mark.parametrize(("rank", "cores", "named"), [(1, 0.6, True), (1, 0.1, False), (0, 0.9, False)])
def test_the_thread_that_holds_the_lock_is_named_where_the_job_saw_it(rank: int, cores: float, named: bool) -> None:
    """*Another thread of this process* was said of a run whose folder knows its name. Of another rank's it says
    nothing, nor of one that hardly runs.
    """
    waits = EvidenceRow(kind="figure", name=LOCK_WAITS, ms=75.0, calls=15.0)
    starved = Finding(
        code="host_starved", rank=1, ms=75.0, low_ms=60.0, high_ms=90.0, fraction=0.4, backed="replay",
        evidence=(waits,), remedy=Remedy(cure="free_interpreter"),
    )  # fmt: skip
    run = run_answer("busy", world_size=2)
    run.busy_threads = [BusyThread(rank=rank, name="Thread-1 (spin)", cores=cores)]
    keep(run, [starved])
    told = because(run.findings[0])
    assert ("Thread-1 (spin), a thread of this process that uses 0.60 of a core, holds" in told) == named, told
    assert ("another thread of this process holds" in told) != named


@pytest.mark.parametrize(("between_ms", "others"), [(7.3, False), (373.4, True)])
def test_what_hosts_do_between_operators_for_another_cause_is_not_launching_s(between_ms: float, others: bool) -> None:
    """Beside a rank that waited for the lock: *at most 7.2 ms: the hosts do other things for up to 373.4 ms*."""
    between = EvidenceRow(kind="figure", name="idle_launch", ms=between_ms)
    launching = Finding(
        code="host_bound", ms=7.2, low_ms=0.0, high_ms=8.0, fraction=0.01, backed="replay", at_most=True,
        evidence=(between,), remedy=Remedy(cure="compile", on_cpu=True),
    )  # fmt: skip
    told = because(launching)
    assert f"for up to {between_ms} ms" in told and told.endswith("most of it for other causes") == others, told


def test_a_busy_thread_of_pythons_own_is_found_by_its_name_and_what_sleeps_is_not() -> None:
    threads, ends = OwnThreads(), threading.Event()

    def spins() -> None:
        while not ends.is_set():
            pass

    for name, work in (("spins", spins), ("sleeps", ends.wait)):
        threading.Thread(target=work, name=name, daemon=True).start()
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        time.sleep(0.05)
    found = threads.busy(3)
    ends.set()
    assert [(one.rank, one.name) for one in found] == [(3, "spins")] and found[0].cores <= 1.1


def test_more_threads_than_cores_and_what_traces_show_of_the_same_are_told_once() -> None:
    seen = Finding(code="host_starved", ms=9.0, low_ms=9.0, high_ms=60.0, backed="replay",
                   remedy=Remedy(cure="free_cores"))  # fmt: skip
    assert [one.code for one in told(rows(BESIDE_OTHERS), [seen]).findings] == ["host_starved"]
    known = msgspec.structs.replace(seen, remedy=Remedy(cure="fewer_threads", size=1.0))
    (kept,) = told(rows(BESIDE_OTHERS), [known]).findings
    assert (kept.ms, kept.remedy and kept.remedy.cure) == (9.0, "fewer_threads")


def test_threads_that_take_turns_are_priced_by_what_their_loops_wait_and_its_tries() -> None:
    """Of 16 threads on 2 cores *at least 10.3 ms of the 117.1 ms step* was all, where one thread a rank brought back
    28.3 to 34.4 ms, and *at least 18.1* of 134 ms; of an MLP's *at least 9.3* was more than the 5.5 to 8.5 that came.

    Of one thread more than cores others may have made the loops wait.
    """
    waits = [[42.0, 46.0] if at % 2 else [45.0, 41.0] for at in range(60)]
    seen = Finding(code="host_starved", ms=10.3, low_ms=10.3, high_ms=15.4, fraction=0.088, backed="replay",
                   at_least=True, remedy=Remedy(cure="fewer_threads", size=1.0))  # fmt: skip
    dear = msgspec.structs.replace(STALL, ms=15.0, low_ms=12.0, high_ms=18.0)
    run = told(rows(waits, 72.0), [dear, seen], cores=(16, 2))
    for _ in range(2):
        first = run.findings[0]
        assert (first.code, first.at_least, first.backed) == ("host_starved", False, "measured")
        assert (first.ms, first.low_ms, first.high_ms) == pytest.approx((30.0, 11.4, 76.0), abs=0.2)
        assert "waits 45.5 ms for a core, and in tries 0.25 to 1.67 times such waits came back" in because(first)
        assert cost(first) == "about 30 ms (11 ms to 76 ms)"
        keep(run, run.findings)
    assert run.advice[0].gain_ms == first.ms and not run.advice[0].at_least
    much = msgspec.structs.replace(seen, ms=60.0, low_ms=60.0, high_ms=61.0)
    (more,) = told(rows(waits, 72.0), [much], cores=(16, 2)).findings
    assert more.ms == 60.0 and more.low_ms == pytest.approx(11.4, abs=0.2), "it is no end of it"
    two = msgspec.structs.replace(seen, remedy=Remedy(cure="fewer_threads", size=2.0))
    assert "waits" not in because(told(rows(waits, 72.0), [two], cores=(16, 2)).findings[0]), "two still take turns"
    few = told(rows(waits, 72.0), [dear, seen], cores=(3, 2)).findings
    assert [one.ms for one in few] == [15.0, 10.3] and "waits" not in because(few[1])


def test_threads_that_the_steps_alone_tell_of_are_priced_by_the_same_tries() -> None:
    """*62.5 ms (47.9 to 64.1)* was told of what loops with 8 threads on two cores wait, of which 0.26 to 1.67 times as
    much came back.
    """
    (first,) = told(rows(BESIDE_OTHERS), [], cores=(8, 2)).findings
    assert (first.ms, first.low_ms, first.high_ms) == pytest.approx((41.3, 15.6, 104.4), abs=0.5)


@pytest.mark.parametrize(("waits", "untold"), [([], True), (BY_ITSELF, False)])
def test_where_nothing_is_found_on_cpus_waits_for_cores_are_said_to_be_unknown_where_they_are(
    waits: list[list[float]], untold: bool
) -> None:
    """*Nothing between the ranks is wrong* was all, of traces of 16 threads on two cores, whose steps were 134 ms
    longer for it.
    """
    nothing = Finding(code="nothing", ms=None, low_ms=None, high_ms=None, backed="none")
    run = told(rows(waits), [nothing])
    for _ in range(2):
        assert ("which traces do not tell (on Linux profile_steps does)" in run_verdict(run).headline) == untold
        keep(run, run.findings)
    run.activity = "gpu"
    keep(run, run.findings)
    assert "profile_steps" not in run_verdict(run).headline, "hosts may wait while their devices compute"


def test_what_one_rank_waits_is_told_from_what_holds_the_others_up_to_all_of_it_and_once() -> None:
    """*75.3 ms (36.7 to 77.3)* of a rank that shared its core, whose end below was the mean of it and of a rank that
    waits for nothing; and *rank 1, slower compute: 52.0 ms* once more, of the same waits in its operators. Truth: 66.2.
    """
    steps = [
        msgspec.structs.replace(row, own_ms=[52.0, 110.0], own_run_delay_ms=[2.0, 57.0])
        for row in rows([[2.0, 75.0 + at % 3] for at in range(60)], 80.0)
    ]
    turns = EvidenceRow(kind="figure", name=BY_TURNS, ms=59.0, calls=15.0, value=4.0)
    slower = Finding(code="slower_compute", rank=1, ms=52.0, low_ms=41.3, high_ms=63.8, fraction=0.33, backed="replay",
                     evidence=(turns,), remedy=Remedy(cure="look_at_device"))  # fmt: skip
    (first,) = told(steps, [slower]).findings
    assert first.rank == 1 and first.ms == pytest.approx(66.5, abs=0.5)
    assert first.low_ms == pytest.approx(57.0, abs=0.5)
    more = msgspec.structs.replace(slower, ms=90.0, low_ms=80.0, high_ms=100.0)
    _, surplus = told(steps, [more]).findings
    assert surplus.code == "slower_compute" and surplus.ms == pytest.approx(23.5, abs=0.5)
    sure = msgspec.structs.replace(slower, evidence=(EvidenceRow(kind="figure", name=AT_LEAST, value=1.3),))
    assert [one.ms for one in told(steps, [sure]).findings][1] == 52.0, "longer without exception, whoever waits"
    bare = rows([[2.0, 75.0 + at % 3] for at in range(60)], 80.0)
    assert told(bare, []).findings[0].ms == pytest.approx(76.0, abs=0.1), "nothing tells what is before the first wait"


def test_where_all_wait_for_cores_a_rank_that_waits_longer_is_not_blamed_for_that_besides() -> None:
    """*Rank 1, slower compute: 12.1 ms (9.4 to 14.8)* and *rank 0, a stalled host: 2.8 ms* were said of two runs of a
    job of which nothing was wrong, on two cores that other processes had for half of the time.
    """
    steps = rows([[50.0, 64.0 + at % 3] if at % 2 else [51.0, 65.0] for at in range(60)])
    slower = msgspec.structs.replace(SLOWER, ms=12.1, low_ms=9.4, high_ms=14.8)
    still = msgspec.structs.replace(STALL, low_ms=7.5)
    for one in (slower, still):
        (waits,) = told(steps, [one]).findings
        assert waits.code == "host_starved" and waits.rank is None
    always = msgspec.structs.replace(still, evidence=(*still.evidence, EvidenceRow(kind="figure", name=IN_EVERY_STEP)))
    assert [one.code for one in told(steps, [always]).findings] == ["host_starved", "host_stall"], "no wait does that"
    (_, left) = told(steps, [msgspec.structs.replace(slower, ms=30.0, low_ms=26.0, high_ms=34.0)]).findings
    assert left.rank == 1 and left.ms == pytest.approx(15.7, abs=1.0), "beyond what it waits longer"
    other = told(steps, [msgspec.structs.replace(slower, rank=0)]).findings
    assert [one.ms for one in other][1:] == [12.1], "who waits less is slow for another reason"


def test_a_script_s_own_loop_is_told_the_call_that_makes_its_threads_fewer() -> None:
    """*Compute with no more threads than there are cores* was all, of a script that torchrun had given one thread."""
    ours = Remedy(cure="fewer_threads", size=1.0, origin="script")
    assert cure_text(ours).endswith("than there are cores, with torch.set_num_threads(1)")
    assert "goes before OMP_NUM_THREADS=1" in cure_elsewhere(ours)
    jax = msgspec.structs.replace(ours, jax=True)
    assert "torch" not in cure_text(jax) + cure_elsewhere(jax)
