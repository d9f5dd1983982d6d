"""Starts worlds of ranks from a process that has loaded torch and scalescope already: a rank is forked from it.

A rank is a real process, alone in its world's process group: only what loading takes (4 s of a core each) is done once.
It runs for tests whose claim is not how ranks are started. Called by tests.worlds, whose end of the socket ends it.
"""

import json
import os
import runpy
import signal
import socket
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

_FDS = 3  # where a world's ranks write to, and where its exit codes go


def serve(channel: socket.socket) -> None:
    """Start a world for each request: the path of a JSON file, and its file descriptors. Returns at the end of all."""
    import scalescope.collectives.sweep
    import scalescope.launch.run
    import scalescope.train.config
    import scalescope.train.job  # noqa: F401 - what every rank loads

    (only,) = Path("/proc/self/task").iterdir()  # a fork takes along no other thread, and its locks stay locked
    assert only.name == str(os.getpid())
    signal.signal(signal.SIGCHLD, _reap)
    while True:
        path, fds, _, _ = socket.recv_fds(channel, 4096, _FDS)
        if not path:
            return
        if os.fork() == 0:
            channel.close()
            _world(json.loads(Path(path.decode()).read_text()), *fds)
        for fd in fds:
            os.close(fd)


def _reap(*_: object) -> None:
    """Let worlds that have ended go."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def _world(wanted: dict[str, Any], out: int, err: int, codes: int) -> NoReturn:
    """Fork a world's ranks; report their process group at first, and their exit codes at last."""
    os.setsid()
    os.write(codes, f"{os.getpid()}\n".encode())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ranks = []
    for rank in range(wanted["ranks"]):
        pid = os.fork()
        if pid == 0:
            os.close(codes)
            place = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            _rank(wanted["words"], wanted["cwd"], {**wanted["environment"], **place}, out, err)
        ranks.append(pid)
    ended = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ranks]
    os.write(codes, f"{json.dumps(ended)}\n".encode())
    os._exit(0)


def _rank(words: list[str], cwd: str, environment: dict[str, str], out: int, err: int) -> NoReturn:
    """Be `python -m MODULE WORDS`, or `python SCRIPT.py WORDS`."""
    code: object = 1
    try:
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = words
        if words[0].endswith(".py"):
            sys.path.insert(0, str(Path(words[0]).parent))
            runpy.run_path(words[0], run_name="__main__")
        else:
            runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code
    except Exception:  # noqa: BLE001 - its traceback is for whoever reads what the rank has said
        traceback.print_exc()
    finally:
        os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
