"""Prometheus, through node_exporter's textfile collector: a job's latest figures, in one file that is replaced whole.

No port is opened and no service needed. Names follow OpenTelemetry's conventions as Prometheus writes them: units in
full, base units (seconds, bytes, ratios), `_total` for what only grows.
"""

import time
from pathlib import Path
from typing import Any

import msgspec

from scalescope.records.files import write_atomic
from scalescope.records.rows import RunStatus, StepRow, SweepRow


class PrometheusSink:
    """A `scalescope.records.sink.Sink` that keeps one text file. Its arguments are conf/logger/prometheus.yaml's.

    `dir` is the run folder; `group` becomes the label `study`, `run_name` the label `run`.
    """

    def __init__(
        self,
        *,
        file: str | None,
        write_every_s: float,
        dir: str,
        group: str | None = None,
        job_type: str | None = None,
        run_name: str | None = None,
    ) -> None:
        self.path = Path(file).expanduser() if file else Path(dir) / "scalescope.prom"
        if self.path.suffix != ".prom":
            raise ValueError(f"file={file}: node_exporter reads files that end in .prom")
        self._every_s = write_every_s
        self._labels = {"run": run_name or "", "study": group or "", "job_type": job_type or ""}
        self._last: StepRow | None = None
        self._steps = self._points = 0
        self._written_s = 0.0
        self._running = True

    def start(self, config: dict[str, Any], run_id: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._write()

    def log(self, row: msgspec.Struct) -> None:
        """Take a row; the file is written at most so often."""
        if isinstance(row, StepRow):
            self._last = row
            self._steps += 1
        elif isinstance(row, SweepRow):
            self._points += 1
        if time.monotonic() - self._written_s >= self._every_s:
            self._write()

    def artifact(self, path: Path) -> None:
        """Nothing is copied."""

    def close(self, status: RunStatus) -> None:
        """Write the last figures; the file stays, and says that the job no longer runs."""
        self._running = False
        self._write()

    def _write(self) -> None:
        self._written_s = time.monotonic()
        write_atomic(self.path, "".join(self._lines()), durable=False)  # between two steps

    def _lines(self) -> list[str]:
        lines = [
            *self._metric("scalescope_running", "gauge", "1 while the job runs", int(self._running)),
            *self._metric("scalescope_steps_total", "counter", "steps measured", self._steps),
            *self._metric("scalescope_sweep_points_total", "counter", "points measured", self._points),
        ]
        row = self._last
        if row is None:
            return lines
        length_s = row.length_ms / 1e3 if row.step_ms else None
        for name, what, value in (
            ("scalescope_step", "number of the last step", row.step),
            ("scalescope_step_duration_seconds", "of the last step, the slowest rank's", length_s),
            ("scalescope_samples_per_second", "over all ranks", row.samples_per_s),
            ("scalescope_tokens_per_second", "over all ranks", row.tokens_per_s),
            ("scalescope_loss", "mean over the ranks", row.loss),
            ("scalescope_model_flops_utilization_ratio", "over the data sheet's peak", row.mfu),
            ("scalescope_memory_peak_bytes", "of the fullest device", row.memory_peak_bytes),
            ("scalescope_energy_per_sample_joules", "of the devices", row.joules_per_sample),
            ("scalescope_last_step_timestamp_seconds", "when it was told, since 1970", row.unix_s),
        ):
            lines += self._metric(name, "gauge", what, value)
        lines += self._by_rank("scalescope_rank_step_duration_seconds", "of each rank's last step", row.step_ms)
        own = "until the rank first waits for the others"
        lines += self._by_rank("scalescope_rank_own_duration_seconds", own, row.own_ms)
        return lines

    def _by_rank(self, name: str, what: str, values_ms: list[float]) -> list[str]:
        if not values_ms:
            return []
        own = [f"{name}{self._label(rank=str(rank))} {ms / 1e3:.9g}\n" for rank, ms in enumerate(values_ms)]
        return [*_head(name, "gauge", what), *own]

    def _metric(self, name: str, kind: str, what: str, value: float | None) -> list[str]:
        return [] if value is None else [*_head(name, kind, what), f"{name}{self._label()} {_number(value)}\n"]

    def _label(self, **more: str) -> str:
        pairs = [f'{key}="{_escaped(value)}"' for key, value in {**self._labels, **more}.items() if value]
        return f"{{{','.join(pairs)}}}"


def _head(name: str, kind: str, what: str) -> list[str]:
    return [f"# HELP {name} {what}\n", f"# TYPE {name} {kind}\n"]


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.16g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
