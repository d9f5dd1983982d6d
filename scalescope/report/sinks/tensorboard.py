"""TensorBoard, live: the scalars of every step as events, from rank 0.

The traces need no copy: torch-tb-profiler reads rank and span from the names they have in RUN/traces.
"""

import time
from pathlib import Path
from typing import Any

import msgspec

from scalescope.records.rows import RunStatus, StepRow, SweepRow
from scalescope.report.sinks.wandb_rows import sweep_metric


class TensorBoardSink:
    """A `scalescope.records.sink.Sink` that writes one event file. Its arguments are conf/logger/tensorboard.yaml's.

    `dir` is the run folder; the other names of a run mean nothing to TensorBoard.
    """

    def __init__(
        self,
        *,
        flush_every_s: float,
        dir: str,
        group: str | None = None,
        job_type: str | None = None,
        run_name: str | None = None,
    ) -> None:
        self.folder = Path(dir) / "tensorboard"
        self._flush_every_s = flush_every_s
        self._writer: Any = None

    def start(self, config: dict[str, Any], run_id: str) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._summary = Event, Summary
        self.folder.mkdir(parents=True, exist_ok=True)
        self._writer = EventFileWriter(str(self.folder), flush_secs=self._flush_every_s)

    def log(self, row: msgspec.Struct) -> None:
        """Write a step's figures at its number; a sweep's at the base-2 logarithm of its size, which sorts them."""
        if isinstance(row, StepRow):
            self._write(
                {
                    "train/step_ms": row.length_ms if row.step_ms else None,
                    "train/samples_per_s": row.samples_per_s,
                    "train/tokens_per_s": row.tokens_per_s,
                    "train/loss": row.loss,
                    "train/validation_loss": row.validation_loss,
                    "train/mfu": row.mfu,
                    "train/hfu": row.hfu,
                    "train/joules_per_sample": row.joules_per_sample,
                    "train/memory_peak_gb": row.memory_peak_bytes / 1e9 if row.memory_peak_bytes is not None else None,
                },
                row.step,
                row.unix_s,
            )
        elif isinstance(row, SweepRow) and row.bytes > 0:
            curve = f"sweep/{sweep_metric(row)}"
            self._write(
                {f"{curve}/busbw_gb_s": row.bus_gb_s, f"{curve}/time_us": row.time_us}, row.bytes.bit_length() - 1
            )

    def artifact(self, path: Path) -> None:
        """Nothing is copied: TensorBoard reads traces where they lie."""

    def close(self, status: RunStatus) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _write(self, figures: dict[str, float | None], step: int, unix_s: float | None = None) -> None:
        values = [
            self._summary.Value(tag=tag, simple_value=value) for tag, value in figures.items() if value is not None
        ]
        summary = self._summary(value=values)
        self._writer.add_event(self._event(summary=summary, step=step, wall_time=unix_s or time.time()))
