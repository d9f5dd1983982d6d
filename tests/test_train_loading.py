"""Who is long in the loader is said while the job runs: one rank of the others, or all of them."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scalescope import profile_steps
from scalescope.records.folder import RunFolder
from scalescope.records.rows import StepRow
from scalescope.train.measure.lateness import LateRank
from scalescope.train.measure.loading import LoadingWatch, SlowLoading, describe_both


def watched(
    loading_ms: list[float], *, runs_ahead: bool = False, steps: int = 10, step_ms: float = 50.0
) -> LoadingWatch:
    watch = LoadingWatch(runs_ahead=runs_ahead)
    for step in range(steps):
        watch.take(StepRow(step, "steady", [step_ms] * len(loading_ms), 1.0, loading_ms=loading_ms))
    return watch


def test_what_all_hosts_load_is_said_though_no_rank_is_late() -> None:
    slow = watched([40.0, 41.0]).slow
    assert slow == SlowLoading(None, 40.0, 50.0)
    assert describe_both(None, slow) == "loading data takes 40.0 ms a step (80% of 50.0 ms)"


def test_one_rank_that_loads_for_longer_is_said_with_its_lateness_once() -> None:
    slow = watched([0.1, 40.1]).slow
    assert slow is not None and slow.rank == 1
    late = LateRank(1, 40.8, 50.0)
    assert (
        describe_both(late, slow) == "rank 1 is 40.8 ms late a step (82% of 50.0 ms), loading data for 40.0 ms of that"
    )
    assert describe_both(None, slow) == "rank 1 loads data 40.0 ms longer a step (80% of 50.0 ms)"
    other = describe_both(LateRank(0, 9.0, 50.0), slow)
    assert (
        other
        == "rank 0 is 9.0 ms late a step (18% of 50.0 ms), rank 1 loads data 40.0 ms longer a step (80% of 50.0 ms)"
    )


@pytest.mark.parametrize("loading_ms", [[1.0, 1.5], [], [0.0]])
def test_short_loading_and_none_that_was_timed_are_not_said(loading_ms: list[float]) -> None:
    watch = LoadingWatch(runs_ahead=False)
    for step in range(20):
        watch.take(StepRow(step, "steady", [50.0] * max(1, len(loading_ms)), 1.0, loading_ms=loading_ms))
    assert watch.slow is None


def test_a_host_that_runs_ahead_of_its_device_may_load_meanwhile() -> None:
    assert watched([10.0], runs_ahead=True).slow is None
    assert watched([40.0], runs_ahead=True).slow is not None


def test_it_is_news_once_and_again_where_it_is_much_worse() -> None:
    watch = watched([10.0])
    said = watch.slow
    assert said is not None and watch.is_news(None) and not watch.is_news(said)
    for step in range(10):
        watch.take(StepRow(step, "steady", [80.0], 1.0, loading_ms=[40.0]))
    assert watch.is_news(said)


def test_a_wrapped_loader_gives_its_batches_and_each_row_its_time(tmp_path: Path) -> None:
    class Loader:
        def __iter__(self) -> Iterator[int]:
            yield from range(8)

    seen = []
    with profile_steps("loads", runs=str(tmp_path), name="loads", wait=20, warmup_steps=1, analyze=False) as profile:
        for batch in profile.loading(Loader()):
            seen.append(batch)
            profile.step()
    assert seen == list(range(8))
    rows = RunFolder(tmp_path / "loads").read_steps()
    assert len(rows) == 8 and all(len(row.loading_ms) == 1 for row in rows[1:])


def test_a_loader_that_begins_anew_each_epoch_is_timed_from_its_beginning(tmp_path: Path) -> None:
    class Loader:
        def __iter__(self) -> Iterator[int]:
            time.sleep(0.05)  # as one that starts its workers
            return iter(range(3))

    with profile_steps("begins", runs=str(tmp_path), name="begins", wait=20, warmup_steps=1, analyze=False) as profile:
        for _ in range(2):
            for _ in profile.loading(Loader()):
                profile.step()
    rows = RunFolder(tmp_path / "begins").read_steps()
    assert [row.step for row in rows if row.loading_ms and row.loading_ms[0] >= 50] == [3]


def test_an_error_of_the_loader_is_the_scripts(tmp_path: Path) -> None:
    def broken() -> Iterator[int]:
        yield 0
        raise OSError("no such shard")

    with (
        pytest.raises(OSError, match="no such shard"),
        profile_steps("breaks", runs=str(tmp_path), name="breaks", analyze=False) as profile,
    ):
        for _ in profile.loading(broken()):
            profile.step()
