"""A C source of ours as a loaded library: compiled by the machine's own compiler, once for each text of the source."""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

_COMPILERS = ("cc", "gcc", "clang")
_FLAGS = ("-O2", "-std=c99", "-shared", "-fPIC")
_LIMIT_S = 20.0  # a compiler on a file system that hangs


def load(source: Path) -> ctypes.CDLL | None:
    """Return the library that this source compiles to; None where nothing here compiles it or may load it.

    It is kept in the user's cache folder under a name that tells source and machine. Several processes may come at
    once: each compiles to a name of its own and renames it, so that no one loads half a file. Where the folder
    cannot be written, or what lies there cannot be loaded, a folder that only this process knows serves instead.
    """
    try:
        text = source.read_bytes()
    except OSError:
        return None
    key = hashlib.sha256(b"\0".join([text, platform.machine().encode(), *(flag.encode() for flag in _FLAGS)]))
    folder = cache_folder()
    kept = folder / f"{source.stem}-{key.hexdigest()[:16]}.so" if folder is not None else None
    if kept is not None and kept.is_file() and (library := _opened(kept)) is not None:
        return library
    for command in _commands():
        library = _into_cache(command, source, kept) if kept is not None else None
        library = library or _for_this_process(command, source)
        if library is not None:
            return library
    return None


def cache_folder() -> Path | None:
    """Return where compiled libraries are kept, this user's own folder; None of a user who has no home."""
    if named := os.environ.get("XDG_CACHE_HOME"):
        return Path(named) / "scalescope"
    try:
        return Path.home() / ".cache" / "scalescope"
    except RuntimeError:
        return None


def _commands() -> Iterator[list[str]]:
    """Yield the compilers of this machine, the one of the user's choice first."""
    for words in ([*shlex.split(os.environ.get("CC", ""))], *([name] for name in _COMPILERS)):
        if words and (found := shutil.which(words[0])):
            yield [found, *words[1:]]


def _into_cache(command: list[str], source: Path, kept: Path) -> ctypes.CDLL | None:
    try:
        kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, name = tempfile.mkstemp(dir=kept.parent, suffix=".part")
    except OSError:
        return None
    os.close(handle)
    made = Path(name)
    try:
        if not _compile(command, source, made):
            return None
        made.replace(kept)
    except OSError:
        return None
    finally:
        made.unlink(missing_ok=True)
    return _opened(kept)


def _for_this_process(command: list[str], source: Path) -> ctypes.CDLL | None:
    try:
        with tempfile.TemporaryDirectory(prefix="scalescope-") as folder:
            made = Path(folder) / f"{source.stem}.so"
            return _opened(made) if _compile(command, source, made) else None
    except OSError:
        return None


def _compile(command: list[str], source: Path, made: Path) -> bool:
    line = [*command, *_FLAGS, "-o", str(made), str(source)]
    try:
        done = subprocess.run(line, capture_output=True, stdin=subprocess.DEVNULL, timeout=_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _opened(library: Path) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(str(library))
    except OSError:
        return None
