"""What a rank's own work costs beside a loader's worker: what it lasts, unless the worker is what the step waits for.

The worker is played: it makes a batch in so long, has two of them ahead at most, and stands idle then. So what a cause
costs is known: it is the same job's step less that of the job without the cause.
"""

import random
from pathlib import Path

import pytest

from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.load import Target, open_replayer
from scalescope.scaling.replay.ranks.late_batches import Fetch, _are_handed_over, _late
from scalescope.scaling.replay.removal import Removal
from tests.gloo_traces import GlooJob, analysed

FROM_WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
STEPS, BEFORE, AHEAD, OWN_MS = 10, 3, 2, 20.0


class Worker:
    """One that makes a batch in so long, once it was asked for, and makes no more than `AHEAD` beyond those taken."""

    def __init__(self, make_ms: float, start_ns: int) -> None:
        self.make_ns, self.done, self.start, self.taken = round(1e6 * make_ms), start_ns, start_ns, list[int]()

    def there(self, count: int) -> int:
        asked = self.taken[count - AHEAD] if count >= AHEAD else self.start - AHEAD * self.make_ns
        self.done = max(self.done, asked) + self.make_ns
        return self.done


def job(make_ms: float, own_ms: float = 0.0, stall_ms: float = 0.0, compute_ms: float = 40.0) -> tuple[GlooJob, float]:
    """Return a job of two ranks, of which rank 1 has work of its own or stands still, and its mean step, ms.

    What ranks compute varies by a few ms, and what is handed over takes 0.9 to 4 ms, as on cores that workers share.
    """
    chance, made = random.Random(5), GlooJob()
    workers = [Worker(make_ms, made.now[rank]) for rank in range(2)]
    begun = []
    for number in range(BEFORE + STEPS):
        if number == BEFORE:  # the window opens
            made.begun = {}
            for events in made.events.values():
                events.clear()
        made.step(number)
        begun.append(made.now[0])
        for rank in range(2):
            asked = made.now[rank]
            first_ms, rest_ms = chance.uniform(0.6, 2.0), chance.uniform(0.3, 2.0)
            made.now[rank] = max(asked, workers[rank].there(number))
            made.sleep(rank, first_ms)
            made.compute(0.02, "aten::set_", rank)
            made.sleep(rank, rest_ms)
            workers[rank].taken.append(made.now[rank])
            made.annotate(rank, FROM_WORKERS, asked, made.now[rank])
            made.sleep(rank, 0.02)
            made.compute(compute_ms + chance.uniform(-2, 2), "aten::mm", rank, calls=40)
            if rank and own_ms:
                made.compute(own_ms, "aten::matmul", rank, calls=20)
            if rank and stall_ms:
                made.sleep(rank, stall_ms)
        made.compute(1.0, "aten::linear", calls=2)
        made.all_reduce(3.0)
    return made, (begun[-1] - begun[BEFORE]) / 1e6 / (STEPS - 1)


def of_rank(found: list[Finding], *codes: str) -> Finding | None:
    return next((one for one in found if one.code in codes and one.rank == 1), None)


def test_own_work_costs_what_it_lasts_where_each_batch_takes_a_while_to_be_handed_over(tmp_path: Path) -> None:
    """*Rank 1 costs 11.3 ms (10.6 to 12.0)* was told of 22.4 ms of its own matmul, without which steps took 26 less."""
    made, step_ms = job(10.0, own_ms=OWN_MS)
    cost = step_ms - job(10.0)[1]
    assert cost == pytest.approx(OWN_MS, abs=2.0)
    first = analysed(made.write(tmp_path)).findings[0]
    assert (first.code, first.rank) == ("own_work", 1)
    assert first.ms == pytest.approx(cost, abs=2.0)


def test_a_stalled_host_costs_what_it_lasts_where_each_batch_takes_a_while_to_be_handed_over(tmp_path: Path) -> None:
    made, step_ms = job(10.0, stall_ms=OWN_MS / 2)
    cost = step_ms - job(10.0)[1]
    found = of_rank(analysed(made.write(tmp_path)).findings, "host_stall")
    assert found is not None and found.ms == pytest.approx(cost, abs=2.0)


def test_a_rank_as_fast_as_the_others_and_one_without_its_own_work_come_to_the_same(tmp_path: Path) -> None:
    """`whatif --no-straggler 1` said -0.07 ms, and `whatif` -11.25, of the same 22.4 ms."""
    made, step_ms = job(10.0, own_ms=OWN_MS)
    cost = step_ms - job(10.0)[1]
    folder = made.write(tmp_path)
    found = open_replayer(Target(folder, "loaded"), jobs=1).predict(Change(no_straggler=1), near=True)
    assert found.change_ms == pytest.approx(-cost, abs=2.5)


@pytest.mark.parametrize("make_ms", [75.0, 110.0])
def test_own_work_costs_nothing_where_the_workers_pace_is_the_step_s(make_ms: float, tmp_path: Path) -> None:
    made, step_ms = job(make_ms, own_ms=OWN_MS)
    assert step_ms - job(make_ms)[1] < 1.0
    folder = made.write(tmp_path)
    replayer = open_replayer(Target(folder, "loaded"), jobs=1)
    alone = replayer.predict(Change(without=(Removal("own", 1),)), near=True)
    assert alone.change_ms == pytest.approx(0.0, abs=1.0)
    assert analysed(folder).findings[0].code == "data_loading"


def test_waits_shorter_than_a_turn_are_a_worker_s_where_they_make_up_for_the_host_s_time(tmp_path: Path) -> None:
    chance = random.Random(3)
    for kept in (True, False):
        made, before_ms = GlooJob(), {0: 38.0, 1: 38.0}
        for number in range(STEPS):
            made.step(number + 3)
            for rank in range(2):
                asked = made.now[rank]
                made.sleep(rank, 40.0 - before_ms[rank] if kept else chance.uniform(0.6, 3.0))
                made.annotate(rank, FROM_WORKERS, asked, made.now[rank])
                made.sleep(rank, 0.02)
                before_ms[rank] = chance.uniform(37.0, 39.5)
                made.compute(before_ms[rank], "aten::mm", rank, calls=10)
        made.step(99)
        replayer = open_replayer(Target(made.write(tmp_path / str(kept)), "loaded"), jobs=1)
        assert bool(replayer.traced.paced) is kept


def test_a_batch_that_takes_a_turn_more_to_be_handed_over_is_no_pace_where_its_worker_had_time_for_two() -> None:
    """Of 63.1 ms that a save took half came back: the batch behind it took 7.0 ms to be handed over, 0.8 more than the
    longest of the others, and was to come 289 ms after the one before, where those behind it came after 147.
    """
    saved = fetched([0.0, 5.3, 1.9, 7.0, 3.2, 1.4, 1.0, 1.1], [300.0, 200.0, 289.0, 184.0, 147.0, 192.0, 146.0])
    assert _late(saved, 6_300_000, alike=False) == []
    slow = fetched([0.0, 5.3, 1.9, 7.0, 3.2, 1.4, 1.0, 1.1], [300.0, 200.0, 189.0, 184.0, 147.0, 192.0, 146.0])
    assert len(_late(slow, 6_300_000, alike=False)) == 1, "those behind it took as long"
    last = fetched([0.0, 5.3, 1.9, 1.0, 7.0, 1.4], [300.0, 200.0, 189.0, 289.0, 147.0])
    assert len(_late(last, 6_300_000, alike=False)) == 1, "one that follows tells nothing"


def fetched(waits_ms: list[float], own_ms: list[float]) -> list[Fetch]:
    """Return waits for batches, with what the host takes from each to the next one, ms."""
    asked, found = 0, []
    for wait, own in zip(waits_ms, [*own_ms, 0.0], strict=True):
        found.append(Fetch(call=0, asked=asked, wait=round(1e6 * wait), rest=0))
        asked += round(1e6 * (wait + own))
    return found


def test_batches_that_take_as_long_however_long_the_host_took_are_handed_over() -> None:
    """Waits of 1.3 ms passed for a worker's pace: *loading data costs 12.6 ms of the 27.1 ms step* of a job that its
    hosts bound; and of windows of four steps, whose ranks have three such waits each, 7.2 ms of 72.8 were loading.
    """
    assert _are_handed_over([fetched([1.38, 1.30, 1.36, 1.35], [25.57, 25.82, 26.29])])
    ranks = [fetched([1.12, 1.15, 1.43], [73.04, 72.01]), fetched([1.22, 1.24, 1.31], [72.7, 70.5])]
    assert _are_handed_over(ranks) and not any(_are_handed_over([one]) for one in ranks)
    paced = fetched([1.4, 1.1, 1.6, 0.9], [25.5, 25.8, 25.3])  # each makes up for what the host took
    assert not _are_handed_over([paced]) and not _are_handed_over([paced, paced])
    assert not _are_handed_over([fetched([1.3, 1.31, 1.3, 1.31], [25.5, 25.51, 25.5])])  # nothing varies
    assert _are_handed_over([fetched([1.3, 1.31, 1.3, 1.31], [74.3, 73.9, 74.1])])  # a worker as quick to within 2%?
