"""What the loop's thread waits for in torch's own loaders is in each row, without a word from the script."""

import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch.utils.data.dataloader as torchs
from torch.utils.data import DataLoader, Dataset, IterableDataset

from scalescope import profile_steps
from scalescope.records.folder import RunFolder
from scalescope.records.rows import StepRow
from scalescope.train.script import loader_waits
from scalescope.train.script.loader_waits import LoaderWaits

EACH_MS = 20.0
OWN = (torchs._BaseDataLoaderIter.__next__, DataLoader.__iter__)


class Slow(Dataset[int]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, at: int) -> int:
        time.sleep(EACH_MS / 1e3)
        return at


class SlowStream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        for at in range(8):
            time.sleep(EACH_MS / 1e3)
            yield at


class Nested(IterableDataset[object]):
    """One that takes its batches from a loader of its own."""

    def __iter__(self) -> Iterator[object]:
        yield from DataLoader(Slow(), batch_size=None)


def rows_of(tmp_path: Path, name: str, loop: Callable[[Callable[[], None]], None]) -> list[StepRow]:
    """Return the rows of a loop under `profile_steps`."""
    with profile_steps(name, runs=str(tmp_path), name=name, wait=90, warmup_steps=1, analyze=False) as profile:
        loop(profile.step)
    return RunFolder(tmp_path / name).read_steps()


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    assert (torchs._BaseDataLoaderIter.__next__, DataLoader.__iter__) == OWN


@pytest.mark.parametrize(
    "loader",
    [
        DataLoader(Slow(), batch_size=None),
        DataLoader(SlowStream(), batch_size=None),
        DataLoader(Nested(), batch_size=None),
        DataLoader(Slow(), batch_size=None, num_workers=1),
        DataLoader(Slow(), batch_size=None, num_workers=1, persistent_workers=True),
    ],
    ids=["in_the_loop", "iterable", "nested", "worker", "persistent"],
)
def test_each_row_has_what_the_loop_waited_for_torchs_loader_once(tmp_path: Path, loader: DataLoader[int]) -> None:
    """Its rows had no `loading_ms`, and the live line and the answer knew nothing of loading."""

    def loop(step: Callable[[], None]) -> None:
        for _ in range(2):
            for _ in loader:
                step()

    rows = rows_of(tmp_path, "waits", loop)
    assert len(rows) == 16
    assert all(row.loading_ms[0] <= row.step_ms[0] for row in rows[1:])
    # workers get ahead while the run folder is made
    assert EACH_MS / 2 < statistics.median(row.loading_ms[0] for row in rows[1:]) < 3 * EACH_MS
    kept = loader.persistent_workers
    assert {row.step: row.workers_started for row in rows if row.workers_started} == {
        8: [0 if kept else loader.num_workers]
    }, "the second epoch begins there"


def test_what_profile_loading_times_is_not_counted_twice(tmp_path: Path) -> None:
    with profile_steps("once", runs=str(tmp_path), name="once", wait=90, warmup_steps=1, analyze=False) as profile:
        for _ in profile.loading(DataLoader(Slow(), batch_size=None)):
            profile.step()
    for row in RunFolder(tmp_path / "once").read_steps()[1:]:
        assert EACH_MS < row.loading_ms[0] <= row.step_ms[0]


def test_what_another_thread_loads_ahead_is_no_wait_of_the_loops(tmp_path: Path) -> None:
    def loop(step: Callable[[], None]) -> None:
        ahead = threading.Thread(target=lambda: list(DataLoader(Slow(), batch_size=None)))
        ahead.start()
        for _ in range(4):
            time.sleep(EACH_MS / 1e3)
            step()
        ahead.join()

    assert not any(row.loading_ms for row in rows_of(tmp_path, "ahead", loop))


def test_two_loaders_a_step_are_both_counted(tmp_path: Path) -> None:
    def loop(step: Callable[[], None]) -> None:
        for _ in zip(DataLoader(Slow(), batch_size=None), DataLoader(Slow(), batch_size=None), strict=True):
            step()

    assert all(row.loading_ms[0] >= 2 * EACH_MS for row in rows_of(tmp_path, "both", loop)[1:])


def test_profiles_that_follow_each_other_each_have_their_own_and_leave_torch_as_it_was(tmp_path: Path) -> None:
    def loop(step: Callable[[], None]) -> None:
        for _ in DataLoader(Slow(), batch_size=None):
            step()

    for name in ("first", "second"):
        rows = rows_of(tmp_path, name, loop)
        assert all(row.loading_ms[0] < 3 * EACH_MS for row in rows[1:])
        assert (torchs._BaseDataLoaderIter.__next__, DataLoader.__iter__) == OWN


def test_one_that_was_never_closed_is_in_nobodys_way() -> None:
    seen: list[float] = []
    left = LoaderWaits(lambda _: None)
    after = LoaderWaits(seen.append)
    assert list(DataLoader(Slow(), batch_size=None)) == list(range(8))
    assert len([ms for ms in seen if ms >= EACH_MS]) == 8
    left.end()
    assert torchs._BaseDataLoaderIter.__next__ is not OWN[0]
    after.end()
    after.end()


def test_an_error_of_the_dataset_is_the_scripts(tmp_path: Path) -> None:
    class Broken(Slow):
        def __getitem__(self, at: int) -> int:
            if at == 2:
                raise OSError("no such shard")
            return at

    def loop(step: Callable[[], None]) -> None:
        for _ in DataLoader(Broken(), batch_size=None):
            step()

    with pytest.raises(OSError, match="no such shard"):
        rows_of(tmp_path, "breaks", loop)


def test_where_torch_calls_things_otherwise_nothing_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader_waits, "_TIMED", (("_Renamed", "__next__"), ("DataLoader", "renamed")))
    seen: list[float] = []
    waits = LoaderWaits(seen.append)
    assert len(list(DataLoader(Slow(), batch_size=None))) == 8
    waits.end()
    assert not seen


def test_what_others_have_put_around_it_meanwhile_stays() -> None:
    seen: list[float] = []
    waits = LoaderWaits(seen.append)
    ours: Any = torchs._BaseDataLoaderIter.__next__

    def theirs(own: torchs._BaseDataLoaderIter) -> object:
        return ours(own)

    try:
        torchs._BaseDataLoaderIter.__next__ = theirs  # type: ignore[method-assign,assignment]
        waits.end()
        assert torchs._BaseDataLoaderIter.__next__ is theirs
        assert len(list(DataLoader(Slow(), batch_size=None))) == 8
        assert not seen
    finally:
        torchs._BaseDataLoaderIter.__next__ = OWN[0]  # type: ignore[method-assign]


def test_it_costs_microseconds_a_batch() -> None:
    """Far more than it takes, so that a busy machine does not fail it."""
    code = """
import time
from torch.utils.data import DataLoader
from scalescope.train.script.loader_waits import LoaderWaits
import torch.utils.data.dataloader as torchs
torchs._BaseDataLoaderIter.__next__ = lambda own: None
own = iter(DataLoader([1]))
waits = LoaderWaits(lambda ms: None)
took = []
for _ in range(2000):
    since = time.perf_counter(); next(own); took.append(time.perf_counter() - since)
print(sorted(took)[1000] * 1e6)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert float(done.stdout) < 20
