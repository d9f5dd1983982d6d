"""What is said of numbers is plain English: one is told in the singular."""

from pathlib import Path

import pytest

from scalescope.cli.front_door import main
from scalescope.records.console import counted
from scalescope.records.errors import UserError
from scalescope.report.compare.sentences import headline
from scalescope.scaling.as_run.untraced import given_steps
from scalescope.scaling.compare.answer import Comparison, PartChange

DATA = Path(__file__).parent / "data"


def test_one_is_singular_and_others_are_not() -> None:
    assert [counted(number, "step") for number in (0, 1, 2, 1204)] == ["0 steps", "1 step", "2 steps", "1,204 steps"]
    assert counted(3, "activity", "activities") == "3 activities" and counted(1, "activity", "x") == "1 activity"


def test_steps_given_for_paths_are_counted_as_what_they_are() -> None:
    with pytest.raises(UserError, match=r"^--step-ms gives 2 steps for 1 path; give one for each, in order$"):
        given_steps([20.0, 21.0], [DATA / "gpt_ddp_n1"])


def test_two_runs_on_as_many_ranks_are_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    job = str(DATA / "gather_sm_n2")
    assert main(["analyze", job, "--base", str(DATA / "gather_ce_n2")]) != 0
    assert " ran on 2 ranks both: --base compares world sizes" in capsys.readouterr().err


def test_a_change_of_no_single_part_is_said_to_be_of_none() -> None:
    part = PartChange(name="idle_launch", change_ms=0.5, low_ms=-0.3, high_ms=0.7, baseline_ms=1.0, other_ms=1.5)
    answer = Comparison(baseline="a", other="b", verdict="slower", change_ms=0.5, low_ms=0.1, high_ms=0.9,
                        baseline_ms=10.0, other_ms=10.5, parts=[part])  # fmt: skip
    assert headline(answer).endswith(", and of no single part is the change beyond noise.")
