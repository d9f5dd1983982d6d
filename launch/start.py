"""Starting a job's ranks on this machine: torchrun's own engine, called as a library so that failures stay readable."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

import psutil
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig as ElasticConfig
from torch.distributed.launcher.api import elastic_launch

from scalescope.hardware.doctor import preflight
from scalescope.launch.claim import release
from scalescope.launch.freeze import Plan
from scalescope.launch.network import loopback
from scalescope.launch.scratch import remove_scratch
from scalescope.launch.watch.presence import LAUNCHER
from scalescope.records.environment import usable_cores
from scalescope.records.errors import ExitCode, RunError, Stopped, UserError
from scalescope.records.folder import RunFolder
from scalescope.records.package import COMMAND, importable
from scalescope.records.stop import Ending, asked_to_end, endings_noted, held_back, note_requests, noted, told_again

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_LOOK_S = 0.1  # for ranks that have not heard of a request to stop


def start_job(plan: Plan) -> RunFolder:
    """Make a planned job's folder, run its ranks to their end, and return the folder.

    Only rank 0 speaks on the terminal; the other ranks' output is in the folder's logs/. Raises UserError or RunError
    with the reason of the rank that failed first; the folder keeps what was measured.
    """
    with _ending_raises() as ending:
        try:
            return _start(plan, ending)
        except (SignalException, KeyboardInterrupt) as error:
            for number in ending:
                signal.signal(number, signal.SIG_IGN)  # it is ending
            by = error.sigval.name if isinstance(error, SignalException) else str(error)
            return _explain_end(RunFolder(plan.path), by)
        finally:
            release(plan.path)
            remove_scratch()


def _start(plan: Plan, ending: Sequence[signal.Signals]) -> RunFolder:
    folder = plan.make_folder()
    folder.logs.mkdir(exist_ok=True)
    for finding in preflight():
        print(f"scalescope: {finding.subject}: {finding.says}; {finding.fix}", file=sys.stderr)
    if (crowding := plan.devices.crowding(usable_cores())) is not None:
        print(f"scalescope: {crowding}", flush=True)
    _prepare_environment(plan.devices.threads_per_rank)
    loopback.register()
    config = ElasticConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=plan.devices.ranks,
        run_id=folder.path.name,
        rdzv_backend=loopback.BACKEND,
        max_restarts=_max_restarts(plan),
        monitor_interval=0.1,
        signals_to_handle="",  # its handlers raise wherever it is, also between the starts of two ranks
        logs_specs=DefaultLogsSpecs(
            log_dir=str(folder.logs),
            redirects=dict.fromkeys(range(1, plan.devices.ranks), Std.ALL),  # rank 0 keeps the terminal
            local_ranks_filter={0},
        ),
    )
    try:
        with endings_noted(ending), _stop_signal_to_ranks():
            elastic_launch(config, sys.executable)("-u", *COMMAND, plan.verb.name, "--frozen", str(folder.config))
        if (late := asked_to_end()) is not None:  # when all ranks were done
            raise KeyboardInterrupt(late.number.name)
    except ChildFailedError as error:
        if (late := asked_to_end()) is not None:
            # the ranks had the signal, too, and died of it before this process could leave
            raise KeyboardInterrupt(late.number.name) from None
        if folder.read_info().status != "preempted":  # else every rank had saved its state by then
            _explain_failure(folder, error)
    return folder


@contextmanager
def _ending_raises() -> Iterator[list[signal.Signals]]:
    """Have what ends a process raise KeyboardInterrupt, from before there is a run folder that would stay "running".

    While torchrun's engine is at work they are noted instead, and it is left where it can be. Yields the signals; what
    is ignored (SIGHUP under nohup) stays so. In a thread other than the main one no handler can be set.
    """
    if threading.current_thread() is not threading.main_thread():
        yield list(_ENDING)
        return
    before = {number: handler for number in _ENDING if (handler := signal.getsignal(number)) is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, _raise)
    try:
        yield list(before)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _raise(number: int, _: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt(signal.Signals(number).name)  # no Exception, which a library might take for its own


def _explain_end(folder: RunFolder, by: str) -> RunFolder:
    """Say how a job ended that was asked to. Returns the folder where the ranks have saved their state."""
    if not (folder.path / "run.json").is_file():
        raise Stopped("stopped before there was anything to keep") from None
    info = folder.read_info()
    if info.status == "preempted":  # torchrun's engine has passed SIGTERM on
        return folder
    if info.status == "running":
        folder.set_status("interrupted", f"stopped by {by}")
    elif info.status == "failed" and _is_since(asked_to_end(), info.ended_unix_s):
        folder.set_status("interrupted", f"stopped by {by}; of that, {info.message}")  # ranks end one after another
    raise Stopped(f"stopped; what was measured is kept in {folder.path}") from None


def _is_since(ending: Ending | None, unix_s: float | None) -> bool:
    return ending is not None and unix_s is not None and unix_s >= ending.came_unix_s


@contextmanager
def _stop_signal_to_ranks() -> Iterator[None]:
    """Pass SIGUSR1, which schedulers send before a job's time is up, on to the ranks: they save their state and end.

    torchrun's engine passes only what ends itself, too; in a thread other than the main one no handler can be set.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGUSR1)
    note_requests()
    ended = threading.Event()
    teller = threading.Thread(target=_tell_ranks, args=(ended,), name="stop-request", daemon=True)
    teller.start()  # before SIGUSR1 is held back: it comes by way of this thread
    try:
        with held_back():
            yield
    finally:
        ended.set()
        teller.join()
        signal.signal(signal.SIGUSR1, before)


def _tell_ranks(ended: threading.Event) -> None:
    """Tell each rank once of a request to stop, whether it is there when that comes or is started after it; a second
    Ctrl-C while they end ends them at once.
    """
    signalled: set[int] = set()
    while not ended.wait(_LOOK_S):
        for child in _ranks() - signalled if noted() is not None else ():
            with suppress(OSError):
                os.kill(child, signal.SIGUSR1)
            signalled.add(child)
        for child in _ranks() if told_again() else ():
            with suppress(OSError):
                os.kill(child, signal.SIGKILL)


def _ranks() -> set[int]:
    """Return the processes that are ranks: other children (a tracker of shared memory, say) would die of a signal."""
    found = set()
    for child in psutil.Process().children():
        with suppress(psutil.Error):  # it has gone meanwhile
            if "--frozen" in child.cmdline():
                found.add(child.pid)
    return found


def _max_restarts(plan: Plan) -> int:
    from scalescope.launch.compose import thaw

    return thaw(plan.text, plan.verb.schema, plan.verb.variants).launch.max_restarts


def _prepare_environment(threads: int) -> None:
    """Set what the ranks inherit: their share of the cores, and where this package lies."""
    os.environ["OMP_NUM_THREADS"] = str(threads)  # torchrun would set 1, and only above one rank
    os.environ[LAUNCHER] = str(os.getpid())
    os.environ.update(importable(os.environ))
    # torchrun's own block of text says less than the failed rank's own words, which follow
    for name in list(logging.root.manager.loggerDict):  # each has a level of its own
        if name.startswith("torch.distributed.elastic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _explain_failure(folder: RunFolder, error: ChildFailedError) -> None:
    rank, failure = error.get_first_failure()
    how = (
        f"was ended by {failure.signal_name()}" if failure.exitcode < 0 else f"ended with exit code {failure.exitcode}"
    )
    info = folder.read_info()
    if info.status == "done":
        info.message = f"rank {rank} {how} when all was done"
    elif info.status == "running":
        info.message = f"rank {rank} {how}"
        try:
            folder.set_status("failed", info.message, "lost_rank" if failure.exitcode < 0 else "failure")
        except OSError as full:  # the rank's own words are on the terminal already
            info.message += f" (and run.json could not be written: {full.strerror})"
    kept = f"what was measured, and the other ranks' output, is in {folder.path}"
    if failure.exitcode == ExitCode.USER_INPUT:
        raise UserError(f"{info.message}") from None
    raise RunError(f"{info.message}; {kept}") from None
