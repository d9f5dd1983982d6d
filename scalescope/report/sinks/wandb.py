"""Weights & Biases, live: one run a run folder, from rank 0, offline unless the user says otherwise.

Nothing of the environment goes there but the allow-listed capture of run.json: no code, no git remote, no command
line, no console, no crash reports. W&B's own calls run in a background thread, so that a step waits for none of them;
what they raise comes out of the next call, and `scalescope.records.sink.Sinks` drops a sink that raises.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from scalescope.records.console import as_typed
from scalescope.records.files import write_atomic
from scalescope.records.folder import RunFolder
from scalescope.records.rows import EndedBy, RunStatus, StepRow, SweepRow
from scalescope.records.sink import PackageMissing
from scalescope.report.redaction.pseudonyms import Pseudonyms
from scalescope.report.redaction.report_data import pseudonyms_of
from scalescope.report.redaction.structs import redacted, redacted_config
from scalescope.report.sinks.background import Background
from scalescope.report.sinks.wandb_files import Files
from scalescope.report.sinks.wandb_rows import Rows
from scalescope.report.sinks.wandb_run import RunDestination, drop_own_logs, is_full, open_run
from scalescope.report.sinks.wandb_service import end_service, within

_PAUSE_S = 2.0  # between bursts of rows
_OWN_LIMIT_S = 5.0  # beyond W&B's own limit, which its service keeps where that answers
#: An alert's title, by what ended the job; else its status is.
_TITLES: dict[EndedBy | None, str] = {"lost_rank": "Lost rank", "hang": "Hang"}


def missing_package(mode: str) -> str | None:
    """Return what to do where W&B's own package is not there, and is asked for; None where nothing is missing."""
    if mode == "disabled" or find_spec("wandb") is not None:
        return None
    return "wandb is not installed; pip install wandb, or logger=none"


class WandbSink:
    """A `Sink` that writes one W&B run. Its arguments are conf/logger/wandb.yaml's, where defaults live.

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
        redact: bool = False,
        group: str | None = None,
        job_type: str | None = None,
        run_name: str | None = None,
    ) -> None:
        if mode not in ("offline", "online", "disabled"):
            raise ValueError(f"logger.wandb.mode={mode}: choose offline, online or disabled")
        if (missing := missing_package(mode)) is not None:
            raise PackageMissing(missing)
        self.dir = Path(dir)
        # a study says once where all of its runs are
        self._is_of_study = job_type != "analysis" and group is not None and group != run_name
        self._place = RunDestination(mode, project, entity, name or run_name or "", group, job_type, tuple(tags))
        self._system_metrics = system_metrics
        self._init_timeout_s = init_timeout_s
        self._finish_timeout_s = finish_timeout_s
        self._rows = Rows()
        self._files = Files(self.dir, artifact_limit_mb, expand_traces)
        self._redact = redact
        self._known: Pseudonyms | None = None
        self._run: Any = None
        self._background: Background | None = None

    @property
    def run(self) -> Any:
        """The live wandb.Run. Raises RuntimeError before `start`."""
        if self._run is None:
            raise RuntimeError("the W&B sink was not started")
        return self._run

    def start(self, config: dict[str, Any], run_id: str) -> None:
        """Open the run with the frozen config, tagged by what run.json says of the job.

        Raises TimeoutError where W&B's service does not answer in time, and ends it.
        """
        place = replace(self._place, name=self._place.name or run_id)
        if self._redact:
            known = self._known = pseudonyms_of([RunFolder(self.dir)])
            config = redacted_config(config, known)
            place = replace(redacted(place, known), project=place.project, entity=place.entity)
        opening = partial(
            open_run,
            self.dir,
            place,
            config,
            known=self._known,
            system_metrics=self._system_metrics,
            init_timeout_s=self._init_timeout_s,
            finish_timeout_s=self._finish_timeout_s,
        )
        self._run = within(self._init_timeout_s + _OWN_LIMIT_S, "opening the run", opening)
        write_atomic(_mark_of(self.dir), run_id)
        self._background = Background("W&B", _PAUSE_S)

    def log(self, row: msgspec.Struct) -> None:
        """Log a step or a point of a sweep; rows of other kinds are not W&B's."""
        if isinstance(row, StepRow):
            self._later(lambda: self._rows.log_step(self.run, row))
        elif isinstance(row, SweepRow):
            self._later(lambda: self._rows.log_point(self.run, row))

    def artifact(self, path: Path) -> None:
        """Log a folder of traces as an artifact of type `profile`, any other file or folder as type `run-files`.

        Of a redacted run there are none: W&B writes down where each of an artifact's files lies. What does not fit
        under the size limit stays where it is and is said, on stderr and in the artifact's metadata.
        """
        if not self._redact:
            self._later(lambda: self._files.log(self.run, path))

    def close(self, status: RunStatus) -> None:
        """Write the summary's headline figures and the sweep as a table, and finish the run.

        A job that did not come to a good end sends an alert with the reason that run.json has.
        Raises TimeoutError where W&B does not answer, and ends its service: what it has so far stays on disk.
        """
        background, self._background = self._background, None
        if background is None:
            return
        place = Path(self.run.dir).parent
        if status in ("failed", "interrupted"):
            background.do(lambda: self._alert_end(status))
        background.do(lambda: self._finish(status))
        try:
            background.finish(self._finish_timeout_s + _OWN_LIMIT_S)
        except TimeoutError:
            end_service()  # or Python's own end would wait for it
            raise
        finally:
            _mark_of(self.dir).unlink(missing_ok=True)
            if self._redact:
                drop_own_logs(place)
        if is_full(place):  # W&B's process writes, and fails without a word
            print(
                f"scalescope: the disk of {place} is full: W&B's copy may lack what came last; the run folder's "
                "own files say what was measured",
                file=sys.stderr,
            )
        if self._place.mode == "offline" and not self._is_of_study:
            here = f"{as_typed(place)}{_of_jobs(self.dir)}"
            print(f"scalescope: W&B, offline (`wandb leet` shows it, `wandb sync` sends it): {here}", flush=True)

    def log_values(self, values: Callable[[], dict[str, Any]], summary: dict[str, Any]) -> None:
        """Log what a call returns (tables, charts, figures), as one row of history, and figures into the summary."""

        def call() -> None:
            self.run.log(values())
            for key, value in summary.items():
                self.run.summary[key] = value

        self._later(call)

    def alert(self, title: str, text: str) -> None:
        """Send a warning: W&B mails or posts it to who asked for it, once the run is online."""
        self._later(lambda: self.run.alert(title=self._said(title), text=self._said(text), level="WARN"))

    def _alert_end(self, status: RunStatus) -> None:
        info = RunFolder(self.dir).read_info() if (self.dir / "run.json").is_file() else None
        reason = (info.message if info is not None else None) or "run.json names no reason"
        what = _TITLES.get(info.ended_by if info is not None else None, status.capitalize())
        self.run.alert(title=self._said(f"{what}: {self.dir.name}"), text=self._said(reason), level="ERROR")

    def _said(self, text: str) -> str:
        return self._known.text(text) if self._known is not None else text

    def _later(self, call: Callable[[], None]) -> None:
        if self._background is None:
            raise RuntimeError("the W&B sink was not started")
        self._background.do(call)

    def _finish(self, status: RunStatus) -> None:
        import wandb

        self._rows.log_end(self.run, status, tables=not self._redact)
        self.run.finish(exit_code=0 if status in ("done", "preempted") else 1)
        self._run = None
        # `finish` returns before W&B's process has written its last records, and a failed job leaves at once; where a
        # run of the user's is open beside ours, it would end that one, and the process lives on anyway
        if wandb.run is None:
            wandb.teardown()


def _of_jobs(study: Path) -> str:
    """Return where the W&B runs of a study's jobs are, as a shell takes it, to stand behind the path of its own.

    With a word for them, since it is a pattern of several. "" of any other folder.
    """
    own = any(any((child.path / "wandb").glob("offline-run-*")) for child in RunFolder(study).read_children())
    return f"; its jobs: {as_typed(study)}/*/wandb/offline-run-*" if own else ""


def _mark_of(folder: Path) -> Path:
    """Return the file that is there while the run is open: rank 0 may be killed before it can end it."""
    return folder / "wandb" / "open"


def close_unfinished(folder: RunFolder, settings: Mapping[str, Any]) -> bool:
    """End the W&B run of a job whose rank 0 could not: with its status, an alert, and the small files.

    For who started the ranks, once they are gone; `settings` are the job's own of conf/logger/wandb.yaml. Returns
    whether there was anything to end. A W&B that fails is said and left.
    """
    info = folder.read_info()
    if not _mark_of(folder.path).is_file() or info.status == "running":
        return False
    try:
        sink = WandbSink(**settings, dir=str(folder.path), group=info.study or info.name, job_type=info.kind,
                         run_name=info.name)  # fmt: skip
        sink.start({}, info.name)
        sink.artifact(folder.path)
        sink.close(info.status)
    except Exception as error:  # noqa: BLE001 - whatever a stranger's service raises, the folder has everything
        print(f"scalescope: W&B was not told how the job ended ({error})", file=sys.stderr)
    return True
