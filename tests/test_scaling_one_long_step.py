"""A window that met a checkpoint: one of its steps is a hundred times as long, and no cause of every step is told."""

from pathlib import Path
from typing import Any

import pytest

from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from tests.trace_json import packed, unpacked

DATA = Path(__file__).parent / "data" / "gpt_ddp_n2"
_CALLS = ("cuda_runtime", "cuda_driver")
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_LATER_US = 5e6

Event = dict[str, Any]


def met_a_checkpoint(folder: Path, step: int, *, busy: bool) -> RunAnalysis:
    """Analyse the job with all that is launched from a step on 5 s later; `busy`: its hosts copy and wait meanwhile."""
    for rank in (0, 1):
        trace = unpacked(DATA / f"rank{rank}.json.gz")
        events: list[Event] = trace["traceEvents"]
        marks = [one for one in events if str(one.get("name")).startswith("ProfilerStep")]
        begins = sorted(one["ts"] for one in marks if one["cat"] == "user_annotation")
        at = begins[step] - 20
        first = next(one for one in events if one.get("cat") in _CALLS and one["ts"] >= begins[0])
        late = {one["args"].get("correlation") for one in events if one.get("cat") in _CALLS and one["ts"] >= at}
        for one in events:
            if one.get("cat") in _ON_DEVICE:
                one["ts"] += _LATER_US * (one["args"].get("correlation") in late)
            elif one.get("ts", 0) >= at and one.get("cat") != "gpu_user_annotation":
                one["ts"] += _LATER_US
            elif one.get("ph") == "X" and one["ts"] + one.get("dur", 0) > at:
                one["dur"] += _LATER_US
        for count in range(150 * busy):
            begin, number = at + 60_000 + 32_000 * count, 10**7 + count
            host = {"ph": "X", "pid": first["pid"], "tid": first["tid"]}
            args = {"correlation": number, "External id": number}
            events += [
                {**host, "cat": "cpu_op", "name": "aten::copy_", "ts": begin, "dur": 31_000, "args": args},
                {**host, "cat": "cuda_runtime", "name": "cudaMemcpyAsync", "ts": begin + 10, "dur": 900, "args": args},
                {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy DtoH (Device -> Pageable)", "pid": rank, "tid": 7,
                 "ts": begin + 100, "dur": 800, "args": {"correlation": number, "device": rank, "stream": 7}},
            ]  # fmt: skip
        (folder / f"rank{rank}.json.gz").write_bytes(packed(trace))
    (found,) = analyze([folder], jobs=1)
    assert isinstance(found, RunAnalysis)
    return found


@pytest.mark.parametrize(("step", "busy"), [(1, False), (2, False), (1, True)])
def test_one_step_of_seconds_is_no_launching_and_not_nothing(step: int, busy: bool, tmp_path: Path) -> None:
    """It was told as *launching costs at most 2,476 ms*, or as *nothing between the ranks is wrong*."""
    run = met_a_checkpoint(tmp_path, step, busy=busy)
    assert run.findings[0].code == "unsteady" and "host_bound" not in {one.code for one in run.findings}
    assert run_verdict(run).headline.startswith(f"{run.name} · 2 GPUs: unsteady steps cost 2,4")


def test_steps_that_do_different_things_are_no_loss_for_sure(tmp_path: Path) -> None:
    """A ProfilerStep for each micro-batch: the optimizer's comes now and then."""
    for source in (DATA.parent / "gpt8_ddp_delay4ms_rank1_n2").glob("rank*.json.gz"):
        trace = unpacked(source)
        kept: list[Event] = []
        for one in trace["traceEvents"]:
            name = str(one.get("name"))
            if not name.startswith("ProfilerStep#"):
                kept.append(one)
            elif one["cat"] == "user_annotation":
                for half, (begin, length) in enumerate(((0.0, 0.6), (0.6, 0.4))):
                    number = 100 + 2 * int(name.removeprefix("ProfilerStep#")) + half
                    ts, duration = one["ts"] + begin * one["dur"], length * one["dur"] - 1
                    kept.append(one | {"name": f"ProfilerStep#{number}", "ts": ts, "dur": duration})
        (tmp_path / source.name).write_bytes(packed(trace | {"traceEvents": kept}))
    (run,) = analyze([tmp_path], jobs=1)
    assert isinstance(run, RunAnalysis)
    first = run.findings[0]
    assert first.code == "unsteady" and first.at_most
    assert "in what they do, from 326 to 528 kernels" in run_verdict(run).headline
