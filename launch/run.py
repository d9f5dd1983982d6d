"""One rank of a job, from joining its world to leaving it: the same whoever started the ranks."""

import math
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn, cast

import msgspec
import torch.distributed as dist
from omegaconf import OmegaConf

from scalescope.hardware.ceiling import ceilings
from scalescope.hardware.detect import describe, versions
from scalescope.hardware.doctor import topology
from scalescope.launch.bounds import SECONDS
from scalescope.launch.compose import compose_job, quoted, thaw
from scalescope.launch.config import JobConfig
from scalescope.launch.devices import take_device
from scalescope.launch.freeze import plan_job
from scalescope.launch.job import Job
from scalescope.launch.network.interface import choose_interface
from scalescope.launch.network.loopback import stay_on_loopback
from scalescope.launch.network.rendezvous import join, restarts
from scalescope.launch.sinks import open_sinks
from scalescope.launch.verb import Verb
from scalescope.launch.watch import flight_recorder
from scalescope.launch.watch.abort_reason import AbortReason
from scalescope.launch.watch.arrivals import END, FORMING, MEASURING, PREPARING
from scalescope.launch.watch.errors import ended_by_error
from scalescope.launch.watch.presence import launcher_has_died
from scalescope.launch.watch.progress_watchdog import ProgressWatchdog
from scalescope.launch.watch.termination import let_terminate, on_termination
from scalescope.launch.world import World
from scalescope.records.console import as_typed, counted
from scalescope.records.environment import capture
from scalescope.records.errors import ExitCode, NothingMeasured, Preempted, RunError, UserError
from scalescope.records.files import write_atomic
from scalescope.records.folder import RunFolder, find_runs
from scalescope.records.frozen import read_frozen_text
from scalescope.records.package import CONF
from scalescope.records.rows import Ceilings, Device, EndedBy, RunStatus
from scalescope.records.sink import Sinks
from scalescope.records.stop import note_requests

_KEY = "scalescope/job"
_LOOK_S = 0.5


class _Shared(msgspec.Struct):
    """What rank 0 tells the others: the frozen config's text (nodes may share no file system) and the folder."""

    path: str = ""
    text: str = ""
    refused: bool = False


def run_frozen(verb: Verb, config: Path, world: World) -> ExitCode:
    """Run one rank of a job whose folder and frozen config exist already; every rank reads that file only."""
    text, folder = read_frozen_text(config), RunFolder(config.parent)
    limit_s = thaw(text, verb.schema, verb.variants).launch.init_limit_s
    try:
        with _while_launcher_lives(folder, world):
            store = join(world, limit_s)
    except RunError as error:
        _note_failure(folder, str(error))
        raise
    watchdog = _start_watchdog(store, world, limit_s)
    return _run(verb, text, folder, world, store, watchdog)


@contextmanager
def _while_launcher_lives(folder: RunFolder, world: World) -> Iterator[None]:
    """End this rank where its launcher, which serves the store, dies before it has joined: nobody would answer it."""
    joined = threading.Event()

    def look() -> None:
        while not joined.wait(_LOOK_S):
            if launcher_has_died():
                _note_failure(folder, f"the launcher died while rank {world.rank} was joining the job")
                os._exit(ExitCode.RUN_FAILED)

    threading.Thread(target=look, name="launcher", daemon=True).start()
    try:
        yield
    finally:
        joined.set()


def _note_failure(folder: RunFolder, message: str) -> None:
    """Write down why a rank could not join, for a launcher that may not be there to do it."""
    with suppress(UserError, OSError):
        if folder.read_info().status == "running":
            folder.set_status("failed", message)


def run_in_world(verb: Verb, overrides: Sequence[str], world: World) -> ExitCode:
    """Run one rank in a world that somebody else made: rank 0 composes, makes the folder and tells the others.

    Raises UserError on rank 0 alone; the other ranks return its exit code without a word.
    """
    limit_s = _init_limit_s(overrides)
    try:
        store = join(world, limit_s)
    except (UserError, RunError, KeyboardInterrupt) as error:
        if world.source == "mpi":  # at a usual exit, MPI's own end would wait for ranks that never come
            print(f"scalescope: {str(error) or 'interrupted'}", file=sys.stderr, flush=True)
            os._exit(ExitCode.RUN_FAILED if isinstance(error, KeyboardInterrupt) else error.exit_code)
        raise
    watchdog = _start_watchdog(store, world, limit_s)
    if world.rank == 0:
        try:
            plan = plan_job(verb, compose_job(verb.name, [*overrides, *_going_on(verb, overrides, world)]), world)
            folder = plan.make_folder()
            watchdog.attend(folder, limit_s, _Rank(folder, world, watchdog).leave)  # from here on there is a run.json
        except UserError:
            store.set(_KEY, msgspec.json.encode(_Shared(refused=True)).decode())
            _hold_store_until_read(store, world)
            watchdog.end()
            raise
        ranks = counted(world.size, "rank")
        print(f"scalescope: {ranks} ({world.source}) → {folder.path}", flush=True)
        store.set(_KEY, msgspec.json.encode(_Shared(path=str(plan.path), text=plan.text)).decode())
    try:
        shared = msgspec.json.decode(store.get(_KEY), type=_Shared)
    except RuntimeError as error:
        cause = watchdog.blame()
        gone = f"the job's store has gone ({next(iter(str(error).splitlines()), '')[:120]})"
        watchdog.end()
        raise RunError(
            f"rank {world.rank} did not get the job's config from rank 0: {cause.message if cause else gone}"
        ) from error
    if shared.refused:
        watchdog.end()
        store.add(f"{_KEY}/read", 1)
        return ExitCode.USER_INPUT
    folder = RunFolder(Path(shared.path))
    code = _run(verb, shared.text, folder, world, store, watchdog)
    if world.rank == 0 and folder.read_info().status == "done":  # the front door, where it starts the ranks, shows it
        print(f"scalescope: where the time went: scalescope analyze {as_typed(folder.path)}", flush=True)
    return code


def _going_on(verb: Verb, overrides: Sequence[str], world: World) -> list[str]:
    """Return the overrides that name the run folder of this job's earlier attempt, where torchrun has restarted it."""
    launch = launch_id(world)
    if launch is None or restarts() == 0:
        return []
    runs = Path(str(compose_job(verb.name, overrides).runs)).expanduser()
    infos = [(folder, folder.read_info()) for folder in find_runs(runs)]
    mine = [(info.started_unix_s, folder) for folder, info in infos if info.launch == launch]
    if not mine:
        return []  # the attempt before this one did not come as far as a folder
    return [f"name={quoted(max(mine)[1].path.name)}", "resume=true"]


def launch_id(world: World) -> str | None:
    """Return what names this start of torchrun and no other, the same on all of its attempts."""
    if world.source != "torchrun":
        return None
    given = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    agent = f"{socket.gethostname()}:{os.getppid()}"  # without an id of its own, it is the process that starts ranks
    return agent if given in ("", "none") else f"{given}/{os.environ.get('MASTER_ADDR', agent)}"


def _init_limit_s(overrides: Sequence[str]) -> float:
    """Return launch.init_limit_s before there is a config: rank 0 alone composes it, and may be the one to hang."""
    node = OmegaConf.merge(OmegaConf.load(CONF / "launch" / "auto.yaml"), OmegaConf.from_dotlist([
        override.removeprefix("launch.") for override in overrides if override.startswith("launch.init_limit_s=")
    ]))  # fmt: skip
    try:
        limit_s = float(node.init_limit_s)
    except (TypeError, ValueError):
        limit_s = math.nan
    return limit_s if SECONDS.missed_by(limit_s) is None else 60.0  # rank 0 says what is wrong with it


def _start_watchdog(store: dist.Store, world: World, limit_s: float) -> ProgressWatchdog:
    """Begin this rank's watchdog, which ends a wait on the store with more words than the store would."""
    store.set_timeout(timedelta(seconds=3 * limit_s + 60))
    watchdog = ProgressWatchdog(store, world.rank, world.size)
    watchdog.begin(limit_s)
    on_termination(watchdog.terminate)
    return watchdog


def _hold_store_until_read(store: dist.Store, world: World, limit_s: float = 10.0) -> None:
    """Keep rank 0 alive until the others have the refusal: where it serves the store, they would see it vanish."""
    until = time.monotonic() + limit_s
    while store.add(f"{_KEY}/read", 0) < world.size - 1 and time.monotonic() < until:
        time.sleep(0.02)


def _run(
    verb: Verb, text: str, folder: RunFolder, world: World, store: dist.Store, watchdog: ProgressWatchdog
) -> ExitCode:
    note_requests()  # a body that can obeys them
    rank = _Rank(folder, world, watchdog)
    try:
        config = thaw(text, verb.schema, verb.variants)
        watchdog.attend(folder, config.launch.step_limit_s, rank.leave)
        if config.launch.device == "cuda":
            watchdog.start_process_watchdog(folder)  # a full queue of launches can hold Python's lock for ever
        job = _enter(config, text, folder, world, store, watchdog)
        rank.sinks = job.sinks
        code = _work(verb, job, rank)
    except UserError as error:
        rank.fail(str(error), ExitCode.USER_INPUT)
    except RunError as error:
        rank.fail(f"rank {world.rank}: {error}{rank.keep_traceback()}", ExitCode.RUN_FAILED)
    except Exception as error:  # noqa: BLE001 - whatever it is, the run folder says so and keeps what was measured
        first_line = next(iter(str(error).splitlines()), "")
        kept = rank.keep_traceback()
        first = watchdog.blame()  # a collective that fails here may do so because another rank has gone
        own = f"rank {world.rank}: {type(error).__name__}: {first_line}{kept}"
        message = f"{first.message}; rank {world.rank} failed of it{kept}" if first else own
        rank.fail(message, ExitCode.RUN_FAILED, (first.ended_by if first else None) or ended_by_error(error))
    watchdog.watch_end(folder)
    let_terminate()  # all is written: nothing is left to say
    dist.destroy_process_group()
    return code


def _work(verb: Verb, job: Job[Any], rank: "_Rank") -> ExitCode:
    """Do what the job is for, on all ranks to the same end. Returns this rank's exit code."""
    watchdog = job.watchdog
    watchdog.arrive(PREPARING, "preparing", job.config.launch.timeout_s)
    try:
        verb.load_body()(job)
        watchdog.arrive(END, "the end", job.config.launch.timeout_s)
        dist.barrier(group=job.host_group)  # a good end is one that every rank has reached
        watchdog.end()
        rank.end("done")
    except Preempted as reason:
        watchdog.wait()
        rank.end("preempted", str(reason))
        dist.barrier(group=job.host_group)  # run.json is written before any rank's exit code can end the others
        watchdog.end()
        # torchrun would turn any other code into 1; run.json says what it was
        return ExitCode.OK if job.world.source == "torchrun" else ExitCode.PREEMPTED
    except NothingMeasured as reason:
        watchdog.wait()
        rank.end("failed", str(reason))
        if job.world.rank == 0:
            print(f"scalescope: {reason}", file=sys.stderr)
        dist.barrier(group=job.host_group)
        watchdog.end()
        return ExitCode.RUN_FAILED
    return ExitCode.OK


def _enter(
    config: JobConfig, text: str, folder: RunFolder, world: World, store: dist.Store, watchdog: ProgressWatchdog
) -> Job[Any]:
    """Give this rank its device, its groups and its share of the cores; rank 0 completes run.json."""
    launch = config.launch
    device = take_device(launch, world)
    timeout = timedelta(seconds=launch.timeout_s)
    flight_recorder.record_into(folder, launch.backend)
    watchdog.arrive(FORMING, "forming the process groups", launch.init_limit_s)
    if world.local_size is None or world.local_size < world.size:
        chosen = choose_interface(os.environ["MASTER_ADDR"])
        if chosen is not None:
            print(f"scalescope: rank {world.rank} talks over {chosen}", flush=True)
    else:
        stay_on_loopback()
    dist.init_process_group(
        launch.backend,
        store=dist.PrefixStore("default", store),
        rank=world.rank,
        world_size=world.size,
        timeout=timeout,
    )  # without device_id: groups would be split off this one's communicator, which ranks outside a group must attend
    host_group = cast(dist.ProcessGroup, dist.new_group(backend="gloo", timeout=timeout))
    own = describe(world.rank, device)
    devices: list[Device] = [own] * world.size
    dist.all_gather_object(devices, own, group=host_group)
    _refuse_shared(devices)
    watchdog.arrive(MEASURING, "measuring what the device can do", launch.init_limit_s)
    dist.barrier(group=host_group)  # all at once, so that no rank measures its ceiling beside another's start-up
    own_ceilings = ceilings(device, own.name, config.precision_kind)
    sinks = Sinks()
    if world.rank == 0:
        _complete_info(folder, config, world, devices, own_ceilings)
        sinks = open_sinks(config.logger, folder)
        sinks.start(cast(dict[str, Any], OmegaConf.to_container(OmegaConf.create(text))), folder.path.name)
    dist.barrier(group=host_group)  # run.json is complete before any rank can have a failure to write into it
    return Job(
        config=config,
        world=world,
        folder=folder,
        device=device,
        backend=launch.backend,
        store=store,
        host_group=host_group,
        devices=devices,
        ceilings=own_ceilings,
        sinks=sinks,
        watchdog=watchdog,
    )


def _refuse_shared(devices: list[Device]) -> None:
    """Raise UserError where two ranks got the same device: their figures would be each other's."""
    seen: dict[tuple[str, str], int] = {}
    for device in devices:
        if device.address is None:
            continue
        other = seen.setdefault((device.host, device.address), device.rank)
        if other != device.rank:
            raise UserError(f"ranks {other} and {device.rank} have the same GPU ({device.address} on {device.host}); "
                            "give each its own: one rank a GPU, or --gpus-per-task=1")  # fmt: skip


def _complete_info(
    folder: RunFolder, config: JobConfig, world: World, devices: list[Device], own_ceilings: Ceilings
) -> None:
    info = folder.read_info()
    info.status = "running"
    info.attempt = restarts()
    info.message = info.ended_unix_s = info.ended_by = None  # what an attempt before this one left
    info.backend = config.launch.backend
    info.world_size = world.size
    info.launcher, info.launch = world.source, launch_id(world)
    info.hosts = sorted({device.host for device in devices})
    info.devices = devices
    info.topology = topology(devices)
    info.ceilings = own_ceilings
    info.environment = capture(versions(config.launch.backend))
    folder.write_info(info)
    if config.study is None:  # a study's jobs all run on the same machine
        print(f"scalescope: {info.topology}", flush=True)


class _Rank:
    """How this rank ends, whichever of its threads finds out that it must."""

    def __init__(self, folder: RunFolder, world: World, watchdog: ProgressWatchdog) -> None:
        self._folder = folder
        self._world = world
        self._watchdog = watchdog
        self.sinks = Sinks()

    def end(self, status: RunStatus, message: str | None = None) -> None:
        """Write down how a job ended that came to its end."""
        if self._world.rank == 0:
            flight_recorder.tidy(self._folder)
            self._folder.set_status(status, message)
            self._close(status)

    def leave(self, reason: AbortReason, writes: bool) -> None:
        """Do what is last on this rank in a job that failed."""
        if writes:
            self._write(reason.status, reason.message, reason.ended_by)
        self._close(reason.status)

    def fail(self, message: str, code: ExitCode, ended_by: EndedBy = "failure") -> NoReturn:
        """Write this rank's own failure down and leave at once: the other ranks may never answer again.

        Any rank may be the first to fail, and what follows on the others is its consequence: the first reason stays.
        """
        if self._watchdog.announce(message, ended_by):
            self._write("failed", message, ended_by)
        else:
            print(f"scalescope: {message}", file=sys.stderr)
        if code == ExitCode.RUN_FAILED:
            flight_recorder.keep(self._folder, self._world.rank)
        self._close("failed")
        self._watchdog.part()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    def keep_traceback(self) -> str:
        """Keep the traceback of the error at hand; returns where, in brackets."""
        path = self._folder.logs / f"rank{self._world.rank}.error.txt"
        try:
            write_atomic(path, traceback.format_exc())
        except OSError:
            traceback.print_exc()
            return ""
        return f" (all of it in {path})"

    def _write(self, status: RunStatus, message: str, ended_by: EndedBy | None) -> None:
        try:
            info = self._folder.read_info()
            if info.status == "running":
                info.world_size = info.world_size or self._world.size
                self._folder.write_info(info)
                self._folder.set_status(status, message, ended_by)
                print(f"scalescope: {message}", file=sys.stderr)
        except (UserError, OSError) as error:  # no shared file system here, or a full disk: the console has it
            print(f"scalescope: {message} (run.json could not be written: {error})", file=sys.stderr)

    def _close(self, status: RunStatus) -> None:
        """Give the sinks the folder as it stands at the end, run.json's last word included."""
        self.sinks.artifact(self._folder.path)
        self.sinks.close(status)
