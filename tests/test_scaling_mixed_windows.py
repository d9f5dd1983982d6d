"""Ranks' files of two windows of one job, mixed: never joined as if they were of the same steps."""

import gzip
import re
import shutil
from pathlib import Path

import msgspec
import pytest

from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from scalescope.report.markdown import for_an_issue
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.compare.compare import compare_paths
from scalescope.scaling.rank.collective import RankCollective
from scalescope.scaling.ranks.clocks import host_offsets
from scalescope.scaling.ranks.jobs import split_jobs
from scalescope.scaling.ranks.summary import RankReading, read_rank
from scalescope.scaling.ranks.timing import Timed, timing_of
from scalescope.scaling.run import explain_run
from scalescope.scaling.trace.sources import find_sources
from tests.trace_json import packed, unpacked

DATA = Path(__file__).parent / "data"


def mixed(
    folder: Path,
    name: str,
    *,
    later_s: float = 0.0,
    steps: int = 0,
    host: str = "",
    calls: int | None = None,
    absolute: bool = True,
    stretched: float = 1.0,
) -> Path:
    """Write a job's two ranks: rank 1's window later, its steps and collectives of higher numbers, its times longer."""
    folder.mkdir(exist_ok=True)
    for rank in (0, 1):
        (source,) = (DATA / name).glob(f"rank{rank}*.json.gz")
        trace = unpacked(source)
        numbered = calls or 0 if rank == 1 else 0
        if host:
            trace["host_name"] = host
        if not absolute:
            del trace["baseTimeNanoseconds"]
        for event in trace["traceEvents"]:
            number = re.fullmatch(r"ProfilerStep#(\d+)", str(event.get("name")))
            if number is not None and rank == 1:
                event["name"] = f"ProfilerStep#{int(number[1]) + steps}"
            arguments = event.get("args", {})
            if calls is not None and "Collective name" in arguments:
                arguments["Seq"] = numbered = numbered + 1
        if rank == 1 and stretched != 1:
            begin = min(event["ts"] for event in trace["traceEvents"] if event.get("ph") == "X")
            for event in trace["traceEvents"]:
                if "ts" in event:
                    event["ts"] = begin + stretched * (event["ts"] - begin)
                    event["dur"] = stretched * event.get("dur", 0)
        if rank == 1 and absolute:
            trace["baseTimeNanoseconds"] += int(later_s * 1e9)
        (folder / f"rank{rank}.json.gz").write_bytes(packed(trace))
    return folder


def found_in(folder: Path) -> list[int]:
    """Return how many ranks each job or window of a folder has."""
    return [len(one.ranks) for one in split_jobs([(source, read_rank(source.path)) for source in find_sources(folder)])]


def read_all(folder: Path) -> list[RankReading]:
    return [read_rank(source.path) for source in find_sources(folder)]


def test_two_windows_are_analysed_each_for_itself_and_named(tmp_path: Path) -> None:
    folder = mixed(tmp_path / "mixed", "gather_sm_n2", later_s=3, steps=10)
    answers = [one for one in analyze([folder], jobs=1) if isinstance(one, RunAnalysis)]
    assert [one.name for one in answers] == ["mixed, window 1 of 2", "mixed, window 2 of 2"]
    assert [[rank.rank for rank in one.ranks] for one in answers] == [[0], [1]]
    assert all(one.quality.reasons[0].startswith("the folder holds the traces of 2 windows") for one in answers)
    first = run_verdict(answers[0])
    assert first.headline == (
        "mixed, window 1 of 2 · 2 GPUs, rank 0 alone (no trace of rank 1): the folder mixes 2 windows, "
        "(1) rank0.json.gz and (2) rank1.json.gz, 3.0 s apart, which have no step in common; each is told by itself, 1 "
        "here; who waits for whom is not in them: profile every rank in the same steps, into a folder of its own."
    )
    assert first.sentences[0].startswith("By itself: ") and first.level == "unknown"
    assert first.headline.split(": the folder")[0] in for_an_issue(answers).replace("\\", "")
    mixed_by = answers[1].quality.mixed
    assert mixed_by is not None and (mixed_by.kind, mixed_by.number, mixed_by.apart) == ("windows", 2, "steps")
    assert mixed_by.files == [["rank0.json.gz"], ["rank1.json.gz"]]


@pytest.mark.parametrize("steps", [1, None])
def test_ranks_that_count_their_steps_differently_are_not_laid_side_by_side(steps: int | None, tmp_path: Path) -> None:
    """Rank 1 is delayed by 4 ms: told as *nothing is wrong*, and without its ProfilerSteps as rank 0's 32.5 ms."""
    mixed(tmp_path, "gpt8_ddp_delay4ms_rank1_n2", steps=steps or 0)
    if steps is None:
        trace = unpacked(tmp_path / "rank1.json.gz")
        events = trace["traceEvents"]
        trace["traceEvents"] = [one for one in events if not str(one.get("name")).startswith("ProfilerStep")]
        (tmp_path / "rank1.json.gz").write_bytes(packed(trace))
    (run,) = analyze([tmp_path], jobs=1)
    assert isinstance(run, RunAnalysis)
    assert run.findings == [] and run.unpriced is not None and run.unpriced.code == "other_steps"
    verdict = run_verdict(run)
    assert "(what one rank counts as a step another one does not): 96.5% of the 80.5 ms step" in verdict.headline
    assert verdict.level == "unknown" and verdict.advice.startswith("profile every rank in the same steps")


@pytest.mark.parametrize(("begins_later", "steps", "rank"), [(True, 2, 1), (False, 1, 0)])
def test_what_one_ranks_window_lacks_is_no_work_of_the_others(
    begins_later: bool, steps: int, rank: int, tmp_path: Path
) -> None:
    """Rank 1 is delayed by 4 ms: told as rank 0's work of its own, 26 ms, where rank 1 has the last step alone."""
    mixed(tmp_path, "gpt8_ddp_delay4ms_rank1_n2")
    file = tmp_path / f"rank{rank}.json.gz"
    trace = unpacked(file)
    events = [one | {"args": one.get("args", {})} for one in trace["traceEvents"] if one.get("ph") == "X"]
    marks = sorted({one["ts"] for one in events if re.fullmatch(r"ProfilerStep#\d+", one["name"])
                    and one.get("cat") == "user_annotation"})  # fmt: skip
    if begins_later:
        kept = [one for one in events if one["ts"] >= marks[steps]]
    else:  # the profiler waits for what was launched
        late = {one["args"].get("correlation") for one in events if one["ts"] >= marks[3 - steps]
                and "stream" not in one["args"]} - {None}  # fmt: skip
        kept = [one for one in events if one["args"].get("correlation") not in late
                and ("stream" in one["args"] or one["ts"] < marks[3 - steps])]  # fmt: skip
    trace["traceEvents"] = [one for one in trace["traceEvents"] if one.get("ph") == "M"] + kept
    file.write_bytes(packed(trace))
    (run,) = analyze([tmp_path], jobs=1)
    assert isinstance(run, RunAnalysis)
    assert [len({one.step for one in run.steps if one.rank == at}) for at in (rank, 1 - rank)] == [3 - steps] * 2
    assert run.findings[0].rank == 1 and run.findings[0].code == "own_work" and 3 < (run.findings[0].ms or 0) < 4.2


def test_whole_jobs_in_one_folder_are_said_to_be_several_and_need_no_other_rank(tmp_path: Path) -> None:
    for name, world in (("gather_sm_n2", "a"), ("gather_ce_n2", "b")):
        for rank in (0, 1):
            shutil.copy(DATA / name / f"rank{rank}.json.gz", tmp_path / f"{world}_rank{rank}.json.gz")
    first, second = (run_verdict(one) for one in analyze([tmp_path], jobs=1) if isinstance(one, RunAnalysis))
    told = "the folder mixes 2 jobs or windows, (1) a_rank0.json.gz, a_rank1.json.gz and (2) b_rank0.json.gz, "
    assert told in first.headline and told in second.headline
    assert "give each a folder of its own" in first.headline and "profile every rank" not in first.headline


def test_a_window_hours_away_is_said_to_be(tmp_path: Path) -> None:
    first, _ = analyze([mixed(tmp_path / "m", "gather_sm_n2", later_s=7200)], jobs=1)
    assert isinstance(first, RunAnalysis)
    assert "which lie 2.0 h apart" in run_verdict(first).headline


def test_one_offset_of_the_clocks_brings_a_window_together_and_more_than_a_second_is_doubted(tmp_path: Path) -> None:
    """Traces that name no host: clocks are as far apart as the collectives tell, and no clock that is set by 3 s."""
    (expected,) = analyze([DATA / "gpt_ddp_n2"], jobs=1)
    (near,) = analyze([mixed(tmp_path / "near", "gpt_ddp_n2", later_s=0.3)], jobs=1)
    (far,) = analyze([mixed(tmp_path / "far", "gpt_ddp_n2", later_s=3.0)], jobs=1)
    assert isinstance(expected, RunAnalysis) and isinstance(near, RunAnalysis) and isinstance(far, RunAnalysis)
    for one in (near, far):
        assert len(one.collectives) == len(expected.collectives)
        assert all(call.transfer_us is not None for call in one.collectives)
    assert near.quality.verdict == "good" and near.quality.clocks_apart_ms is None
    assert far.quality.verdict == "degraded" and far.quality.clocks_apart_ms == pytest.approx(3000, abs=1)
    assert "2 GPUs (of one window only if their clocks are 3.0 s apart): " in run_verdict(far).headline


@pytest.mark.parametrize("later_ms", [-5.0, -1.0, 0.5])
def test_clocks_that_differ_by_less_than_collectives_last_are_aligned(later_ms: float, tmp_path: Path) -> None:
    """Two hosts that NTP sets, and traces that name none: rank 1 is delayed by 4 ms, whatever its clock says."""
    (expected,) = analyze([DATA / "gpt8_ddp_delay4ms_rank1_n2"], jobs=1)
    (found,) = analyze([mixed(tmp_path / "m", "gpt8_ddp_delay4ms_rank1_n2", later_s=later_ms / 1e3)], jobs=1)
    assert isinstance(expected, RunAnalysis) and isinstance(found, RunAnalysis)
    assert any(reason.startswith("host of rank 1: clock ") for reason in found.quality.reasons)
    for one, other in zip(expected.ranks, found.ranks, strict=True):
        assert other.exposed_wait_ms == pytest.approx(one.exposed_wait_ms, abs=0.05)
    assert found.findings[0].rank == 1
    assert found.findings[0].ms == pytest.approx(expected.findings[0].ms, abs=0.1)


@pytest.mark.parametrize("name", ["gpt_ddp_n2", "gpt8_ddp_none_n2", "one_channel_slow_host_n2", "cpu_tiny_buckets_n2"])
def test_ranks_of_one_host_share_its_clock(name: str) -> None:
    summaries = {rank: one.summary for rank, one in enumerate(read_all(DATA / name))}
    hosts = dict.fromkeys(summaries, "")
    assert not host_offsets(hosts, {rank: one.collectives for rank, one in summaries.items()}).offsets


@pytest.mark.parametrize("later_s", [0.0, 3.0])
def test_what_no_offset_of_the_clocks_brings_together_is_of_two_windows(later_s: float, tmp_path: Path) -> None:
    """The same steps and numbers of ranks, and kernels that another window's cannot be beside."""
    folder = mixed(tmp_path / "m", "gpt_ddp_n2", later_s=later_s, stretched=1.03)
    first, second = (one for one in analyze([folder], jobs=1) if isinstance(one, RunAnalysis))
    assert [[rank.rank for rank in one.ranks] for one in (first, second)] == [[0], [1]]
    assert "whose collectives did not run together, whatever the clocks" in run_verdict(first).headline


def test_hosts_that_hold_each_other_up_on_cpus_are_of_one_window(tmp_path: Path) -> None:
    """Gloo's members end at different times, and late ones by a step's half: they overlap all the same."""
    for name in ("front", "backward", "shared_core", "collector"):
        folder = DATA / "held_up_hosts" / name
        assert found_in(folder) == [2]
        ranks = [Timed(rank, read_rank(next(folder.glob(f"rank{rank}*"))).summary.collectives) for rank in (0, 1)]
        assert timing_of(*ranks) == "together"
        later = [msgspec.structs.replace(one, start=one.start + 10**10, end=one.end + 10**10) for one in ranks[1].own]
        assert timing_of(ranks[0], Timed(1, later)) == "offset"
    other = read_rank(next((DATA / "held_up_hosts" / "loader").glob("rank1*"))).summary.collectives
    front = read_rank(next((DATA / "held_up_hosts" / "front").glob("rank0*"))).summary.collectives
    assert timing_of(Timed(0, front), Timed(1, other)) == "apart"


@pytest.mark.parametrize(("later_ns", "told"), [(0, "together"), (10**10, "offset")])
def test_members_of_an_uneven_exchange_are_told_by_when_they_ran_not_by_their_sizes(later_ns: int, told: str) -> None:
    """Of an all_to_all between experts each rank sends, and takes, as much as its own experts have tokens."""
    begun = [at * 1_000_000 + at * at * 7_919 % 300_000 for at in range(40)]
    ranks = []
    for rank, elements in ((0, 11_071_488), (1, 8_388_608)):
        own = [
            RankCollective(start=start + 20_000 * rank * (at % 3), end=start + 90_000, operation="all_to_all",
                           elements=elements, dtype="bfloat16", group="0", group_ranks=(0, 1))
            for at, start in enumerate(begun)
        ]  # fmt: skip
        late = later_ns * rank
        ranks.append(
            Timed(rank, [msgspec.structs.replace(one, start=one.start + late, end=one.end + late) for one in own])
        )
    assert timing_of(*ranks) == told
    offsets = host_offsets({0: "a", 1: "b"}, {one.rank: one.collectives for one in ranks}).offsets
    assert offsets[1] == pytest.approx(-later_ns, abs=1)


def test_few_collectives_in_common_tell_nothing() -> None:
    ranks = [read_rank(next((DATA / "cpu_ddp_n2").glob(f"rank{rank}*"))).summary for rank in (0, 1)]
    assert [len(one.collectives) for one in ranks] == [9, 9]
    assert timing_of(*(Timed(rank, one.collectives) for rank, one in enumerate(ranks))) is None


def test_a_file_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    for name, source in (("rank0", "rank0"), ("rank1", "rank1"), ("copy of rank0", "rank0")):
        shutil.copy(DATA / "gather_sm_n2" / f"{source}.json.gz", tmp_path / f"{name}.json.gz")
    (found,) = analyze([tmp_path], jobs=1)
    (expected,) = analyze([DATA / "gather_sm_n2"], jobs=1)
    assert isinstance(found, RunAnalysis) and isinstance(expected, RunAnalysis)
    assert found.ranks == expected.ranks and found.findings == expected.findings
    assert any("rank0.json.gz once more" in reason or "is copy of" in reason for reason in found.quality.reasons)


def test_one_rank_under_two_names_is_one_rank(tmp_path: Path) -> None:
    for name in ("rank0", "rank1"):
        shutil.copy(DATA / "gather_sm_n2" / "rank0.json.gz", tmp_path / f"{name}.json.gz")
    (found,) = analyze([tmp_path], jobs=1)
    assert isinstance(found, RunAnalysis)
    assert "rank 0 alone (no trace of rank 1)" in run_verdict(found).headline
    assert "rank1.json.gz is rank0.json.gz once more and counts once" in found.quality.reasons


def test_a_rank_whose_launches_are_lost_is_in_no_mean_and_is_named_first(tmp_path: Path) -> None:
    """Its delay of 4 ms would else stand as `nothing is wrong`: its kernels' steps are guessed."""
    shutil.copytree(DATA / "gpt8_ddp_delay4ms_rank1_n2", tmp_path, dirs_exist_ok=True)
    trace = unpacked(tmp_path / "rank1.json.gz")
    trace["traceEvents"] = [event for event in trace["traceEvents"] if event.get("cat") != "cuda_runtime"]
    (tmp_path / "rank1.json.gz").write_bytes(packed(trace))
    (found,) = analyze([tmp_path], jobs=1)
    assert isinstance(found, RunAnalysis)
    assert found.quality.left_out_ranks == [1] and found.findings == []
    assert "2 GPUs, rank 0 alone (the trace of rank 1 is not whole): " in run_verdict(found).headline


def test_a_file_that_is_cut_off_is_not_taken_for_another_windows(tmp_path: Path) -> None:
    """Half of rank 1's file holds no kernel of the steps that rank 0's holds."""
    shutil.copytree(DATA / "gpt8_ddp_delay4ms_rank1_n2", tmp_path, dirs_exist_ok=True)
    text = gzip.decompress((tmp_path / "rank1.json.gz").read_bytes())
    (tmp_path / "rank1.json.gz").write_bytes(gzip.compress(text, 1)[: len(gzip.compress(text, 1)) // 2])
    (found,) = analyze([tmp_path], jobs=1)
    assert isinstance(found, RunAnalysis) and found.quality.mixed is None
    assert "rank 0 alone (the trace of rank 1 is not whole)" in run_verdict(found).headline


@pytest.mark.parametrize(
    ("shift", "jobs"),
    [
        ({}, [2]),
        ({"later_s": 3.0}, [2]),  # two hosts' clocks may differ by so much
        ({"later_s": 0.001, "steps": 10}, [2]),  # they overlap: the ranks count their steps otherwise
        ({"later_s": 3.0, "steps": 10}, [1, 1]),
        ({"later_s": 3.0, "host": "node1"}, [1, 1]),
        ({"later_s": 0.001, "host": "node1"}, [2]),
        ({"absolute": False}, [2]),
        ({"absolute": False, "steps": 10}, [1, 1]),
        ({"later_s": 30.0}, [1, 1]),
    ],
)
def test_what_tells_windows_apart(shift: dict[str, float], jobs: list[int], tmp_path: Path) -> None:
    assert found_in(mixed(tmp_path / "m", "gather_sm_n2", **shift)) == jobs  # type: ignore[arg-type]


def test_collectives_without_one_in_common_tell_windows_apart(tmp_path: Path) -> None:
    assert found_in(mixed(tmp_path / "same", "gather_sm_n2", later_s=3.0, calls=0)) == [2]
    assert found_in(mixed(tmp_path / "later", "gather_sm_n2", later_s=3.0, calls=100_000)) == [1, 1]


def test_a_run_folder_of_two_windows_is_refused_and_so_is_comparing_one(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", "train", "{}\n")
    mixed(run.path / "traces", "gather_sm_n2", later_s=3, steps=10)
    with pytest.raises(UserError, match=r"2 windows that have no step in common .*give those of one window"):
        explain_run(run.path)
    with pytest.raises(UserError, match="2 windows that have no step in common"):
        compare_paths([DATA / "gather_sm_n2"], [shutil.copytree(run.path / "traces", tmp_path / "traces")])


def test_windows_whose_ranks_exchange_nothing_in_any_group_of_both_are_not_joined(tmp_path: Path) -> None:
    """Two pipelines that one job ran after another, in steps of the same numbers: one rank's file of each."""
    folder = tmp_path / "mixed"
    folder.mkdir()
    for rank, case in enumerate(("gpipe_slow", "interleaved")):
        shutil.copy(DATA / "pipelines_h200x2" / case / f"rank{rank}.4.pt.trace.json.gz", folder)
    assert found_in(folder) == [1, 1]
    (first, _) = [one for one in analyze([folder], jobs=1) if isinstance(one, RunAnalysis)]
    assert "window 1 of 2 · 2 GPUs, rank 0 alone (no trace of rank 1): " in run_verdict(first).headline
    for case in ("gpipe_slow", "interleaved"):
        assert found_in(DATA / "pipelines_h200x2" / case) == [2]


def test_a_copy_that_is_said_to_be_of_another_rank_counts_once(tmp_path: Path) -> None:
    """No two ranks do the same in the same nanoseconds: *slow transfers cost 9.0 ms* was told of a rank and itself."""
    trace = unpacked(DATA / "gpt8_ddp_none_n2" / "rank0.json.gz")
    for rank in (0, 1):
        trace["distributedInfo"]["rank"] = rank
        (tmp_path / f"rank{rank}.json").write_bytes(msgspec.json.encode(trace))
    (found,) = analyze([tmp_path], jobs=1)
    assert isinstance(found, RunAnalysis)
    assert "rank1.json is rank0.json once more and counts once" in found.quality.reasons
    assert [one.rank for one in found.ranks] == [0] and not found.findings


def _step_by_step(waits: list[int]) -> list[RankCollective]:
    """Return all-reduces of 0.3 ms, each so many µs after the one before."""
    found, at = [], 0
    for wait in waits:
        at += wait * 1000
        found.append(_all_reduce(at, at + 300_000))
        at += 300_000
    return found


def _all_reduce(start: int, end: int) -> RankCollective:
    return RankCollective(start=start, end=end, operation="all_reduce", elements=10, group="0", group_ranks=(0, 1))


def test_runs_whose_windows_were_moved_onto_each_other_are_told_apart() -> None:
    """Half of their collectives meet an equal one by chance, which was one job whose rank 1 may come late."""
    ours = _step_by_step([300 + 97 * at % 700 for at in range(60)])
    others = _step_by_step([300 + 431 * at % 700 for at in range(60)])
    met = sum(any(one.start < two.end and two.start < one.end for two in others) for one in ours)
    assert 0.5 < met / len(ours) < 0.9
    assert timing_of(Timed(0, ours), Timed(1, others)) == "apart"


def test_a_rank_that_lacks_a_third_of_its_collectives_is_of_the_others_job() -> None:
    ours = _step_by_step([300 + 97 * at % 700 for at in range(60)])
    lacking = [one for at, one in enumerate(ours) if at % 3]
    assert timing_of(Timed(0, ours), Timed(1, lacking)) == "together"
    assert timing_of(Timed(0, lacking), Timed(1, ours)) == "together"
