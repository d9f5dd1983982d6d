"""Answers and rows as tables: what each one is made of, with the reason where a value is missing."""

from collections import Counter
from collections.abc import Sequence

from scalescope.records.console import counted as count_of
from scalescope.records.rows import Device, StepRow, SweepRow
from scalescope.records.statistics import median_of_known
from scalescope.report.drawing import parts
from scalescope.report.drawing.numbers import listing, percent, rank_names, size, span
from scalescope.report.drawing.tables import Cell, Column, Table
from scalescope.report.grown import lengthened_ms, shortened_ms
from scalescope.report.shares import shares_table
from scalescope.scaling.answer import RankLoss, RunAnalysis
from scalescope.scaling.answer_rows import PARTS, Collective
from scalescope.scaling.answer_steps import Throughput
from scalescope.scaling.study_answer import ScalingPoint, StudyAnalysis, Waterfall

_NO_PEAK = "no peak is known for this device, or no FLOP count for this model"
_NO_TOKENS = "the model counts samples, not tokens"
_ONE_RANK = "a single rank's trace: waiting and moving cannot be told apart"


def devices(count: int, activity: str | None) -> str:
    """Return e.g. `1 GPU`, `4 GPUs`, `2 CPU ranks`."""
    noun = "CPU rank" if activity == "cpu" else "GPU"
    return f"{count} {noun}{'' if count == 1 else 's'}"


def activities(runs: Sequence[RunAnalysis]) -> dict[str, str]:
    """Return what each run's traces hold (gpu or cpu), by run name."""
    return {run.name: run.activity for run in runs}


def series_names(study: StudyAnalysis) -> list[str]:
    """Return the study's series, in the order in which they were run."""
    return list(dict.fromkeys([point.series for point in study.efficiency] + [fall.series for fall in study.waterfall]))


def points_of(study: StudyAnalysis, series: str) -> list[ScalingPoint]:
    return sorted((point for point in study.efficiency if point.series == series), key=lambda point: point.world_size)


def in_tokens(points: Sequence[ScalingPoint]) -> bool:
    """Say whether a series' throughput is told in tokens; else in samples."""
    return all(point.tokens_per_s is not None for point in points)


def of_what(done: Throughput) -> str:
    """Return what a throughput without tokens counts: samples, or batches where nobody told how many those have."""
    return "batches" if done.counts_batches else "samples"


def efficiency_table(study: StudyAnalysis) -> Table:
    """One row a series and rank count: step, throughput, speedup, efficiency and its two factors, MFU."""
    columns = [
        Column("series", "series"),
        Column("world_size", "ranks", digits=0),
        Column("scaling", "scaling"),
        Column("step_ms", "step", "ms", 2),
        Column("samples_per_s", "samples/s", "", 1),
        Column("tokens_per_s", "tokens/s", "", 0),
        Column("speedup", "speedup", "×", 2),
        Column("efficiency", "efficiency", "%", 1, 100),
        Column("compute_factor", "compute factor", "", 3),
        Column("parallel_factor", "parallel factor", "", 3),
        Column("mfu", "MFU", "%", 1, 100),
    ]
    rows: list[list[Cell]] = [
        [point.series, point.world_size, point.scaling, point.step_ms, point.samples_per_s, point.tokens_per_s,
         point.speedup, point.efficiency, point.compute_factor, point.parallel_factor, point.mfu]
        for name in series_names(study) for point in points_of(study, name)
    ]  # fmt: skip
    no_trace = "that run has no analysed trace"
    no_samples = "traces do not tell the batch"
    reasons = {
        "mfu": _NO_PEAK,
        "tokens_per_s": _NO_TOKENS,
        "samples_per_s": no_samples,
        "compute_factor": no_trace,
        "parallel_factor": "there is no analysed trace, or one whose ranks' steps are not the same ones",
    }
    return Table(columns, rows, reasons)


def waterfall_steps(fall: Waterfall | RankLoss) -> list[tuple[parts.Part, float]]:
    """Return the parts of a step's growth in ms, compute split in two where its kernels match. They add up to it."""
    steps: list[tuple[parts.Part, float]] = []
    for piece in fall.parts:
        if piece.part == "compute" and fall.compute_inflation_ms is not None and fall.compute_more_work_ms is not None:
            rest = piece.ms - fall.compute_inflation_ms - fall.compute_more_work_ms
            steps.append((parts.INFLATION, fall.compute_inflation_ms))
            steps.append((parts.MORE_WORK, fall.compute_more_work_ms))
            if abs(rest) > 1e-6:
                steps.append((parts.named("compute"), rest))
        else:
            steps.append((parts.named(piece.part), piece.ms))
    return steps


def grew_within_noise(fall: Waterfall) -> bool:
    """Tell whether the profiled step grew by less than such steps differ by themselves: then it has no shares."""
    return fall.noise_ms is not None and abs(fall.growth_ms) < fall.noise_ms


def waterfall_table(fall: Waterfall) -> Table:
    """One row a part of the growth, in ms a step, and as a share of what became longer; the sum is the last row."""
    columns = [
        Column("part", "part"),
        Column("ms", "of the growth", "ms", 2),
        Column("share_of_growth", "share of what grew", "%", 1, 100),
        Column("meaning", "meaning"),
    ]
    grown, shared = fall.growth_ms, fall.growth_ms > 0 and not grew_within_noise(fall)
    steps = waterfall_steps(fall)
    whole = lengthened_ms(steps)
    rows: list[list[Cell]] = [
        [part.name, ms, ms / whole if shared and ms >= 0 else None, part.meaning] for part, ms in steps
    ]
    all_of_it = shared and not shortened_ms(steps)
    rows.append(
        ["growth", grown, 1.0 if all_of_it else None, "The step there minus the step here; the parts add up to it."]
    )
    why = "the step grew by no more than noise" if grown > 0 else "the step did not grow"
    why = "what became shorter is no share of what grew" if shared else why
    return Table(columns, rows, {"share_of_growth": why})


def partition_table(run: RunAnalysis) -> Table:
    """One row a rank: the mean step's parts in ms, which add up to its window a step, and how much was hidden.

    Of a run without steps: shares of what was recorded.
    """
    if run.steps_by is None:
        return shares_table(run)
    columns = [
        Column("rank", "rank", digits=0),
        Column("steps", "steps", digits=0),
        Column("window_ms", "step", "ms", 2),
        *(Column(f"{part.key}_ms", part.name, "ms", 2) for part in parts.ALL),
        Column("communication_ms", "communication", "ms", 2),
        Column("overlap_fraction", "hidden", "%", 1, 100),
        Column("before_window_ms", "before the window", "ms", 2),
    ]
    rows: list[list[Cell]] = []
    for rank in run.ranks:
        steps = max(rank.steps, 1)
        rows.append(
            [rank.rank, rank.steps, rank.window_ms / steps, *(rank.part_ms(part) / steps for part in PARTS),
             rank.communication_ms / steps, rank.overlap_fraction, rank.before_window_ms]
        )  # fmt: skip
    return Table(columns, rows, {"overlap_fraction": "no communication in the window"})


def step_split_table(run: RunAnalysis) -> Table:
    """One row a rank and profiled step."""
    columns = [
        Column("rank", "rank", digits=0),
        Column("step", "step", digits=0),
        Column("window_ms", "length", "ms", 2),
        *(Column(f"{part.key}_ms", part.name, "ms", 2) for part in parts.ALL),
        Column("open_ended", "open-ended"),
    ]
    rows: list[list[Cell]] = [
        [row.rank, row.step, row.window_ms, *(row.part_ms(part) for part in PARTS), "yes" if row.open_ended else "no"]
        for row in run.steps
    ]
    return Table(columns, rows)


def collectives_table(run: RunAnalysis) -> Table:
    """One row a kind of collective in training (operation, size, dtype, group): medians over its calls."""
    columns = [
        Column("operation", "operation"),
        Column("bytes", "size", "B", 0),
        Column("dtype", "dtype"),
        Column("group_size", "ranks", digits=0),
        Column("calls", "calls", digits=0),
        Column("transfer_us", "transfer", "µs", 1),
        Column("longest_wait_us", "longest wait", "µs", 1),
        Column("bus_gb_s", "busbw", "GB/s", 1),
        Column("in_situ_efficiency", "of the sweep's speed", "%", 1, 100),
    ]
    kinds: dict[tuple[str, int | None, str | None, int | None], list[Collective]] = {}
    # one figure for one thing: what the panel beside tells of that kind, where all of it ran by one means
    rows_of = Counter((one.operation, one.bytes, one.dtype, one.group_size) for one in run.in_situ)
    reached: dict[tuple[str, int | None, str | None, int | None], float | None] = {
        kind: one.efficiency
        for one in run.in_situ
        if rows_of[kind := (one.operation, one.bytes, one.dtype, one.group_size)] == 1
    }
    for call in run.collectives:
        kinds.setdefault((call.operation, call.bytes, call.dtype, call.group_size), []).append(call)
    rows: list[list[Cell]] = [
        [operation, count, dtype, group_size, len(calls),
         median_of_known([call.transfer_us for call in calls]),
         median_of_known([max(call.wait_us.values(), default=None) for call in calls]),
         median_of_known([call.bus_gb_s for call in calls]),
         reached.get((operation, count, dtype, group_size), median_of_known([one.in_situ_efficiency for one in calls]))]
        for (operation, count, dtype, group_size), calls in sorted(
            kinds.items(), key=lambda item: (item[0][0], item[0][3] or 0, item[0][1] or 0, item[0][2] or ""))
    ]  # fmt: skip
    single = run.world_size > 1 and len(run.ranks) < 2
    cannot = _ONE_RANK if single else "the collective could not be matched across the ranks"
    return Table(
        columns,
        rows,
        {
            "bytes": "the trace does not hold its size",
            "dtype": "the trace does not hold its data type",
            "group_size": "the trace does not hold its process group",
            "transfer_us": cannot,
            "longest_wait_us": cannot,
            "bus_gb_s": f"{cannot}, or the trace does not hold its size",
            "in_situ_efficiency": "smaller than 1 MiB, or the sweep has no such operation, size, dtype and group size",
        },
    )


def kernels_table(run: RunAnalysis) -> Table:
    """One row a kernel (on a CPU, an operator) of the mean rank's step, longest first, collectives among them."""
    operators = run.activity == "cpu"
    columns = [
        Column("kernel", "operator" if operators else "kernel", names=True),
        Column("kind", "kind"),
        Column("calls_a_step", "calls a step", digits=1),
        Column("ms_a_step", "a step", "ms", 3),
        Column("share_of_compute", "of the compute", "%", 1, 100),
    ]
    rows: list[list[Cell]] = [
        [row.name, "communication" if row.communication else "compute", row.calls, row.ms, row.share_of_compute]
        for row in run.kernels
    ]
    return Table(columns, rows, {"share_of_compute": "communication is no part of the compute; it may run under it"})


def sweep_table(rows: Sequence[SweepRow]) -> Table:
    """The planned points under nccl-tests' column names; a point that was not measured says why."""
    columns = [
        Column("operation", "operation"),
        Column("group_size", "ranks", digits=0),
        Column("size_bytes", "size", "B", 0),
        Column("count_elements", "count", "elements", 0),
        Column("type", "type"),
        Column("redop", "redop"),
        Column("root", "root", digits=0),
        Column("mode", "mode"),
        Column("time_us", "time", "µs", 2),
        Column("time_half_fraction", "±", "%", 1, 100),
        Column("algbw_gb_s", "algbw", "GB/s", 2),
        Column("busbw_gb_s", "busbw", "GB/s", 2),
        Column("ceiling_gb_s", "ceiling", "GB/s", 1),
        Column("wrong", "#wrong", digits=0),
        Column("status", "status"),
    ]
    cells: list[list[Cell]] = [
        [row.operation, row.group_size, row.bytes, row.count, row.dtype, row.reduction or "none",
         -1 if row.root is None else row.root, sweep_variant(row), row.time_us, row.relative_half, row.alg_gb_s,
         row.bus_gb_s, row.ceiling_gb_s, row.wrong, f"{row.status}: {row.reason}" if row.reason else row.status]
        for row in rows
    ]  # fmt: skip
    why = "; ".join(sorted({f"{row.status}: {row.reason or 'no reason given'}" for row in rows if row.time_us is None}))
    return Table(
        columns,
        cells,
        {
            "count_elements": "the size of this data type is not known",
            "time_us": why,
            "time_half_fraction": why or "the log tells no interval",
            "algbw_gb_s": why,
            "busbw_gb_s": why,
            "ceiling_gb_s": "no ceiling is known for this device or operation",
            "wrong": "results were not checked at this point",
        },
    )


def sweep_variant(row: SweepRow) -> str:
    """Return what tells a point apart beside operation, size and group: `in place`, `out of place, graph, RING`."""
    return ", ".join(
        [
            row.mode.replace("_", " "),
            *([row.execution] if row.execution != "eager" else []),
            *([row.transport] if row.transport != "c10d" else []),
            *(text for text in (row.algorithm, row.protocol, row.placement) if text),
        ]
    )


def step_times_table(runs: Sequence[RunAnalysis]) -> Table:
    """The step outside the profiler's window beside the step inside: their difference is what profiling costs."""
    columns = [
        Column("run", "run"),
        Column("measured_step_ms", "measured step", "ms", 2),
        Column("measured_step_p95_ms", "p95", "ms", 2),
        Column("measured_steps", "steps", digits=0),
        Column("profiled_step_ms", "step in the window", "ms", 2),
        Column("profiling_overhead_ms", "longer in the window", "ms", 2),
        Column("profiling_overhead_fraction", "longer", "%", 1, 100),
        Column("placebo_ms", "steady steps differ by ±", "ms", 2),
    ]
    rows: list[list[Cell]] = []
    for run in runs:
        times = run.step_times
        if times is not None:
            rows.append(
                [run_label(run), times.measured_step_ms, times.measured_step_p95_ms, times.measured_steps,
                 times.profiled_step_ms, times.profiling_overhead_ms, times.profiling_overhead_fraction,
                 times.placebo_ms]
            )  # fmt: skip
    no_steady = "there are no steps outside the profiler's window to compare with"
    no_window = "no trace holds a whole step"
    return Table(
        columns,
        rows,
        {
            "measured_step_ms": no_steady,
            "measured_step_p95_ms": no_steady,
            "profiled_step_ms": no_window,
            "profiling_overhead_ms": f"{no_steady}, or {no_window}",
            "profiling_overhead_fraction": f"{no_steady}, or {no_window}",
            "placebo_ms": "there are fewer than five steady steps",
        },
    )


def steps_table(rows: Sequence[StepRow]) -> Table:
    """steps.jsonl: a row a step, the slowest rank's time beside the fastest's."""
    columns = [
        Column("step", "step", digits=0),
        Column("phase", "phase"),
        Column("slowest_ms", "slowest rank", "ms", 2),
        Column("fastest_ms", "fastest rank", "ms", 2),
        Column("samples_per_s", "samples/s", "", 1),
        Column("tokens_per_s", "tokens/s", "", 0),
        Column("loss", "loss", "", 4),
        Column("validation_loss", "held-out loss", "", 4),
        Column("mfu", "MFU", "%", 1, 100),
        Column("memory_peak_bytes", "peak memory", "MiB", 0, 1 / 2**20),
        Column("joules_per_sample", "energy a sample", "J", 3),
    ]
    cells: list[list[Cell]] = [
        [row.step, row.phase, max(row.step_ms, default=None), min(row.step_ms, default=None), row.samples_per_s,
         row.tokens_per_s, row.loss, row.validation_loss, row.mfu, row.memory_peak_bytes, row.joules_per_sample]
        for row in rows
    ]  # fmt: skip
    reasons = {
        "tokens_per_s": _NO_TOKENS,
        "mfu": _NO_PEAK,
        "loss": "not read back at that step, since reading it makes the host wait",
        "validation_loss": "the held-out text is scored at some steps only",
        "memory_peak_bytes": "the device does not tell",
        "joules_per_sample": "the device does not tell, or something else ran between two of its readings",
        "slowest_ms": "the step's time was not recorded",
        "fastest_ms": "the step's time was not recorded",
    }
    return Table(columns, cells, reasons)


def devices_table(rows: Sequence[Device]) -> Table:
    columns = [
        Column("rank", "rank", digits=0),
        Column("host", "host"),
        Column("name", "device"),
        Column("memory_bytes", "memory", "GB", 0, 1e-9),
        Column("compute_units", "multiprocessors", digits=0),
        Column("sm_clock_mhz", "clock", "MHz", 0),
        Column("power_w", "power", "W", 0),
        Column("temperature_c", "temperature", "°C", 0),
        Column("throttled", "throttled"),
    ]
    cells: list[list[Cell]] = [
        [row.rank, row.host, row.name, row.memory_bytes, row.compute_units, row.sm_clock_mhz, row.power_w,
         row.temperature_c, row.throttled]
        for row in rows
    ]  # fmt: skip
    silent = "the device does not tell"
    keys = ("memory_bytes", "compute_units", "sm_clock_mhz", "power_w", "temperature_c", "throttled")
    return Table(columns, cells, dict.fromkeys(keys, silent))


def run_label(run: RunAnalysis) -> str:
    """Return e.g. `gpt_small · ddp · 4 GPUs`; the folder's name where the run does not say what it trained."""
    what = [text for text in (run.model, run.strategy) if text] or [run.name]
    return " · ".join([*what, devices(run.world_size, run.activity)])


_MOST_NAMED = 8


def spoken_of(run: RunAnalysis) -> str:
    """Return, for the end of a run's label, of which ranks alone its figures are, and why; "" where of all."""
    quality, counted = run.quality, [one.rank for one in run.ranks]
    broken = quality.left_out_ranks
    missing = [rank for rank in quality.missing_ranks if rank not in broken]
    why = [
        *([f"the trace of {rank_names(broken)} is not whole"] if broken else []),
        *([f"no trace of {rank_names(missing)}"] if missing else []),
    ]
    if why:
        return f", {rank_names(counted)} alone ({'; '.join(why)})" if counted else f" ({'; '.join(why)})"
    if quality.cut_ranks:
        left = min((one.steps for one in run.ranks if one.rank in quality.cut_ranks), default=0)
        whole = f"; {count_of(left, 'whole step')} left of it" if run.steps_by is not None and left else ""
        return f" (the trace of {rank_names(quality.cut_ranks)} is cut off{whole})"
    if quality.several_devices:
        one = quality.several_devices[0]
        others = f", and so do {len(quality.several_devices) - 1} more" if len(quality.several_devices) > 1 else ""
        busy = listing([percent(share, 0) for share in one.busy[:_MOST_NAMED]])
        return (
            f" (rank {one.rank}'s process drives {len(one.busy)} devices{' by turns' if one.by_turns else ''}, "
            f"in which kernels run for {busy} of the time{others}: taken as one here)"
        )
    if run.unpriced is not None and run.unpriced.code == "other_steps":
        return " (what one rank counts as a step another one does not)"
    if quality.unknown_collectives:
        names = listing(quality.unknown_collectives[:_MOST_NAMED])
        waits = "waits" if len(quality.unknown_collectives) == 1 else "wait"
        return f" (taken as compute: {names}, which {waits} for other ranks)"
    if quality.lossy_ranks:
        return f" (the profiler lost activity of {rank_names(quality.lossy_ranks)})"
    if quality.incomplete_ranks:
        return f" (the trace of {rank_names(quality.incomplete_ranks)} lacks some of what ran)"
    if quality.clocks_apart_ms is not None:
        return f" (of one window only if their clocks are {span(quality.clocks_apart_ms / 1e3)} apart)"
    return ""


def lacking_ranks(run: RunAnalysis) -> list[int]:
    """Return the ranks of which there is no trace, or none that counts."""
    return sorted({*run.quality.missing_ranks, *run.quality.left_out_ranks})


def sizes_of(rows: Sequence[SweepRow]) -> str:
    """Return the sweep's span, e.g. `8 B to 1 GiB`."""
    counts = sorted({row.bytes for row in rows})
    return listing(sorted({size(counts[0]), size(counts[-1])})) if len(counts) < 2 else (
        f"{size(counts[0])} to {size(counts[-1])}")  # fmt: skip
