"""torch's flight record: which collectives a rank has enqueued, begun and ended; kept where a job hangs or fails."""

import os
import pickle
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch

from scalescope.records.files import write_atomic
from scalescope.records.folder import RunFolder

_ENTRIES = "2000"  # collectives that torch remembers: many steps of them
_RECORDERS = ("_dump_nccl_trace", "_dump_fr_trace")  # NCCL's calls, in builds for CUDA; those of gloo, in every build


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
    """Keep what torch recorded of this rank's collectives; a pickle, as torch's own analyser reads it.

    A build for CUDA records NCCL's calls apart from gloo's, and a rank may hang in either.
    """
    library = torch._C._distributed_c10d
    dumps = [getattr(library, name) for name in _RECORDERS if hasattr(library, name)]
    if not dumps:
        return
    try:
        write_atomic(folder.flight_recorder / f"rank{rank}.pickle", _as_one([dump() for dump in dumps]))
    except (OSError, RuntimeError) as error:
        print(f"scalescope: rank {rank} could not keep the flight record: {error}", file=sys.stderr)


def _as_one(dumps: Sequence[bytes]) -> bytes:
    """Return what this process's recorders hold as one record; where they say the same, the first one's word."""
    if len(dumps) == 1:
        return dumps[0]
    whole: dict[str, Any] = {}
    for dump in map(pickle.loads, dumps):
        for key, value in dump.items():
            if isinstance(value, list):
                whole[key] = [*whole.get(key, []), *value]
            elif isinstance(value, dict):
                whole[key] = {**value, **whole.get(key, {})}
            else:
                whole.setdefault(key, value)
    return pickle.dumps(whole, protocol=2)
