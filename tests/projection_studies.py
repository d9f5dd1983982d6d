"""Studies of real traces whose sweep follows a law: what projection and in-situ efficiency are tested on."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from scalescope.records.folder import RunFolder
from scalescope.records.rows import Device, StepRow, SweepRow, TrainFacts
from scalescope.scaling.trace.sources import find_sources

DATA = Path(__file__).parent / "data"
MIB = 1 << 20
H200 = "NVIDIA H200"


def alone_us(size: int, n: int) -> float:
    """What an all-reduce takes alone on the sample machine: 10 µs, and 300 GB/s over the links."""
    return 10 + 2 * (n - 1) / n * size / 300e3


def sweep_rows(groups: Sequence[int] = (2, 3, 4), **fields: object) -> list[SweepRow]:
    return [
        SweepRow("all_reduce", 2**power, "float32", n, "measured", time_us=alone_us(2**power, n), **fields)  # type: ignore[arg-type]
        for n in groups
        for power in range(10, 31)
    ]


def add_run(study: Path, traces: str, ranks: int, step_ms: float, batch: int = 32, device: str = H200) -> None:
    folder = RunFolder.create(study / f"gpt-{ranks}", "train", "model: x", study=study.name)
    info = folder.read_info()
    info.world_size, info.status = ranks, "done"
    info.devices = [Device(rank, "host", "cuda", device) for rank in range(ranks)]
    folder.write_info(info)
    folder.write_facts(
        TrainFacts(model="gpt", strategy="ddp", precision="bf16", parameters=1, flops_per_sample=1.0, flops_formula="",
                   samples_per_rank_step=batch)
    )  # fmt: skip
    folder.traces.mkdir()
    for source in find_sources(DATA / traces):
        assert source.rank is not None
        shutil.copy(source.path, folder.trace_of(source.rank, 3))
    noise = np.random.default_rng(ranks)
    with folder.step_writer() as writer:
        for step in range(50):
            phase: Literal["warmup", "steady"] = "warmup" if step < 5 else "steady"
            times = [step_ms * (1 + 0.002 * float(noise.standard_normal()))] * ranks
            writer.append(StepRow(step=step, phase=phase, step_ms=times, samples_per_s=batch * ranks / times[0] * 1e3))


def add_sweep(study: Path, rows: Sequence[SweepRow], device: str = H200, hosts: int = 1) -> None:
    folder = RunFolder.create(study / "sweep", "sweep", "x: 1", study=study.name)
    info = folder.read_info()
    info.devices = [Device(rank, f"host{rank % hosts}", "cuda", device) for rank in range(4)]
    info.status = "done"
    folder.write_info(info)
    with folder.sweep_writer() as writer:
        for row in rows:
            writer.append(row)


def make_pair(path: Path) -> RunFolder:
    """Make a study of real traces on 1 and 2 GPUs, and a sweep."""
    folder = RunFolder.create(path, "study", "x: 1")
    add_run(folder.path, "gpt_ddp_n1", 1, 62.3)
    add_run(folder.path, "gpt_ddp_n2", 2, 64.5)
    add_sweep(folder.path, sweep_rows())
    return folder
