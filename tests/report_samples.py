"""A study as 4×H200 gave it, written through the product's own types: what the report's tests show."""

import shutil
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from scalescope.records.folder import RunFolder
from scalescope.records.rows import Ceilings, Device, Environment, StepPhase, StepRow, SweepRow, TrainFacts, Versions
from scalescope.report.page import Bars
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import Efficiency, Quality, RunAnalysis
from scalescope.scaling.answer_rows import Collective, KernelRow, RankSplit, StepSplit, WaterfallPart
from scalescope.scaling.answer_steps import StepTimes, Throughput
from scalescope.scaling.finding.finding import Finding, Remedy
from scalescope.scaling.run import explain_run
from scalescope.scaling.study_answer import KindGrowth, ScalingPoint, StudyAnalysis, Waterfall, write_answer

GPT_STEP = {1: 64.03, 2: 65.91, 4: 67.83}  # ms in the profiler's window
#: ms of a GPT step by rank count: compute, transfer, wait, unsplit, memory, data, launch, queued
GPT_PARTS = {
    1: (62.40, 0.0, 0.0, 0.0, 0.21, 0.0, 0.0, 1.42),
    2: (63.50, 0.61, 0.12, 0.0, 0.22, 0.0, 0.0, 1.46),
    4: (64.68, 0.93, 0.48, 0.0, 0.22, 0.0, 0.0, 1.52),
}
BUS = {2: (171.3, 268.8, 328.7), 3: (184.1, 302.4, 347.9), 4: (204.9, 314.2, 356.5)}  # GB/s at 8 MiB, 64 MiB, 1 GiB
LATENCY = {2: 6.6, 3: 8.8, 4: 8.6}
MIB = 2**20


RUNS = ["gpt_small-n1", "gpt_small-n2", "gpt_small-n4"]
LAUNCHING = Finding(code="host_bound", ms=2.8, low_ms=1.8, high_ms=3.7, fraction=0.019, backed="bound", at_most=True,
                    remedy=Remedy(cure="compile", on_cpu=True))  # fmt: skip


def environment() -> Environment:
    versions = Versions("0.1.0", "3.12.3", "2.11.0", "13.0", None, "nccl 2.28.9", "580.65")
    return Environment("h200-7", "Linux-6.8-x86_64", "AMD EPYC 9654", 192, versions, {"NCCL_NVLS_ENABLE": "0"})


def devices(count: int) -> list[Device]:
    return [
        Device(rank, "h200-7", "cuda", "NVIDIA H200", 150_754_820_096, 132, f"0000:{rank:02x}:00.0", 1980, 612, 58)
        for rank in range(count)
    ]


def ceilings() -> Ceilings:
    return Ceilings(989, "bfloat16", "data sheet", 806, "8192³", 4.8, 450, "switch")


def run_answer(name: str, world_size: int, model: str = "gpt_small", steps: int = 3) -> RunAnalysis:
    """One GPT run: its ranks differ by some microseconds, as real ones do."""
    noise = np.random.default_rng(world_size)
    keys = ("compute", "exposed_transfer", "exposed_wait", "exposed_unsplit", "exposed_memory",
            "idle_data", "idle_launch", "idle_queued")  # fmt: skip
    step_rows, ranks = [], []
    for rank in range(world_size):
        of_rank = []
        for step in range(10, 10 + steps):
            values = [part * (1 + 0.04 * noise.standard_normal()) if key != "compute" else part
                      for key, part in zip(keys, GPT_PARTS[world_size], strict=True)]  # fmt: skip
            parts: dict[str, Any] = {f"{key}_ms": value for key, value in zip(keys, values, strict=True)}
            of_rank.append(
                StepSplit(rank=rank, step=step, window_ms=sum(values), open_ended=step == 9 + steps, **parts)
            )
        total = {f"{key}_ms": sum(row.part_ms(key) for row in of_rank) for key in keys}
        communication = 0.0 if world_size == 1 else 9.4 * steps
        ranks.append(
            RankSplit(
                rank=rank, steps=steps, window_ms=sum(total.values()), communication_ms=communication,
                overlap_fraction=0.85 if communication else None, before_window_ms=24.0, **total,
            )
        )  # fmt: skip
        step_rows += of_rank
    return RunAnalysis(
        name=name, model=model, strategy="ddp", world_size=world_size, activity="gpu", device="NVIDIA H200",
        quality=Quality(verdict="good", unlinked_fraction=0.0), ranks=ranks, steps=step_rows,
        collectives=collectives(world_size, steps), kernels=kernels(world_size),
        efficiency=Efficiency(parallel=0.953, load_balance=0.999, serialisation=0.993, transfer=0.986, memory=0.997,
                              orchestration=0.978),
        step_times=StepTimes(measured_step_ms=GPT_STEP[world_size] - 0.4, measured_step_p95_ms=GPT_STEP[world_size],
                             measured_steps=30, window_step_ms=GPT_STEP[world_size], profiling_overhead_ms=0.4,
                             profiling_overhead_fraction=0.4 / GPT_STEP[world_size]),
        throughput=Throughput(samples_per_s=471.8 * world_size, tokens_per_s=483_079.0 * world_size, mfu=0.431,
                              first_loss=10.9, last_loss=6.2),
    )  # fmt: skip


def kernels(world_size: int) -> list[KernelRow]:
    compute = GPT_PARTS[world_size][0]
    shares = {"nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT": (49, 0.12), "cunn_SoftMaxBackward": (1, 0.07),
              "unrolled_elementwise_kernel<direct_copy_kernel_cuda>": (124, 0.06),
              "CatArrayBatchedCopy": (12, 0.03)}  # fmt: skip
    rows = [KernelRow(name=name, communication=False, calls=calls, ms=share * compute, share_of_compute=share)
            for name, (calls, share) in shares.items()]  # fmt: skip
    if world_size > 1:
        rows.insert(1, KernelRow(name="all_reduce float32", communication=True, calls=6, ms=6.2, share_of_compute=None))
    return rows


def collectives(world_size: int, steps: int) -> list[Collective]:
    if world_size == 1:
        return []
    found: list[Collective] = []
    for step in range(10, 10 + steps):
        for bucket, size in enumerate((96 * MIB, 28 * MIB, 27 * MIB, 26 * MIB, 4 * MIB, 16)):
            transfer = 26 + size / (BUS[world_size][1] * 1e3) * 2 * (world_size - 1) / world_size
            found.append(
                Collective(
                    index=len(found), operation="all_reduce", bytes=size, dtype="float32", group="0",
                    group_size=world_size, step=step, transfer_us=transfer,
                    wait_us={rank: 30.0 + 12 * rank + bucket for rank in range(world_size)}, last_rank=0,
                    bus_gb_s=size / transfer / 1e3 * 2 * (world_size - 1) / world_size,
                    in_situ_efficiency=0.91 if size >= MIB else None,
                )
            )  # fmt: skip
    return found


def sweep_rows() -> list[SweepRow]:
    rows = []
    for n, (at_8m, at_64m, at_1g) in BUS.items():
        reached = np.interp(np.arange(3, 31), (3, 10, 15, 20, 23, 26, 30),
                            (0.001, 0.1, 3.0, 80.0, at_8m, at_64m, at_1g))  # fmt: skip
        for exponent, bus in zip(range(3, 31), reached.tolist(), strict=True):
            size = 2**exponent
            time_us = max(LATENCY[n], size / bus / 1e3 * 2 * (n - 1) / n)
            alg = size / time_us / 1e3
            rows.append(
                SweepRow("all_reduce", size, "float32", n, "measured", reduction="sum", ranks=list(range(n)),
                         time_us=time_us, time_min_us=time_us * 0.97, time_max_us=time_us * 1.05, alg_gb_s=alg,
                         bus_gb_s=alg * 2 * (n - 1) / n, ceiling_gb_s=450.0, ceiling_assumes="switch, ring",
                         iterations=50, wrong=0, backend="nccl")
            )  # fmt: skip
    rows.append(SweepRow("all_reduce", 2**34, "float32", 4, "out_of_memory", "17.2 GB do not fit twice", "sum"))
    return rows


def study_answer(name: str, runs: list[str]) -> StudyAnalysis:
    rates = {1: 512_280.0, 2: 1_002_100.0, 4: 1_932_316.0}
    points = [
        ScalingPoint(
            series="gpt_small", model="gpt_small", world_size=n, scaling="weak", run=run, step_ms=GPT_STEP[n] - 0.4,
            samples_per_s=rates[n] / 1024, tokens_per_s=rates[n], speedup=rates[n] / rates[1],
            efficiency=rates[n] / rates[1] / n, compute_factor=GPT_PARTS[1][0] / GPT_PARTS[n][0],
            parallel_factor=(GPT_PARTS[n][0] / sum(GPT_PARTS[n])) / (GPT_PARTS[1][0] / sum(GPT_PARTS[1])), mfu=0.431,
        )
        for n, run in zip((1, 2, 4), runs, strict=True)
    ]  # fmt: skip
    keys = ("compute", "exposed_transfer", "exposed_wait", "exposed_unsplit", "exposed_memory", "idle_data",
            "idle_launch", "idle_queued")  # fmt: skip
    falls = []
    for n in (2, 4):
        parts = [WaterfallPart(part=key, ms=there - here)
                 for key, there, here in zip(keys, GPT_PARTS[n], GPT_PARTS[1], strict=True)]  # fmt: skip
        start, end = sum(GPT_PARTS[1]), sum(GPT_PARTS[n])
        falls.append(
            Waterfall(series="gpt_small", from_world_size=1, to_world_size=n, from_step_ms=start, to_step_ms=end,
                      growth_ms=end - start, parts=parts, compute_inflation_ms=parts[0].ms - 0.31,
                      compute_more_work_ms=0.31)
        )  # fmt: skip
    return StudyAnalysis(name=name, runs=runs, efficiency=points, waterfall=falls)


def grown_study(inflation_ms: float) -> StudyAnalysis:
    """Return a study of one and two ranks whose step of 80 ms grew by 76 ms, mostly by slower compute."""
    parts = [WaterfallPart(part="compute", ms=inflation_ms), WaterfallPart(part="exposed_wait", ms=76.0 - inflation_ms)]
    kinds = [KindGrowth(kind="matmul", from_ms=60.0, to_ms=60.0 + inflation_ms, inflation_ms=inflation_ms,
                        more_work_ms=0.0, inflation_beside_ms=29.0, beside_ms={})]  # fmt: skip
    fall = Waterfall(series="gpt_small", from_world_size=1, to_world_size=4, from_step_ms=80.0, to_step_ms=156.0,
                     growth_ms=76.0, parts=parts, measured_growth_ms=75.0, noise_ms=20.0, kinds=kinds,
                     compute_inflation_ms=inflation_ms, compute_more_work_ms=0.0)  # fmt: skip
    return msgspec.structs.replace(study_answer("h200", RUNS), waterfall=[fall])


def spread_study(idle_ms: float, growth_ms: float = 35.0) -> StudyAnalysis:
    """Return a study whose step of 133 ms grew, no half of it by one part, and by `idle_ms` because hosts are late."""
    rest = growth_ms - idle_ms
    spread = grown_study(0.46 * rest)
    (fall,) = spread.waterfall
    fall.from_step_ms, fall.to_step_ms, fall.growth_ms, fall.noise_ms = 133.0, 133.0 + growth_ms, growth_ms, 5.0
    fall.measured_growth_ms = growth_ms
    fall.parts[1:] = [
        WaterfallPart(part="exposed_wait", ms=0.33 * rest),
        WaterfallPart(part="exposed_transfer", ms=0.21 * rest),
        WaterfallPart(part="idle_launch", ms=idle_ms),
    ]
    return spread


def step_rows(world_size: int, count: int = 40) -> list[StepRow]:
    noise = np.random.default_rng(7)
    rows = []
    for step in range(count):
        phase: StepPhase = "warmup" if step < 5 else "profile" if 10 <= step < 15 else "steady"
        times = [GPT_STEP[world_size] - 0.5 + abs(0.2 * noise.standard_normal()) + (40 if step == 0 else 0)
                 for _ in range(world_size)]  # fmt: skip
        rate = 32 * world_size / max(times) * 1e3
        rows.append(
            StepRow(step, phase, times, rate, rate * 1024, 10.9 - 4.7 * step / count,
                    9.0 if step == count - 1 else None,
                    0.431, 0.53, 41_000_000_000, unix_s=1.7e9 + step * 0.07)
        )  # fmt: skip
    return rows


def write_run(path: Path, world_size: int, study: str | None = None, config: str = "model: gpt_small\n") -> RunFolder:
    folder = RunFolder.create(path, "train", config, study)
    info = folder.read_info()
    info.status, info.ended_unix_s, info.backend = "done", time.time(), "nccl"
    info.world_size, info.hosts, info.launcher = world_size, ["h200-7"], "torchrun"
    info.environment, info.devices, info.ceilings = environment(), devices(world_size), ceilings()
    folder.write_info(info)
    folder.write_facts(TrainFacts("gpt_small", "ddp", "bf16", 124_439_808, 8.7e11, "6(N − N_position) + 12·L·H·Q·T",
                                  32, 1024))  # fmt: skip
    with folder.step_writer() as rows:
        for row in step_rows(world_size):
            rows.append(row)
    write_answer(folder.analysis, run_answer(path.name, world_size))
    return folder


def write_sweep(path: Path, study: str | None = None) -> RunFolder:
    folder = RunFolder.create(path, "sweep", "operations: [all_reduce]\n", study)
    info = folder.read_info()
    info.status, info.backend, info.world_size = "done", "nccl", 4
    info.environment, info.devices, info.ceilings = environment(), devices(4), ceilings()
    folder.write_info(info)
    with folder.sweep_writer() as rows:
        for row in sweep_rows():
            rows.append(row)
    return folder


def write_study(path: Path) -> RunFolder:
    folder = RunFolder.create(path, "study", "gpu_counts: [1, 2, 4]\n")
    names = []
    for n in (1, 2, 4):
        names.append(f"gpt_small-n{n}")
        write_run(path / names[-1], n, path.name)
    write_sweep(path / "sweep", path.name)
    write_answer(folder.analysis, study_answer(path.name, names))
    folder.set_status("done")
    return folder


def write_real_study(path: Path) -> RunFolder:
    """A study of real H200 traces (GPT at 1 and 2 GPUs, one rank of ResNet's four), analysed by the product itself."""
    folder = RunFolder.create(path, "study", "gpu_counts: [1, 2, 4]\n")
    for name, world_size in (("gpt_ddp_n1", 1), ("gpt_ddp_n2", 2), ("resnet50_ddp_n4", 4)):
        run = write_run(path / name, world_size, path.name)
        run.analysis.unlink()
        if name.startswith("resnet50"):
            run.write_facts(TrainFacts("resnet50", "ddp", "bf16", 25_557_032, 2.45e10, "3 × 8.18 GFLOP", 256))
        run.traces.mkdir()
        for trace in sorted((Path(__file__).parent / "data" / name).glob("rank*.json.gz")):
            rank = int(trace.name[4])
            shutil.copy(trace, run.trace_of(rank, 10))
    write_sweep(path / "sweep", path.name)
    folder.set_status("done")
    analyze([path])
    return folder


def run_with_traces(path: Path, job: Path) -> tuple[RunFolder, set[int]]:
    """Write a run of two ranks with a job's traces, without steps yet and without an answer; return it, and which steps
    the traces hold.
    """
    folder = write_run(path, 2)
    folder.analysis.unlink()
    folder.steps.unlink()
    folder.traces.mkdir()
    for trace in job.glob("rank*.json.gz"):
        shutil.copy(trace, folder.trace_of(int(trace.name[4]), 30))
    return folder, {one.step for one in explain_run(job, jobs=1).analysis.steps}


def run_with_steps(path: Path, job: Path, steady_ms: float, profiled_ms: float, after: float = 1.0) -> Path:
    """Write a run of two ranks with a job's traces, whose untraced steps and profiled ones are so long; return it.

    `after`: those after the window take so many times as long as those before it.
    """
    folder, recorded = run_with_traces(path, job)
    with folder.step_writer() as rows:
        for step in range(max(recorded) - 40, max(recorded) + 20):
            steady = (after if step > max(recorded) else 1.0) * steady_ms + 0.001 * (step % 3)
            ms = profiled_ms if step in recorded else steady
            phase: StepPhase = "profile" if step in recorded else "steady"
            rows.append(StepRow(step=step, phase=phase, step_ms=[ms, ms], samples_per_s=1.0))
    return path


def words(bars: Bars | None) -> str:
    """Return what is told of bars, what is folded of that as well."""
    assert bars is not None
    return " ".join([bars.title, *bars.notes])
