"""Step by step: what profiling costs, and how step time and loss went over the training."""

from collections.abc import Sequence
from typing import Any

from scalescope.report.as_run.recording import by_own_steps, recording_ms, unmeasured
from scalescope.report.drawing.numbers import figure, milliseconds, percent
from scalescope.report.drawing.palette import category
from scalescope.report.drawing.panel import Key, Panel, drawing, of_run
from scalescope.report.drawing.tables import Table, stacked
from scalescope.report.replayed import fewer_replayed
from scalescope.report.report_data import ReportData, RunData
from scalescope.report.views import devices, run_label, step_times_table, steps_table
from scalescope.scaling.answer import RunAnalysis

_MOST_STEPS = 600  # points a line


def profiling_panels(data: ReportData) -> list[Panel]:
    """Return the measured step beside the step in the profiler's window, for every run that has them."""
    runs = [run for run in data.answers if run.step_times is not None]
    if not runs:
        return []
    table = step_times_table(runs)
    rows: list[dict[str, Any]] = []
    for run in runs:
        times = run.step_times
        if times and times.measured_step_ms is not None and times.profiled_step_ms is not None:
            cost = times.profiling_overhead_ms or 0.0
            share = times.profiling_overhead_fraction
            of_step = f" ({percent(share)})" if share is not None else ""
            rows.append(
                {"run": run_label(run), "measured": times.measured_step_ms, "window": times.profiled_step_ms,
                 "right": max(times.measured_step_ms, times.profiled_step_ms),
                 "label": "unsteady" if times.unsteady else f"{figure(cost, 2)} ms{of_step}"}
            )  # fmt: skip
    sentence = (
        f"{_recording(runs)} Every throughput in this report comes from steps outside the profiler's window. Steps "
        "here are medians by the job's own clock; elsewhere profiled ones are means in the traces."
    )
    charts = drawing() if rows else None
    return [
        Panel(
            "profiling",
            "The measured step beside the step in the profiler's window",
            sentence,
            table,
            [charts.profiling_overhead(rows)] if charts else [],
            [
                Key("measured step", category(0)),
                Key("step in the window", category(1)),
                Key(
                    "longer in the window, for recording or else; unsteady where others differ as much", "var(--ideal)"
                ),
            ],
            "" if rows else "no run has both a window and steady steps outside it",
        )
    ]


def _recording(runs: Sequence[RunAnalysis]) -> str:
    """Return what recording takes of a step, of the run in which it takes most, or that nothing tells."""
    known = [(taken, run) for run in runs if (taken := recording_ms(run)) is not None]
    if not known:
        if told := next(filter(None, map(unmeasured, runs)), ""):
            return f"{told}."
        return "What recording takes of a profiled step is not told by itself."
    taken, run = max(known, key=lambda one: one[0])
    fewer = fewer_replayed(run)
    of = "of a profiled step"
    if fewer is not None:
        of = f"of a profiled step, in the mean of {fewer.steps} of the {fewer.of} profiled ones"
    told = f"{milliseconds(taken)}{by_own_steps(run)}"
    return f"Recording takes {'up to ' * (len(known) > 1)}{told} {of} ({run_label(run)})."


def step_panels(data: ReportData, legends: bool) -> list[Panel]:
    """Return a panel a series: the slowest rank's time and the loss against the step, a line a run."""
    panels = []
    for name, members in data.by_series().items():
        runs = [run for run in members if run.steps]
        if not runs:
            continue
        titles = _titles(runs)
        times: list[dict[str, Any]] = []
        losses: list[dict[str, Any]] = []
        for run, title in zip(runs, titles, strict=True):
            thinned = run.steps[:: max(1, len(run.steps) // _MOST_STEPS)]
            times += [
                {"step": row.step, "value": row.length_ms, "group": title, "phase": row.phase}
                for row in thinned
                if row.step_ms and row.phase != "warmup"
            ]
            losses += [
                {"step": row.step, "value": row.loss, "group": title, "phase": row.phase}
                for row in thinned
                if row.loss is not None
            ]
        groups = [(title, category(index)) for index, title in enumerate(titles)]
        table = stacked([of_run(steps_table(run.steps), title) for run, title in zip(runs, titles, strict=True)])
        charts = drawing()
        panels.append(
            Panel(
                f"steps-{name}",
                name,
                _steps_sentence(runs[-1], titles[-1]),
                table or Table([], []),
                [
                    charts.over_steps(rows, groups, title, legends)
                    for rows, title in ((times, "ms a step, slowest rank"), (losses, "loss"))
                    if rows
                ]
                if charts
                else [],
                [Key(title, colour) for title, colour in groups],
                subject=name,
            )
        )
    return panels


def _steps_sentence(run: RunData, title: str) -> str:
    texts = ["Each step's slowest rank, warm-up left out of the picture."]
    losses = [row.loss for row in run.steps if row.loss is not None]
    held_out = [row.validation_loss for row in run.steps if row.validation_loss is not None]
    if len(losses) > 1:
        texts.append(f"On {title} the loss goes from {figure(losses[0], 3)} to {figure(losses[-1], 3)}.")
    if len(held_out) > 1:
        texts.append(f"Held out it goes from {figure(held_out[0], 3)} to {figure(held_out[-1], 3)}.")
    return " ".join(texts)


def _titles(runs: Sequence[RunData]) -> list[str]:
    """Return each run's rank count; its folder's name where that is not known or not unlike the others'."""
    plain = [
        devices(run.info.world_size, run.info.devices[0].kind) if run.info.world_size and run.info.devices else run.name
        for run in runs
    ]
    return [title if plain.count(title) == 1 else run.name for title, run in zip(plain, runs, strict=True)]
