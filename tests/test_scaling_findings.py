"""What is found is what was injected: its code, its rank, and what the step would be without it."""

from pathlib import Path

import msgspec
import pytest

from scalescope.report.verdict import run_verdict
from scalescope.scaling.answer import RunAnalysis, read_run_answer, write_answer
from scalescope.scaling.finding import Finding
from scalescope.scaling.findings.add import add_findings
from scalescope.scaling.run import explain_traces
from scalescope.scaling.trace.sources import find_sources
from tests import data_parallel
from tests.data_parallel import MS, Disturbance

DATA = Path(__file__).parent / "data"


def analysed(folder: Path) -> RunAnalysis:
    explained = explain_traces(find_sources(folder), folder.name, 1, for_replay=True)
    add_findings(folder, [explained.analysis], [], explained.records, 1, host=explained.host)
    return explained.analysis


def found(folder: Path) -> list[Finding]:
    return analysed(folder).findings


def test_a_real_delay_on_one_device_is_found_with_what_the_untraced_step_would_be_without_it() -> None:
    """4 ms before each step of rank 1: untraced, 79.8 ms with it and 76.2 ms without."""
    analysis = analysed(DATA / "gpt8_ddp_delay4ms_rank1_n2")
    (one,) = analysis.findings
    assert (one.code, one.rank, one.evidence[0].name, one.backed) == ("own_work", 1, "spin_kernel", "replay")
    assert one.ms == pytest.approx(79.8 - 76.2, rel=0.15)
    assert one.low_ms is not None and one.high_ms is not None and one.ms is not None
    assert one.low_ms <= 3.6 <= one.high_ms and one.high_ms - one.low_ms <= 0.5 * one.ms
    assert [straggler.rank for straggler in analysis.stragglers] == [1]
    assert "rank 1 costs" in run_verdict(analysis).headline and "spin_kernel" in run_verdict(analysis).headline


def test_two_late_ranks_share_what_evening_out_both_brings(tmp_path: Path) -> None:
    one, other = found(data_parallel.run(tmp_path, Disturbance(spin={1: 4 * MS, 3: 4 * MS}), ahead=True))
    assert {one.rank, other.rank} == {1, 3} and {one.code, other.code} == {"own_work"}
    assert one.ms is not None and other.ms is not None
    assert one.ms + other.ms == pytest.approx(4.0, rel=0.05) and one.ms == pytest.approx(other.ms, rel=0.05)


def test_a_late_rank_behind_a_later_one_costs_what_it_brings_once_that_is_gone(tmp_path: Path) -> None:
    first, second = found(data_parallel.run(tmp_path, Disturbance(spin={1: 6 * MS, 3: 2 * MS}), ahead=True))
    assert (first.rank, second.rank) == (1, 3) and first.ms is not None and second.ms is not None
    assert first.ms + second.ms == pytest.approx(6.0, rel=0.05) and first.ms > 3 * second.ms > 0


def test_ranks_that_take_turns_are_nobodys_fault_alone(tmp_path: Path) -> None:
    (one,) = found(data_parallel.run(tmp_path, Disturbance(in_turns=3 * MS), steps=8, ahead=True))
    assert (one.code, one.rank) == ("alternating_load", None)
    assert one.ms == pytest.approx(3.0, rel=0.1)


def test_a_delay_of_a_hundredth_of_the_step_is_found(tmp_path: Path) -> None:
    (one,) = found(
        data_parallel.run(tmp_path, Disturbance(spin={2: round(0.012 * data_parallel.UNDISTURBED)}), ahead=True)
    )
    assert (one.code, one.rank) == ("own_work", 2)


def test_slower_kernels_of_all_kinds_are_the_devices_and_a_percent_is_no_finding(tmp_path: Path) -> None:
    (one,) = found(data_parallel.run(tmp_path / "slow", Disturbance(slower={3: 1.2}), ahead=True))
    assert (one.code, one.rank) == ("slower_compute", 3) and one.evidence[0].name == "times_as_long"
    assert one.evidence[0].value == pytest.approx(1.2, rel=0.01)
    assert one.remedy is not None and one.remedy.cure == "look_at_device"
    (natural,) = found(data_parallel.run(tmp_path / "natural", Disturbance(slower={3: 1.015}), ahead=True))
    assert natural.code == "nothing"


def test_an_undisturbed_job_has_one_finding(tmp_path: Path) -> None:
    (one,) = found(data_parallel.run(tmp_path, Disturbance(), ahead=True))
    assert one.code == "nothing" and one.ms is None


@pytest.mark.parametrize("late_root", [0, 3 * MS])
def test_a_member_that_is_late_at_a_broadcast_is_found_and_not_called_transfer(tmp_path: Path, late_root: int) -> None:
    spin = {} if late_root else {2: 3 * MS}
    folder = data_parallel.run(tmp_path, Disturbance(spin=spin, late_root=late_root), broadcast=True, ahead=True)
    (one,) = found(folder)
    assert (one.code, one.rank) == ("own_work", 0 if late_root else 2)
    assert one.ms == pytest.approx(3.0, rel=0.1)


def test_what_recording_may_have_made_is_not_told_without_the_untraced_step() -> None:
    """Recorded, the step takes 47.8 ms and its devices seem to wait for hosts; without recording it takes 24.7."""
    analysis = analysed(DATA / "gpt8_ddp_none_n2")
    assert analysis.findings[0].code == "profiler_cost" and analysis.findings[0].ms is None
    assert not analysis.stragglers
    said = run_verdict(analysis).headline
    assert "GPU-bound or host-bound: cannot be told from this trace, since recording may cost" in said
    assert "--step-ms" in said


def test_findings_are_in_the_answer_and_read_again(tmp_path: Path) -> None:
    analysis = analysed(data_parallel.run(tmp_path / "traces", Disturbance(spin={2: 4 * MS}), ahead=True))
    write_answer(tmp_path / "analysis.json", analysis)
    read = read_run_answer(tmp_path / "analysis.json")
    assert read.findings == analysis.findings and read.schema == 2
    assert [one.code for one in read.advice] == ["own_work"]


def test_an_answer_of_schema_1_is_read_and_shown_with_the_words_that_it_holds(tmp_path: Path) -> None:
    analysis = analysed(data_parallel.run(tmp_path / "traces", Disturbance(), ahead=True))
    old = msgspec.to_builtins(analysis)
    old |= {
        "schema": 1,
        "stragglers": [{"rank": 1, "steps_last": 3, "lost_ms": 2.0, "verdict": "its own delay: +2 ms"}],
    }
    old["advice"] = [{"what": "load ahead", "because": "it is late", "gain_ms": 1.0, "low_ms": 0.5, "high_ms": 1.5,
                      "fraction": 0.1}]  # fmt: skip
    del old["findings"]
    (tmp_path / "analysis.json").write_bytes(msgspec.json.encode(old))
    text = run_verdict(read_run_answer(tmp_path / "analysis.json")).text
    assert "its own delay: +2 ms" in text and "load ahead: 1.0 ms" in text


def test_a_host_that_sleeps_and_a_loader_of_all_ranks_are_told_apart() -> None:
    """On two CPU ranks: rank 1's host sleeps 10 ms before each step, and both load for 2 ms."""
    stall, loading = found(DATA / "cpu_ddp_n2")[:2]
    assert (stall.code, stall.rank) == ("host_stall", 1) and stall.remedy is not None
    assert stall.evidence[0].ms == pytest.approx(10, rel=0.1) and stall.remedy.cure == "look_at_host"
    assert (loading.code, loading.rank) == ("data_loading", None)
    assert loading.ms == pytest.approx(2.2, rel=0.1) and loading.evidence[0].name == "scalescope:data"
