"""`scalescope whatif`: predictions on the terminal and as JSON, from what a user has."""

import json
from pathlib import Path

import pytest

from scalescope.cli import front_door
from scalescope.report.panels.whatif import replay_panel
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import Replay, RunAnalysis
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.whatif.prediction import Prediction, WhatIf
from tests.gloo_traces import GlooJob
from tests.report_samples import run_with_steps

DATA = Path(__file__).parent / "data"


def test_predictions_are_a_table_with_what_they_assume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "whatif.json"
    argv = [
        str(DATA / "gpt_ddp_n2"),
        "--bucket-mib",
        "5,50",
        "--link",
        "2x",
        "--no-straggler",
        "--json",
        str(file),
    ]
    assert front_door.main(["whatif", *argv]) == 0
    said = capsys.readouterr().out
    for word in ("buckets of 5 MiB", "buckets of 50 MiB", "links 2 times as fast", "no slower than the others",
                 "interval", "Assumed: inflation"):  # fmt: skip
        assert word in said, said
    (answer,) = json.loads(file.read_text())
    assert answer["replay"]["faithful"] and len(answer["predictions"]) == 4
    for one in answer["predictions"]:
        assert one["low_ms"] <= one["change_ms"] <= one["high_ms"]
        assert one["step_ms"] == pytest.approx(answer["step_ms"] + one["change_ms"])


def test_changes_made_together_are_one_prediction(capsys: pytest.CaptureFixture[str]) -> None:
    assert front_door.main(["whatif", str(DATA / "gpt_ddp_n2"), "--link", "2", "--data-free", "--together"]) == 0
    assert "links 2 times as fast, data loading free" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--bucket-mib", "x"], "'x' is no number"),
        (["--bucket-mib", "0"], "must be above 0"),
        (["--gradients", "fp4"], "choose bf16 or fp32"),
        (["--link", "1,2", "--together"], "one value a flag"),
        (["--no-straggler", "zero"], "give a rank's number"),
        (["--no-straggler", "7"], "not a rank of cpu_ddp_n2 that is replayed; choose one of 0, 1"),
    ],
)
def test_wrong_words_are_told(argv: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert front_door.main(["whatif", str(DATA / "cpu_ddp_n2"), *argv]) == 2
    assert says in capsys.readouterr().err


def test_what_cannot_be_told_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert front_door.main(["whatif", str(DATA / "cpu_fsdp2_n2"), "--bucket-mib", "5"]) == 0
    assert "no gradients of DDP in the traces" in capsys.readouterr().out


def test_without_flags_it_is_what_was_found_in_the_same_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    disturbed, found, undisturbed = DATA / "gpt8_ddp_delay4ms_rank1_n2", tmp_path / "found.json", DATA / "gpt_ddp_n2"
    assert front_door.main(["whatif", str(disturbed), "--json", str(tmp_path / "whatif.json")]) == 0
    assert "without own_work of rank 1" in capsys.readouterr().out
    assert front_door.main(["analyze", str(disturbed), "--json", str(found)]) == 0
    (answer,) = json.loads((tmp_path / "whatif.json").read_text())
    assert [one["change_ms"] for one in answer["predictions"]] == [
        pytest.approx(-one["ms"]) for one in json.loads(found.read_text())["findings"]
    ]
    capsys.readouterr()
    assert front_door.main(["whatif", str(undisturbed), "--json", str(found)]) == 0
    (said,) = [line for line in capsys.readouterr().out.splitlines() if "replays in" in line]
    assert said.endswith(
        "All known causes were looked for, and none was found: there is nothing to take out. Other "
        "changes can be asked for: --bucket-mib 5,50, --gradients bf16, --link 2x and --perfect-overlap."
    )
    (answer,) = json.loads(found.read_text())
    assert answer["predictions"] == [] and answer["nothing_found"] == {"exchanges": True, "gradients": True}


def test_where_nothing_costs_the_step_that_is_a_sentence_and_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    """*nothing – – –* stood under four headers, with a legend that said what they would have held."""
    assert front_door.main(["whatif", str(DATA / "gpt_ddp_n1")]) == 0
    said = capsys.readouterr().out
    assert "there is nothing to take out." in said and "asked for" not in said, "one rank has no links to try"
    assert "95%" not in said and "–" not in said and len(said.strip().splitlines()) == 1


@pytest.mark.parametrize("asked", [[], ["--no-straggler", "1"]])
def test_changes_are_of_the_step_as_run_which_is_told_first_with_the_recorded_one_beside_it(
    asked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It began with the traced step of 296.2 ms, and took its changes off one of 292.7 that nothing named."""
    job = GlooJob()
    for number in range(22, 32):
        job.step(number)
        job.compute(30.0, calls=10)
        job.sleep(1, 12.0)
        job.compute(30.0 + number % 3, "aten::gelu", calls=10)
        job.all_reduce(2.0)
    folder = run_with_steps(tmp_path / "run", job.write(tmp_path / "traces"), 74.0, 76.0)
    (told,) = analyze([folder], write=False)
    assert isinstance(told, RunAnalysis) and told.as_run is not None and told.replay is not None
    own = told.as_run.step_ms or 0.0
    assert abs(told.replay.traced_ms - own) > 0.5, "else the two are one length"
    assert front_door.main(["whatif", str(folder), *asked, "--json", str(tmp_path / "out.json")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    recorded_ms = f"the recorded one of {told.replay.traced_ms:.1f} ms replays in "
    assert f"the step takes {own:.1f} ms as run, of which all changes are; {recorded_ms}" in said
    (answer,) = json.loads((tmp_path / "out.json").read_text())
    first = answer["predictions"][0]
    assert (answer["step_ms"], answer["of"]) == (pytest.approx(own), "as_run")
    assert first["step_ms"] == pytest.approx(own + first["change_ms"])
    assert first["fraction"] == pytest.approx(first["change_ms"] / own)
    if not asked:  # … as an analysis tells it
        assert first["fraction"] == pytest.approx(-(told.findings[0].fraction or 0.0))


def test_a_step_that_is_none_of_the_job_s_is_named_beside_the_job_s_own() -> None:
    replay = Replay(traced_ms=394.2, replayed_ms=394.2, error=0.0, unexplained_ms=0.0, faithful=True)
    change = Prediction(change=Change(), what="without x", step_ms=310.0, change_ms=-28.2)
    answer = WhatIf(name="both", replay=replay, step_ms=338.2, of="without_recording", own_ms=304.9,
                    predictions=[change])  # fmt: skip
    assert replay_panel(answer).sentence == (
        "both: the job's own steps take 304.9 ms, the profiled ones 338.2 ms without recording, of which all changes "
        "are; the recorded one of 394.2 ms replays in 394.2 ms (0.00% off)."
    )
