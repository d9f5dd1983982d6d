"""Communication by kernels that no table knows, or that tell nothing of themselves: nobody is accused of waiting."""

from pathlib import Path

import pytest

from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from tests.gloo_traces import GlooJob, analysed
from tests.trace_json import packed, unpacked

DATA = Path(__file__).parent / "data"
_KEPT = ("device", "stream", "correlation", "grid", "block")


def renamed(folder: Path, job: str, name: str) -> RunAnalysis:
    """Analyse a job whose collectives' kernels are called otherwise, without anything that describes them."""
    for source in sorted((DATA / job).glob("rank*.json.gz")):
        trace = unpacked(source)
        told = ("record_param_comms", "nccl:", "c10d::")
        trace["traceEvents"] = [one for one in trace["traceEvents"] if not str(one.get("name")).startswith(told)]
        for one in trace["traceEvents"]:
            if one.get("cat") == "kernel" and "nccl" in one["name"]:
                one["name"] = name
                one["args"] = {key: value for key, value in one["args"].items() if key in _KEPT}
        trace["distributedInfo"]["pg_config"] = []
        (folder / source.name).write_bytes(packed(trace))
    (found,) = analyze([folder], jobs=1)
    assert isinstance(found, RunAnalysis)
    return found


@pytest.mark.parametrize("job", ["gpt8_ddp_none_n2", "stalled_host_rank1_n2", "gpt8_ddp_delay4ms_rank1_n2"])
def test_who_waits_in_a_kernel_that_nobody_knows_is_not_called_slow(job: str, tmp_path: Path) -> None:
    """The rank that came first was told to compute more slowly: *its other takes 35.2 ms, the others' 2.2 ms*."""
    run = renamed(tmp_path, job, "void mylib::ring_exchange_kernel<float>(float*)")
    assert run.quality.unknown_collectives == ["ring_exchange_kernel"]
    assert run.findings == [] and run.unpriced is not None and run.unpriced.code == "unknown_collectives"
    verdict = run_verdict(run)
    assert "(taken as compute: ring_exchange_kernel, which waits for other ranks): " in verdict.headline
    assert verdict.level == "unknown"


@pytest.mark.parametrize("job", ["gpt_ddp_n2", "gpt8_ddp_delay4ms_rank1_n2", "gather_sm_n2", "stalled_host_rank1_n2"])
def test_compute_is_no_collective_however_late_a_rank_is(job: str) -> None:
    (run,) = analyze([DATA / job], jobs=1)
    assert isinstance(run, RunAnalysis) and run.quality.unknown_collectives == []


@pytest.mark.parametrize(
    "name",
    ["void deep_ep::intranode::dispatch<2, 768, 8192>(int4*)", "void userbuffers_fp16_sum_inplace_gpu_rr<8>(int)"],
)
def test_a_late_rank_costs_at_most_what_all_wait_where_collectives_tell_nothing(name: str, tmp_path: Path) -> None:
    """A delay of 4 ms on rank 1 of 2, which cost the job 3.6: it was told as 1.9 (1.6 to 2.1)."""
    first = renamed(tmp_path, "gpt8_ddp_delay4ms_rank1_n2", name).findings[0]
    assert (first.code, first.rank, first.at_most) == ("own_work", 1, True)
    assert first.ms == pytest.approx(3.8, abs=0.2)


def test_operators_that_are_interrupted_until_the_other_rank_has_come_are_no_collectives(tmp_path: Path) -> None:
    """*aten::div, which waits for other ranks* was told of an undisturbed job, of 3 of 640, and nothing else of it."""
    job = GlooJob()
    for number in range(3, 9):
        job.step(number)
        job.sleep(1, 0.3)
        job.compute(2.0, "aten::div", calls=20)
        job.compute(0.4, "aten::div", 0)
        job.compute(0.1, "aten::div", 1)
        job.compute(20.0)
        job.all_reduce(1.0)
    run = analysed(job.write(tmp_path))
    assert run.quality.unknown_collectives == [] and run.unpriced is None
