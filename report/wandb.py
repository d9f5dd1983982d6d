"""Weights & Biases, live: one run a run folder, from rank 0, offline unless the user says otherwise.

Nothing of the environment goes there but the allow-listed capture of run.json: no code, no git remote, no command
line, no console, no crash reports. W&B's own calls run in a background thread, so that a step waits for none of them;
what they raise comes out of the next call, and `records.sink.Sinks` drops a sink that raises.
"""

import os
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Literal

import msgspec
from isal import igzip

from records.files import write_atomic
from records.folder import RunFolder
from records.rows import RunInfo, RunStatus, StepRow, SweepRow
from report.background import Background
from report.tables import Table
from report.views import sweep_table, sweep_variant

_MB = 10**6
_CHOSEN_DATA_DIR = os.environ.get("WANDB_DATA_DIR")
_CHUNK = 4 * 2**20
_BINS = 16
_PAUSE_S = 2.0  # between bursts of rows
#: How torch, NCCL and gloo say that a collective never came to its end.
_TIMED_OUT = re.compile(r"time[d -]*out", re.IGNORECASE)
_FULL_BYTES = 64 * 1024  # two blocks of W&B's file
_TABLE_ROWS = 10_000  # W&B shows no more
#: Small files of a run folder, which together explain its figures.
_SMALL_FILES = ("run.json", "config.yaml", "facts.json", "steps.jsonl", "sweep.jsonl", "analysis.json", "report.html")


class WandbSink:
    """A `records.sink.Sink` that writes one W&B run. Its arguments are conf/logger/wandb.yaml's, where defaults live.

    `dir` is the run folder; `group`, `job_type` and `run_name` come from whoever starts the job.
    """

    def __init__(
        self,
        *,
        mode: str,
        project: str,
        entity: str | None,
        name: str | None,
        tags: Sequence[str],
        system_metrics: bool,
        expand_traces: bool,
        artifact_limit_mb: float,
        init_timeout_s: float,
        finish_timeout_s: float,
        dir: str,
        group: str | None = None,
        job_type: str | None = None,
        run_name: str | None = None,
    ) -> None:
        if mode not in ("offline", "online", "disabled"):
            raise ValueError(f"logger.wandb.mode={mode}: choose offline, online or disabled")
        self.mode = mode
        self.project = project
        self.entity = entity
        self.name = name or run_name
        self.tags = list(tags)
        self.group = group
        self.job_type = job_type
        self.dir = Path(dir)
        self.expand_traces = expand_traces
        self._system_metrics = system_metrics
        self._room_bytes = int(artifact_limit_mb * _MB)
        self._init_timeout_s = init_timeout_s
        self._finish_timeout_s = finish_timeout_s
        self._started_unix_s: float | None = None
        self._defined: set[str] = set()
        self._steady: list[StepRow] = []
        self._last_loss: tuple[float | None, float | None] = (None, None)
        self._sweep: list[SweepRow] = []
        self._run: Any = None
        self._background: Background | None = None

    @property
    def run(self) -> Any:
        """The live wandb.Run. Raises RuntimeError before `start`."""
        if self._run is None:
            raise RuntimeError("the W&B sink was not started")
        return self._run

    def start(self, config: dict[str, Any], run_id: str) -> None:
        """Open the run with the frozen config, tagged by what run.json says of the job."""
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # read when wandb is imported
        if _CHOSEN_DATA_DIR is None:  # what W&B stages stays with the run, also when the folder travels
            os.environ["WANDB_DATA_DIR"] = str((self.dir / "wandb" / "data").absolute())
        self.dir.mkdir(parents=True, exist_ok=True)
        place = self.dir / "wandb"
        if _is_full(place if place.is_dir() else self.dir):  # W&B's own logging would say so thirty times
            raise OSError(f"the disk of {place} is full")
        import wandb

        info = RunFolder(self.dir).read_info() if (self.dir / "run.json").is_file() else None
        self._run = wandb.init(
            mode=self.mode,  # type: ignore[arg-type]  # checked in the constructor
            project=self.project,
            entity=self.entity,
            dir=str(self.dir),
            id=self._identity(),
            resume="allow" if self.mode == "online" else None,
            name=self.name or run_id,
            group=self.group,
            job_type=self.job_type,
            tags=_tags(self.tags, config, info),
            config={**config, **_facts_of(info)},
            settings=wandb.Settings(
                console="off",
                disable_code=True,
                disable_git=True,
                disable_job_creation=True,
                finish_timeout=self._finish_timeout_s,
                init_timeout=self._init_timeout_s,
                quiet=True,
                reinit="create_new",  # in a script of the user's there may be a run of their own
                save_code=False,
                show_info=False,
                silent=True,
                x_disable_machine_info=True,
                x_disable_meta=True,
                x_disable_stats=not self._system_metrics,
                x_save_requirements=False,
            ),
        )
        self._run.define_metric("train/step", hidden=True)
        self._run.define_metric("train/wall_s", hidden=True)
        self._run.define_metric("train/*", step_metric="train/step")
        self._run.define_metric("wall/*", step_metric="train/wall_s")
        self._run.define_metric("sweep/bytes", hidden=True)
        self._background = Background("W&B", _PAUSE_S)

    def log(self, row: msgspec.Struct) -> None:
        """Log a step or a point of a sweep; rows of other kinds are not W&B's."""
        if isinstance(row, StepRow):
            self._later(lambda: self._log_step(row))
        elif isinstance(row, SweepRow):
            self._later(lambda: self._log_point(row))

    def artifact(self, path: Path) -> None:
        """Log a folder of traces as an artifact of type `profile`, any other file or folder as type `run-files`.

        What does not fit under the size limit stays where it is and is said, on stderr and in the artifact's metadata.
        """
        self._later(lambda: self._log_files(path))

    def close(self, status: RunStatus) -> None:
        """Write the summary's headline figures and the sweep as a table, and finish the run.

        A job that did not come to a good end sends an alert with the reason that run.json has.
        Raises TimeoutError where W&B does not answer: what it has so far stays on disk.
        """
        background, self._background = self._background, None
        if background is not None:
            place = Path(self.run.dir).parent
            if status in ("failed", "interrupted"):
                background.do(lambda: self._alert_end(status))
            background.do(lambda: self._finish(status))
            background.finish(2 * self._finish_timeout_s)
            if _is_full(place):  # W&B's process writes, and fails without a word
                print(
                    f"scalescope: the disk of {place} is full: W&B's copy may lack what came last; the run folder's "
                    "own files say what was measured",
                    file=sys.stderr,
                )
            if self.mode == "offline":
                print(
                    f"scalescope: W&B run, offline: `wandb leet {place}` shows it, `wandb sync {place}` sends it",
                    flush=True,
                )

    def log_values(self, values: Callable[[], dict[str, Any]], summary: dict[str, Any] | None = None) -> None:
        """Log what a call returns (tables, charts, figures), as one row of history, and figures into the summary."""

        def call() -> None:
            self.run.log(values())
            for key, value in (summary or {}).items():
                self.run.summary[key] = value

        self._later(call)

    def alert(self, title: str, text: str) -> None:
        """Send a warning: W&B mails or posts it to who asked for it, once the run is online."""
        self._later(lambda: self.run.alert(title=title, text=text, level="WARN"))

    def _alert_end(self, status: RunStatus) -> None:
        info = RunFolder(self.dir).read_info() if (self.dir / "run.json").is_file() else None
        reason = (info.message if info is not None else None) or "run.json names no reason"
        what = "Hang" if _TIMED_OUT.search(reason) else status.capitalize()
        self.run.alert(title=f"{what}: {self.dir.name}", text=reason, level="ERROR")

    def _later(self, call: Callable[[], None]) -> None:
        if self._background is None:
            raise RuntimeError("the W&B sink was not started")
        self._background.do(call)

    def _log_files(self, path: Path) -> None:
        try:
            self._log_artifact(path)
        except OSError as error:  # the figures are still to come
            print(f"scalescope: W&B gets no copy of {path}: {error}", file=sys.stderr)

    def _log_artifact(self, path: Path) -> None:
        import wandb

        traces = [file for files in RunFolder(path.parent).find_traces().values() for file in files]
        is_traces = path.is_dir() and path.name == "traces"
        files = traces if is_traces else _small_files(path)
        kind, what = ("profile", "traces") if is_traces else ("run-files", "files")
        artifact = wandb.Artifact(f"{_artifact_name(self.dir.name)}-{what}", type=kind)
        left: list[str] = []
        for file in files:
            if not self._add(artifact, file):
                left.append(str(file))
        if left:
            artifact.metadata["left_in_place"] = left
            print(
                f"scalescope: W&B gets no copy of {len(left)} of {len(files)} files, which are larger than "
                f"logger.wandb.artifact_limit_mb leaves room for; they stay in {path}",
                file=sys.stderr,
            )
        artifact.metadata["files"] = len(files) - len(left)
        self.run.log_artifact(artifact)

    def _finish(self, status: RunStatus) -> None:
        import wandb

        for key, value in self._headline(status).items():
            self.run.summary[key] = value
        if self._sweep:
            self.run.log({"sweep/points": wandb_table(sweep_table(self._sweep))})
        self.run.finish(exit_code=0 if status in ("done", "preempted") else 1)
        self._run = None
        # `finish` returns before W&B's process has written its last records, and a failed job leaves at once; where a
        # run of the user's is open beside ours, it would end that one, and the process lives on anyway
        if wandb.run is None:
            wandb.teardown()

    def _log_step(self, row: StepRow) -> None:
        import wandb

        if self._started_unix_s is None:
            self._started_unix_s = row.unix_s
        slowest = max(row.step_ms, default=None)
        figures: dict[str, Any] = {
            "train/step": row.step,
            "train/wall_s": row.unix_s - self._started_unix_s if row.unix_s and self._started_unix_s else None,
            "train/step_ms": slowest,
            "train/step_ms_fastest_rank": min(row.step_ms, default=None),
            "train/samples_per_s": row.samples_per_s,
            "train/tokens_per_s": row.tokens_per_s,
            "train/loss": row.loss,
            "train/validation_loss": row.validation_loss,
            "train/mfu": row.mfu,
            "train/mfu_of_measured": row.mfu_of_measured,
            "train/hfu": row.hfu,
            "train/joules_per_sample": row.joules_per_sample,
            "train/memory_peak_gb": row.memory_peak_bytes / 1e9 if row.memory_peak_bytes is not None else None,
            "train/phase": row.phase,
            "train/attempt": row.attempt,
            "wall/loss": row.loss,
            "wall/samples_per_s": row.samples_per_s,
        }
        if len(row.step_ms) > 1:
            figures["train/rank_step_ms"] = wandb.Histogram(row.step_ms, num_bins=_BINS)
        self.run.log({key: value for key, value in figures.items() if value is not None})
        if row.phase == "steady":
            self._steady.append(row)
        loss, held_out = self._last_loss
        self._last_loss = (
            loss if row.loss is None else row.loss,
            held_out if row.validation_loss is None else row.validation_loss,
        )

    def _log_point(self, row: SweepRow) -> None:
        self._sweep.append(row)
        if row.time_us is None:
            return
        place = f"sweep/{sweep_metric(row)}"
        if place not in self._defined:
            self._defined.add(place)
            self.run.define_metric(f"{place}/*", step_metric="sweep/bytes")
        figures = {"time_us": row.time_us, "algbw_gb_s": row.alg_gb_s, "busbw_gb_s": row.bus_gb_s,
                   "ceiling_gb_s": row.ceiling_gb_s, "wrong": row.wrong}  # fmt: skip
        known = {f"{place}/{key}": value for key, value in figures.items() if value is not None}
        self.run.log({"sweep/bytes": row.bytes, **known})

    def _headline(self, status: RunStatus) -> dict[str, Any]:
        best = max((row for row in self._sweep if row.bus_gb_s), key=lambda row: row.bus_gb_s or 0.0, default=None)
        figures: dict[str, float | str | None] = {
            "status": status,
            "step_ms": _median(max(row.step_ms, default=None) for row in self._steady),
            "samples_per_s": _median(row.samples_per_s for row in self._steady),
            "tokens_per_s": _median(row.tokens_per_s for row in self._steady),
            "mfu": _median(row.mfu for row in self._steady),
            "hfu": _median(row.hfu for row in self._steady),
            "joules_per_sample": _median(row.joules_per_sample for row in self._steady),
            "loss": self._last_loss[0],
            "validation_loss": self._last_loss[1],
            "best_busbw_gb_s": best.bus_gb_s if best else None,
            "best_busbw_at_bytes": best.bytes if best else None,
            "sweep_points": len(self._sweep) or None,
        }
        return {key: value for key, value in figures.items() if value is not None}

    def _identity(self) -> str:
        """Return the run's W&B id: kept beside it, so that a requeued job goes on in the same W&B run."""
        kept = self.dir / "wandb" / "id"
        if kept.is_file():
            return kept.read_text().strip()
        new = secrets.token_hex(4)
        write_atomic(kept, new)
        return new

    def _add(self, artifact: Any, file: Path) -> bool:
        """Add a file where it fits; return whether it did. W&B copies what may still change, but no trace."""
        policy: Literal["mutable", "immutable"] = "mutable"
        if ".trace.json" in file.name:
            policy = "immutable"
        if self.expand_traces and file.name.endswith(".trace.json.gz"):
            plain = self._expand(file)
            if plain is None:
                return False
            file = plain
        size = file.stat().st_size
        if size > self._room_bytes:
            return False
        self._room_bytes -= size
        artifact.add_file(str(file), name=file.name, policy=policy)
        return True

    def _expand(self, file: Path) -> Path | None:
        """Unpack a trace beside the W&B run; None where it would not fit under the limit."""
        plain = self.dir / "wandb" / "traces" / file.name.removesuffix(".gz")
        plain.parent.mkdir(parents=True, exist_ok=True)
        room = min(self._room_bytes, shutil.disk_usage(plain.parent).free // 2)
        written = 0
        packed = igzip.open(file, "rb")  # type: ignore[no-untyped-call]
        with packed, plain.open("wb") as out:
            while chunk := packed.read(_CHUNK):
                written += len(chunk)
                if written > room:
                    break
                out.write(chunk)
        if written > room:
            plain.unlink()
            return None
        return plain


def log_study(folder: RunFolder, settings: Mapping[str, Any]) -> None:
    """Log a study's analysis run; see report.wandb_study."""
    from report.wandb_study import log_study as log

    log(folder, settings)


def wandb_table(table: Table) -> Any:
    """Return a table as W&B's, under the machine's column names; a missing value stays missing."""
    import wandb

    columns: list[str | int] = [column.key for column in table.columns]
    return wandb.Table(columns=columns, data=[list(row) for row in table.rows[:_TABLE_ROWS]])


def sweep_metric(row: SweepRow) -> str:
    """Return a sweep curve's name in W&B: `all_reduce-4-float32`, with what else tells it apart."""
    variant = sweep_variant(row)
    parts = [row.operation, str(row.group_size), row.dtype, *([variant] if variant != "in place" else [])]
    return re.sub(r"[^A-Za-z0-9_-]+", "-", "-".join(parts))


def _tags(chosen: Iterable[str], config: dict[str, Any], info: RunInfo | None) -> list[str]:
    """Return the user's tags, then model, strategy, rank count, device and backend, as far as they are known."""
    found: list[str] = [*chosen]
    for group, key in (("model", "name"), ("strategy", "kind"), ("precision", "kind")):
        node = config.get(group)
        if isinstance(node, dict) and node.get(key):
            found.append(str(node[key]))
    if info is not None:
        found += [f"{info.world_size} ranks"] if info.world_size else []
        found += sorted({device.name for device in info.devices})
        found += [info.backend] if info.backend else []
    return [tag[:64] for tag in dict.fromkeys(found)]  # W&B refuses longer ones


def _facts_of(info: RunInfo | None) -> dict[str, Any]:
    """Return what run.json knows of the machine, under one key beside the frozen config."""
    if info is None:
        return {}
    kept = ("name", "kind", "study", "world_size", "backend", "launcher", "config_hash", "hosts", "environment",
            "ceilings", "devices")  # fmt: skip
    known = msgspec.to_builtins(info)
    return {"scalescope": {key: known[key] for key in kept if known.get(key) not in (None, [])}}


def _small_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return [path / name for name in _SMALL_FILES if (path / name).is_file()]


def _is_full(place: Path) -> bool:
    return shutil.disk_usage(place).free < _FULL_BYTES


def _artifact_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[:100]


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
