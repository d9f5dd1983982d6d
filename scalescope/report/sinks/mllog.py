"""MLPerf's log (MLLOG) of a training job: open division, research. Rank 0 writes RUN/mllog/result_<attempt>.txt.

The lines are those that MLPerf's rules ask of a submission, so that its compliance checker passes for a benchmark of
theirs. What they mean here: `train_samples` is what was trained on; `eval_accuracy` is exp(−loss), the geometric mean
of the probability of what is right, on held-out data where there are some and else of the last step's batch (metadata
`of` says which), since a run of some steps has no other quality.
"""

import logging
import math
from pathlib import Path
from typing import Any

import msgspec

from scalescope.records.folder import RunFolder
from scalescope.records.package import PACKAGE
from scalescope.records.rows import RunStatus, StepRow, TrainFacts

_MISSING = "mlperf-logging is not installed; pip install 'scalescope[mllog]'"


class MllogSink:
    """A `scalescope.records.sink.Sink`. Its arguments are conf/logger/mllog.yaml's; a sweep has nothing for it."""

    def __init__(
        self,
        *,
        organisation: str,
        platform: str | None,
        dir: str,
        group: str | None = None,
        job_type: str | None = None,
        run_name: str | None = None,
    ) -> None:
        try:
            from mlperf_logging.mllog.mllog import MLLogger
        except ImportError as error:
            raise ImportError(_MISSING) from error
        self._folder = RunFolder(Path(dir))
        self._organisation, self._platform = organisation, platform
        self._sink = logging.Logger("scalescope.mllog")  # of its own: nobody else's handlers see its lines
        self._log: Any = MLLogger(self._sink, root_dir=str(PACKAGE.parent))
        self._seed: int | None = None
        self._samples_per_step = 0
        self._last: StepRow | None = None
        self._evaluated = False

    def start(self, config: dict[str, Any], run_id: str) -> None:
        self._seed = config.get("seed")

    def log(self, row: msgspec.Struct) -> None:
        """Write a step's throughput, and a validation where it has one; before the first, what the run is."""
        if not isinstance(row, StepRow):
            return
        if self._last is None and not self._begin(row):
            return
        self._last = row
        at = {"step": row.step, "samples_count": self._samples(row)}
        self._log.event("tracked_stats", {"throughput": row.samples_per_s}, metadata=at, time_ms=_ms(row.unix_s))
        if row.validation_loss is not None and row.step > 0:
            self._evaluate(row, row.validation_loss, "held-out data")

    def artifact(self, path: Path) -> None:
        """Nothing is copied: a log is all there is."""

    def close(self, status: RunStatus) -> None:
        row = self._last
        if row is None:
            return
        if not self._evaluated and row.loss is not None:
            self._evaluate(row, row.loss, "the last step's batch")
        self._log.event("train_samples", self._samples(row), time_ms=_ms(row.unix_s))
        self._log.end("block_stop", metadata={"samples_count": self._samples(row)}, time_ms=_ms(row.unix_s))
        done = {"status": "success" if status == "done" else "aborted", "samples_count": self._samples(row)}
        self._log.end("run_stop", metadata=done, time_ms=_ms(row.unix_s))
        for handler in self._sink.handlers:
            handler.close()

    def _begin(self, row: StepRow) -> bool:
        """Write all that comes before the first step; return whether the run is a training job's."""
        facts = self._folder.read_facts()
        if facts is None:
            return False
        info = self._folder.read_info()
        path = self._folder.path / "mllog" / f"result_{row.attempt}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = logging.FileHandler(path, "w", encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(message)s"))
        self._sink.addHandler(handler)
        devices = [device.name for device in info.devices]
        self._samples_per_step = facts.samples_per_rank_step * max(1, len(devices))
        began = _ms(info.started_unix_s)
        first = None if row.unix_s is None else _ms(row.unix_s - sum(row.step_ms[:1]) / 1e3)
        self._say("cache_clear", value=False, time_ms=began)
        self._log.start("init_start", time_ms=began)
        self._submission(facts, self._platform or f"{len(devices)}x{devices[0] if devices else 'unknown'}", began)
        self._log.end("init_stop", time_ms=first)
        self._log.start("run_start", time_ms=first)
        self._log.start("block_start", metadata={"samples_count": row.step * self._samples_per_step}, time_ms=first)
        return True

    def _submission(self, facts: TrainFacts, platform: str, began: int | None) -> None:
        told = {
            "submission_benchmark": facts.mlperf_benchmark or facts.model,
            "submission_org": self._organisation,
            "submission_division": "open",
            "submission_status": "research",
            "submission_platform": platform,
            "seed": self._seed,
            "global_batch_size": self._samples_per_step,
            "eval_samples": None,  # how many are held out, the rows do not tell
        }
        for key, value in told.items():
            self._say(key, value=value, time_ms=began)

    def _say(self, key: str, *, value: object, time_ms: int | None) -> None:
        self._log.event(key, value, time_ms=time_ms)

    def _evaluate(self, row: StepRow, loss: float, of: str) -> None:
        self._evaluated = True
        at = {"epoch_num": 1, "samples_count": self._samples(row)}
        said = {**at, "of": of, "metric": "exp(-loss)"}
        self._log.start("eval_start", metadata=at, time_ms=_ms(row.unix_s))
        self._log.event("eval_accuracy", math.exp(-loss), metadata=said, time_ms=_ms(row.unix_s))
        self._log.end("eval_stop", metadata=at, time_ms=_ms(row.unix_s))

    def _samples(self, row: StepRow) -> int:
        return (row.step + 1) * self._samples_per_step


def _ms(unix_s: float | None) -> int | None:
    return None if unix_s is None else int(unix_s * 1e3)
