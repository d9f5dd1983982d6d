"""What rank 0 keeps of a user's script: the run folder, its rows in the order of steps, and who watches live."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from omegaconf import OmegaConf

from scalescope.hardware.detect import versions
from scalescope.hardware.doctor import topology
from scalescope.hardware.peaks import USUAL_PRECISION, find_peak
from scalescope.launch.sinks import open_sinks
from scalescope.records.environment import capture
from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder, new_name
from scalescope.records.rows import Ceilings, Device, RunStatus, StepPhase, StepRow, TrainFacts
from scalescope.records.steps.busy_threads import BusyThread
from scalescope.records.steps.job_steps import JobSteps
from scalescope.records.steps.recording import (
    LongerFacts,
    RecordedWindow,
    RecordingBursts,
    RecordingFacts,
    recorded_facts,
)
from scalescope.records.steps.worker_times import ChildTime, WorkerTime
from scalescope.train.measure.accounting import Accounting
from scalescope.train.measure.anomaly import Anomaly, AnomalyWatch
from scalescope.train.measure.loading import LiveNews
from scalescope.train.script import announce
from scalescope.train.script.config import ScriptConfig
from scalescope.train.script.exchange import Lap, Message
from scalescope.train.script.membership import Membership

_Figure = TypeVar("_Figure", int, float)


class RunRecorder:
    """Writes a row once every rank has sent its lap of a step.

    `phase` says which phase a step is in; `say` tells those who look on.
    """

    def __init__(
        self,
        config: ScriptConfig,
        text: str,
        membership: Membership,
        device: Device,
        phase: Callable[[int], StepPhase],
        say: Callable[[str], None],
    ) -> None:
        self._size = membership.size
        self._phase = phase
        self._say = say
        self._news = LiveNews(runs_ahead=device.kind != "cpu")
        profiler = config.profiler
        self._anomalies = AnomalyWatch(profiler.anomaly_every) if profiler.enabled and profiler.on_anomaly else None
        self._anomaly: Anomaly | None = None
        self._opened: dict[int, LongerFacts] = {}  # by the first recorded step of a window
        self._laps: dict[int, dict[int, Lap]] = {}  # by step, then by rank
        self._memory: dict[int, int] = {}
        self._devices = {device.rank: device}
        self._bursts: dict[int, RecordingBursts] = {}
        self._threads: list[BusyThread] = []
        self._workers: list[WorkerTime] = []
        self._without_workers: set[int] = set()  # ranks that are known to have had none
        self._children: list[ChildTime] = []
        self._windows: dict[int, RecordedWindow] = {}  # the longest that a rank recorded, by first step
        self._counts_samples = config.samples is not None
        self._samples = dict.fromkeys(range(membership.size), config.samples or 1)  # by rank
        self._next_step = config.first_step
        self.ended: set[int] = set()
        self.remarks: list[str] = []
        self.folder, self.taken_name = _make_folder(config, text, membership)
        ceilings = _ceilings(config, device)
        self._job_steps = JobSteps()
        self._accounting = Accounting(
            ranks=membership.size,
            samples_per_step=(config.samples or 1) * membership.size,
            tokens_per_sample=config.tokens_per_sample,
            flops_per_sample=config.flops_per_sample,
            hardware_flops_per_sample=None,  # what a script computes again, it does not tell
            peak_tflops=ceilings.peak_tflops,
            matmul_tflops=None,
        )
        self.folder.write_facts(_facts(config))
        self._complete_info(membership, device, ceilings)
        self._writer = self.folder.step_writer()
        self._sinks = open_sinks(config.logger, self.folder)
        self._sinks.start(_as_dict(text), self.folder.path.name)

    def take(self, messages: Sequence[Message]) -> None:
        """Take what the ranks sent, and write the rows that are complete now."""
        for message in messages:
            for lap in message.laps:
                self._laps.setdefault(lap.step, {})[message.rank] = lap
            self._memory[message.rank] = message.memory_peak_bytes
            self.remarks += [f"rank {message.rank}: {remark}" for remark in message.remarks]
            if message.device is not None:
                self._devices[message.rank] = message.device
            # where rank 0 was told none, ranks count batches, and another rank's samples are no amount of those
            if self._counts_samples and message.samples is not None and message.samples != self._samples[message.rank]:
                self._samples[message.rank] = message.samples
                self._accounting = replace(self._accounting, samples_per_step=sum(self._samples.values()))
            self._threads += message.threads
            self._workers += [message.workers] if message.workers is not None else []
            if message.no_workers:
                self._without_workers.add(message.rank)
            self._children += message.children
            if message.bursts is not None:
                self._bursts[message.rank] = message.bursts
            for one in message.windows:
                known = self._windows.get(one.steps[0], one)
                self._windows[one.steps[0]] = max(one, known, key=lambda window: len(window.steps))
            if message.ended:
                self.ended.add(message.rank)
        while len(self._laps.get(self._next_step, ())) == self._size:
            self._write(self._next_step)

    def take_anomaly(self) -> Anomaly | None:
        """Return steps that have become longer, once."""
        found, self._anomaly = self._anomaly, None
        return found

    def note_opened(self, first: int, anomaly: Anomaly) -> None:
        """Keep why the window was opened whose first recorded step this is."""
        self._opened[first] = anomaly.facts

    def complete(self) -> bool:
        """Whether every rank has said its last word."""
        return len(self.ended) == self._size

    def end(self, status: RunStatus, message: str | None) -> list[str]:
        """Write what is left, end the record, and return what a reader has to know."""
        if missing := sorted(set(range(self._size)) - self.ended):
            self.remarks.append(f"of {self._size} ranks, {_some(missing)} did not say a last word; rows may lack them")
        for step in sorted(self._laps):
            self._write(step)
        self._writer.close()
        self._write_recording()
        self._note_samples()
        info = self.folder.read_info()
        info.devices = [self._devices[rank] for rank in sorted(self._devices)]
        info.hosts = sorted({device.host for device in info.devices})
        info.topology = topology(info.devices)
        self.folder.write_info(info)
        if info.status == "running":  # else a rank that failed first has said why
            self.folder.set_status(status, message)
        if self.folder.traces.is_dir():
            self._sinks.artifact(self.folder.traces)
        self._sinks.artifact(self.folder.path)
        self._sinks.close(status)
        return self.remarks

    def _write(self, step: int) -> None:
        laps = self._laps.pop(step)
        self._next_step = step + 1
        # a entry in step_ms is a rank: where one is missing, the list ends before it
        known = [laps[rank] for rank in range(next(rank for rank in range(self._size + 1) if rank not in laps))]
        if not known:
            return
        row = self._accounting.row(
            step=step,
            phase=self._phase(step),
            step_ms=[lap.ms for lap in known],
            losses=[lap.loss for lap in known if lap.loss is not None and math.isfinite(lap.loss)],
            memory_peak_bytes=max(self._memory.values()) or None,
            power_w=math.nan,
            validation_loss=None,
            attempt=0,
            unix_s=time.time(),
            own_ms=_all_told([lap.own_ms for lap in known]),
            run_delay_ms=_all_told([lap.run_delay_ms for lap in known]),
            loading_ms=_all_told([lap.loading_ms for lap in known]),
            own_run_delay_ms=_all_told([lap.own_run_delay_ms for lap in known]),
            job_step_ms=self._job_steps.take(step, [lap.ms for lap in known]),
            on_cpu_ms=_all_told([lap.on_cpu_ms for lap in known]),
            workers_started=_all_told([lap.workers_started for lap in known]),
        )
        self._writer.append(row)
        self._sinks.log(row)
        self._tell_lateness(row)
        if self._anomalies is not None and row.phase == "steady":
            self._anomaly = self._anomalies.take(step, row.length_ms) or self._anomaly

    def _tell_lateness(self, row: StepRow) -> None:
        """Say which rank the others wait for, and who loads for long, from when on that is so; and that it is over."""
        if self._news.take(row):
            self._say(announce.late(row.step, self._news.text))
            self._news.told()

    def _note_samples(self) -> None:
        """Keep, and say, that ranks work on different numbers of samples."""
        least, most = (choose(self._samples, key=self._samples.__getitem__) for choose in (min, max))
        if self._samples[least] == self._samples[most]:
            return
        by_rank = tuple(self._samples[rank] for rank in sorted(self._samples))
        self.remarks.append(
            f"ranks have different numbers of samples a step: rank {least} {self._samples[least]}, rank {most} "
            f"{self._samples[most]}"
        )
        facts = self.folder.read_facts()
        if facts is not None:
            mean = round(sum(by_rank) / len(by_rank))
            self.folder.write_facts(msgspec.structs.replace(facts, samples_per_rank_step=mean, samples_by_rank=by_rank))

    def _write_recording(self) -> None:
        if not self._windows:
            return
        rows = self.folder.read_steps()
        self.folder.write_recording(
            RecordingFacts(
                bursts=[self._bursts[rank] for rank in sorted(self._bursts)],
                threads=self._threads,
                workers=sorted(self._workers, key=lambda one: one.rank),
                no_workers=len(self._without_workers) == self._size,
                children=sorted(self._children, key=lambda one: (one.rank, -one.cores)),
                windows=[
                    msgspec.structs.replace(recorded_facts(rows, own), longer=self._opened.get(own.steps[0]))
                    for _, own in sorted(self._windows.items())
                ],
            )
        )

    def _complete_info(self, membership: Membership, device: Device, ceilings: Ceilings) -> None:
        info = self.folder.read_info()
        info.backend = membership.backend
        info.world_size = membership.size
        info.launcher = membership.source
        info.devices = [device]
        info.hosts = [device.host]
        info.ceilings = ceilings
        info.environment = capture(versions(membership.backend))
        self.folder.write_info(info)


def _make_folder(config: ScriptConfig, text: str, membership: Membership) -> tuple[RunFolder, str | None]:
    """Make the run folder, in its study's where one is named; return it, and the wanted name where that was taken.

    A name that is taken gets a number. Raises UserError where no folder can be made.
    """
    runs = Path(config.runs).expanduser().resolve()
    if config.study is not None:
        _make_study(runs / config.study)
        runs /= config.study
        name = config.name or f"{config.what}-n{membership.size}"
    else:
        name = config.name or new_name("script", config.what)
    path, number = runs / name, 1
    while path.exists():
        number += 1
        path = runs / f"{name}-{number}"
    return RunFolder.create(path, "train", text, config.study), name if number > 1 else None


def _make_study(path: Path) -> None:
    if (path / "run.json").is_file():
        return
    try:
        RunFolder.create(path, "study", f"study: {path.name}\n").set_status("done")
    except UserError:  # another script's rank 0 has just made it
        RunFolder.open(path)


def _facts(config: ScriptConfig) -> TrainFacts:
    return TrainFacts(
        model=config.what,
        strategy=config.strategy,
        precision=config.precision,
        parameters=config.parameters,
        flops_per_sample=config.flops_per_sample or 0.0,
        flops_formula=config.flops_formula,
        samples_per_rank_step=config.samples or 1,
        counts_batches=config.samples is None,
        tokens_per_sample=config.tokens_per_sample,
        origin="script",
    )


def _ceilings(config: ScriptConfig, device: Device) -> Ceilings:
    """The data sheet's ceiling, where MFU is wanted; none is measured on a device that somebody else is using."""
    peak = find_peak(device.name) if config.flops_per_sample and device.kind != "cpu" else None
    if peak is None:
        return Ceilings()
    precision = config.precision or USUAL_PRECISION  # MFU says over which peak it is, whatever the step runs in
    return Ceilings(
        peak_tflops=peak.tflops(precision),
        peak_dtype=precision,
        peak_source=peak.source,
        memory_tb_s=peak.memory_tb_s,
        link_gb_s=peak.link_gb_s,
        link_topology=peak.topology,
    )


def _as_dict(text: str) -> dict[str, Any]:
    config = OmegaConf.to_container(OmegaConf.create(text))
    assert isinstance(config, dict)
    return {str(key): value for key, value in config.items()}


def _all_told(by_rank: Sequence[_Figure | None]) -> list[_Figure]:
    """Return every rank's figure; none where one rank has none."""
    told = [one for one in by_rank if one is not None]
    return told if len(told) == len(by_rank) else []


def _some(ranks: Sequence[int]) -> str:
    return f"{', '.join(map(str, ranks[:8]))}{' …' if len(ranks) > 8 else ''}"
