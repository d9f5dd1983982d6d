"""What a report shows, panel by panel: one sentence, its charts, and the table of their figures.

The HTML page and W&B's analysis run are both made of these, so they cannot disagree.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from records.rows import SweepRow
from report import parts
from report.material import Material, Run
from report.numbers import figure, milliseconds, percent, rate, size
from report.palette import category
from report.tables import Column, Table, stacked
from report.verdict import loss_sentence, sweep_verdict
from report.views import (
    activities,
    collectives_table,
    devices,
    efficiency_table,
    in_tokens,
    partition_table,
    points_of,
    run_label,
    series_names,
    sizes_of,
    step_split_table,
    step_times_table,
    steps_table,
    sweep_table,
    sweep_variant,
    waterfall_steps,
    waterfall_table,
)
from scaling.answer import RunAnalysis, ScalingPoint, Waterfall

Spec = dict[str, Any]
Draw = Callable[[ModuleType], list[Spec]]

NO_DRAWING = "Drawing charts needs altair and vl-convert-python, which are not installed here."
_MOST_BARS = 160  # ranks in one partition chart
_MOST_CELLS = 20_000  # rank × step
_MOST_STEPS = 600  # points a line of a training curve
_ALARM = 0.05  # of a step waited: full colour
_TRAINING = "in training"


@dataclass(frozen=True)
class Key:
    """One entry of a chart's legend."""

    name: str
    colour: str
    meaning: str = ""


@dataclass(frozen=True)
class Panel:
    """One claim and its evidence. Without charts, `reason` says why there are none."""

    key: str
    title: str
    sentence: str
    table: Table
    charts: list[Spec] = field(default_factory=list)
    legend: Sequence[Key] = ()
    reason: str = ""


@dataclass(frozen=True)
class Section:
    key: str
    title: str
    panels: list[Panel]


def can_draw() -> bool:
    """Say whether charts can be drawn here: altair writes them, vl-convert holds their JavaScript."""
    return find_spec("altair") is not None and find_spec("vl_convert") is not None


def sections(material: Material, *, legends: bool = False) -> list[Section]:
    """Return what there is to show of a folder, in reading order; sections without a panel are left out.

    `legends` puts a legend into each chart, for pictures that stand without the page around them.
    """
    built = [
        Section("scaling", "How it scales", _scaling(material)),
        Section("growth", "Where the step's growth went", _growth(material)),
        Section("partition", "Where a step goes, rank by rank", _partition(material, legends)),
        Section("waits", "Who waits, and when", _waits(material)),
        Section("collectives", "Collectives in training", _collectives(material, legends)),
        Section("sweep", "Collectives alone", _sweep(material, legends)),
        Section("profiling", "What profiling costs", _profiling(material)),
        Section("steps", "Step by step", _steps(material, legends)),
    ]
    return [section for section in built if section.panels]


def _drawn(draw: Draw) -> list[Spec]:
    if not can_draw():
        return []
    from report import charts

    return draw(charts)


def _panel(
    key: str, title: str, sentence: str, table: Table, draw: Draw | None, legend: Sequence[Key] = (), reason: str = ""
) -> Panel:
    charts = _drawn(draw) if draw else []
    if draw and not charts:
        reason = NO_DRAWING
    return Panel(key, title, sentence, table, charts, legend if charts else (), reason)


def _scaling(material: Material) -> list[Panel]:
    study = material.study
    if study is None:
        return []
    panels = []
    kinds = activities(material.answers)
    table = efficiency_table(study)
    for series in series_names(study):
        points = points_of(study, series)
        if not points:
            continue
        noun = "CPU ranks" if kinds.get(points[-1].run) == "cpu" else "GPUs"
        unit = "tokens/s" if in_tokens(points) else "samples/s"
        counts = [point.world_size for point in points]
        values = [_done(point, unit) for point in points]
        perfect = values[0] / counts[0] * counts[-1]
        rows = [
            {"count": count, "value": value, "label": rate(value), "ideal": values[0] / counts[0] * count}
            for count, value in zip(counts, values, strict=True)
        ]
        shares = [{"count": point.world_size, "value": point.efficiency, "label": percent(point.efficiency)}
                  for point in points]  # fmt: skip
        last = points[-1]
        where = devices(last.world_size, kinds.get(last.run))
        sentence = (
            f"{where} do {rate(values[-1])} {unit}; perfect {last.scaling} scaling (dashed) would be {rate(perfect)}. "
            f"Efficiency is {percent(last.efficiency)}."
            if len(points) > 1
            else f"{where} do {rate(values[-1])} {unit}; one count alone says nothing of scaling."
        )
        own = Table(table.columns, [row for row in table.rows if row[0] == series], table.reasons)
        panels.append(
            _panel(
                f"scaling-{series}", series, sentence, own,
                lambda charts, rows=rows, shares=shares, unit=unit, counts=counts, noun=noun: [  # type: ignore[misc]
                    charts.throughput(rows, unit, counts, noun), charts.efficiency(shares, counts, noun)],
                [Key("measured", category(0)), Key("perfect scaling", "var(--ideal)")],
            )
        )  # fmt: skip
    return panels


def _growth(material: Material) -> list[Panel]:
    study = material.study
    if study is None:
        return []
    kinds = activities(material.answers)
    panels = []
    for fall in study.waterfall:
        runs = [point.run for point in points_of(study, fall.series)]
        activity = kinds.get(runs[-1]) if runs else None
        start, end = devices(fall.from_world_size, activity), devices(fall.to_world_size, activity)
        panels.append(
            _panel(
                f"growth-{fall.series}-{fall.to_world_size}",
                f"{fall.series}: {start} → {end}",
                loss_sentence(fall),
                waterfall_table(fall),
                lambda charts, fall=fall: [_draw_waterfall(charts, fall)],  # type: ignore[misc]
            )
        )
    return panels


def _draw_waterfall(charts: ModuleType, fall: Waterfall) -> Spec:
    steps = [(part.name, f"var({part.variable})", ms) for part, ms in waterfall_steps(fall) if abs(ms) >= 0.005]
    drawn: Spec = charts.waterfall(steps, fall.growth_ms)
    return drawn


def _partition(material: Material, legends: bool) -> list[Panel]:
    panels = []
    for name, runs in _by_series(material).items():
        labels: list[str] = []
        rows: list[dict[str, Any]] = []
        for run in runs:
            for rank in run.ranks:
                label = f"{devices(run.world_size, run.activity)} · rank {rank.rank}"
                if len(labels) == _MOST_BARS:
                    break
                labels.append(label)
                steps = max(rank.steps, 1)
                rows += [
                    {"label": label, "part": part.name, "order": order, "ms": rank.part_ms(part.key) / steps,
                     "share": rank.part_ms(part.key) / rank.window_ms if rank.window_ms else 0.0}
                    for order, part in enumerate(parts.ALL)
                ]  # fmt: skip
        if not rows:
            continue
        present = [part for part in parts.ALL if any(row["part"] == part.name and row["ms"] > 0 for row in rows)]
        rows = [row for row in rows if row["part"] in {part.name for part in present}]
        legend = [Key(part.name, f"var({part.variable})", part.meaning) for part in present]
        table = stacked([_of_run(partition_table(run), devices(run.world_size, run.activity)) for run in runs])
        panels.append(
            _panel(
                f"partition-{name}", name, _partition_sentence(runs[-1]), table or Table([], []),
                lambda charts, rows=rows, labels=labels, present=present: [  # type: ignore[misc]
                    charts.partition(rows, labels, [(part.name, f"var({part.variable})") for part in present],
                                     legend=legends)],
                legend,
            )
        )  # fmt: skip
    return panels


def _partition_sentence(run: RunAnalysis) -> str:
    steps = sum(rank.steps for rank in run.ranks) or 1
    window = sum(rank.window_ms for rank in run.ranks) / steps
    means = {part.key: sum(rank.part_ms(part.key) for rank in run.ranks) / steps for part in parts.ALL}
    compute = means.pop("compute")
    worst = max(means, key=lambda key: means[key])
    text = (
        f"A mean step of {milliseconds(window)} on {devices(run.world_size, run.activity)} is "
        f"{percent(compute / window if window else 0)} compute"
    )
    if means[worst] <= 0:
        return f"{text}, and nothing else."
    return f"{text}; the largest other part is {parts.named(worst).name}, {milliseconds(means[worst])} a step."


def _waits(material: Material) -> list[Panel]:
    panels = []
    for run in material.answers:
        if run.world_size < 2 or not run.steps:
            continue
        split = any(row.exposed_wait_ms or row.exposed_transfer_ms for row in run.steps)
        key = "exposed_wait" if split else "exposed_unsplit"
        title = parts.named(key).name
        rows = [
            {"rank": row.rank, "step": row.step, "ms": row.part_ms(key), "length": row.window_ms} for row in run.steps
        ]
        worst = max(run.steps, key=lambda row: row.part_ms(key))
        sentence = (
            f"The longest {title} is {milliseconds(worst.part_ms(key))}, on rank {worst.rank} in step {worst.step}."
            if worst.part_ms(key) > 0
            else f"No rank has any {title} in the profiled steps."
        )
        if not split and worst.part_ms(key) > 0:
            sentence += " Waiting and moving could not be told apart in these traces."
        # a wait that is a hundredth of a step must not look like an alarm
        full = max(worst.part_ms(key), _ALARM * worst.window_ms)
        many = len(rows) > _MOST_CELLS
        panels.append(
            _panel(
                f"waits-{run.name}", run_label(run), sentence, step_split_table(run),
                None if many else lambda charts, rows=rows, title=title, full=full: [  # type: ignore[misc]
                    charts.heat_map(rows, f"{title}, ms", full)],
                [Key(f"{milliseconds(full)} of {title} or more; paler is less", "var(--heat)")],
                reason=f"{len(rows):,} cells are too many for one picture; the table has them." if many else "",
            )
        )  # fmt: skip
    return panels


def _collectives(material: Material, legends: bool) -> list[Panel]:
    panels = []
    for run in material.answers:
        if not run.collectives:
            continue
        table = collectives_table(run)
        fields = [column.key for column in table.columns]
        kinds: list[dict[str, Any]] = [dict(zip(fields, row, strict=True)) for row in table.rows]
        placed = [kind for kind in kinds if kind["bus_gb_s"] and kind["bytes"]]
        operations = list(dict.fromkeys(str(kind["operation"]) for kind in placed))
        curves = [row for row in _curves(material, operations) if row.group_size == run.world_size]
        groups = [(f"{name}, {_TRAINING}", category(index)) for index, name in enumerate(operations)]
        groups += [
            (f"{name}, alone", f"var(--c{(index + 3) % 6 + 1})")
            for index, name in enumerate(dict.fromkeys(row.operation for row in curves))
        ]
        points = [
            {"bytes": kind["bytes"], "bus": kind["bus_gb_s"], "group": f"{kind['operation']}, {_TRAINING}",
             "time": kind["transfer_us"], "size": size(int(kind["bytes"])), "calls": kind["calls"],
             "in_situ": percent(float(kind["in_situ_efficiency"])) if kind["in_situ_efficiency"] else "not known"}
            for kind in placed
        ]  # fmt: skip
        lines = [_curve_row(row, f"{row.operation}, alone") for row in curves]
        ceilings = _link_ceiling(material, curves)
        panels.append(
            _panel(
                f"collectives-{run.name}", run_label(run), _collectives_sentence(run, kinds, bool(curves)), table,
                (lambda charts, lines=lines, groups=groups, ceilings=ceilings, points=points: [  # type: ignore[misc]
                    charts.bus_bandwidth(lines, groups, ceilings, points, legend=legends)]) if points else None,
                [Key(name, colour) for name, colour in groups],
                reason="" if points else "no collective's bandwidth is known: "
                + table.reasons["bus_gb_s"],
            )
        )  # fmt: skip
    return panels


def _collectives_sentence(run: RunAnalysis, kinds: list[dict[str, Any]], compared: bool) -> str:
    calls = len(run.collectives)
    where = devices(run.world_size, run.activity)
    text = f"{calls} collectives of {len(kinds)} kinds ran in the profiled steps on {where}"
    sized = [kind for kind in kinds if kind["bytes"] and kind["bus_gb_s"]]
    if not sized:
        return f"{text}."
    largest = max(sized, key=lambda kind: kind["bytes"])
    text += (
        f"; the largest, {largest['operation']} of {size(largest['bytes'])}, moves at {rate(largest['bus_gb_s'])} GB/s "
        f"busbw"
    )
    if largest["in_situ_efficiency"]:
        text += f", {percent(largest['in_situ_efficiency'])} of its speed alone"
    return f"{text}. The line is the same operation with nothing else running." if compared else f"{text}."


def _curves(material: Material, operations: Sequence[str]) -> list[SweepRow]:
    """Return the sweep's plain curves to lay beside training: in place, eager, one dtype an operation and group."""
    found: dict[tuple[str, int], list[SweepRow]] = {}
    for row in material.sweep:
        if row.operation in operations and row.bus_gb_s is not None and row.execution == "eager":
            rows = found.setdefault((row.operation, row.group_size), [])
            if not rows or (rows[0].dtype, sweep_variant(rows[0])) == (row.dtype, sweep_variant(row)):
                rows.append(row)
    return [row for rows in found.values() for row in rows]


def _link_ceiling(material: Material, rows: Sequence[SweepRow]) -> list[dict[str, Any]]:
    """Return the ceilings that the rows carry; without rows the device's own link, where it is known."""
    known = {(row.ceiling_gb_s, row.ceiling_assumes or "") for row in rows if row.ceiling_gb_s}
    if not known and not rows:
        infos = [run.info for run in material.runs]
        links = {info.ceilings.link_gb_s for info in infos if info.ceilings and info.ceilings.link_gb_s}
        known = {(link, "the device's link") for link in links}
    return [
        {"value": value, "label": f"ceiling {rate(value or 0)} GB/s{f' ({assumes})' if assumes else ''}"}
        for value, assumes in sorted(known, key=lambda item: item[0] or 0)
    ]


def _curve_row(row: SweepRow, group: str) -> dict[str, Any]:
    return {"bytes": row.bytes, "bus": row.bus_gb_s, "time": row.time_us, "group": group, "size": size(row.bytes)}


def _sweep(material: Material, legends: bool) -> list[Panel]:
    panels = []
    for operation in dict.fromkeys(row.operation for row in material.sweep):
        rows = [row for row in material.sweep if row.operation == operation]
        measured = [row for row in rows if row.bus_gb_s is not None and row.time_us is not None and row.bytes > 0]
        names = list(dict.fromkeys(_curve_name(row, rows) for row in measured))
        groups = [(name, category(index)) for index, name in enumerate(names)]
        lines = [_curve_row(row, _curve_name(row, rows)) for row in measured]
        verdict = sweep_verdict(rows)
        panels.append(
            _panel(
                f"sweep-{operation}", operation, verdict.text, sweep_table(rows),
                (lambda charts, lines=lines, groups=groups, measured=measured: [  # type: ignore[misc]
                    charts.bus_bandwidth(lines, groups, _link_ceiling(material, measured), legend=legends),
                    charts.call_time(lines, groups, legend=legends)]) if measured else None,
                [Key(name, colour) for name, colour in groups],
                reason="" if measured else f"no point of {sizes_of(rows)} was measured; the table says why",
            )
        )  # fmt: skip
    return panels


def _curve_name(row: SweepRow, rows: Sequence[SweepRow]) -> str:
    """Return `4 ranks`, and what else tells this row's curve from the others'."""
    more = [row.dtype] if len({other.dtype for other in rows}) > 1 else []
    more += [sweep_variant(row)] if len({sweep_variant(other) for other in rows}) > 1 else []
    return ", ".join([f"{row.group_size} ranks", *more])


def _profiling(material: Material) -> list[Panel]:
    runs = [run for run in material.answers if run.step_times is not None]
    if not runs:
        return []
    table = step_times_table(runs)
    rows: list[dict[str, Any]] = []
    for run in runs:
        times = run.step_times
        if times and times.measured_step_ms is not None and times.window_step_ms is not None:
            cost = times.profiling_overhead_ms or 0.0
            share = times.profiling_overhead_fraction
            of_step = f" ({percent(share)})" if share is not None else ""
            rows.append(
                {"run": run_label(run), "measured": times.measured_step_ms, "window": times.window_step_ms,
                 "right": max(times.measured_step_ms, times.window_step_ms),
                 "label": f"{figure(cost, 2)} ms{of_step}"}
            )  # fmt: skip
    worst = max(rows, key=lambda row: row["window"] - row["measured"], default=None)
    sentence = "Every throughput in this report comes from steps outside the profiler's window."
    if worst:
        sentence = f"{worst['run']} has the largest profiling overhead, {worst['label']} a step. {sentence}"
    return [
        _panel(
            "profiling", "The measured step beside the step in the profiler's window", sentence, table,
            (lambda charts: [charts.profiling_overhead(rows)]) if rows else None,
            [Key("measured step", category(0)), Key("step in the window", category(1)),
             Key("profiling overhead, the difference", "var(--ideal)")],
            reason="" if rows else "no run has both a window and steady steps outside it",
        )
    ]  # fmt: skip


def _steps(material: Material, legends: bool) -> list[Panel]:
    panels = []
    by_series: dict[str, list[Run]] = {}
    for run in material.runs:
        if run.steps:
            by_series.setdefault(run.facts.model if run.facts else run.name, []).append(run)
    for name, runs in by_series.items():
        times: list[dict[str, Any]] = []
        losses: list[dict[str, Any]] = []
        for run in runs:
            label = _run_name(run)
            thinned = run.steps[:: max(1, len(run.steps) // _MOST_STEPS)]
            times += [
                {"step": row.step, "value": max(row.step_ms), "group": label, "phase": row.phase}
                for row in thinned
                if row.step_ms and row.phase != "warmup"
            ]
            losses += [
                {"step": row.step, "value": row.loss, "group": label, "phase": row.phase}
                for row in thinned
                if row.loss is not None
            ]
        groups = [(_run_name(run), category(index)) for index, run in enumerate(runs)]
        tables = [_of_run(steps_table(run.steps), _run_name(run)) for run in runs]
        panels.append(
            _panel(
                f"steps-{name}", name, _steps_sentence(runs),
                stacked(tables) or Table([], []),
                lambda charts, times=times, losses=losses, groups=groups: [  # type: ignore[misc]
                    *([charts.over_steps(times, groups, "ms a step, slowest rank", legend=legends)] if times else []),
                    *([charts.over_steps(losses, groups, "loss", legend=legends)] if losses else [])],
                [Key(label, colour) for label, colour in groups],
            )
        )  # fmt: skip
    return panels


def _steps_sentence(runs: Sequence[Run]) -> str:
    texts = ["Each step's slowest rank, warm-up left out of the picture."]
    run = runs[-1]
    losses = [row.loss for row in run.steps if row.loss is not None]
    held_out = [row.validation_loss for row in run.steps if row.validation_loss is not None]
    if len(losses) > 1:
        texts.append(f"On {_run_name(run)} the loss goes from {figure(losses[0], 3)} to {figure(losses[-1], 3)}.")
    if len(held_out) > 1:
        texts.append(f"Held out it goes from {figure(held_out[0], 3)} to {figure(held_out[-1], 3)}.")
    return " ".join(texts)


def _run_name(run: Run) -> str:
    if run.answer is not None:
        return devices(run.answer.world_size, run.answer.activity)
    return (
        devices(run.info.world_size, run.info.devices[0].kind) if run.info.world_size and run.info.devices else run.name
    )


def _of_run(table: Table, name: str) -> Table:
    return table.led_by([Column("run", "run")], [name])


def _by_series(material: Material) -> dict[str, list[RunAnalysis]]:
    """Return the analysed runs of each series by rank count; runs of no series stand under their own label."""
    series = {point.run: point.series for point in material.study.efficiency} if material.study else {}
    found: dict[str, list[RunAnalysis]] = {}
    for run in sorted(material.answers, key=lambda run: run.world_size):
        found.setdefault(series.get(run.name, run.model or run.name), []).append(run)
    return found


def _done(point: ScalingPoint, unit: str) -> float:
    return point.tokens_per_s if unit == "tokens/s" and point.tokens_per_s is not None else point.samples_per_s
