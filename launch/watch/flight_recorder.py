"""torch's flight record: which collectives a rank has enqueued, begun and ended; kept where a job hangs or fails."""

import os
import sys
from contextlib import suppress

import torch

from scalescope.records.files import write_atomic
from scalescope.records.folder import RunFolder

_ENTRIES = "2000"  # collectives that torch remembers: many steps of them


def record_into(folder: RunFolder, backend: str) -> None:
    """Have torch record, and have its NCCL watchdog dump into the run folder too; before any process group is formed.

    What the user has set stays.
    """
    renamed = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2]) >= (2, 10)
    size, file = (
        ("TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE")
        if renamed
        else ("TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
    )
    os.environ.setdefault(size, _ENTRIES)
    os.environ.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")
    os.environ.setdefault(file, str(folder.flight_recorder / "nccl.rank"))  # torch adds the rank's number
    if backend == "nccl":
        with suppress(OSError):  # a node without the run folder's file system
            folder.flight_recorder.mkdir(parents=True, exist_ok=True)  # torch makes none


def tidy(folder: RunFolder) -> None:
    """Leave no empty folder behind in a job that ended well."""
    with suppress(OSError):
        folder.flight_recorder.rmdir()


def keep(folder: RunFolder, rank: int) -> None:
    """Keep what torch recorded of this rank's collectives; a pickle, as torch's own analyser reads it."""
    library = torch._C._distributed_c10d
    dump = getattr(library, "_dump_nccl_trace", None) or getattr(library, "_dump_fr_trace", None)
    if dump is None:
        return
    try:
        write_atomic(folder.flight_recorder / f"rank{rank}.pickle", dump())
    except (OSError, RuntimeError) as error:
        print(f"scalescope: rank {rank} could not keep the flight record: {error}", file=sys.stderr)
