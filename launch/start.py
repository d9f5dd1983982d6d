"""Starting a job's ranks on this machine: torchrun's own engine, called as a library so that failures stay readable."""

import logging
import os
import site
import sys
from pathlib import Path

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig as ElasticConfig
from torch.distributed.launcher.api import elastic_launch

from hardware.doctor import preflight
from launch.freeze import Plan
from records.errors import ExitCode, RunError, UserError
from records.folder import RunFolder

_HOUSE = Path(__file__).resolve().parent.parent


def start_job(plan: Plan) -> RunFolder:
    """Make a planned job's folder, run its ranks to their end, and return the folder.

    Only rank 0 speaks on the terminal; every rank's output is in the folder's logs/. Raises UserError or RunError
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
        logs_specs=DefaultLogsSpecs(log_dir=str(folder.logs), local_ranks_filter={0}),
    )
    try:
        elastic_launch(config, sys.executable)("-u", "-m", "scalescope", plan.verb.name, "--frozen", str(folder.config))
    except ChildFailedError as error:
        _explain_failure(folder, error)
    except (SignalException, KeyboardInterrupt) as error:
        if folder.read_info().status == "running":
            folder.set_status("interrupted", f"stopped by {getattr(error, 'sigval', 'the keyboard')!s}")
        raise RunError(f"stopped; what was measured is kept in {folder.path}") from None
    return folder


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
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)


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
    kept = f"what was measured, and every rank's output, is in {folder.path}"
    if failure.exitcode == ExitCode.USER_INPUT:
        raise UserError(f"{info.message}") from None
    raise RunError(f"{info.message}; {kept}") from None
