"""A folder as people have them: of two jobs, with strangers in it, with a file that is cut off."""

import json
import shutil
from pathlib import Path

import pytest

from scalescope.cli import front_door
from scalescope.records.errors import UserError
from scalescope.report.markdown import for_an_issue
from scalescope.report.perfetto import write_perfetto
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.run import explain_run
from scalescope.scaling.trace.sources import find_sources
from tests.trace_json import packed, unpacked

DATA = Path(__file__).parent / "data"


def copied(folder: Path, name: str, ranks: dict[int, str]) -> None:
    """Copy ranks of a stored set into a folder, each under a name of its own."""
    folder.mkdir(exist_ok=True)
    for rank, called in ranks.items():
        (source,) = (DATA / name).glob(f"rank{rank}*.json.gz")
        shutil.copy(source, folder / called)


def runs_of(folder: Path) -> list[RunAnalysis]:
    return [one for one in analyze([folder], jobs=1) if isinstance(one, RunAnalysis)]


def test_two_jobs_in_one_folder_are_analysed_each_for_itself(tmp_path: Path) -> None:
    # ranks 1 and 2 of one job on four GPUs, rank 0 of another
    jobs = {"gpt": ("gpt_ddp_compile_n4", (1, 2)), "resnet": ("resnet50_ddp_n4", (0,))}
    alone = {name: tmp_path / name for name in jobs}
    for name, (data, ranks) in jobs.items():
        for folder in (alone[name], tmp_path / "mixed"):
            copied(folder, data, {rank: f"rank{rank}.json.gz" for rank in ranks})
    resnet, gpt = runs_of(tmp_path / "mixed")
    for found, name in ((gpt, "gpt"), (resnet, "resnet")):
        (expected,) = runs_of(alone[name])
        assert found.ranks == expected.ranks and found.collectives == expected.collectives
        assert "the traces of 2 jobs" in found.quality.reasons[0]
    assert gpt.name == "mixed, job 2 of 2"
    with pytest.raises(UserError, match=r"2 jobs \(rank0.json.gz; rank1.json.gz, rank2.json.gz\)"):
        explain_run(tmp_path / "mixed")


def test_files_of_two_jobs_that_share_ranks_are_all_read(tmp_path: Path) -> None:
    copied(tmp_path, "gpt_ddp_n2", {rank: f"a_rank{rank}.json.gz" for rank in (0, 1)})
    copied(tmp_path, "gpt_ddp_compile_n4", {rank: f"b_rank{rank}.json.gz" for rank in range(4)})
    first, second = runs_of(tmp_path)
    assert [rank.rank for rank in first.ranks] == [0, 1] and [rank.rank for rank in second.ranks] == [0, 1, 2, 3]


def test_what_is_no_trace_is_passed_over_and_said(tmp_path: Path) -> None:
    copied(tmp_path, "gpt_ddp_n2", {rank: f"rank{rank}.json.gz" for rank in (0, 1)})
    (expected,) = runs_of(tmp_path)
    (tmp_path / "truth.json").write_text('{"step_ms": 41.2}')
    write_perfetto(tmp_path)
    write_perfetto(tmp_path, tmp_path / "all_ranks.json.gz")
    (found,) = runs_of(tmp_path)
    assert found.ranks == expected.ranks and found.world_size == 2
    assert found.quality.verdict == expected.quality.verdict == "good"
    said = [reason for reason in found.quality.reasons if reason.startswith("left aside, as no trace")]
    assert any("truth.json" in reason for reason in said) and any("all_ranks.json.gz" in reason for reason in said)


def without_times(trace: Path) -> None:
    """Write a trace as Kineto does once it has recorded another one: what the device did, and no longer when."""
    content = unpacked(trace)
    for event in content["traceEvents"]:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver"):
            event["ts"] = event["dur"] = 0.0
    trace.write_bytes(packed(content))


def test_a_trace_whose_time_stamps_are_lost_tells_nothing(tmp_path: Path) -> None:
    copied(tmp_path, "gpt_ddp_n1", {0: "rank0.json.gz"})
    without_times(tmp_path / "rank0.json.gz")
    (found,) = runs_of(tmp_path)
    assert found.quality.verdict == "unusable"
    assert "their time stamps are lost" in found.quality.reasons[0]


def test_a_rank_whose_time_stamps_are_lost_steers_no_mean(tmp_path: Path) -> None:
    copied(tmp_path, "gpt_ddp_compile_n4", {rank: f"rank{rank}.json.gz" for rank in range(4)})
    without_times(tmp_path / "rank2.json.gz")
    (found,) = runs_of(tmp_path)
    assert [rank.rank for rank in found.ranks] == [0, 1, 3]
    assert found.quality.verdict == "degraded"
    assert "left out of every mean: rank 2, whose time stamps are lost" in found.quality.reasons


def test_a_file_that_is_cut_off_steers_no_mean(tmp_path: Path) -> None:
    copied(tmp_path, "gpt_ddp_compile_n4", {rank: f"rank{rank}.json.gz" for rank in range(4)})
    (whole,) = runs_of(tmp_path)
    file = tmp_path / "rank2.json.gz"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    (cut,) = runs_of(tmp_path)
    assert [rank.rank for rank in cut.ranks] == [0, 1, 3]
    assert cut.quality.verdict == "degraded"
    assert any(reason.startswith("left out of every mean: rank 2") for reason in cut.quality.reasons)
    assert whole.efficiency is not None and cut.efficiency is not None
    assert cut.efficiency.parallel == pytest.approx(whole.efficiency.parallel, rel=0.02)
    assert max(cut.efficiency.orchestration, cut.efficiency.serialisation, cut.efficiency.transfer) <= 1
    assert cut.quality.left_out_ranks == [2] and cut.quality.missing_ranks == cut.quality.cut_ranks == []
    first = "4 GPUs, ranks 0, 1 and 3 alone (the trace of rank 2 is not whole): "
    assert first in run_verdict(cut).headline and "alone" not in run_verdict(whole).headline
    assert first in for_an_issue([cut]).replace("\\", "")


def test_ranks_without_a_trace_are_named_in_the_first_sentence(tmp_path: Path) -> None:
    copied(tmp_path, "gather_sm_n2", {0: "rank0.json.gz"})
    (alone,) = runs_of(tmp_path)
    assert "2 GPUs, rank 0 alone (no trace of rank 1): " in run_verdict(alone).headline
    (tmp_path / "rank1.json.gz").write_bytes(b"no gzip")
    (unread,) = runs_of(tmp_path)
    assert unread.quality.left_out_ranks == [1] and unread.world_size == 2
    assert "2 GPUs, rank 0 alone (the trace of rank 1 is not whole): " in run_verdict(unread).headline


def test_ranks_that_are_all_cut_off_are_said_so_in_the_first_sentence(tmp_path: Path) -> None:
    copied(tmp_path, "gather_sm_n2", {0: "rank0.json.gz", 1: "rank1.json.gz"})
    for file in tmp_path.iterdir():
        file.write_bytes(file.read_bytes()[: 9 * file.stat().st_size // 10])
    (cut,) = runs_of(tmp_path)
    assert cut.quality.cut_ranks == [0, 1] and len(cut.ranks) == 2
    assert "2 GPUs (the trace of ranks 0 and 1 is cut off; 2 whole steps left of it): " in run_verdict(cut).headline


def test_a_rank_whose_device_was_not_recorded_steers_no_mean(tmp_path: Path) -> None:
    """Its host's operators are no share of the others' device."""
    copied(tmp_path, "gather_sm_n2", {0: "rank0.json.gz", 1: "rank1.json.gz"})
    trace = unpacked(tmp_path / "rank1.json.gz")
    of_device = ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation")
    trace["traceEvents"] = [event for event in trace["traceEvents"] if event.get("cat") not in of_device]
    (tmp_path / "rank1.json.gz").write_bytes(packed(trace))
    (found,) = runs_of(tmp_path)
    assert [rank.rank for rank in found.ranks] == [0] and found.quality.left_out_ranks == [1]
    assert "rank 0 alone (the trace of rank 1 is not whole)" in run_verdict(found).headline


def test_ranks_of_a_job_on_cpus_are_one_job_whatever_their_cores_did_meanwhile(tmp_path: Path) -> None:
    """One operator of each rank lasts a hundred steps, since its core was another process's for so long."""
    for rank in (0, 1):
        (source,) = (DATA / "cpu_ddp_n2").glob(f"rank{rank}*.json.gz")
        trace = unpacked(source)
        operators = [event for event in trace["traceEvents"] if event.get("cat") == "cpu_op"]
        window_us = max(one["ts"] + one["dur"] for one in operators) - min(one["ts"] for one in operators)
        slow = [one for one in operators if one["name"] == ("aten::mm", "aten::add_")[rank]]
        max(slow, key=lambda one: one["ts"])["dur"] = 100 * window_us
        (tmp_path / f"rank{rank}.json.gz").write_bytes(packed(trace))
    (found,) = runs_of(tmp_path)
    assert [rank.rank for rank in found.ranks] == [0, 1]


def test_a_rank_whose_file_ends_before_its_device_ran_makes_nobody_late(tmp_path: Path) -> None:
    copied(tmp_path, "gpt_ddp_n2", {rank: f"rank{rank}.json.gz" for rank in (0, 1)})
    cut = tmp_path / "rank1.json.gz"
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    (found,) = runs_of(tmp_path)
    assert not found.stragglers and not [one for one in found.findings if one.rank is not None]
    assert found.unpriced is not None and "rank 1 is not whole" in found.unpriced.text


def test_ranks_that_were_given_one_workers_name_are_all_read(tmp_path: Path) -> None:
    """`tensorboard_trace_handler(folder, worker_name="w")`: of rank 0, whose file is there, *no trace* was told."""
    names = {rank: f"worker.179085702611{rank}.pt.trace.json.gz" for rank in (0, 1)}
    copied(tmp_path, "gather_sm_n2", names)
    assert sorted(one.path.name for one in find_sources(tmp_path)) == sorted(names.values())
    (run,) = runs_of(tmp_path)
    assert [one.rank for one in run.ranks] == [0, 1] and run.quality.missing_ranks == []


def test_windows_of_one_rank_stay_windows(tmp_path: Path) -> None:
    for at in range(2):
        copied(tmp_path, "gather_sm_n2", {0: f"worker.179085702611{at}.pt.trace.json.gz"})
    assert [one.path.name for one in find_sources(tmp_path)] == ["worker.1790857026111.pt.trace.json.gz"]


def test_devices_of_other_types_are_said(tmp_path: Path) -> None:
    copied(tmp_path, "gather_sm_n2", {0: "rank0.json.gz", 1: "rank1.json.gz"})
    trace = unpacked(tmp_path / "rank1.json.gz")
    for device in trace["deviceProperties"]:
        device["name"] = "NVIDIA H100 80GB HBM3"
    (tmp_path / "rank1.json.gz").write_bytes(packed(trace))
    (run,) = runs_of(tmp_path)
    told = "(rank 0: NVIDIA H200; rank 1: NVIDIA H100 80GB HBM3): the slower ones make the others wait"
    assert any(told in reason for reason in run.quality.reasons)


def test_ranks_that_were_joined_into_one_file_are_refused(tmp_path: Path) -> None:
    """Two processes side by side are no rank: *98.9% of the 80.5 ms step is compute; no trace of rank 1* was told."""
    first, second = (unpacked(DATA / "gpt8_ddp_delay4ms_rank1_n2" / f"rank{rank}.json.gz") for rank in (0, 1))
    for event in second["traceEvents"]:
        if "correlation" in event.get("args", {}):
            event["args"]["correlation"] += 10**7
    first["traceEvents"] += second["traceEvents"]
    (tmp_path / "merged.json").write_text(json.dumps(first))
    with pytest.raises(UserError, match="holds several ranks: one step is open on several threads at once"):
        analyze([tmp_path], jobs=1)


def test_traces_given_one_by_one_tell_what_their_folder_tells() -> None:
    """Of `analyze TRACES/rank*.json.gz` nothing was replayed: *rank 1 costs at least 22.3 ms; find what holds that host
    up* was told of an undisturbed job, whose folder says that recording may be why.
    """
    folder = DATA / "gpt8_ddp_none_n2"
    (together,) = analyze(sorted(folder.glob("rank*.json.gz")), jobs=1)
    (expected,) = analyze([folder], jobs=1)
    assert isinstance(together, RunAnalysis) and isinstance(expected, RunAnalysis)
    assert together.findings == expected.findings and together.as_run == expected.as_run
    assert run_verdict(together).headline == run_verdict(expected).headline


@pytest.mark.parametrize("ranks", [(0,), (0, 1)])
def test_a_report_says_beside_its_path_what_makes_it_doubtful(
    ranks: tuple[int, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It printed the path alone, of a folder that lacks a rank or mixes two jobs as of any other."""
    for rank in ranks:
        (file,) = (DATA / "gpt8_ddp_none_n2").glob(f"rank{rank}*")
        shutil.copy(file, tmp_path)
    assert front_door.main(["report", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert told.out.strip() == str(tmp_path / "report.html")
    assert ("rank 0 alone (no trace of rank 1)" in told.err) == (len(ranks) == 1)
