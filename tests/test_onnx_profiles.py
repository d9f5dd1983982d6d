"""Profiles of ONNX Runtime: time by operator and provider, runs as steps, and what is not in them is said."""

import json
from collections import defaultdict
from pathlib import Path

import pytest

from scalescope.records.errors import UserError
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis

(PROFILE,) = (Path(__file__).parent / "data" / "onnxruntime_mlp").glob("*.json")


def answer_of(path: Path) -> RunAnalysis:
    (answer,) = analyze([path])
    assert isinstance(answer, RunAnalysis)
    return answer


def test_time_by_operator_and_provider_is_that_of_the_nodes_and_runs_are_steps() -> None:
    events = json.loads(PROFILE.read_text())
    runs = [event for event in events if event["name"] == "model_run"]
    spent: dict[str, list[int]] = defaultdict(list)
    for event in events:
        if event["cat"] == "Node":
            spent[f"{event['args']['op_name']}[CPU]"].append(event["dur"])
    answer = answer_of(PROFILE)
    assert (answer.framework, answer.activity, answer.trains, answer.steps_by) == (
        "onnxruntime",
        "cpu",
        False,
        "profiler",
    )
    assert (answer.quality.verdict, answer.collectives) == ("good", [])
    (rank,) = answer.ranks
    assert rank.steps == len(answer.steps) == len(runs) == 4
    assert {kernel.name: (kernel.calls * 4, round(kernel.ms * 4000)) for kernel in answer.kernels} == {
        name: (len(times), sum(times)) for name, times in spent.items()
    }
    assert rank.compute_ms == pytest.approx(sum(map(sum, spent.values())) / 1000)
    assert rank.window_ms >= sum(run["dur"] for run in runs) / 1000 * 0.9
    assert not answer.advice and not any(one.remedy for one in answer.findings)  # torch's cures are none of it


def test_nodes_of_other_providers_are_said_to_be_the_hosts_calls(tmp_path: Path) -> None:
    path = tmp_path / "onnxruntime_profile_gpu.json"
    path.write_text(PROFILE.read_text().replace("CPUExecutionProvider", "CUDAExecutionProvider", 8))
    quality = answer_of(path).quality
    assert quality.verdict == "degraded"
    assert any("8 of 24 nodes ran on CUDAExecutionProvider" in reason for reason in quality.reasons)


def test_a_profile_of_what_ran_on_a_device_tells_nothing(tmp_path: Path) -> None:
    """*Launching costs 0.50 ms; the devices wait for launches* was told of the host's calls alone."""
    path = tmp_path / PROFILE.name
    path.write_text(PROFILE.read_text().replace("CPUExecutionProvider", "CUDAExecutionProvider"))
    answer = answer_of(path)
    assert answer.quality.verdict == "unusable" and not answer.findings
    assert "24 nodes, most of its time, ran on CUDAExecutionProvider" in answer.quality.reasons[0]


def test_a_profile_that_is_cut_off_is_read_to_the_cut_and_said(tmp_path: Path) -> None:
    text = PROFILE.read_text()
    path = tmp_path / "onnxruntime_profile_cut.json"
    path.write_text(text[: int(len(text) * 0.6)])
    quality = answer_of(path).quality
    assert quality.verdict != "good" and any("cut off" in reason for reason in quality.reasons)


def test_a_session_that_ran_nothing_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "onnxruntime_profile_empty.json"
    path.write_text(
        '[\n{"cat" : "Session","pid" :1,"tid" :1,"dur" :5,"ts" :3,"ph" : "X","name" :"model_loading","args" : {}}\n]\n'
    )
    with pytest.raises(UserError, match="holds no node"):
        analyze([path])
