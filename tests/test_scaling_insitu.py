"""In-situ efficiency: a collective in training beside the same one alone in a sweep, and why it takes longer."""

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from scalescope.cli import front_door
from scalescope.records.folder import RunFolder
from scalescope.scaling.analyze import analyze, analyze_run, analyze_study
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.costs.points import Launch, read_launches
from scalescope.scaling.projection.outlook import Outlook
from scalescope.scaling.verdicts.insitu import add_in_situ
from tests.projection_studies import DATA, H200, MIB, alone_us, make_pair, sweep_rows


@pytest.fixture
def pair(tmp_path: Path) -> RunFolder:
    return make_pair(tmp_path / "pair")


def in_situ(runs: Sequence[RunAnalysis], ranks: int) -> RunAnalysis:
    return next(run for run in runs if run.world_size == ranks)


def test_every_large_collective_is_held_against_its_time_alone(pair: RunFolder) -> None:
    _, runs = analyze_study(pair)
    run = in_situ(runs, 2)
    large = [one for one in run.collectives if one.step is not None and (one.bytes or 0) >= MIB]
    assert len(large) == 39 and all(one.in_situ_efficiency is not None for one in large)
    for row in run.in_situ:
        assert row.alone_us == pytest.approx(alone_us(row.bytes, 2), rel=0.03)
        assert row.transfer_us is not None and row.alone_us is not None
        assert row.efficiency == pytest.approx(row.alone_us / row.transfer_us)
        assert row.ideal_us is not None and row.size_us is not None and row.rest_us is not None
        assert row.contention_us is None, "no sweep measured it"
        assert row.ideal_us + row.size_us + row.rest_us == pytest.approx(row.transfer_us)
        assert row.ideal_us == pytest.approx(row.bytes / 300e3, rel=0.01)
    assert any((row.under_compute or 0) > 0.9 for row in run.in_situ)
    last = max(run.in_situ, key=lambda row: row.bytes)  # the embedding's bucket is reduced after the backward pass
    assert (last.under_compute or 0) < 0.1


def test_contention_explains_no_more_than_is_lost_and_no_more_than_ran_under_compute(pair: RunFolder) -> None:
    beside = [
        msgspec.structs.replace(row, contention="matmul", time_us=4 * (row.time_us or 0), slowdown=4.0)
        for row in sweep_rows((2,))
    ]
    configured = sweep_rows((2,), algorithm="Tree")
    fast = [msgspec.structs.replace(row, time_us=0.5) for row in configured]
    given = Launch("contention", [*beside, *fast], H200, 4)
    _, runs = analyze_study(pair, outlook=Outlook(sweeps=(given,)))
    for row in in_situ(runs, 2).in_situ:
        # neither the contended nor the forced rows are what it takes alone
        assert row.alone_us == pytest.approx(alone_us(row.bytes, 2), rel=0.03)
        assert row.contention_us is not None and row.rest_us is not None and row.transfer_us is not None
        lost = row.transfer_us - (row.alone_us or 0)
        assert 0 <= row.contention_us <= max(lost, 0) + 1e-9
        assert row.contention_us + row.rest_us == pytest.approx(lost)
        if (row.under_compute or 0) > 0.9 and lost > 0:
            assert row.contention_us == pytest.approx(lost)
        if row.under_compute == 0:
            assert row.contention_us == 0


def test_sizes_outside_the_sweep_and_a_rank_alone_are_refused(pair: RunFolder) -> None:
    small = [row for row in sweep_rows() if row.bytes < 4 * MIB]
    RunFolder(pair.path / "sweep").sweep.unlink()
    with RunFolder(pair.path / "sweep").sweep_writer() as writer:
        for row in small:
            writer.append(row)
    _, runs = analyze_study(pair)
    assert all("outside the sweep's sizes" in (row.reason or "") for row in in_situ(runs, 2).in_situ)

    (pair.path / "gpt-2" / "traces").joinpath("rank1.3.pt.trace.json.gz").unlink()
    _, runs = analyze_study(pair)
    assert all("not all ranks' traces" in (row.reason or "") for row in in_situ(runs, 2).in_situ)


def test_what_only_moves_data_is_held_against_as_many_bytes_of_any_dtype() -> None:
    """FSDP2 gathers parameters as bf16, and a sweep measures float32 where nobody says otherwise."""
    for operation, reported in (("all_gather", True), ("all_reduce", False)):
        run = analyze_run(DATA / "gpt_ddp_n2")
        for one in run.collectives:
            one.operation, one.dtype = operation, "bfloat16"
        rows = [msgspec.structs.replace(row, operation=operation) for row in sweep_rows((2,))]
        add_in_situ(run, {}, [Launch("sweep", rows, H200, 4)])
        assert run.in_situ and all((row.efficiency is not None) == reported for row in run.in_situ)
        assert reported or all("no all_reduce bfloat16 on 2 ranks" in (row.reason or "") for row in run.in_situ)


def test_a_run_alone_is_held_against_a_sweep_that_is_given(pair: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = pair.path / "sweep"
    outlook = Outlook(sweeps=tuple(read_launches(sweep)))
    (beside,) = analyze([pair.path / "gpt-2"], outlook=outlook)
    assert isinstance(beside, RunAnalysis) and beside.in_situ
    assert all(row.efficiency is not None for row in beside.in_situ)
    (plain,) = analyze([pair.path / "gpt-2"])
    assert isinstance(plain, RunAnalysis) and plain.in_situ == []
    log = DATA / "nccl_tests" / "plain.txt"
    assert front_door.main(["analyze", str(pair.path / "gpt-2"), "--sweep", str(log)]) == 0
    written = json.loads((pair.path / "gpt-2" / "analysis.json").read_text())
    large = [row for row in written["in_situ"] if row["bytes"] > 16 * MIB]  # where the log ends
    assert large and all("outside the sweep's sizes" in row["reason"] for row in large)
    capsys.readouterr()
