"""What NCCL or RCCL says it used: its own tuning log, read where an algorithm, a protocol or channels were asked for.

The library reads where to log once a process, so `begin` must come before its first communicator.
"""

import os
import re
from pathlib import Path
from typing import NamedTuple

_CHOICE = re.compile(r"-> Algo (\S+) proto (\S+)(?: channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\})?")
_NAME = "nccl-tuning.{rank}.log"
# NCCL_ALGO_* and NCCL_PROTO_*: before NCCL 2.23, and RCCL of that time, the log has their numbers
_ALGORITHMS = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
_PROTOCOLS = ("LL", "LL128", "SIMPLE")


class Choice(NamedTuple):
    """What the library used for one operation."""

    algorithm: str
    protocol: str
    channels: int | None  # None: this release does not say

    @property
    def words(self) -> str:
        """As rows have it: "algorithm/protocol"."""
        return f"{self.algorithm}/{self.protocol}"


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

    def last_choice(self) -> Choice | None:
        """Return what the last operation since the last call used; None where the log is silent."""
        if not self._path.exists():
            return None
        with self._path.open(encoding="utf-8", errors="replace") as file:
            file.seek(self._read)
            text = file.read()
            self._read = file.tell()
        choices = _CHOICE.findall(text)
        if not choices:
            return None
        algorithm, protocol, low, high = choices[-1]
        used = int(high) - int(low) + 1 if low else None
        return Choice(_named(algorithm, _ALGORITHMS), _named(protocol, _PROTOCOLS), used)


def doubt_of_channels(asked: int, chose: Choice | None, is_rccl: bool) -> str | None:
    """Return why a figure is not of the channels that were asked for; None where it is, or where NCCL does not say.

    RCCL takes the number and ignores it before June 2026 (ROCm/rocm-systems#7604), so that its word is needed.
    """
    used = chose.channels if chose is not None else None
    if used is not None and used > asked:
        return f"the library was told {asked} channels and used {used}"
    if used is None and is_rccl:
        return (f"this RCCL does not say whether it used the {asked} channels that it was told: older ones ignore the "
                "number; leave channels out, or unset NCCL_DEBUG if it is set")  # fmt: skip
    return None


def _named(text: str, names: tuple[str, ...]) -> str:
    return names[int(text)] if text.isdigit() and int(text) < len(names) else text
