"""What real gloo processes did is read back: who is waited for, how much was sent, between whom."""

import json
import shutil
from pathlib import Path

import msgspec
import pytest

from scalescope.scaling.analyze import analyze_run
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import Collective
from tests.gloo_root_job import ELEMENTS, ROOT
from tests.made_once import made_once
from tests.worlds import run_world

WORLD = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "gloo", _record)


def _record(path: Path) -> None:
    done = run_world(WORLD, [str(Path(__file__).parent / "gloo_root_job.py"), str(path)])
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def analysis(folder: Path) -> RunAnalysis:
    found = analyze_run(folder)
    assert found.quality.verdict == "good", found.quality.reasons
    return found


def only(analysis: RunAnalysis, operation: str) -> Collective:
    (one,) = (one for one in analysis.collectives if one.operation == operation)
    return one


def slept_ms(folder: Path, rank: int, operation: str) -> float:
    slept: dict[str, float] = json.loads((folder / f"slept{rank}.txt").read_text())
    return slept[operation]


@pytest.mark.parametrize("operation", ["broadcast", "scatter"])
def test_a_late_root_is_waited_for_by_the_others_and_waits_for_nobody(
    folder: Path, analysis: RunAnalysis, operation: str
) -> None:
    waits = only(analysis, operation).wait_us
    assert waits[ROOT] == 0
    for rank in (0, 2):
        # a barrier lets the ranks go together but for what the scheduler does to one of them
        assert waits[rank] / 1e3 == pytest.approx(slept_ms(folder, ROOT, operation), abs=20)


@pytest.mark.parametrize("operation", ["reduce", "gather"])
def test_a_late_member_is_waited_for_by_the_root_alone(folder: Path, analysis: RunAnalysis, operation: str) -> None:
    one = only(analysis, operation)
    assert one.last_rank == 2 and one.wait_us[2] == 0
    if operation == "gather":
        assert one.wait_us[0] / 1e3 < 20  # for the root, which came with it, and not for the late one
    else:  # gloo reduces through a ring: who sends is through only after the late one has come
        assert one.wait_us[0] / 1e3 == pytest.approx(slept_ms(folder, 2, operation), abs=20)
    assert one.wait_us[ROOT] / 1e3 == pytest.approx(slept_ms(folder, 2, operation), abs=20)


def test_a_late_sender_is_waited_for_by_the_receiver_and_nobody_else_takes_part(
    folder: Path, analysis: RunAnalysis
) -> None:
    one = only(analysis, "send_recv")
    assert set(one.wait_us) == {0, 2} and one.group_size == 2
    assert one.wait_us[2] / 1e3 == pytest.approx(slept_ms(folder, 0, "send_recv"), abs=20)


def test_a_sender_that_is_held_up_before_its_send_is_noted_is_paired_all_the_same(folder: Path, tmp_path: Path) -> None:
    """A scheduler had the core for 5.5 ms between the two: the receiver was through before the send began."""
    shutil.copytree(folder, tmp_path / "held_up")
    path = tmp_path / "held_up" / "rank0.json"
    trace = json.loads(path.read_text())
    (handed_over,) = (event for event in trace["traceEvents"] if event.get("name") == "c10d::send")
    for event in trace["traceEvents"]:
        if event.get("ts", 0) > handed_over["ts"]:
            event["ts"] += 8_000
    handed_over["dur"] += 8_000
    path.write_bytes(msgspec.json.encode(trace))
    assert only(analyze_run(tmp_path / "held_up"), "send_recv").wait_us.keys() == {0, 2}


def test_the_size_is_that_of_the_largest_buffer_also_where_it_is_a_list(analysis: RunAnalysis) -> None:
    own = 4 * ELEMENTS
    sizes = {one.operation: one.bytes for one in analysis.collectives}
    assert sizes == {
        "broadcast": own, "reduce": own, "send_recv": own, "barrier": None,
        "scatter": WORLD * own, "gather": WORLD * own, "all_gather": WORLD * own,
    }  # fmt: skip
