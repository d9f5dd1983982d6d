"""A recorded trace as Python objects, to change something in it, and back: quickly, since many tests do."""

from pathlib import Path
from typing import Any

import msgspec
from isal import igzip

_ENCODER = msgspec.json.Encoder(decimal_format="number")


def unpacked(path: Path) -> Any:
    return msgspec.json.decode(igzip.decompress(path.read_bytes()))


def packed(trace: object) -> bytes:
    """Return what a trace's file holds; a number that is none (NaN) would be null."""
    return bytes(igzip.compress(_ENCODER.encode(trace), 0))
