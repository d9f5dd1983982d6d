"""One process that drives several GPUs (`device_map="auto"`, DataParallel): taken as one device, and said to be."""

from pathlib import Path
from typing import Any

import pytest

from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from tests.trace_json import packed, unpacked

DATA = Path(__file__).parent / "data" / "gpt_ddp_n1"
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


def driven_by_one_process(folder: Path, share: float) -> RunAnalysis:
    """Analyse a job of one GPU whose kernels ran on another one for the middle `share` of each 1,000 of them."""
    (source,) = DATA.glob("rank0*.json.gz")
    trace = unpacked(source)
    ran: list[dict[str, Any]] = [one for one in trace["traceEvents"] if one.get("cat") in _ON_DEVICE]
    for at, one in enumerate(sorted(ran, key=lambda one: one["ts"])):
        if abs(at % 1000 - 500) < 500 * share:
            one["args"]["device"] = 1
    (folder / source.name).write_bytes(packed(trace))
    (found,) = analyze([folder], jobs=1)
    assert isinstance(found, RunAnalysis)
    return found


def test_devices_that_take_turns_are_no_step_in_which_nothing_is_wrong(tmp_path: Path) -> None:
    """Each GPU idles for half of the step; it was told as 96.7% compute and *nothing around the compute is wrong*."""
    run = driven_by_one_process(tmp_path, 0.5)
    (told,) = run.quality.several_devices
    assert told.rank == 0 and told.by_turns and sum(told.busy) == pytest.approx(0.97, abs=0.02)
    assert min(told.busy) > 0.25
    assert run.findings == [] and run.unpriced is not None and run.unpriced.code == "several_devices"
    verdict = run_verdict(run)
    assert "(rank 0's process drives 2 devices by turns, in which kernels run for " in verdict.headline
    assert "is wrong" not in verdict.headline and verdict.level == "unknown"
    assert verdict.advice.startswith("let the devices work at once")


def test_a_few_kernels_on_another_device_change_nothing(tmp_path: Path) -> None:
    run = driven_by_one_process(tmp_path, 0.01)
    assert run.quality.several_devices == [] and run.findings[0].code == "nothing"
