"""Where finished rows go on rank 0: steps.jsonl first, then whoever watches."""

from contextlib import ExitStack
from types import TracebackType

from scalescope.launch.job import Job
from scalescope.records.rows import StepRow
from scalescope.train.config import TrainConfig
from scalescope.train.measure.progress import StepProgress


class Publisher:
    """Writes and shows each row. On the other ranks it is never handed one."""

    def __init__(self, job: Job[TrainConfig]) -> None:
        self._job = job
        self._stack = ExitStack()

    def __enter__(self) -> "Publisher":
        if self._job.is_rank0:
            self._writer = self._stack.enter_context(self._job.folder.step_writer())
            self._progress = self._stack.enter_context(
                StepProgress(
                    self._job.config.model.name, self._job.config.steps, runs_ahead=self._job.device.type != "cpu"
                )
            )
        return self

    def publish(self, row: StepRow) -> None:
        self._writer.append(row)
        self._job.sinks.log(row)
        self._progress.show(row)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()
