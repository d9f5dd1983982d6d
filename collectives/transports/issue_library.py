"""The loop of issue.c as a loaded library."""

import ctypes
from pathlib import Path

from scalescope.hardware.check_result import CheckResult, fine, note
from scalescope.records.package import find_library, load_library

_NAME = f"{__package__}._issue"  # as pyproject.toml has it
_SUBJECT = "C helper"
_FIX = "with a C compiler (cc, or CC=…) on the PATH, install scalescope anew"


def library_file() -> Path | None:
    """Return the compiled library; None where the installation had no compiler, or there was no installation."""
    return find_library(_NAME)


def load() -> ctypes.CDLL | None:
    """Return the loaded library; None where there is none, or this machine cannot load it."""
    return load_library(library_file())


def check_library() -> CheckResult:
    """Say whether operations of `transport=direct` are issued from C."""
    file = library_file()
    if load() is not None:
        return fine(_SUBJECT, f"{file}: transport=direct issues its operations from C")
    why = "is not built" if file is None else f"{file} does not load on this machine"
    return note(_SUBJECT, f"{why}: transport=direct issues its operations from Python, and figures of small ones are "
                "the host's", _FIX)  # fmt: skip
