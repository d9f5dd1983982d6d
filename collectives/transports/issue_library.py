"""The loop of issue.c as a loaded library: setuptools compiles it when scalescope is installed, where it can.

Nothing is compiled while a job runs, and nothing is loaded but what lies beside this file, as the package itself does.
"""

import ctypes
from importlib.util import find_spec
from pathlib import Path

from scalescope.hardware.check_result import CheckResult, fine, note

_NAME = f"{__package__}._issue"  # as pyproject.toml has it
_SUBJECT = "C helper"
_FIX = "with a C compiler (cc, or CC=…) on the PATH, install scalescope anew"


def library_file() -> Path | None:
    """Return the compiled library; None where the installation had no compiler, or there was no installation."""
    spec = find_spec(_NAME)  # finds it under whichever suffix this Python gave it, and loads nothing
    return Path(spec.origin) if spec is not None and spec.origin is not None else None


def load() -> ctypes.CDLL | None:
    """Return the loaded library; None where there is none, or this machine cannot load it."""
    file = library_file()
    try:
        return ctypes.CDLL(str(file)) if file is not None else None
    except OSError:  # built for another machine
        return None


def check_library() -> CheckResult:
    """Say whether operations of `transport=direct` are issued from C."""
    file = library_file()
    if load() is not None:
        return fine(_SUBJECT, f"{file}: transport=direct issues its operations from C")
    why = "is not built" if file is None else f"{file} does not load on this machine"
    return note(_SUBJECT, f"{why}: transport=direct issues its operations from Python, and figures of small ones are "
                "the host's", _FIX)  # fmt: skip
