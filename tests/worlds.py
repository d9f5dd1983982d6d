"""Ranks in a world that somebody else made (RANK, WORLD_SIZE, …), forked from a process that has loaded torch."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run_world(ranks: int, words: Sequence[str], limit_s: float = 200) -> subprocess.CompletedProcess[str]:
    """Run `python -m WORDS`, or `python WORDS` where they begin with a script, on so many ranks of one world.

    Returns what all of them said, and the first exit code that is not 0. Raises TimeoutError after limit_s, with no
    rank left running.
    """
    world = World(ranks, words)
    out, err = world.communicate(limit_s)
    return subprocess.CompletedProcess(words, world.returncode, out, err)


class World:
    """A world that runs, in a process group of its own; `pid` is its leader, whose children are the ranks."""

    def __init__(self, ranks: int, words: Sequence[str]) -> None:
        self.returncode = 0
        self._out, self._err = os.memfd_create("out"), os.memfd_create("err")
        self._channel, theirs = socket.socketpair()
        self._lines = self._channel.makefile()
        place = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1"}
        environment = {**os.environ, **place, "MASTER_PORT": str(_free_port()), "PYTHONPATH": _path()}
        with theirs, tempfile.NamedTemporaryFile("w") as request:
            json.dump({"ranks": ranks, "words": words, "cwd": str(Path.cwd()), "environment": environment}, request)
            request.flush()
            fds = [self._out, self._err, theirs.fileno()]
            server, channel = _server()
            socket.send_fds(channel, [request.name.encode()], fds)
            _wait_for(self._channel, server)
            self.pid = int(self._lines.readline())  # the request has been read by then

    def is_running(self) -> bool:
        """Return whether a rank still runs."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return children.exists() and children.read_text() != ""

    def communicate(self, timeout: float) -> tuple[str, str]:
        """Return what all ranks said when they have ended. Raises TimeoutError, with no rank left running."""
        self._channel.settimeout(timeout)
        try:
            codes: list[int] = json.loads(self._lines.readline())
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._channel.close()
            self._lines.close()
        self.returncode = next((code for code in codes if code), 0)
        with os.fdopen(self._out) as out, os.fdopen(self._err) as err:
            out.seek(0)
            err.seek(0)
            return out.read(), err.read()


def _path() -> str:
    """Return where Python finds this checkout, and whatever it found before."""
    return os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _wait_for(answer: socket.socket, server: "subprocess.Popen[bytes]", limit_s: float = 120) -> None:
    """Wait until a server has answered. Raises OSError where it has ended, or takes too long."""
    until = time.monotonic() + limit_s
    while not select.select([answer], [], [], 0.5)[0]:
        if (code := server.poll()) is not None:
            raise ConnectionError(f"the process that ranks are forked from has ended, exit code {code}")
        if time.monotonic() > until:
            raise TimeoutError(f"no world within {limit_s:.0f} s")


@cache
def _server() -> "tuple[subprocess.Popen[bytes], socket.socket]":
    """Start this process's server; it ends with this process, whose end of the socket is then closed."""
    ours, theirs = socket.socketpair()
    with theirs:
        server = subprocess.Popen(
            [sys.executable, "-u", str(ROOT / "tests" / "rank_server.py"), str(theirs.fileno())],
            pass_fds=[theirs.fileno()], env={**os.environ, "PYTHONPATH": _path(), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    return server, ours
