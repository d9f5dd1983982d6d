"""Starting a job's ranks on this machine: torchrun's own engine, called as a library so that failures stay readable."""

import logging
import os
import signal
import site
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig as ElasticConfig
from torch.distributed.launcher.api import elastic_launch

from hardware.doctor import preflight
from launch.freeze import Plan
from records.errors import ExitCode, RunError, Stopped, UserError
from records.folder import RunFolder
from records.stop import hand_on

_HOUSE = Path(__file__).resolve().parent.parent


def start_job(plan: Plan) -> RunFolder:
    """Make a planned job's folder, run its ranks to their end, and return the folder.

    Only rank 0 speaks on the terminal; the other ranks' output is in the folder's logs/. Raises UserError or RunError
    with the reason of the rank that failed first; the folder keeps what was measured.
    """
    folder = plan.make_folder()
    folder.logs.mkdir(exist_ok=True)
    for finding in preflight():
        print(f"scalescope: {finding.subject}: {finding.says}; {finding.fix}", file=sys.stderr)
    _prepare_environment(plan.place.threads_per_rank)
    config = ElasticConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=plan.place.ranks,
        run_id=folder.path.name,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=_max_restarts(plan),
        monitor_interval=0.1,
        logs_specs=DefaultLogsSpecs(
            log_dir=str(folder.logs),
            redirects=dict.fromkeys(range(1, plan.place.ranks), Std.ALL),  # rank 0 keeps the terminal
            local_ranks_filter={0},
        ),
    )
    try:
        with _stop_signal_to_ranks():
            elastic_launch(config, sys.executable)(
                "-u", "-m", "scalescope", plan.verb.name, "--frozen", str(folder.config)
            )
    except ChildFailedError as error:
        _explain_failure(folder, error)
    except (SignalException, KeyboardInterrupt) as error:
        status = folder.read_info().status
        if status == "preempted":  # torchrun's engine has passed SIGTERM on, and the ranks have saved their state
            return folder
        if status == "running":
            by = error.sigval.name if isinstance(error, SignalException) else "the keyboard"
            folder.set_status("interrupted", f"stopped by {by}")
        raise Stopped(f"stopped; what was measured is kept in {folder.path}") from None
    return folder


@contextmanager
def _stop_signal_to_ranks() -> Iterator[None]:
    """Pass SIGUSR1, which schedulers send before a job's time is up, on to the ranks: they save their state and end.

    torchrun's engine passes only what ends itself, too; in a thread other than the main one no handler can be set.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGUSR1, lambda number, _: _signal_children(number))
    hand_on()
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def _signal_children(number: int) -> None:
    for thread in Path("/proc/self/task").glob("*/children"):
        for child in thread.read_text().split():
            # only ranks: other children (a tracker of shared memory, say) would die of it
            command = Path("/proc", child, "cmdline")
            with suppress(OSError):
                if b"\0scalescope\0" in command.read_bytes():
                    os.kill(int(child), number)


def _max_restarts(plan: Plan) -> int:
    from launch.compose import thaw

    return thaw(plan.text, plan.verb.schema, plan.verb.variants).launch.max_restarts


def _prepare_environment(threads: int) -> None:
    """Set what the ranks inherit: their share of the cores, and no import from a folder that is not ours."""
    os.environ["OMP_NUM_THREADS"] = str(threads)  # torchrun would set 1, and only above one rank
    os.environ["PYTHONSAFEPATH"] = "1"  # somebody's train.py in the current folder is not our train/
    if str(_HOUSE) not in {*site.getsitepackages(), site.getusersitepackages()}:
        paths = [str(_HOUSE), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    # torchrun's own block of text says less than the failed rank's own words, which follow
    for name in list(logging.root.manager.loggerDict):  # each has a level of its own
        if name.startswith("torch.distributed.elastic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _explain_failure(folder: RunFolder, error: ChildFailedError) -> None:
    rank, failure = error.get_first_failure()
    info = folder.read_info()
    if info.status == "running":
        how = (
            f"was ended by {failure.signal_name()}"
            if failure.exitcode < 0
            else f"ended with exit code {failure.exitcode}"
        )
        info.message = f"rank {rank} {how}"
        try:
            folder.set_status("failed", info.message)
        except OSError as full:  # the rank's own words are on the terminal already
            info.message += f" (and run.json could not be written: {full.strerror})"
    kept = f"what was measured, and the other ranks' output, is in {folder.path}"
    if failure.exitcode == ExitCode.USER_INPUT:
        raise UserError(f"{info.message}") from None
    raise RunError(f"{info.message}; {kept}") from None
