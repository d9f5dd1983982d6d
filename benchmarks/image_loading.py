"""Does decoding keep up with a GPU? ResNet-50 fed from JPEGs beside the same job on data made on the device.

    python benchmarks/image_loading.py [KEY=VALUE …] [--decoders pillow,nvjpeg] [--folder DIR] [--out DIR]

KEY=VALUE are `scalescope train`'s and go to every job; without any it is model=resnet50 on one device. The folder, made
where none is given, holds images of 500 × 375 pixels with the spectrum of natural ones (amplitude over spatial
frequency falls as 1/f), at ImageNet's usual quality. They lie in the page cache, so it is decoding that is measured,
not a disk; and the first 300 steps do not count, in which the loader still lives on what it made ahead. Printed is a
markdown table: step and throughput of the steady steps, the share of the synthetic rate, the device's time idle for
data a step in the Kineto window, and how many cores the job's processes kept busy.
"""

import argparse
import io
import os
import resource
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

import numpy as np
from jobs import JobFailed, figure, markdown, runs_folder, train
from PIL import Image

from scalescope.records.environment import usable_cores
from scalescope.scaling.answer import read_run_answer

DECODERS = ("pillow", "torchvision", "nvjpeg")
DEFAULTS = ("model=resnet50", "launch.ranks=1", "steps=500", "warmup_steps=300", "data.validation_samples=0")
HEADER = ("images", "step ms", "p95", "images/s", "of synthetic", "idle for data ms", "cores busy")
HEIGHT, WIDTH, CLASSES, QUALITY = 375, 500, 10, 90


@dataclass(frozen=True)
class Result:
    """One job's steady steps, and the device's idle time for data."""

    steps_ms: list[float]
    images_per_s: float
    idle_data_ms: float | None
    cores: float  # processor time of all its processes over its duration, start and analysis included


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="of `scalescope train`")
    parser.add_argument("--decoders", default=",".join(DECODERS), help="separated by commas")
    parser.add_argument("--images", type=int, default=2000, help="how many are made")
    parser.add_argument("--folder", type=Path, help="a folder of CLASS/*.jpg to take instead of making one")
    parser.add_argument("--out", type=Path, help="where the runs go (default: a temporary folder, deleted at the end)")
    options = parser.parse_intermixed_args(arguments)
    overrides = (*DEFAULTS, *options.overrides)
    with runs_folder(options.out) as out:
        folder = options.folder or make_folder(out / "jpegs", options.images)
        files = list(folder.glob("*/*.jp*g"))
        mean = fmean(len(path.read_bytes()) for path in files)  # and they are in the page cache
        print(f"{len(files)} images, {mean / 1e3:.0f} kB each", file=sys.stderr)
        jobs = {"made on the device": _run(out, "synthetic", (*overrides, "data=synthetic"))}
        for decoder in options.decoders.split(","):
            own = ("data=image_folder", f"data.path={folder}", f"data.decoder={decoder}")
            jobs[f"JPEG, {decoder}"] = _run(out, decoder, (*overrides, *own))
    synthetic = jobs["made on the device"]
    print(markdown(HEADER, [_row(name, job, synthetic) for name, job in jobs.items()]))
    return 0 if isinstance(synthetic, Result) else 3


def make_folder(root: Path, images: int) -> Path:
    """Write a folder of so many JPEGs, on all cores."""
    for label in range(CLASSES):
        (root / f"class{label}").mkdir(parents=True, exist_ok=True)
    paths = [root / f"class{number % CLASSES}" / f"{number:05}.jpg" for number in range(images)]
    with ProcessPoolExecutor(usable_cores()) as pool:
        list(pool.map(_write, paths, range(images), chunksize=16))
    return root


def _write(path: Path, seed: int) -> None:
    packed = io.BytesIO()
    Image.fromarray(natural_image(np.random.default_rng(seed))).save(packed, "JPEG", quality=QUALITY)
    path.write_bytes(packed.getvalue())


def natural_image(generator: np.random.Generator) -> np.ndarray:
    """Return (H, W, 3) uint8: noise whose amplitude falls as 1/f, its colours as alike as a photograph's."""
    frequency = np.hypot(np.fft.fftfreq(HEIGHT)[:, None], np.fft.rfftfreq(WIDTH)[None])
    frequency[0, 0] = 1.0
    shape = (3, *frequency.shape)
    spectrum = (generator.normal(size=shape) + 1j * generator.normal(size=shape)) / frequency
    field = np.fft.irfft2(spectrum, s=(HEIGHT, WIDTH))
    field = (field - field.mean((1, 2), keepdims=True)) / field.std((1, 2), keepdims=True)
    mixed = 0.8 * field[:1] + 0.4 * field
    pixels: np.ndarray = np.clip(128 + 50 * mixed, 0, 255).astype(np.uint8).transpose(1, 2, 0)
    return pixels


def _run(out: Path, name: str, overrides: Sequence[str]) -> Result | str:
    """Run one job; return what it reached, or why it did not run."""
    print(f"{name} …", file=sys.stderr, flush=True)
    before, started = _processor_s(), time.perf_counter()
    try:
        folder = train(out, name, overrides)
    except JobFailed as error:
        return str(error)
    cores = (_processor_s() - before) / (time.perf_counter() - started)
    steady = [row for row in folder.read_steps() if row.phase == "steady"]
    ranks = read_run_answer(folder.analysis).ranks if folder.analysis.is_file() else []
    idle = fmean(rank.idle_data_ms / rank.steps for rank in ranks) if ranks else None
    # over the whole stretch: a loader that stalls now and then must not hide behind a median
    rate = fmean(row.samples_per_s * max(row.step_ms) for row in steady) / fmean(max(row.step_ms) for row in steady)
    return Result([max(row.step_ms) for row in steady], rate, idle, cores)


def _processor_s() -> float:
    """Return the processor time of all processes that have ended below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _row(name: str, job: Result | str, synthetic: Result | str) -> list[str]:
    if isinstance(job, str):
        return [name, job, *["–"] * (len(HEADER) - 2)]
    share = job.images_per_s / synthetic.images_per_s if isinstance(synthetic, Result) else None
    return [
        name,
        figure(median(job.steps_ms), 2),
        figure(sorted(job.steps_ms)[round(0.95 * (len(job.steps_ms) - 1))], 2),
        figure(job.images_per_s, 0),
        "–" if share is None else f"{share:.1%}",
        figure(job.idle_data_ms, 2),
        f"{job.cores:.1f} of {os.cpu_count()}",
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
