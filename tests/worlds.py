"""Ranks in a world that somebody else made (RANK, WORLD_SIZE, …), forked from a process that has loaded torch."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run_world(ranks: int, words: Sequence[str], limit_s: float = 200) -> subprocess.CompletedProcess[str]:
    """Run `scalescope WORDS` on so many ranks of one world to their end.

    Returns what all of them said, and the first exit code that is not 0. Raises TimeoutError after limit_s, with no
    rank left running.
    """
    with tempfile.NamedTemporaryFile("w") as request, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        world = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1"}
        environment = {**os.environ, **world, "MASTER_PORT": str(_free_port()), "PYTHONPATH": str(ROOT)}
        json.dump({"ranks": ranks, "words": words, "cwd": str(Path.cwd()), "environment": environment}, request)
        request.flush()
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                fds = [out.fileno(), err.fileno(), theirs.fileno()]
                socket.send_fds(_server(), [request.name.encode()], fds)
            codes = _codes(ours, limit_s)
        out.seek(0)
        err.seek(0)
        failed = [code for code in codes if code]
        return subprocess.CompletedProcess(words, failed[0] if failed else 0, out.read().decode(), err.read().decode())


def _codes(world: socket.socket, limit_s: float) -> list[int]:
    """Return a world's exit codes when it has ended. It tells its process group first."""
    world.settimeout(limit_s)
    with world.makefile() as lines:
        group = int(lines.readline())
        try:
            codes: list[int] = json.loads(lines.readline())
        finally:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)  # whatever happens, nothing of it is left running
    return codes


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@cache
def _server() -> socket.socket:
    """Start this process's server; it ends with this process, whose end of the socket is then closed."""
    ours, theirs = socket.socketpair()
    with theirs:
        subprocess.Popen(
            [sys.executable, "-u", str(ROOT / "tests" / "rank_server.py"), str(theirs.fileno())],
            pass_fds=[theirs.fileno()], env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    return ours
