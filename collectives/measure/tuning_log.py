"""What NCCL says it used: its own tuning log, read where an algorithm or protocol was asked for.

The library reads where to log once a process, so `begin` must come before its first communicator.
"""

import os
import re
from pathlib import Path

_CHOICE = re.compile(r"-> Algo (\S+) proto (\S+)")
_NAME = "nccl-tuning.{rank}.log"


def begin(logs: Path, rank: int) -> None:
    """Let the library log its choices into the run folder, unless the user has its log for something else."""
    if "NCCL_DEBUG" in os.environ:
        return
    logs.mkdir(parents=True, exist_ok=True)
    os.environ["NCCL_DEBUG"] = "INFO"
    os.environ["NCCL_DEBUG_SUBSYS"] = "TUNING"
    os.environ["NCCL_DEBUG_FILE"] = str(logs / _NAME.format(rank=rank))


class TuningLog:
    """This rank's log, read from where it was last left."""

    def __init__(self, logs: Path, rank: int) -> None:
        self._path = logs / _NAME.format(rank=rank)
        self._read = self._path.stat().st_size if self._path.exists() else 0

    def last_choice(self) -> str | None:
        """Return "algorithm/protocol" of the last operation since the last call; None where the log is silent."""
        if not self._path.exists():
            return None
        with self._path.open(encoding="utf-8", errors="replace") as file:
            file.seek(self._read)
            text = file.read()
            self._read = file.tell()
        choices = _CHOICE.findall(text)
        return "/".join(choices[-1]) if choices else None
