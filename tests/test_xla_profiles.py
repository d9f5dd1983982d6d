"""Profiles of XLA, as jax.profiler writes them: read like anybody's traces, from either of the two files."""

import json
import random
import shutil
import tracemalloc
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

from scalescope.records.errors import UserError
from scalescope.report.perfetto import read_events, write_perfetto
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.compare.compare import compare_paths
from scalescope.scaling.join.explained import Explained
from scalescope.scaling.run import explain_traces
from scalescope.scaling.trace.reader import read_trace
from scalescope.scaling.trace.sources import find_sources
from tests import oracle, xspace

DATA = Path(__file__).parent / "data" / "jax_h200x2"
XPLANE, JSON = DATA / "vm.xplane.pb", DATA / "vm.trace.json.gz"


@cache
def explained(path: Path) -> Explained:
    return explain_traces(find_sources(path), path.name, jobs=1)


def as_kineto() -> dict[int, oracle.Json]:
    """Return the JSON's events of each device as the slow account wants them, made without the project's reader."""
    events = [  # whose times are of whole ns, written as floats: 30037.994000000002
        {**event, "ts": round(event["ts"], 3), "dur": round(event["dur"], 3)}
        for event in oracle.load(JSON)["traceEvents"]
        if event.get("ph") == "X"
    ]
    launches = [event for event in events if event["pid"] == 701 and "correlation_id" in event.get("args", {})]
    found = {}
    for device in (0, 1):
        own: list[oracle.Json] = [
            {**event, "cat": "user_annotation", "name": f"ProfilerStep#{event['args']['step_num']}"}
            for event in events
            if event["name"] == "train"
        ]
        for event in launches:
            name = "cudaMemsetAsync" if event["name"] == "Memset" else "cudaLaunchKernel"
            own.append({**event, "cat": "cuda_runtime", "name": name,
                        "args": {"correlation": int(event["args"]["correlation_id"])}})  # fmt: skip
        for event in events:
            if event["pid"] != device + 1:
                continue
            args = {"correlation": int(event["args"]["correlation_id"]), "stream": event["tid"]}
            if event["args"]["hlo_op"].startswith("all-reduce"):
                args |= {"Collective name": "allreduce", "Process Group Name": "all", "Group size": 2}
            own.append({**event, "cat": "gpu_memset" if "Memset" in event["name"] else "kernel", "args": args})
        found[device] = {"traceEvents": own}
    return found


@pytest.mark.parametrize("path", [XPLANE, JSON], ids=["xplane", "json"])
def test_every_part_equals_the_slow_account_of_the_json_to_the_nanosecond(path: Path) -> None:
    expected = oracle.device_partitions(as_kineto(), 2)
    found = explained(path).partitions
    assert {rank: len(steps) for rank, steps in found.items()} == {0: 4, 1: 4}
    for rank, steps in found.items():
        for part, should in zip(steps, expected[rank].values(), strict=True):
            assert dict(zip(oracle.PARTS, part.parts, strict=True)) | {"window": part.window} == should
            assert sum(part.parts) == part.window


@pytest.mark.parametrize("path", [XPLANE, JSON], ids=["xplane", "json"])
def test_the_step_is_the_devices_and_not_the_hosts_which_only_dispatches(path: Path) -> None:
    """The host's own spans are 1.0 to 2.2 ms long."""
    truth = json.loads((DATA / "truth.json").read_text())["step_ms"]
    analysis = explained(path).analysis
    assert analysis.steps_by == "step_annotation" and analysis.quality.verdict == "good"
    for rank in analysis.ranks:
        assert rank.window_ms / rank.steps == pytest.approx(truth, rel=0.01)


def test_all_collectives_are_found_matched_and_described_as_the_module_does() -> None:
    """Six of 32 MiB by NCCL a step, and the loss's by a kernel of XLA's own, which no name of a library tells."""
    analysis = explained(XPLANE).analysis
    assert len(analysis.collectives) == 4 * 7
    assert all(len(one.wait_us) == 2 and one.operation == "all_reduce" for one in analysis.collectives)
    assert sorted({(one.bytes, one.dtype) for one in analysis.collectives}) == [
        (4, "float32"),
        (4096 * 4096 * 2, "bfloat16"),
    ]
    whole = [one.bus_gb_s for one in analysis.collectives if one.bytes != 4]
    assert all(rate is not None and 100 < rate < 330 for rate in whole)


def test_both_files_say_the_same_where_both_say_something() -> None:
    ours, theirs = explained(XPLANE).analysis, explained(JSON).analysis
    assert ours.ranks == theirs.ranks and ours.steps == theirs.steps and ours.efficiency == theirs.efficiency
    for one, other in zip(ours.collectives, theirs.collectives, strict=True):
        assert (one.step, one.transfer_us, one.wait_us, one.group) == (
            other.step, other.transfer_us, other.wait_us, other.group,
        )  # fmt: skip
        assert other.bytes is None and other.bus_gb_s is None, "the JSON does not hold the module"


def test_the_folder_that_the_profiler_was_given_is_read_once_and_its_latest_session(tmp_path: Path) -> None:
    for session in ("2026_11_20_10_00_00", "2026_11_22_10_00_00"):
        place = tmp_path / "plugins" / "profile" / session
        place.mkdir(parents=True)
        shutil.copy(XPLANE, place)
        shutil.copy(JSON, place)
    sources = find_sources(tmp_path)
    assert [(one.path, one.device) for one in sources] == [(place / XPLANE.name, 0), (place / XPLANE.name, 1)]


def test_a_file_of_two_ranks_is_no_one_ranks_trace_until_it_is_said_which() -> None:
    with pytest.raises(UserError, match=r"holds 2 devices.*say which: 0, 1"):
        read_trace(XPLANE)
    trace = read_trace(XPLANE, 1)
    assert trace.header.distributed.rank == 1 and trace.header.devices[0].name == "NVIDIA H200"
    assert len(trace.activities) == 248 and trace.header.base_ns == 1795324740102243993


def test_profiles_compare_and_pack_like_other_traces(tmp_path: Path) -> None:
    sides = [tmp_path / "one", tmp_path / "other"]
    for side in sides:
        side.mkdir()
        shutil.copy(XPLANE, side)
    answer = compare_paths(sides[:1], sides[1:], jobs=1)
    assert answer.baseline_ms is not None and answer.baseline_ms == answer.other_ms
    packed = write_perfetto(sides[0])
    assert packed.events == {0: 404, 1: 404} and not any(packed.unreadable.values())
    names = [event["args"]["name"] for event in read_events(packed.path) if event and event["name"] == "process_name"]
    assert {"rank 0 · device", "rank 1 · device"} <= set(names)


def write(path: Path, *planes: xspace.Plane) -> Path:
    path.write_bytes(b"".join(plane.written() for plane in planes))
    return path


def two_runs_a_device(devices: range, step_num: bool, says_which: bool = True) -> list[xspace.Plane]:
    """Return a process's planes: three runs of a module on two devices, which gather over four and reduce over two."""
    host = xspace.Plane("/host:CPU")
    planes = [host]
    for ordinal, device in enumerate(devices):
        plane = xspace.Plane(f"/device:GPU:{ordinal}")
        for run in range(3):
            begin, number = 10_000 * run, 100 * ordinal + 10 * run + 1
            of_which = {"global_device_id": device} if says_which else {"partition": device}
            host.add(f"thread {ordinal}", f"[{ordinal}] CommonPjRtLoadedExecutable::Execute (jit_step)",
                     begin + 100, 2_000, **of_which)  # fmt: skip
            key = f"devices=4:[0,1,2,3]; run={run}"
            host.add(f"thread {ordinal}", "AcquireGpuClique", begin + 110, 10, clique_key=key, device=device)
            pair = "devices=2:[0,1]" if device < 2 else "devices=2:[2,3]"
            host.add(f"thread {ordinal}", "AcquireGpuClique", begin + 130, 10, clique_key=pair, device=device)
            for place, (name, op, at, duration) in enumerate(
                [("fusion", "fusion.1", 1_000, 3_000), ("ncclDevKernel_AllGather_RING_LL", "all-gather.1", 4_000, 500),
                 ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "all-reduce.2", 5_000, 700)]
            ):  # fmt: skip
                host.add(f"thread {ordinal}", name, begin + 200 + 50 * place, 20, correlation_id=number + place,
                         device_id=ordinal)  # fmt: skip
                plane.add("Stream #7(Compute)", name, begin + at, duration, correlation_id=number + place, hlo_op=op,
                          hlo_module="jit_step", program_id=5)  # fmt: skip
            # the same time once more, by module: no activity of its own
            plane.add("XLA Modules", "jit_step", begin + 1_000, 5_000, hlo_module="jit_step")
        planes.append(plane)
    for run in range(3):
        world = {"num_partitions": 4, "num_replicas": 1, "run_id": 7 + run}
        host.add("python", "CommonPjRtLoadedExecutable::Execute (jit_step)", 10_000 * run + 50, 2_500, **world)
        if step_num:  # it marks the dispatch, which ends before the worker's threads have launched
            host.add("python", "train", 10_000 * run + 60 - 9_500 * (run > 0), 400, step_num=run)
    planes.append(
        xspace.modules(
            {
                5: [
                    xspace.instruction("fusion.1", "fusion", xspace.shape(11, 1000), 1),
                    xspace.instruction("all-gather.1", "all-gather", xspace.shape(11, 4000), 2, 1, group=(0, 1, 2, 3)),
                    xspace.instruction(
                        "all-reduce.2", "all-reduce", xspace.shape(11, 1000), 3, 1, group=(0, 1), in_list=True
                    ),
                ]
            }
        )
    )
    return planes


@pytest.mark.parametrize("step_num", [False, True], ids=["unmarked", "marked while launches lag"])
def test_processes_join_by_global_ids_and_steps_are_the_modules_runs(tmp_path: Path, step_num: bool) -> None:
    for process, devices in enumerate((range(2), range(2, 4))):
        write(tmp_path / f"host{process}.xplane.pb", *two_runs_a_device(devices, step_num))
    analysis: RunAnalysis = explain_traces(find_sources(tmp_path), "", jobs=1).analysis
    assert analysis.world_size == 4 and not analysis.quality.missing_ranks
    assert analysis.steps_by == "module" and [one.rank for one in analysis.ranks] == [0, 1, 2, 3]
    assert [round(one.window_ms * 1e6) for one in analysis.steps if one.rank == 3] == [10_000, 10_000, 4_700]
    by_group = sorted((one.operation, one.bytes, one.group, len(one.wait_us)) for one in analysis.collectives)
    assert by_group == [
        *[("all_gather", 16_000, "devices 0,1,2,3", 4)] * 3,
        *[("all_reduce", 4_000, "devices 0,1", 2)] * 3,
        *[("all_reduce", 4_000, "devices 2,3", 2)] * 3,
    ]


def test_processes_of_one_device_each_are_told_apart_by_the_groups_that_they_join(tmp_path: Path) -> None:
    """A process of one device may run its modules without a word of which it is among all."""
    for device in (1, 0, 3, 2):
        planes = two_runs_a_device(range(device, device + 1), step_num=True, says_which=False)
        write(tmp_path / f"process{3 - device}.xplane.pb", *planes)
    analysis: RunAnalysis = explain_traces(find_sources(tmp_path), "", jobs=1).analysis
    assert analysis.world_size == 4 and [one.rank for one in analysis.ranks] == [0, 1, 2, 3]
    by_group = {(one.operation, one.group, len(one.wait_us)) for one in analysis.collectives}
    assert by_group == {
        ("all_gather", "devices 0,1,2,3", 4), ("all_reduce", "devices 0,1", 2), ("all_reduce", "devices 2,3", 2)
    }  # fmt: skip


def test_a_profile_without_a_gpu_says_so(tmp_path: Path) -> None:
    path = write(tmp_path / "cpu.xplane.pb", xspace.Plane("/host:CPU"))
    with pytest.raises(UserError, match="holds no activity of a GPU: only profiles of GPUs are read"):
        explain_traces(find_sources(path), "", jobs=1)


def test_what_is_cut_off_is_read_to_its_last_whole_plane_and_said(tmp_path: Path) -> None:
    whole = XPLANE.read_bytes()
    path = tmp_path / "vm.xplane.pb"
    path.write_bytes(whole[: len(whole) - 40_000])  # in the midst of the host's plane
    analysis = explain_traces(find_sources(path), "", jobs=1).analysis
    assert analysis.quality.verdict != "good"
    assert any("cut off" in reason for reason in analysis.quality.reasons)
    shutil.copy(JSON, tmp_path / "cut.trace.json.gz")
    cut = tmp_path / "cut.trace.json.gz"
    cut.write_bytes(cut.read_bytes()[:20_000])
    reasons = explain_traces(find_sources(cut), "", jobs=1).analysis.quality.reasons
    assert any("ends early" in reason for reason in reasons)


HOSTILE = {
    "empty": b"",
    "text": b"this is no profile at all, and never was",
    "noughts": bytes(4096),
    "a length of 2^60": xspace.number(1 << 3 | 2) + xspace.number(1 << 60) + b"x",
    "a number without end": b"\x08" + b"\xff" * 64,
    "a group, which proto3 has not": b"\x0b\x0c",
    "lines that claim more than there is": xspace.member(1, xspace.member(2, "/device:GPU:0") + b"\x1a\xff\xff\x7f"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_garbage_ends_in_one_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / "one.xplane.pb"
    path.write_bytes(HOSTILE[name])
    with pytest.raises(UserError) as caught:
        explain_traces(find_sources(path), "", jobs=1)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_flipped_bytes_cost_what_they_hit_and_raise_nothing_else(tmp_path: Path) -> None:
    chance = random.Random(7)
    whole = XPLANE.read_bytes()
    path = tmp_path / "vm.xplane.pb"
    for _ in range(5):
        damaged = bytearray(whole)
        for _ in range(20):
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        with suppress(UserError):
            explain_traces(find_sources(path), "", jobs=1)


def test_events_that_nobody_named_take_no_memory(tmp_path: Path) -> None:
    """Two bytes each in the file; times beyond any clock, too, are counted and left out."""
    lines = b"\x22\x00" * 8_000
    far = xspace.member(1, 1) + xspace.member(2, 1 << 63) + xspace.member(3, 1)
    line = xspace.member(2, "Stream #1(Compute)") + lines + xspace.member(4, far)
    named = xspace.member(4, xspace.member(1, 1) + xspace.member(2, xspace.member(2, "kernel")))
    path = tmp_path / "one.xplane.pb"
    path.write_bytes(xspace.member(1, xspace.member(2, "/device:GPU:0") + xspace.member(3, line) + named))
    tracemalloc.start()
    trace = read_trace(path, 0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(trace.activities) == 0 and trace.invalid_events == 8_001 and peak < 512 << 10
