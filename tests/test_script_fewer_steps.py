"""A window that records fewer steps than it was to: said before, said when it is known, and kept with its reason."""

from pathlib import Path

import pytest
import torch

from scalescope import profile_steps
from scalescope.records.folder import RunFolder
from scalescope.report.replayed import why_fewer
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from tests.train_runs import compose

SETTINGS = {"wait": 3, "warmup": 2, "warmup_steps": 1, "analyze": False}


def _loop(runs: Path, operators: int, steps: int) -> RunFolder:
    """Let a loop of so many operators a step run for so many steps."""
    values = torch.ones(4)
    with profile_steps("mine", name="mine", runs=runs, **SETTINGS) as profile:
        for _ in range(steps):
            for _ in range(operators):
                values.view(-1)
            profile.step()
    return RunFolder(runs / "mine")


@pytest.mark.parametrize(
    ("operators", "steps", "last", "why", "words"),
    [(7_000, 18, 11, "many_operators", "a step has many operators"), (50, 8, 7, "loop_ended", "the loop ended"),
     (50, 18, 14, None, "")],
)  # fmt: skip
def test_how_many_steps_are_recorded_is_left_open_said_when_known_and_kept_with_its_reason(
    operators: int, steps: int, last: int, why: str | None, words: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """*Steps 22 to 31 are recorded* was said of six, and why they were six was guessed from the config afterwards."""
    folder = _loop(tmp_path, operators, steps)
    said = capsys.readouterr().err
    assert "steps 5 to 14 are recorded, or fewer where a step has many operators; " in said
    cut = f"steps 5 to {last} are recorded, not 5 to 14: a step has so many operators that they are enough"
    assert (cut in said) == (why == "many_operators")
    recording = folder.read_recording()
    assert recording is not None
    (window,) = recording.windows
    assert (window.steps, window.planned, window.cut) == (list(range(5, last + 1)), 10, why)
    (answer,) = analyze([folder.path], jobs=1)
    assert isinstance(answer, RunAnalysis)
    assert why_fewer(answer) == (f" (not 10, as {words})" if why else "")
    assert answer.fewer_recorded is None or answer.fewer_recorded.why == why
    # ... and what comes after the step in which traces are written tells how long steps are that nobody records
    phases = {row.step: row.phase for row in folder.read_steps()}
    assert [step for step in range(3, steps) if phases.get(step) == "profile"] == list(range(3, min(last + 2, steps)))
    assert all(phases[step] == "steady" for step in range(last + 2, steps))


@pytest.mark.parametrize(("device", "ranks"), [("cuda", 2), ("cpu", 2)])
def test_devices_are_recorded_as_many_steps_of_as_hosts(device: str, ranks: int) -> None:
    """Of 3 steps of a job on two devices, whose hosts made 17 to 32 ms of 17.9, *4.5 ms in 2 of 3 steps* was told."""
    config = compose(f"launch.device={device}", f"launch.ranks={ranks}", "steps=60")
    assert config.active_steps == 10 and config.profiler.is_left_open
    fewer = compose(f"launch.device={device}", f"launch.ranks={ranks}", "steps=60", "profiler.active=4")
    assert fewer.active_steps == 4 and not fewer.profiler.is_left_open


def test_a_window_of_a_given_length_leaves_nothing_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with profile_steps("mine", name="mine", runs=tmp_path, active=2, **SETTINGS) as profile:
        profile.step()
    assert "steps 5 to 6 are recorded; " in capsys.readouterr().err


def test_what_a_job_says_of_its_window_goes_before_what_its_config_tells(tmp_path: Path) -> None:
    """A config whose `active` is open, of a rank that recorded as many as it was to: nothing is fewer."""
    folder = _loop(tmp_path, 50, 18)
    config = folder.config.read_text(encoding="utf-8")
    folder.config.write_text(config.replace("active: null", "active: 12"), encoding="utf-8")
    (answer,) = analyze([folder.path], jobs=1)
    assert isinstance(answer, RunAnalysis) and answer.fewer_recorded is None
