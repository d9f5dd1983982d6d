"""What of a step or of a point of a sweep becomes W&B's history, and what of all of them its summary."""

import re
from typing import Any

from scalescope.records.rows import RunStatus, StepRow, SweepRow
from scalescope.records.statistics import median_of_known
from scalescope.report.drawing.tables import Table
from scalescope.report.views import sweep_table, sweep_variant

_BINS = 16
_TABLE_ROWS = 10_000  # W&B shows no more


class Rows:
    """The rows of one run, as W&B gets them."""

    def __init__(self) -> None:
        self._started_unix_s: float | None = None
        self._defined: set[str] = set()
        self._steady: list[StepRow] = []
        self._last_loss: tuple[float | None, float | None] = (None, None)
        self._sweep: list[SweepRow] = []

    def log_step(self, run: Any, row: StepRow) -> None:
        """Log a step against its number and against wall time; what was not measured is not logged."""
        import wandb

        if self._started_unix_s is None:
            self._started_unix_s = row.unix_s
        length = row.length_ms if row.step_ms else None
        figures: dict[str, Any] = {
            "train/step": row.step,
            "train/wall_s": row.unix_s - self._started_unix_s if row.unix_s and self._started_unix_s else None,
            "train/step_ms": length,
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
            "live/recorded": int(row.phase == "profile"),
            "train/attempt": row.attempt,
            "wall/loss": row.loss,
            "wall/samples_per_s": row.samples_per_s,
        }
        if len(row.step_ms) > 1:
            figures["train/rank_step_ms"] = wandb.Histogram(row.step_ms, num_bins=_BINS)
        if len(row.own_ms) > 1:
            # who came last to where ranks wait for each other, and by how much behind the median rank
            figures["live/last_rank"] = row.own_ms.index(max(row.own_ms))
            figures["live/late_ms"] = max(row.own_ms) - sorted(row.own_ms)[(len(row.own_ms) - 1) // 2]
            figures["live/rank_own_ms"] = wandb.Histogram(row.own_ms, num_bins=_BINS)
        run.log({key: value for key, value in figures.items() if value is not None})
        if row.phase == "steady":
            self._steady.append(row)
        loss, held_out = self._last_loss
        self._last_loss = (
            loss if row.loss is None else row.loss,
            held_out if row.validation_loss is None else row.validation_loss,
        )

    def log_point(self, run: Any, row: SweepRow) -> None:
        """Log a measured point of a sweep against its size, on a curve of its own operation, group and dtype."""
        self._sweep.append(row)
        if row.time_us is None:
            return
        place = f"sweep/{sweep_metric(row)}"
        if place not in self._defined:
            self._defined.add(place)
            run.define_metric(f"{place}/*", step_metric="sweep/bytes")
        figures = {"time_us": row.time_us, "algbw_gb_s": row.alg_gb_s, "busbw_gb_s": row.bus_gb_s,
                   "ceiling_gb_s": row.ceiling_gb_s, "wrong": row.wrong}  # fmt: skip
        known = {f"{place}/{key}": value for key, value in figures.items() if value is not None}
        run.log({"sweep/bytes": row.bytes, **known})

    def log_end(self, run: Any, status: RunStatus, *, tables: bool = True) -> None:
        """Write the headline figures into the summary, and the sweep as a table where tables are wanted."""
        for key, value in self._headline(status).items():
            run.summary[key] = value
        if self._sweep and tables:
            run.log({"sweep/points": wandb_table(sweep_table(self._sweep))})

    def _headline(self, status: RunStatus) -> dict[str, Any]:
        best = max((row for row in self._sweep if row.bus_gb_s), key=lambda row: row.bus_gb_s or 0.0, default=None)
        figures: dict[str, float | str | None] = {
            "status": status,
            "step_ms": median_of_known(row.length_ms if row.step_ms else None for row in self._steady),
            "samples_per_s": median_of_known(row.samples_per_s for row in self._steady),
            "tokens_per_s": median_of_known(row.tokens_per_s for row in self._steady),
            "mfu": median_of_known(row.mfu for row in self._steady),
            "hfu": median_of_known(row.hfu for row in self._steady),
            "joules_per_sample": median_of_known(row.joules_per_sample for row in self._steady),
            "loss": self._last_loss[0],
            "validation_loss": self._last_loss[1],
            "best_busbw_gb_s": best.bus_gb_s if best else None,
            "best_busbw_at_bytes": best.bytes if best else None,
            "sweep_points": len(self._sweep) or None,
        }
        return {key: value for key, value in figures.items() if value is not None}


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
