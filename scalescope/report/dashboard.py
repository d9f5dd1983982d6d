"""The W&B dashboard as code: a workspace and a report whose panels name what scalescope logs.

Sections lead from the verdict to its evidence: overview, training, collectives, traces, compare runs.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from scalescope.records.errors import RunError, UserError
from scalescope.records.files import write_atomic

_NAME = "scalescope"
_TRACES = (
    "**Traces.** Every profiled run has an artifact of type `profile` (its *Artifacts* tab): open a file of it and "
    "W&B's trace viewer shows that rank's timeline. `scalescope perfetto RUN` puts all ranks into one file for "
    "[ui.perfetto.dev](https://ui.perfetto.dev)."
)
_READING = (
    "The group of a run is its study. The run of job type `analysis` holds the verdict (its summary) and the tables "
    "and pictures below; the runs of job type `train` and `sweep` hold what was measured, live."
)


@dataclass(frozen=True)
class Dashboard:
    """Where the workspace and the report are: addresses, or files of a dry run."""

    workspace: str
    report: str


def write_dashboard(folder: Path, entity: str, project: str) -> Dashboard:
    """Write the workspace's and the report's models as JSON, without a network. Raises OSError."""
    models = {
        "workspace.json": workspace(entity, project)._to_model(),
        "report.json": report(entity, project)._to_model(),
    }
    for name, model in models.items():
        write_atomic(folder / name, model.model_dump_json(by_alias=True, exclude_none=True, indent=2) + "\n")
    return Dashboard(str(folder / "workspace.json"), str(folder / "report.json"))


def publish_dashboard(entity: str, project: str, workspace_url: str | None, report_url: str | None) -> Dashboard:
    """Create the workspace and the report, or bring those at the given addresses up to date.

    Raises UserError where nobody is logged in, RunError where W&B cannot be reached or refuses.
    """
    from wandb.errors import Error, UsageError

    try:
        return _publish(entity, project, workspace_url, report_url)
    except UsageError as error:
        raise UserError(f"W&B: {_first_line(error)}; --dry-run writes the models without it") from error
    except Error as error:
        raise RunError(f"W&B: {_first_line(error)}; --dry-run writes the models without it") from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")


def _publish(entity: str, project: str, workspace_url: str | None, report_url: str | None) -> Dashboard:
    wr, ws = _reports(), _workspaces()

    view = workspace(entity, project)
    if workspace_url is not None:
        known = ws.Workspace.from_url(workspace_url)
        known.sections = view.sections
        view = known
    page = report(entity, project)
    if report_url is not None:
        existing = wr.Report.from_url(report_url)
        existing.blocks = page.blocks
        page = existing
    view.save()
    page.save()
    return Dashboard(str(view.url), str(page.url))


def workspace(entity: str, project: str) -> Any:
    """Return the workspace: sections of panels over all runs of a project."""
    ws = _workspaces()

    sections = [
        ws.Section(name=name, panels=_placed(panels), is_open=number < 3)
        for number, (name, panels) in enumerate(_sections().items())
    ]
    return ws.Workspace(entity=entity, project=project, name=_NAME, sections=sections)


def report(entity: str, project: str) -> Any:
    """Return the report: the same panels as a page to send on, the analysis runs first."""
    wr = _reports()

    blocks: list[Any] = [wr.TableOfContents(), wr.P(_READING)]
    for name, panels in _sections().items():
        # a runset that names entity and project needs the network to be looked up; without, it is this project's
        blocks += [wr.H2(name), wr.PanelGrid(runsets=[wr.Runset(name="runs")], panels=_placed(panels))]
    return wr.Report(entity=entity, project=project, title="Why this job does not scale", width="fluid", blocks=blocks)


def _sections() -> dict[str, list[Any]]:
    """Return the panels of each section; every metric, table and picture they name is logged by sinks/wandb.py."""
    wr = _reports()

    def line(title: str, metric: str, x: str = "train/step", **more: Any) -> Any:
        return wr.LinePlot(title=title, x=x, y=[metric], **more)

    def curves(title: str, pattern: str, **more: Any) -> Any:
        return wr.LinePlot(title=title, x="sweep/bytes", metric_regex=pattern, log_x=True, **more)

    def table(key: str) -> Any:
        return wr.WeavePanelSummaryTable(table_name=key)

    def pictures(title: str, *keys: str) -> Any:
        return wr.MediaBrowser(title=title, media_keys=[f"pictures/{key}" for key in keys])

    return {
        "overview": [
            wr.MarkdownPanel(markdown=_READING),
            table("study/efficiency"),
            pictures("throughput and efficiency", "scaling-1", "scaling-2"),
            table("study/waterfall"),
            pictures("where the step's growth went", "growth-1"),
            wr.BarPlot(title="samples/s", metrics=["samples_per_s"], groupby=wr.Config("scalescope.world_size")),
            wr.BarPlot(title="MFU", metrics=["mfu"], groupby=wr.Config("scalescope.world_size")),
        ],
        "training": [
            line("loss", "train/loss"),
            line("loss against wall time", "wall/loss", "train/wall_s", title_x="s"),
            line("held-out loss", "train/validation_loss"),
            line("step, slowest rank, ms", "train/step_ms", ignore_outliers=True),
            line("samples/s", "train/samples_per_s", ignore_outliers=True),
            line("tokens/s", "train/tokens_per_s", ignore_outliers=True),
            line("MFU", "train/mfu"),
            line("peak memory, GB", "train/memory_peak_gb"),
            line("energy a sample, J", "train/joules_per_sample"),
            line("late: the last rank behind the median one, ms", "live/late_ms", ignore_outliers=True),
            line("which rank comes last", "live/last_rank"),
            line("recorded steps (1): windows, also those that an anomaly opened", "live/recorded"),
            table("study/step_times"),
        ],
        "collectives": [
            wr.LinePlot(
                title="busbw against size, GB/s", x="sweep/bytes", metric_regex="sweep/.*/busbw_gb_s", log_x=True
            ),
            wr.LinePlot(
                title="time a call, µs", x="sweep/bytes", metric_regex="sweep/.*/time_us", log_x=True, log_y=True
            ),
            pictures("busbw under the ceiling", "sweep-1", "sweep-2"),
            pictures("in training, beside the sweep", "collectives-1"),
            table("study/collectives"),
            table("study/sweep"),
        ],
        "traces": [
            wr.MarkdownPanel(markdown=_TRACES),
            pictures("where a step goes, rank by rank", "partition-1", "partition-2"),
            pictures("who waits, and when", "waits-1"),
            table("study/partition"),
            pictures("what takes the time", "kernels-1"),
            table("study/kernels"),
        ],
        "compare runs": [
            wr.RunComparer(diff_only=True),
            wr.BarPlot(title="step, ms", metrics=["step_ms"], groupby=wr.Config("scalescope.study")),
            wr.BarPlot(title="best busbw, GB/s", metrics=["best_busbw_gb_s"], groupby=wr.Config("scalescope.study")),
        ],
    }


def _placed(panels: Sequence[Any]) -> list[Any]:
    """Lay panels out two in a row; W&B's grid has 24 columns."""
    wr = _reports()

    for number, panel in enumerate(panels):
        panel.layout = wr.Layout(x=12 * (number % 2), y=8 * (number // 2), w=12, h=8)
    return list(panels)


def _reports() -> Any:
    """Return wandb_workspaces.reports.v2, which type checkers cannot see into."""
    return _library("wandb_workspaces.reports.v2")


def _workspaces() -> Any:
    return _library("wandb_workspaces.workspaces")


def _library(name: str) -> Any:
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # read when wandb is imported
    return import_module(name)
