"""A disturbance of known size is found again, in the right place, and on the right rank."""

import gzip
import json
from pathlib import Path

import pytest

from scaling.run import Explained, explain_traces
from scaling.sources import find_sources
from scaling.waterfall import mean_step, waterfall
from tests import data_parallel, oracle
from tests.data_parallel import MS, Disturbance


def explain(folder: Path) -> Explained:
    return explain_traces(find_sources(folder), folder.name, 1)


@pytest.fixture
def undisturbed(tmp_path: Path) -> Explained:
    return explain(data_parallel.run(tmp_path / "undisturbed", Disturbance()))


def growth(calm: Explained, other: Explained, ranks: list[int]) -> dict[str, float]:
    """Return by how much each part of a step grew on the given ranks, in ms."""
    means = [mean_step([one.partitions[rank] for rank in ranks]) for one in (calm, other)]
    kernels = [[one.kernels[rank] for rank in ranks] for one in (calm, other)]
    fall = waterfall("x", (4, means[0], kernels[0]), (4, means[1], kernels[1]))
    assert fall.compute_inflation_ms is not None and fall.compute_more_work_ms is not None
    parts = {part.part: part.ms for part in fall.parts}
    assert sum(parts.values()) == pytest.approx(fall.growth_ms, abs=1e-9)
    return parts | {"all": fall.growth_ms, "inflation": fall.compute_inflation_ms, "more": fall.compute_more_work_ms}


def raw_wait_ms(explained: Explained, rank: int) -> float:
    """Return a rank's wait in collectives, hidden or not, in ms a step."""
    waits = sum(one.wait_us.get(rank, 0.0) for one in explained.analysis.collectives)
    return waits / 1e3 / len(explained.partitions[rank])


def test_an_undisturbed_job_has_no_straggler_and_waits_for_nobody(undisturbed: Explained) -> None:
    assert undisturbed.analysis.stragglers == []
    assert all(raw_wait_ms(undisturbed, rank) == 0 for rank in range(4))
    assert undisturbed.analysis.quality.verdict == "good"


def test_a_rank_delayed_on_its_device_is_named_and_the_others_growth_is_exposed_wait(
    tmp_path: Path, undisturbed: Explained
) -> None:
    delayed = explain(data_parallel.run(tmp_path / "delayed", Disturbance(spin={2: 4 * MS})))
    (straggler,) = delayed.analysis.stragglers
    assert straggler.rank == 2 and straggler.steps_last >= 5
    assert "its own delay" in straggler.verdict and "spin_kernel" in straggler.verdict
    others = growth(undisturbed, delayed, [0, 1, 3])
    assert others["all"] == pytest.approx(4.0, rel=0.05)
    # the delay of 4 ms also bares the transfer of the last bucket but one, which compute hid before
    assert others["exposed_wait"] == pytest.approx(3.5, rel=0.05)
    assert others["exposed_transfer"] == pytest.approx(0.5, rel=0.05)
    assert straggler.lost_ms == pytest.approx(3.5, rel=0.05)
    assert others["inflation"] == pytest.approx(0.0, abs=0.01)
    # every bucket waits again for the same delay: raw wait is several times what is lost
    assert raw_wait_ms(delayed, 0) >= 3 * straggler.lost_ms
    own = growth(undisturbed, delayed, [2])
    assert own["more"] == pytest.approx(4.0, rel=0.05) and own["exposed_wait"] == pytest.approx(0.0, abs=0.01)


def test_a_rank_with_slower_compute_is_named_and_its_kernels_are_inflated(
    tmp_path: Path, undisturbed: Explained
) -> None:
    slow = explain(data_parallel.run(tmp_path / "slow", Disturbance(slower={3: 1.2})))
    (straggler,) = slow.analysis.stragglers
    excess = 0.2 * (data_parallel.FORWARD + data_parallel.BUCKETS * data_parallel.BUCKET) / MS
    assert straggler.rank == 3 and straggler.verdict.startswith("slower compute")
    assert growth(undisturbed, slow, [0, 1, 2])["all"] == pytest.approx(excess + 0.2, rel=0.05)
    assert excess - 0.5 <= straggler.lost_ms <= excess
    own = growth(undisturbed, slow, [3])
    assert own["inflation"] == pytest.approx(own["compute"]) and own["more"] == 0
    assert own["inflation"] == pytest.approx(excess + 0.2, rel=0.05)  # the optimizer is slower too


def test_a_rank_that_is_slow_in_loading_data_is_named_for_it(tmp_path: Path, undisturbed: Explained) -> None:
    loading = explain(data_parallel.run(tmp_path / "loading", Disturbance(loading={1: 5 * MS})))
    (straggler,) = loading.analysis.stragglers
    assert straggler.rank == 1 and straggler.verdict.startswith("loading data")
    assert 4.5 <= straggler.lost_ms <= 5.1
    # all steps but the first, before which nothing bounds the wait
    assert loading.analysis.ranks[1].idle_data_ms == pytest.approx(5 * 5.0, rel=0.05)
    assert growth(undisturbed, loading, [0, 2, 3])["all"] == pytest.approx(5.0, rel=0.20)


def test_a_broadcast_with_a_late_root_makes_the_others_wait_for_the_root_alone(tmp_path: Path) -> None:
    calm = explain(data_parallel.run(tmp_path / "calm", Disturbance(), broadcast=True))
    late = explain(data_parallel.run(tmp_path / "late", Disturbance(late_root=3 * MS), broadcast=True))
    assert calm.analysis.stragglers == []
    (straggler,) = late.analysis.stragglers
    assert straggler.rank == 0 and "spin_kernel" in straggler.verdict
    assert straggler.lost_ms == pytest.approx(3.0, rel=0.05)
    assert growth(calm, late, [1, 2, 3])["exposed_wait"] == pytest.approx(3.0, rel=0.05)
    waits = [one.wait_us for one in late.analysis.collectives if one.operation == "broadcast"]
    assert waits and all(wait[0] == 0 and wait[1] == pytest.approx(3000, rel=0.01) for wait in waits)


def test_two_hosts_with_clocks_3_ms_apart_give_the_figures_of_one(tmp_path: Path) -> None:
    one = explain(data_parallel.run(tmp_path / "one host", Disturbance(spin={2: 4 * MS})))
    folder = data_parallel.run(tmp_path / "two hosts", Disturbance(spin={2: 4 * MS}))
    for rank in range(4):
        path = folder / f"rank{rank}.json.gz"
        trace = json.loads(gzip.decompress(path.read_bytes()))
        trace["host_name"] = "ab"[rank // 2]
        trace["baseTimeNanoseconds"] += rank // 2 * 3 * MS
        path.write_bytes(gzip.compress(json.dumps(trace).encode(), 1))
    two = explain(folder)
    assert any("host b: clock -3000" in reason for reason in two.analysis.quality.reasons)
    (straggler,) = two.analysis.stragglers
    assert straggler.rank == 2 and straggler.lost_ms == pytest.approx(one.analysis.stragglers[0].lost_ms, rel=0.1)
    for rank in range(4):
        for ours, theirs in zip(two.partitions[rank], one.partitions[rank], strict=True):
            assert ours.wait + ours.transfer == theirs.wait + theirs.transfer
            assert ours.wait == pytest.approx(theirs.wait, abs=MS // 2)


@pytest.mark.parametrize(
    "disturbance",
    [Disturbance(), Disturbance(spin={2: 4 * MS}), Disturbance(slower={3: 1.2}), Disturbance(loading={1: 5 * MS})],
)
def test_the_disturbed_jobs_equal_the_slow_account_too(tmp_path: Path, disturbance: Disturbance) -> None:
    explained = explain(data_parallel.run(tmp_path, disturbance))
    traces = {source.rank: oracle.load(source.path) for source in find_sources(tmp_path)}
    slow = oracle.device_partitions(traces, 4)
    for rank, steps in explained.partitions.items():
        for part, should in zip(steps, slow[rank].values(), strict=True):
            assert dict(zip(oracle.PARTS, part.parts, strict=True)) | {"window": part.window} == should
