"""The C files of this package as loaded libraries: setuptools compiles them when it is installed, where it can.

Nothing is compiled while scalescope runs, and nothing is loaded but what lies beside the module that asks for it.
"""

import ctypes
from importlib.util import find_spec
from pathlib import Path


def find_library(name: str) -> Path | None:
    """Return the compiled library of a name in pyproject.toml, such as `scalescope.scaling.replay._events`.

    None where the installation had no compiler, or there was no installation.
    """
    spec = find_spec(name)  # finds it under whichever suffix this Python gave it, and loads nothing
    return Path(spec.origin) if spec is not None and spec.origin is not None else None


def load_library(file: Path | None) -> ctypes.CDLL | None:
    """Return the loaded library; None where there is none, or this machine cannot load it."""
    try:
        return ctypes.CDLL(str(file)) if file is not None else None
    except OSError:  # built for another machine
        return None
