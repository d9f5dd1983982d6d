"""What traces of some of a job's ranks cannot tell is not told: who waits, and so what any setting would bring."""

import gzip
import io
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from scalescope.report.drawing.numbers import percent
from scalescope.report.terminal.run import print_run
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.as_run.step import step_as_run
from tests.answer_of import analyzed

DATA = Path(__file__).parent / "data"


def of_three_ranks(folder: Path, name: str, last: bytes | None = None) -> Path:
    """Write a job's two ranks as if there were a third in all groups; `last`: what its file holds, if there is one."""
    folder.mkdir()
    for rank in (0, 1):
        (source,) = (DATA / name).glob(f"rank{rank}*.json.gz")
        text = gzip.decompress(source.read_bytes()).decode()
        for two, three in (('"[0, 1]"', '"[0, 1, 2]"'), ('"ranks": [0, 1]', '"ranks": [0, 1, 2]'),
                           ('"Group size": 2', '"Group size": 3'), ('world_size": 2', 'world_size": 3')):  # fmt: skip
            assert two in text
            text = text.replace(two, three)
        (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(text.encode(), 1))
    if last is not None:
        (folder / "rank2.json.gz").write_bytes(last)
    return folder


def shown(run: RunAnalysis) -> str:
    """Return what the terminal shows of a run."""
    file = io.StringIO()
    print_run(run, Console(file=file, width=400))
    return file.getvalue()


@pytest.mark.parametrize("last", [None, b""])
def test_what_may_be_waiting_for_a_rank_without_trace_is_priced_as_no_transfer(
    last: bytes | None, tmp_path: Path
) -> None:
    run = analyzed(of_three_ranks(tmp_path / "job", "gpt_ddp_n2", last))
    assert run.findings == [] and run.unpriced is not None and run.unpriced.code == "unsplit"
    _, ranks = step_as_run(run)
    assert all(one.exposed_unsplit_ms > 0 and one.exposed_transfer_ms == 0 for one in ranks)
    verdict = run_verdict(run)
    assert "exposed wait or transfer" in verdict.sentences[0] and "transfer" not in verdict.headline
    assert verdict.advice.startswith("profile every rank, in the same steps, rank 2 ")


def test_the_headline_says_that_waiting_cannot_be_told_where_that_is_most_of_what_is_lost(tmp_path: Path) -> None:
    verdict = run_verdict(analyzed(of_three_ranks(tmp_path / "job", "gather_sm_n2")))
    headline = verdict.headline
    assert verdict.level == "unknown"  # no colour says that it is well
    assert "communication; whether ranks wait for rank 2 in it, these traces cannot tell" in headline


def test_a_step_without_a_rank_has_one_figure_wherever_it_is_told(tmp_path: Path) -> None:
    """96.1% and 96.0%, of the steps that a next one bounds and of all of them."""
    shutil.copytree(DATA / "gpt8_ddp_delay4ms_rank1_n2", folder := tmp_path / "job")
    whole = (folder / "rank1.json.gz").read_bytes()
    (folder / "rank1.json.gz").write_bytes(whole[: len(whole) // 2])
    run = analyzed(folder)
    assert run.efficiency is not None
    compute = sum(one.compute_ms for one in run.ranks) / sum(one.window_ms for one in run.ranks)
    assert f": {percent(compute)} of the " in run_verdict(run).headline
    assert percent(run.efficiency.parallel) == percent(compute)


def test_no_efficiency_factor_is_told_of_ranks_whose_trace_is_cut_off(tmp_path: Path) -> None:
    folder = of_three_ranks(tmp_path / "job", "gpt_ddp_n2")
    text = gzip.decompress((folder / "rank1.json.gz").read_bytes()).replace(b'"rank": 1,', b'"rank": 2,')
    whole = gzip.compress(text, 1)
    (folder / "rank2.json.gz").write_bytes(whole[: len(whole) // 2])
    run = analyzed(folder)
    assert run.quality.left_out_ranks == [2] and run.efficiency is not None
    told = shown(run)
    assert "only traces of all 3 ranks can tell" in told and "load balance" not in told
    assert run_verdict(run).advice.startswith("profile every rank, in the same steps, rank 2 whole")


def all_cut(folder: Path, traces: str, share: float) -> RunAnalysis:
    """Return the analysis of real ranks of whose files so much is left each."""
    folder.mkdir()
    for source in (DATA / traces).glob("rank*.json.gz"):
        text = gzip.decompress(source.read_bytes())
        (folder / source.name).write_bytes(gzip.compress(text[: int(share * len(text))], 1))
    return analyzed(folder)


@pytest.mark.parametrize(("share", "steps"), [(0.65, 1), (0.85, 2)])
def test_a_step_that_the_end_of_all_files_cuts_is_in_no_mean(share: float, steps: int, tmp_path: Path) -> None:
    """A last step of which the file held a part counted as whole, and made the mean step short."""
    whole = analyzed(DATA / "gather_ce_n2")
    run = all_cut(tmp_path / "cut", "gather_ce_n2", share)
    assert {one.steps for one in run.ranks} == {steps} and not any(one.open_ended for one in run.steps)
    mean_ms = [sum(one.window_ms for one in each.ranks) / sum(one.steps for one in each.ranks) for each in (run, whole)]
    assert mean_ms[0] == pytest.approx(mean_ms[1], rel=0.05)
    headline = run_verdict(run).headline
    assert f"is cut off; {steps} whole step{'s' * (steps > 1)} left of it)" in headline


@pytest.mark.parametrize(("traces", "share"), [("gather_ce_n2", 0.4), ("cpu_ddp_n2", 0.2)])
def test_where_no_step_is_left_whole_nothing_is_told(traces: str, share: float, tmp_path: Path) -> None:
    """A first step that lacks products' kernels, and one whose operators stood behind the cut."""
    run = all_cut(tmp_path / "cut", traces, share)
    assert run.quality.verdict == "unusable" and not run.ranks
    assert run_verdict(run).headline.endswith("the traces do not say where its time goes.")
    assert any("no step of it is whole" in reason for reason in run.quality.reasons)


def with_rank_1_cut(folder: Path, traces: str, kept: int) -> RunAnalysis:
    """Return the analysis of two real ranks, of the second of which the first `kept` bytes are left."""
    folder.mkdir()
    for rank in (0, 1):
        (source,) = (DATA / traces).glob(f"rank{rank}*.json.gz")
        text = gzip.decompress(source.read_bytes())
        (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(text if rank == 0 else text[:kept], 1))
    return analyzed(folder)


def test_all_of_the_communication_is_told_though_some_of_it_is_split_with_a_rank_that_is_cut_off(
    tmp_path: Path,
) -> None:
    """A pipeline's stage that loses 18.1 of its 42.1 ms to the other one, whose trace ends in the third step."""
    headline = run_verdict(with_rank_1_cut(tmp_path / "cut", "pipelines_h200x2/gpipe_slow", 900_000)).headline
    assert "rank 0 alone (the trace of rank 1 is not whole): " in headline
    assert "18.1 ms are communication; whether ranks wait for rank 1 in it, these traces cannot tell." in headline


@pytest.mark.parametrize("kept", [30_000, 60_000, 150_000])
def test_a_rank_that_is_cut_off_is_of_the_same_job_whatever_is_left_of_it(kept: int, tmp_path: Path) -> None:
    """Its activity without launches, or its host without activity: neither makes another window of it."""
    run = with_rank_1_cut(tmp_path / "cut", "gather_ce_n2", kept)
    assert "2 GPUs, rank 0 alone (the trace of rank 1 is not whole)" in run_verdict(run).headline
    assert not any("ProfilerActivity.CUDA" in reason or "2 windows" in reason for reason in run.quality.reasons)


@pytest.mark.parametrize(("what", "first"), [("backward", "78.1 ms are communication; whether ranks wait for rank 1"),
                                             ("by_turns", "rank 0 costs 20.1 ms")])  # fmt: skip
def test_what_may_be_waiting_comes_before_a_small_finding_and_behind_a_large_one(
    what: str, first: str, tmp_path: Path
) -> None:
    """One rank's trace: launching is at most 5.4 ms where 78.1 may be waiting; a host stands still for 20 ms of 48."""
    shutil.copy(DATA / "held_up_hosts" / what / "rank0.json.gz", tmp_path / "rank0.json.gz")
    verdict = run_verdict(analyzed(tmp_path))
    assert first in verdict.headline
    outweighed = verdict.advice.startswith("profile every rank, in the same steps, rank 1 too")
    assert outweighed == (what == "backward")
    assert any(one.startswith("What these traces tell: launching") for one in verdict.sentences) == outweighed


def test_launches_behind_a_cut_are_no_loss_of_the_profilers(tmp_path: Path) -> None:
    """*Profile fewer steps at a time: the profiler lost activity* was the advice to two files that are cut off."""
    run = all_cut(tmp_path / "cut", "gather_ce_n2", 0.75)
    assert run.quality.lossy_ranks == [] and [one.code for one in run.findings] == ["nothing"]
    assert not any("lost their launch" in reason for reason in run.quality.reasons)
