"""A job that was profiled in several windows is explained over all of them."""

import gzip
import re
from pathlib import Path

import msgspec
import pytest

from scalescope.scaling.analyze import analyze, analyze_run
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import PARTS
from scalescope.scaling.finding.codes import Code
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.trace.sources import find_windows
from scalescope.scaling.windows.explain import MOST_REPLAYED, explain_windows
from scalescope.scaling.windows.findings import pool_findings

DATA = Path(__file__).parent / "data"
RANKS = (0, 1)


def copy_window(source: str, folder: Path, by_steps: int, first: int) -> None:
    """Copy both ranks' traces with other step numbers, as a window that begins with step `first`."""
    folder.mkdir(exist_ok=True)
    for rank in RANKS:
        (file,) = (DATA / source).glob(f"rank{rank}.*json.gz")
        text = gzip.decompress(file.read_bytes())
        moved = re.sub(rb"ProfilerStep#(\d+)", lambda match: b"ProfilerStep#%d" % (int(match[1]) + by_steps), text)
        (folder / f"rank{rank}.{first}.pt.trace.json.gz").write_bytes(gzip.compress(moved, 1))


def findings_of(folder: Path) -> RunAnalysis:
    (answer,) = analyze([folder], jobs=1)
    assert isinstance(answer, RunAnalysis)
    return answer


@pytest.fixture(scope="module")
def disturbed_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A window without a disturbance, and one in which rank 1 is late by 4 ms a step."""
    folder = tmp_path_factory.mktemp("windows") / "traces"
    copy_window("gpt8_ddp_none_n2", folder, 0, 3)
    copy_window("gpt8_ddp_delay4ms_rank1_n2", folder, 100, 103)
    return folder


def test_figures_are_of_the_steps_of_all_windows(disturbed_once: Path) -> None:
    alone = [analyze_run(DATA / name) for name in ("gpt8_ddp_none_n2", "gpt8_ddp_delay4ms_rank1_n2")]
    pooled = analyze_run(disturbed_once)
    assert pooled.windows == 2 and [one.windows for one in alone] == [1, 1]
    for at, rank in enumerate(pooled.ranks):
        assert rank.steps == sum(one.ranks[at].steps for one in alone)
        for part in PARTS:
            assert rank.part_ms(part) == pytest.approx(sum(one.ranks[at].part_ms(part) for one in alone))
        assert sum(rank.part_ms(part) for part in PARTS) == pytest.approx(rank.window_ms, abs=1e-5)
    assert len(pooled.steps) == sum(len(one.steps) for one in alone)
    assert len({(one.rank, one.step) for one in pooled.steps}) == len(pooled.steps)
    assert [one.index for one in pooled.collectives] == list(range(sum(len(one.collectives) for one in alone)))
    kinds = {row.kind: row.ms for row in pooled.kinds if row.share_of_compute is not None}
    compute = sum(rank.compute_ms / rank.steps for rank in pooled.ranks) / len(pooled.ranks)
    assert sum(kinds.values()) == pytest.approx(compute)
    assert pooled.efficiency is not None and alone[0].efficiency is not None and alone[1].efficiency is not None
    low, high = sorted(one.efficiency.parallel for one in alone if one.efficiency is not None)
    assert low < pooled.efficiency.parallel < high


def test_a_cause_of_one_window_of_two_costs_half_and_its_interval_says_how_windows_differ(disturbed_once: Path) -> None:
    alone, pooled = findings_of(DATA / "gpt8_ddp_delay4ms_rank1_n2"), findings_of(disturbed_once)
    late = next(one for one in alone.findings if one.rank == 1)
    half = next(one for one in pooled.findings if (one.code, one.rank) == (late.code, late.rank))
    assert late.ms is not None and half.ms == pytest.approx(late.ms / 2, rel=0.02)
    assert half.low_ms is not None and half.high_ms is not None
    assert half.low_ms <= 0.1 * late.ms and half.high_ms >= 0.95 * late.ms, "0 in one window, all of it in the other"
    assert pooled.replay is not None and alone.replay is not None
    assert pooled.replay.traced_ms < alone.replay.traced_ms
    assert pooled.as_run is not None and pooled.as_run.steps == 2 * (alone.as_run.steps if alone.as_run else 0)
    assert alone.as_run is not None and pooled.as_run.step_numbers[: alone.as_run.steps] == alone.as_run.step_numbers
    assert len(pooled.as_run.step_numbers) == pooled.as_run.steps, "which steps figures are of, an answer says"


def test_windows_belong_together_by_their_first_step_or_by_their_order(tmp_path: Path) -> None:
    for first in (3, 103):
        for rank in RANKS:
            (tmp_path / f"rank{rank}.{first}.pt.trace.json.gz").touch()
    (tmp_path / "rank0.203.pt.trace.json.gz").touch()  # a rank that went on alone
    assert [[one.path.name.split(".")[1] for one in window] for window in find_windows(tmp_path)] == [
        ["3"] * 2,
        ["103"] * 2,
    ]
    torchs = tmp_path / "torch"
    torchs.mkdir()
    for worker, times in (("host_7", (1700000001, 1700000009)), ("host_8", (1700000002, 1700000008))):
        for time in times:
            (torchs / f"{worker}.{time}.pt.trace.json").touch()
    names = [[one.path.name.split(".")[1][-1] for one in window] for window in find_windows(torchs)]
    assert names == [["1", "2"], ["9", "8"]]


def test_a_window_whose_steps_are_not_before_the_latest_ones_is_of_another_run(tmp_path: Path) -> None:
    copy_window("cpu_ddp_n2", tmp_path, 0, 3)
    copy_window("cpu_ddp_n2", tmp_path, 0, 103)
    analysis = analyze_run(tmp_path)
    assert analysis.windows == 1 and "1 of 2 windows is left out" in analysis.quality.reasons[-1]


def test_of_many_windows_all_are_partitioned_and_a_few_replayed(tmp_path: Path) -> None:
    for window in range(6):
        copy_window("cpu_ddp_n2", tmp_path, 100 * window, 100 * window + 3)
    explained = explain_windows(tmp_path, 1, for_replay=True)
    assert explained.analysis.windows == 6 and explained.analysis.ranks[0].steps == 18
    replayed = [bool(one.records) for one in explained.windows]
    assert sum(replayed) == MOST_REPLAYED and replayed[0] and replayed[-1]


def finding(code: Code, ms: float | None, half: float = 0.1, rank: int | None = None) -> Finding:
    bounds = (None, None) if ms is None else (ms - half, ms + half)
    return Finding(code=code, rank=rank, ms=ms, low_ms=bounds[0], high_ms=bounds[1], backed="replay")


def test_what_windows_differ_by_widens_a_findings_interval() -> None:
    steady = [[finding("copies", 4.0)], [finding("copies", 4.0)], [finding("copies", 4.0)]]
    (one,) = pool_findings(steady, 100.0)
    assert (one.ms, one.low_ms, one.high_ms) == pytest.approx((4.0, 3.9, 4.1))
    assert one.fraction == pytest.approx(0.04)
    (wide,) = pool_findings([[finding("copies", ms)] for ms in (3.0, 4.0, 5.0)], 100.0)
    assert wide.ms == pytest.approx(4.0) and wide.high_ms == pytest.approx(4 + 4.303 / 3**0.5, rel=0.01)


def test_a_cause_of_few_windows_counts_only_where_it_is_large() -> None:
    nothing = finding("nothing", None)
    small = [[finding("host_stall", 4.0, rank=1)], [nothing], [nothing], [nothing]]
    assert [one.code for one in pool_findings(small, 100.0)] == ["nothing"]
    large = [[finding("host_stall", 40.0, rank=1)], [nothing], [nothing], [nothing]]
    (kept,) = pool_findings(large, 100.0)
    assert kept.code == "host_stall" and kept.ms == pytest.approx(10.0)


def test_two_findings_of_one_code_and_rank_stay_two() -> None:
    window = [finding("own_work", 5.0, rank=1), finding("own_work", 3.0, rank=1), finding("copies", 1.0)]
    pooled = pool_findings([window, [msgspec.structs.replace(one) for one in window]], 100.0)
    assert [one.ms for one in pooled] == [5.0, 3.0, 1.0]


def test_what_is_sure_of_a_cause_is_what_all_windows_are_sure_of() -> None:
    """At least 440 and 400 ms: at least 400 of both; of one window alone nothing is sure of the other."""
    threads = [msgspec.structs.replace(finding("host_starved", ms), low_ms=ms, at_least=True) for ms in (440.0, 400.0)]
    (both,) = pool_findings([threads[:1], threads[1:]], 1000.0)
    assert both.at_least and both.ms == both.low_ms == pytest.approx(400.0)
    (once,) = pool_findings([threads[:1], []], 1000.0)
    assert not once.at_least and once.ms == pytest.approx(220.0)
