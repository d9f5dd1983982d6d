"""A scorecard from its first row to its last: each row is written as it is measured."""

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
import torch

from scalescope.hardware.detect import describe, device_count, versions
from scalescope.launch.compose import compose_job
from scalescope.launch.devices import resolve
from scalescope.launch.verb import Verb
from scalescope.records.environment import capture
from scalescope.records.errors import RunError, Stopped, UserError
from scalescope.records.folder import RunFolder
from scalescope.records.scorecard.row import ScorecardRow
from scalescope.scorecard.config import ScorecardConfig
from scalescope.scorecard.jobs import Start, job_runner
from scalescope.scorecard.machine import MachineUnderTest, first_line
from scalescope.scorecard.table import ROWS


def measure_scorecard(
    config: ScorecardConfig, path: Path, text: str, verbs: Mapping[str, Verb], start: Start,
    say: Callable[[str], None],
) -> RunFolder:  # fmt: skip
    """Measure the rows that a config asks for into a new run folder, and return it.

    A row that fails costs its own place, not the others'. Raises UserError where the folder cannot be made, RunError
    where no row has a figure.
    """
    choice = resolve(config.launch)
    folder = RunFolder.create(path, "scorecard", text)
    device = torch.device("cuda", 0) if choice.device == "cuda" else torch.device("cpu")
    if device.type == "cpu":
        torch.set_num_threads(choice.threads_per_rank * choice.ranks)
    machine = MachineUnderTest(
        device=device,
        full=config.sizes == "full" or (config.sizes == "auto" and device.type == "cuda"),
        budget_s=config.budget_s,
        devices=choice.ranks,
        run_job=job_runner(path, config.launch, verbs, start),
        compose=compose_job,
        name=describe(0, device).name,
    )
    _complete_info(folder, choice.backend, choice.ranks, device)
    found = 0
    try:
        with folder.scorecard_writer() as writer:
            for name in config.chosen:
                say(f"{name}: {ROWS[name].says}")
                for row in _rows_of(name, machine):
                    writer.append(row)
                    found += row.status == "measured"
    except BaseException as error:
        if isinstance(error, Exception) and not isinstance(error, Stopped):
            folder.set_status("failed", f"{type(error).__name__}: {first_line(error)}; what was measured is kept")
        else:
            folder.set_status("interrupted", "stopped before its last row; what was measured is kept")
        raise
    folder.set_status("done" if found else "failed", None if found else "no row could be measured")
    if not found:
        raise RunError(f"no row could be measured; the reasons are in {folder.path}")
    return folder


def _rows_of(name: str, machine: MachineUnderTest) -> Iterator[ScorecardRow]:
    """Yield a row's figures; where it fails, what it had until then and the reason."""
    kind, started = ROWS[name], time.monotonic()
    try:
        for row in kind.measure(machine):
            took = round(time.monotonic() - started, 2)
            yield msgspec.structs.replace(row, seconds=took, superbench=kind.superbench)
            started = time.monotonic()
    except Stopped:
        raise
    except (RuntimeError, MemoryError, RunError, UserError) as error:
        yield ScorecardRow(name, name, kind.says, "", "failed", first_line(error), device=machine.name)
    finally:
        if machine.on_gpu:
            torch.cuda.empty_cache()  # for the jobs, which are processes of their own


def _complete_info(folder: RunFolder, backend: str, ranks: int, device: torch.device) -> None:
    info = folder.read_info()
    count = ranks if device.type == "cuda" else 1
    info.devices = [describe(at, torch.device("cuda", at) if device_count() else device) for at in range(count)]
    info.environment = capture(versions(backend))
    info.backend, info.world_size, info.hosts = backend, ranks, [info.environment.host]
    folder.write_info(info)
