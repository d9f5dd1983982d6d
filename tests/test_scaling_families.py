"""What is communication, on NVIDIA and AMD, from torch 1.8 on: by metadata, by the launching operator, by name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scalescope.records.dtypes import canonical_dtype, element_bytes
from scalescope.records.operations import bus_factor, canonical_operation
from scalescope.scaling.join.explained import Explained
from scalescope.scaling.run import explain_traces
from scalescope.scaling.trace.families import is_communication_kernel
from scalescope.scaling.trace.sources import find_sources
from tests.recorded import explained_of
from tests.trace_json import unpacked

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize(
    "name",
    [
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
        "ncclSymkDevKernel_AllReduce_AGxLL_R_sum(ncclSymkDevWorkArgs)",
        "void mscclpp::allreduce<float>(float*)",
        "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*)",
        "void deep_ep::internode_ll::combine<false>(void*)",
        "void nvshmemi_transfer_kernel(int)",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1>(int)",
        "void aiter::cross_device_reduce_2stage<opus::bf16_t, 8>(aiter::RankData*)",
        "void c10d::symmetric_memory::two_shot_all_reduce_kernel<4>(int)",
        "multimem_all_gather_kernel(int)",
    ],
)
def test_communication_kernels_of_the_known_libraries_are_recognised(name: str) -> None:
    assert is_communication_kernel(name)


@pytest.mark.parametrize(
    "name",
    [
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(int)",
        "void at::native::vectorized_gather_kernel<16, long>(char*)",
        "void at::native::_scatter_gather_elementwise_kernel<128, 8>(int)",
        "triton_red_fused__to_copy_native_layer_norm_4",
        "void cub::DeviceReduceSingleTileKernel<int>()",
        "void at::native::elementwise_kernel_broadcast(int)",
        "sm90_xmma_gemm_bf16bf16_bf16f32",
        "void moe::dispatch_tokens(int)",
        "Cijk_Alik_Bljk_BBS_BH_MT128x128",
    ],
)
def test_compute_kernels_that_reduce_gather_or_scatter_are_none(name: str) -> None:
    assert not is_communication_kernel(name)


def test_operations_and_dtypes_have_one_name_however_they_are_spelt() -> None:
    spelt = (
        "_allgather_base",
        "nccl:_all_gather_base",
        "c10d::_allgather_base_",
        "ALLGATHER",
        "all_gather_into_tensor",
    )
    assert {canonical_operation(name) for name in spelt} == {"all_gather"}
    others = ("c10d::alltoall_base_", "nccl:all_to_all", "all_to_allv", "ALLTOALL_BASE")
    assert {canonical_operation(name) for name in others} == {"all_to_all"}
    assert canonical_operation("c10d::reduce_scatter_tensor_coalesced_") == "reduce_scatter"
    assert canonical_dtype("c10::BFloat16") == canonical_dtype("BFloat16") == "bfloat16"
    assert element_bytes("BFloat16") == 2 and element_bytes("Float8_e4m3fn") == 1 and element_bytes("Foo") is None


def test_bus_bandwidth_factors_are_those_of_nccl_tests() -> None:
    assert bus_factor("all_reduce", 4) == 1.5
    assert bus_factor("reduce_scatter", 4) == bus_factor("all_to_all", 4) == 0.75
    assert bus_factor("broadcast", 4) == 1.0
    assert bus_factor("barrier", 4) is None


def rewritten(
    name: str,
    target: Path,
    change: Callable[[dict[str, Any]], None],
    header: Callable[[dict[str, Any]], object] = lambda _: None,
) -> Explained:
    """Explain a real set after every event of it, and what stands around them, was changed."""
    for source in find_sources(DATA / name):
        trace = unpacked(source.path)
        for event in trace["traceEvents"]:
            change(event)
        header(trace)
        (target / source.path.name.replace(".gz", "")).write_bytes(msgspec.json.encode(trace))
    return explain_traces(find_sources(target), name, 1)


_METADATA = ("Collective name", "In msg nelems", "Out msg nelems", "Group size", "dtype", "Process Group Name",
             "Process Group Description", "Process Group Ranks", "In split size", "Out split size")  # fmt: skip


def as_rocm_writes(correlations: bool) -> Callable[[dict[str, Any]], None]:
    """Generic kernel names, nothing on kernels, other device ids, stream 0; perhaps no correlations."""

    def change(event: dict[str, Any]) -> None:
        args = event.get("args", {})
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            nccl = event["name"].startswith("nccl")
            for key in ("External id", *_METADATA):
                args.pop(key, None)
            args["device"] += 2
            args["stream"] = 0 if args["stream"] == 7 else args["stream"]
            if nccl:
                event["name"] = "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)"
                args["correlation"] = args["correlation"] if correlations else 0
        elif event.get("cat") == "cuda_runtime" and event["name"].startswith("cudaLaunchKernel"):
            event["name"] = event["name"].replace("cudaLaunchKernel", "hipLaunchKernel")
            args.pop("External id", None)

    return change


@pytest.mark.parametrize("correlations", [True, False])
def test_a_set_rewritten_as_rocm_writes_it_gives_the_same_figures(tmp_path: Path, correlations: bool) -> None:
    rocm = rewritten("gpt_ddp_n2", tmp_path, as_rocm_writes(correlations))
    cuda = explained_of("gpt_ddp_n2")
    assert rocm.partitions == cuda.partitions
    assert rocm.analysis.efficiency == cuda.analysis.efficiency
    ours, theirs = (
        [(one.step, one.operation, one.bytes, one.dtype, one.wait_us) for one in each.analysis.collectives if one.step]
        for each in (rocm, cuda)
    )
    assert ours == theirs and len(ours) == 39
    assert rocm.analysis.quality.verdict == "good"


@pytest.mark.parametrize(("lost", "verdict"), [("communication", "degraded"), ("compute", "unusable")])
def test_a_stream_that_is_missing_is_said(tmp_path: Path, lost: str, verdict: str) -> None:
    def lose(event: dict[str, Any]) -> None:
        if event.get("cat") == "kernel" and (lost == "communication") == event["name"].startswith("nccl"):
            event["cat"] = "lost"
            event["args"] = {}

    quality = rewritten("gpt_ddp_n2", tmp_path, lose).analysis.quality
    assert quality.verdict == verdict
    said = any("rank1.json: 39 collectives were launched and have no kernel" in reason for reason in quality.reasons)
    assert said == (lost == "communication")


def as_torch_1_wrote(event: dict[str, Any]) -> None:
    """Whole µs, kernels without metadata, external ids that are correlations, records that name no collective."""
    args = event.get("args", {})
    if event.get("cat") == "kernel":
        for key in _METADATA:
            args.pop(key, None)
        args["External id"] = args["correlation"]
    elif event.get("name") == "record_param_comms":
        event["args"] = {"External id": args["External id"], "Input Dims": [[], [], []], "Input type": ["", "", ""]}
    elif event.get("name", "").startswith("c10d::"):
        args["Input Dims"] = [[] for _ in args["Input Dims"]]


def test_old_traces_find_operation_and_size_on_what_stands_around_the_launch(tmp_path: Path) -> None:
    old = rewritten("gpt_ddp_n2", tmp_path, as_torch_1_wrote)
    new = explained_of("gpt_ddp_n2")
    assert old.partitions == new.partitions
    assert [one.bytes for one in old.analysis.collectives] == [one.bytes for one in new.analysis.collectives]
    assert {one.operation for one in old.analysis.collectives} == {"all_reduce"}


def test_a_trace_of_a_gpu_job_without_its_gpu_is_unusable_and_says_what_to_do(tmp_path: Path) -> None:
    trace = unpacked(DATA / "gpt_ddp_n1" / "rank0.json.gz")
    host = [event for event in trace["traceEvents"] if event.get("cat") in ("cpu_op", "user_annotation")]
    (tmp_path / "rank0.json").write_text(json.dumps(trace | {"traceEvents": host}))
    run = explain_traces(find_sources(tmp_path), "x", 1).analysis
    assert run.quality.verdict == "unusable"
    assert any("ProfilerActivity.CUDA" in reason for reason in run.quality.reasons)
    assert (run.activity, run.efficiency, run.stragglers) == ("gpu", None, [])  # it is no job of CPU ranks


def test_the_activity_of_an_accelerator_that_is_not_known_is_no_cpu_job(tmp_path: Path) -> None:
    def elsewhere(event: dict[str, Any]) -> None:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            event["cat"] = "mtia_ccp_events"
        elif event.get("cat") == "cuda_runtime":
            event |= {"cat": "mtia_runtime", "name": "run"}

    quality = rewritten("gpt_ddp_n1", tmp_path, elsewhere).analysis.quality
    assert quality.verdict == "unusable" and "of category mtia_ccp_events" in quality.reasons[0]


@pytest.mark.parametrize("streams", [1, 2])
def test_without_any_process_group_one_stream_is_taken_as_all_ranks_and_two_are_not(
    tmp_path: Path, streams: int
) -> None:
    count = 0

    def forget(event: dict[str, Any]) -> None:
        nonlocal count
        as_torch_1_wrote(event)
        if event.get("cat") == "kernel" and event["name"].startswith("nccl"):
            count += 1
            event["args"]["stream"] += count % streams

    old = rewritten("gpt_ddp_n2", tmp_path, forget, lambda trace: trace["distributedInfo"].pop("pg_config"))
    new = explained_of("gpt_ddp_n2")
    if streams == 1:
        assert old.partitions == new.partitions
        assert "the traces name no process group: their collectives are taken as those of all ranks" in (
            old.analysis.quality.reasons
        )
        assert {one.group_size for one in old.analysis.collectives} == {2}
    else:
        assert all(one.group_size is None and one.bus_gb_s is None for one in old.analysis.collectives)
        assert all(part.transfer == part.wait == 0 for parts in old.partitions.values() for part in parts)
        assert any("whose group's ranks are not in the traces" in reason for reason in old.analysis.quality.reasons)


def test_lost_kernels_and_lost_launches_are_counted_and_degrade_the_verdict(tmp_path: Path) -> None:
    seen = {"kernel": 0, "cuda_runtime": 0}

    def lose(event: dict[str, Any]) -> None:
        category = event.get("cat")
        if category in seen and event.get("name") != "cudaDeviceSynchronize":
            seen[category] += 1
            if seen[category] % 20 == 0:
                event["cat"] = "lost"

    explained = rewritten("gpt_ddp_n1", tmp_path, lose)
    quality = explained.analysis.quality
    assert quality.verdict == "degraded" and 0.01 < (quality.unlinked_fraction or 0) < 0.1
    assert any("have lost their launch" in reason for reason in quality.reasons)
    assert any("have no kernel" in reason for reason in quality.reasons)
    assert all(sum(part.parts) == part.window for part in explained.partitions[0])
