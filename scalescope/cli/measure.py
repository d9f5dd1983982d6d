"""What the measuring verbs share: the world that a process is in decides whether it starts ranks or is one."""

import atexit
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from scalescope.launch.former_keys import with_present_names
from scalescope.launch.verb import Verb
from scalescope.launch.world import World, discover
from scalescope.records.console import outlived_console
from scalescope.records.errors import ExitCode, RunError, Stopped, UserError

_EXIT_LIMIT_S = 30.0  # for what libraries do at the very end, when all of ours is written

if TYPE_CHECKING:
    from omegaconf import DictConfig


def measure(verb: Verb, argv: list[str]) -> int:
    """Start a job's ranks, or be one of them. Returns the exit code; raises UserError or RunError."""
    with outlived_console():
        return _measure(verb, argv)


def _measure(verb: Verb, argv: list[str]) -> int:
    world = discover()
    argv = with_present_names(argv, verb, says=world is None or world.rank == 0)
    if world is None:
        return _compose_and_start(verb, argv)
    from scalescope.launch.run import run_frozen, run_in_world

    if argv[:1] == ["--frozen"]:
        return _left(run_frozen(verb, Path(argv[1]), world), world)
    if flags := [word for word in argv if word.startswith("-") and "=" not in word]:
        raise UserError(f"{flags[0]} does not go with ranks that {world.source} has started; "
                        f"leave it out, or call scalescope {verb.name} outside of it")  # fmt: skip
    return _left(run_in_world(verb, argv, world), world)


def _left(code: int, world: World) -> int:
    """End a rank that has come to its end, here and now; under MPI return the code, since MPI ends with Python.

    While Python ends, threads of torch's own may still be inside C++: now and then such a process aborts ("terminate
    called without an active exception"), and its launcher takes a job that is done for one that failed.
    """
    if world.source == "mpi":
        return int(code)
    late = threading.Timer(_EXIT_LIMIT_S, os._exit, (int(code),))
    late.daemon = True
    late.start()
    atexit._run_exitfuncs()  # what libraries leave for then: W&B's service, loading processes
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(code))


def _compose_and_start(verb: Verb, argv: list[str]) -> int:
    """Let Hydra compose the config (its flags, multirun and launchers included) and start the ranks of each job."""
    import hydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from scalescope.launch.compose import dashed, explain, register_resolvers
    from scalescope.records.package import CONF

    register_resolvers()
    codes: list[int] = []
    stopped = False
    front = os.getpid()

    def task(config: "DictConfig") -> None:
        nonlocal stopped
        if stopped:
            return  # who stops one job of a multirun means the others, too
        # said here, since Hydra would put a line of its own before it; the other jobs of a multirun go on
        try:
            codes.append(_start(verb, config))
            stopped = codes[-1] == ExitCode.PREEMPTED
        except (UserError, RunError) as error:
            print(f"scalescope: {error}", file=sys.stderr)
            codes.append(int(error.exit_code))
            stopped = isinstance(error, Stopped)
            if os.getpid() != front:
                raise  # a launcher of Hydra's runs this elsewhere: only what is raised gets back from there

    for word in argv:
        if not word.startswith("-") or (not word.startswith("--") and _is_hydras(word)):
            continue
        if (said := dashed(word, verb.name)) is not None:
            raise UserError(said)
        if not _is_hydras(word):
            raise UserError(f"{verb.name} does not know {word}; settings are KEY=VALUE, without dashes, and "
                            f"scalescope {verb.name} --help lists them")  # fmt: skip
    # argparse, which Hydra's flags go through, takes the overrides in one piece
    several = [word for word in argv if word in ("-m", "--multirun")]
    argv = [*several, *(word for word in argv if word not in several)]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises, and we say it in one line
    before = sys.argv
    sys.argv = [f"scalescope {verb.name}", *argv]
    try:
        hydra.main(version_base="1.3", config_path=str(CONF), config_name=verb.name)(task)()
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(explain(error, verb.name)) from error
    finally:
        sys.argv = before
    return max(codes, default=int(ExitCode.OK))


def _is_hydras(flag: str) -> bool:
    """Return whether Hydra's own command line takes a flag; what its parser says of others is a page of its flags."""
    from hydra._internal.utils import get_args_parser

    known = [option for action in get_args_parser()._actions for option in action.option_strings]
    name = flag.partition("=")[0]
    return any(option.startswith(name) for option in known) if name.startswith("--") else name[:2] in known


def _start(verb: Verb, config: "DictConfig") -> int:
    """Run one composed job to its end and show what it measured; as many times as it has launches, a folder each."""
    launches = config.get("launches", 1)
    if launches == 1 or not isinstance(launches, int):
        return _start_once(verb, config)
    name = config.name
    for number in range(1, launches + 1):
        config.launches = 1  # of this start
        config.name = f"{name}-{number}" if name and number > 1 else name
        code = _start_once(verb, config)
        if code != ExitCode.OK:
            return code
    return int(ExitCode.OK)


def _start_once(verb: Verb, config: "DictConfig") -> int:
    from scalescope.cli.loggers import end_loggers
    from scalescope.launch.freeze import plan_job

    plan = plan_job(verb, config)
    # torch's engine and what shows a run take seconds to load: what is refused needs neither
    from scalescope.cli.show import Asked, show
    from scalescope.launch.start import start_job
    from scalescope.records.folder import RunFolder

    print(
        f"scalescope: {plan.devices.ranks} × {plan.devices.device} ({plan.devices.backend}) → {plan.path}", flush=True
    )
    try:
        folder = start_job(plan)
    finally:
        end_loggers([RunFolder(plan.path)])
    if folder.read_info().status == "preempted":
        print(f"scalescope: state is saved in {folder.path}; run the same command with resume=true", file=sys.stderr)
        return int(ExitCode.PREEMPTED)
    show(Asked([folder.path], points_were_shown=verb.name == "sweep"))
    return int(ExitCode.OK)
