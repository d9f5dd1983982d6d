"""A path as one types it into a shell."""

import shlex
from contextlib import suppress
from pathlib import Path


def as_typed(path: Path) -> str:
    """Return a path from the current folder where it lies in there, quoted where a shell would take it apart."""
    with suppress(ValueError, OSError):  # it lies elsewhere, or the current folder is gone
        path = path.relative_to(Path.cwd())
    return shlex.quote(str(path))
