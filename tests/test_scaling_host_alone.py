"""A job on a device that was recorded without it: the host's hand-overs are no compute, and no job on a CPU."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from tests.trace_json import packed, unpacked

DATA = Path(__file__).parent / "data"
_OF_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "cuda_runtime", "cuda_driver", "ac2g")
_OWN_NAMES = ("nccl", "attention", "cudnn")

Event = dict[str, Any]


def host_alone(path: Path, keep: Callable[[Event], bool], **header: Any) -> RunAnalysis:
    """Analyse a job on one GPU as `profile(activities=[CPU])` records it, but for some events."""
    trace = unpacked(DATA / "gpt_ddp_n1" / "rank0.json.gz")
    events = [one for one in trace["traceEvents"] if one.get("cat") not in _OF_DEVICE and keep(one)]
    path.write_text(json.dumps({**{key: trace[key] for key in ("baseTimeNanoseconds",)}, **header,
                                "traceEvents": events}))  # fmt: skip
    (found,) = analyze([path], jobs=1)
    assert isinstance(found, RunAnalysis)
    return found


@pytest.mark.parametrize("by", ["operators", "thread"])
def test_a_gpus_job_recorded_on_its_host_alone_tells_nothing(by: str, tmp_path: Path) -> None:
    """By operators that only GPUs have, or by the engine's own thread for the backward pass on a machine with a GPU.

    *1 CPU rank: launching costs at most 15.9 ms of the 22.1 ms step* was told, with 28.2% compute.
    """
    (tmp_path / "notes.json").write_text("{}", encoding="utf-8")
    header = {"deviceProperties": [{"id": 0, "name": "NVIDIA H200"}]} if by == "thread" else {}
    host_alone(
        tmp_path / "rank0.json",
        lambda one: by == "operators" or not any(word in str(one.get("name")) for word in _OWN_NAMES),
        **header,
    )
    (told,) = analyze([tmp_path], jobs=1)
    assert isinstance(told, RunAnalysis)
    assert told.quality.verdict == "unusable" and not told.findings
    first, *_, last = told.quality.reasons  # *do not say where the time goes: left aside: notes.json* was the reason
    assert "the trace holds nothing of it; profile ProfilerActivity.CUDA too" in first
    assert last == "left aside, as no trace of any rank: notes.json"


def test_a_cpus_job_on_a_machine_with_a_gpu_is_one_of_the_cpu(tmp_path: Path) -> None:
    for path in (DATA / "cpu_ddp_n2").glob("rank*"):
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        trace = json.loads(text)
        trace["deviceProperties"] = [{"id": 0, "name": "NVIDIA H200"}]
        (tmp_path / path.name).write_bytes(packed(trace))
    (told,) = analyze([tmp_path], jobs=1)
    assert isinstance(told, RunAnalysis)
    assert told.activity == "cpu" and told.quality.verdict != "unusable" and told.findings


def test_an_lstm_on_a_cpu_ran_on_no_device_though_it_asks_for_cudnn(tmp_path: Path) -> None:
    """torch asks of every LSTM's and GRU's input whether cuDNN would take it, on CPUs as well.

    *2 GPUs: the job ran on a device, and the trace holds nothing of it* was told of any that trained on a CPU.
    """
    for path in (DATA / "cpu_ddp_n2").glob("rank*"):
        trace = unpacked(path)
        operators = [one for one in trace["traceEvents"] if one.get("cat") == "cpu_op"]
        asks = [{**one, "name": "aten::cudnn_is_acceptable", "dur": 0.5} for one in operators[::50]]
        trace["traceEvents"] += asks
        (tmp_path / path.name).write_bytes(packed(trace))
    (told,) = analyze([tmp_path], jobs=1)
    assert isinstance(told, RunAnalysis)
    assert told.activity == "cpu" and told.quality.verdict != "unusable" and told.findings
