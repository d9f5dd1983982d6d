"""Starting the launches: in turn or side by side on GPUs of their own, within the minutes, and again if one dies."""

import gzip
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from ending import end_with_all_below

from causes.cases import Case, Launch, all_cases, launches
from causes.truth import FILE as TRUTH

RANK = Path(__file__).resolve().parent / "rank.py"
ATTEMPTS = 4  # of a launch, each without the case at which the one before died
AT_WORK, FAILED = "at_work", "failed.json"
STARTS_S, ENDS_S = 25.0, 20.0  # until a launch measures, and to let go of it


def make(out: Path, only: Sequence[str] | None, seconds: float, compress: bool) -> int:
    """Run what is chosen and not there yet. Returns the exit code: 1 where a case failed or a launch died."""
    out = out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if unknown := unknown_names(only):
        print(f"--only: there is no {', '.join(unknown)}; there are {', '.join(all_cases())}", file=sys.stderr)
        return 2
    until = time.monotonic() + seconds
    waves = [chosen for wave in launches(count_gpus()) if (chosen := [one for one in wave if cases_of(one, only)])]
    for number, wave in enumerate(waves):
        # each wave gets its share of what is left, so that the last ones are not forgotten
        weight = [max(one.seconds for one in later) for later in waves[number:]]
        left = (until - time.monotonic()) * weight[0] / sum(weight)
        run_side_by_side(out, [launch for launch in wave if missing(out, launch, only)], only, left)
        if compress:
            compress_traces(out)
    return 1 if any(failures(out, launch) for wave in waves for launch in wave) else 0


def run_side_by_side(out: Path, wave: Sequence[Launch], only: Sequence[str] | None, seconds: float) -> None:
    """Run a wave's launches at once, each on GPUs of its own; one that dies at a case is started again."""
    until = time.monotonic() + seconds
    first_gpu = {launch.name: sum(one.ranks for one in wave[:number]) for number, launch in enumerate(wave)}
    attempts = {launch.name: 1 for launch in wave}
    running = {launch.name: start(out, launch, only, first_gpu[launch.name], seconds) for launch in wave}
    try:
        while running and time.monotonic() < until + ENDS_S:
            time.sleep(0.2)
            for launch in wave:
                process = running.get(launch.name)
                if process is None or process.poll() is None:
                    continue
                del running[launch.name]
                left = until - time.monotonic()
                again = process.returncode != 0 and note_death(out / launch.name) and left > 2 * STARTS_S
                if again and attempts[launch.name] < ATTEMPTS:
                    attempts[launch.name] += 1
                    running[launch.name] = start(out, launch, only, first_gpu[launch.name], left)
    finally:
        for process in running.values():
            end_with_all_below(process)


def start(
    out: Path, launch: Launch, only: Sequence[str] | None, first_gpu: int, seconds: float
) -> "subprocess.Popen[bytes]":
    """Start a launch; its words go to OUT/LAUNCH.log."""
    environment = dict(os.environ)
    environment.setdefault("OMP_NUM_THREADS", "1")
    # with it NCCL may reduce in the switch, and a waiting collective then occupies few multiprocessors
    environment.setdefault("NCCL_NVLS_ENABLE", "0")
    environment.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "0")
    cores: list[str] = []
    if launch.name != "cpu":
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        names = visible.split(",") if visible else [str(number) for number in range(count_gpus())]
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(names[first_gpu : first_gpu + launch.ranks])
        share = (os.cpu_count() or 1) // len(names)
        cores = ["--cores", f"{first_gpu * share}:{share}"]
    chosen = ",".join(case.name for case in missing(out, launch, only))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(launch.ranks)]
    command = [*torchrun, str(RANK), str(out), launch.name, "--cases", chosen, *cores]
    with (out / f"{launch.name}.log").open("ab") as log:
        return subprocess.Popen(
            [*command, "--until", f"{time.time() + seconds:.1f}"], env=environment, stdout=log, stderr=log
        )


def cases_of(launch: Launch, only: Sequence[str] | None) -> list[Case]:
    """Return a launch's cases that are chosen."""
    return [
        case for case in launch.cases if only is None or launch.name in only or f"{launch.name}/{case.name}" in only
    ]


def missing(out: Path, launch: Launch, only: Sequence[str] | None) -> list[Case]:
    """Return a launch's chosen cases that are not all there yet, and have not failed."""
    failed = json.loads((out / launch.name / FAILED).read_text()) if (out / launch.name / FAILED).is_file() else {}
    return [
        case
        for case in cases_of(launch, only)
        if case.name not in failed and not all((out / launch.name / one / TRUTH).is_file() for one in case.folders())
    ]


def unknown_names(only: Sequence[str] | None) -> list[str]:
    """Return the chosen names that are neither a launch nor a case."""
    known = set(all_cases()) | {name.split("/")[0] for name in all_cases()}
    return [name for name in only or () if name not in known]


def note_death(folder: Path) -> bool:
    """Note the case at which a launch died, so that the next attempt leaves it out. Returns whether it was at one."""
    at_work = folder / AT_WORK
    if not at_work.is_file():
        return False
    kept = json.loads((folder / FAILED).read_text()) if (folder / FAILED).is_file() else {}
    kept[at_work.read_text()] = "the ranks died or hung at it; see the log"
    (folder / FAILED).write_text(json.dumps(kept, indent=1) + "\n")
    at_work.unlink()
    return True


def failures(out: Path, launch: Launch) -> dict[str, str]:
    """Return the cases of a launch that failed, and why; all of it where nothing came of the launch."""
    folder = out / launch.name
    if (folder / FAILED).is_file():
        kept: dict[str, str] = json.loads((folder / FAILED).read_text())
        return kept
    return {} if (folder / "launch.json").is_file() else {launch.name: "nothing came of it; see its log"}


def compress_traces(out: Path) -> None:
    """Compress what was written plainly; not by the ranks, whose time is dear."""
    with ProcessPoolExecutor() as pool:
        list(pool.map(compress, out.glob("*/*/*.pt.trace.json")))


def compress(trace: Path) -> None:
    """Replace a file by its compressed form."""
    temporary = trace.with_name(f".{trace.name}.gz")
    with trace.open("rb") as plain, gzip.open(temporary, "wb", compresslevel=6) as packed:
        shutil.copyfileobj(plain, packed, 1 << 20)
    temporary.replace(trace.with_name(f"{trace.name}.gz"))
    trace.unlink()


def count_gpus() -> int:
    """Return how many GPUs there are."""
    import torch

    return torch.cuda.device_count()
