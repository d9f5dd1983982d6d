"""A run folder: its name, its files, and how a run's state is read and written."""

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from scalescope.records.errors import UserError
from scalescope.records.files import RowWriter, read_document, read_rows, write_atomic
from scalescope.records.rows import (
    EndedBy,
    JobRow,
    Origin,
    RunInfo,
    RunKind,
    RunStatus,
    StepRow,
    SweepRow,
    TrainFacts,
    TriedRow,
)
from scalescope.records.scorecard.row import ScorecardRow
from scalescope.records.steps.job_steps import with_job_steps
from scalescope.records.steps.recording import RecordingFacts

#: What ended a run, where its status says no more.
_ENDED_BY: dict[RunStatus, EndedBy] = {"failed": "failure", "interrupted": "request", "preempted": "request"}

_TRACE_NAME = re.compile(r"rank(\d+)\.(\d+)\.pt\.trace\.json(\.gz)?$")


def new_name(verb: str, what: str) -> str:
    """Return `<date>-<verb>-<what>-<short id>`; the id keeps names apart that start in the same second."""
    return f"{datetime.now():%Y%m%d-%H%M%S}-{verb}-{what}-{secrets.token_hex(2)}"


class RunFolder:
    """The files of one run. Reading never needs torch; writing is rank 0's alone, but for traces."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, kind: RunKind, config: str, study: str | None = None) -> "RunFolder":
        """Make a new run folder with its frozen config.

        Raises UserError where the name is taken or the place cannot be written; nothing half-made is left then.
        """
        # os.path.exists: pathlib's raises where a parent may not be read
        made = [parent for parent in (path, *path.parents) if not os.path.exists(parent)]  # noqa: PTH110
        try:
            path.mkdir(parents=True, exist_ok=False)
            folder = cls(path)
            write_atomic(folder.config, config)
            folder.write_info(
                RunInfo(
                    kind=kind,
                    name=path.name,
                    status="running",
                    started_unix_s=time.time(),
                    study=study,
                    config_hash=hashlib.sha256(config.encode()).hexdigest()[:12],
                )
            )
        except FileExistsError:
            raise UserError(f"the run folder {path} exists already; choose another name, or leave `name` out") from None
        except OSError as error:
            if path in made:
                shutil.rmtree(path, ignore_errors=True)
            for parent in made[1:]:
                with contextlib.suppress(OSError):
                    parent.rmdir()  # only where nobody else has put something meanwhile
            raise UserError(f"cannot make the run folder {path}: {error.strerror}; set `runs=` to a folder "
                            "that you may write") from None  # fmt: skip
        return folder

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Return an existing run folder. Raises UserError where there is none."""
        if (path / "run.json").is_file():
            return cls(path)
        if not path.exists():
            raise UserError(f"{path} does not exist; give a run folder, such as those in runs/")
        inside = [child.path.name for child in cls(path).read_children()] if path.is_dir() else []
        hint = f"it holds {len(inside)} of them, such as {inside[-1]}" if inside else "train, sweep and study make them"
        raise UserError(f"{path} is no run folder: it has no run.json; {hint}")

    def refuse_read_only(self) -> None:
        """Raise UserError where what is found out cannot be written into the folder, as into somebody else's."""
        for path in (self.path, *(run.path for run in self.read_children())):
            if not os.access(path, os.W_OK):
                alone = f", or read its traces alone: {path / 'traces'}" if (path / "traces").is_dir() else ""
                raise UserError(f"{path} cannot be written, and its analysis.json and report.html go there; "
                                f"copy it (cp -r){alone}")  # fmt: skip

    @classmethod
    def open_study(cls, path: Path, why: str) -> "RunFolder":
        """Return an existing study folder. Raises UserError where there is none, with `why` it takes a study."""
        folder = cls.open(path)
        if (kind := folder.read_info().kind) != "study":
            raise UserError(f"{path} is a {kind} run; {why}")
        return folder

    def reopen(self) -> None:
        """Say that the run goes on, as nothing had ended it."""
        info = self.read_info()
        info.status, info.ended_unix_s, info.message, info.ended_by = "running", None, None, None
        self.write_info(info)

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def traces(self) -> Path:
        return self.path / "traces"

    @property
    def steps(self) -> Path:
        return self.path / "steps.jsonl"

    @property
    def recording(self) -> Path:
        return self.path / "recording.json"

    @property
    def sweep(self) -> Path:
        return self.path / "sweep.jsonl"

    @property
    def scorecard(self) -> Path:
        return self.path / "scorecard.jsonl"

    @property
    def tried(self) -> Path:
        return self.path / "tried.jsonl"

    @property
    def jobs(self) -> Path:
        return self.path / "jobs.jsonl"

    @property
    def analysis(self) -> Path:
        return self.path / "analysis.json"

    @property
    def timeline(self) -> Path:
        return self.path / "timeline.json.gz"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def flight_recorder(self) -> Path:
        return self.path / "flight_recorder"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def trace_of(self, rank: int, first_step: int) -> Path:
        """Where a rank's trace goes; torch-tb-profiler reads worker and span from this name."""
        return self.traces / f"rank{rank}.{first_step}.pt.trace.json.gz"

    def read_info(self) -> RunInfo:
        """Return run.json. Raises UserError where it is missing or does not decode."""
        path = self.path / "run.json"
        try:
            return read_document(path, RunInfo)
        except OSError as error:
            raise UserError(f"{path}: {error}") from error

    def write_info(self, info: RunInfo) -> None:
        write_atomic(self.path / "run.json", msgspec.json.format(msgspec.json.encode(info)))

    def set_status(self, status: RunStatus, message: str | None = None, ended_by: EndedBy | None = None) -> None:
        """End the run's record: status, end time, and why where that is not plain.

        `ended_by`: where the status does not say it (failed: a failure, unless somebody knows better).
        """
        info = self.read_info()
        info.status = status
        info.ended_unix_s = time.time()
        info.message = message
        info.ended_by = ended_by or _ENDED_BY.get(status)
        self.write_info(info)

    def write_facts(self, facts: TrainFacts) -> None:
        write_atomic(self.path / "facts.json", msgspec.json.format(msgspec.json.encode(facts)))

    def read_facts(self) -> TrainFacts | None:
        """Return facts.json; None where there is none. What older ones lack is taken from the frozen config.

        Raises UserError where it does not decode.
        """
        path = self.path / "facts.json"
        if not path.exists():
            return None
        facts = read_document(path, TrainFacts)
        if facts.origin is None and self.config.is_file():
            origin, dataset = _origin_of(self.config.read_text("utf-8", errors="replace"))
            facts = msgspec.structs.replace(facts, origin=origin, dataset=facts.dataset or dataset)
        return facts

    def write_recording(self, facts: RecordingFacts) -> None:
        """Write recording.json; windows of an earlier attempt at the run stay in it."""
        with contextlib.suppress(UserError):  # what does not decode is written anew
            facts = facts.after(self.read_recording())
        write_atomic(self.recording, msgspec.json.format(msgspec.json.encode(facts)))

    def read_recording(self) -> RecordingFacts | None:
        """Return recording.json; None where nothing was recorded. Raises UserError where it does not decode."""
        return read_document(self.recording, RecordingFacts) if self.recording.exists() else None

    def step_writer(self) -> RowWriter:
        return RowWriter(self.steps)

    def sweep_writer(self) -> RowWriter:
        return RowWriter(self.sweep)

    def scorecard_writer(self) -> RowWriter:
        return RowWriter(self.scorecard)

    def read_steps(self) -> list[StepRow]:
        """Return the rows of steps.jsonl by step; of a step done twice (a requeued job) the last attempt counts."""
        by_step: dict[int, StepRow] = {}
        for row in read_rows(self.steps, StepRow):
            by_step[row.step] = row
        return with_job_steps(by_step[step] for step in sorted(by_step))

    def read_tried(self) -> list[TriedRow]:
        """Return what advice a study followed in runs of its own."""
        return list(read_rows(self.tried, TriedRow))

    def read_jobs(self) -> list[JobRow]:
        """Return the jobs that a study consists of; none where it was made before they were kept."""
        return list(read_rows(self.jobs, JobRow))

    def read_sweep(self) -> list[SweepRow]:
        return list(read_rows(self.sweep, SweepRow))

    def read_scorecard(self) -> list[ScorecardRow]:
        return list(read_rows(self.scorecard, ScorecardRow))

    def read_children(self) -> list["RunFolder"]:
        """Return the runs of a study folder, by name."""
        return [RunFolder(child.parent) for child in sorted(self.path.glob("*/run.json"))]

    def find_traces(self) -> dict[int, list[Path]]:
        """Return the traces of each rank, by first step."""
        found: dict[int, list[tuple[int, Path]]] = {}
        for path in self.traces.glob("*.json*") if self.traces.is_dir() else ():
            if match := _TRACE_NAME.search(path.name):
                found.setdefault(int(match[1]), []).append((int(match[2]), path))
        return {rank: [path for _, path in sorted(found[rank])] for rank in sorted(found)}


def _origin_of(config: str) -> tuple[Origin, str | None]:
    """Return who wrote the loop of a frozen config, and the kind of its data: a job's strategy is a block of keys."""
    block = ""
    origin: Origin = "job"
    dataset = None
    for line in config.splitlines():
        key, _, value = line.partition(":")
        if not line.startswith((" ", "-")):
            block = key
            if key == "strategy" and value.strip():
                origin = "script"
        elif block == "data" and key.strip() == "kind":
            dataset = value.strip()
    return origin, dataset


def find_runs(root: Path) -> Iterator[RunFolder]:
    """Yield every run folder below a folder, the folder itself first."""
    for directory, names, files in os.walk(root):
        names.sort()
        if "run.json" in files:
            yield RunFolder(Path(directory))
