"""The comparison with TraceLens finds equal what its rules make equal, and says where a figure differs."""

import gzip
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import public_rocm_traces

#: (name, category, start, duration in µs, whether the call that launched it was recorded)
EVENTS = (
    ("Cijk_Ailk_Bjlk_HHS_BH", "kernel", 100, 40, True),
    ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "kernel", 120, 60, True),  # 40 µs of it exposed
    ("__amd_rocclr_copyBuffer", "kernel", 200, 10, True),  # ROCm 7.1: a copy
    ("Memset (Device)", "gpu_memset", 220, 5, True),  # compute there
    ("mscclpp::allreduce7", "kernel", 230, 20, True),  # compute there
    ("Cijk_Ailk_Bjlk_HHS_BH", "kernel", 20, 30, False),  # launched before recording began: left out there
)


def lay_out(folder: Path, idle_ms: float) -> Path:
    traces = folder / "tests/traces/mi300"
    traces.mkdir(parents=True)
    events: list[dict[str, object]] = []
    for number, (name, category, start, duration, linked) in enumerate(EVENTS, 1):
        args = {"correlation": number if linked else 900 + number, "stream": 0, "device": 2}
        events.append({"ph": "X", "cat": category, "name": name, "pid": 2, "tid": 0, "ts": start, "dur": duration,
                       "args": args})  # fmt: skip
        if linked:
            events.append({"ph": "X", "cat": "cuda_runtime", "name": "hipLaunchKernel", "pid": 7, "tid": 7,
                           "ts": start - 60, "dur": 2, "args": {"correlation": number}})  # fmt: skip
    header = {"name": "", "totalGlobalMem": 206141652992, "computeMajor": 9, "computeMinor": 4, "numSms": 304, "id": 0}
    with gzip.open(traces / "one.json.gz", "wt") as file:
        json.dump({"deviceProperties": [header], "traceEvents": events}, file)
    report = traces / "one_perf_report_csvs"
    report.mkdir()
    (report / "gpu_timeline.csv").write_text(
        "type,time ms,percent\ncomputation_time,0.065,0\nexposed_comm_time,0.040,0\nexposed_memcpy_time,0.010,0\n"
        f"idle_time,{idle_ms},0\n"
    )
    return folder


@pytest.mark.parametrize(("idle_ms", "code", "said"), [(0.035, 0, "equal"), (0.335, 1, "DIFFERS by 0.300 ms")])
def test_a_trace_is_laid_beside_tracelens_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], idle_ms: float, code: int,
    said: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["public_rocm_traces.py", str(lay_out(tmp_path, idle_ms))])
    assert public_rocm_traces.main() == code
    printed = capsys.readouterr().out
    assert said in printed and "AMD Instinct MI300X" in printed
    assert "2 of communication (mscclpp::allreduce7, ncclDevKernel_Generic)" in printed
