"""The end of a training job in a few lines, from its rows alone."""

from statistics import median, quantiles

from scalescope.records.rows import StepRow
from scalescope.records.steps.unevenness import UNLIKE, StepExcess, difference
from scalescope.train.measure.schedule import Schedule


def summarise(what: str, rows: list[StepRow], schedule: Schedule) -> list[str]:
    """Return the lines: steady throughput, the loss on held-out data, and what the Kineto window cost."""
    steady = [row for row in rows if row.phase == "steady"]
    if not steady:
        return [f"{what}: no steady step was measured"]
    times_ms = [row.length_ms for row in steady]
    middle = median(times_ms)
    count = f"{len(steady)} steady step{'' if len(steady) == 1 else 's'}"
    parts = [f"median step {middle:,.2f} ms (p95 {_p95(times_ms):,.2f}, {count})"]
    parts.append(f"{median(row.samples_per_s for row in steady):,.1f} samples/s")
    if steady[0].tokens_per_s is not None:
        parts.append(f"{median(row.tokens_per_s or 0.0 for row in steady):,.0f} tokens/s")
    if steady[0].mfu is not None:
        parts.append(f"MFU {median(row.mfu or 0.0 for row in steady):.1%} of the data-sheet peak")
    if steady[0].mfu_of_measured is not None:
        parts.append(f"{median(row.mfu_of_measured or 0.0 for row in steady):.1%} of the measured matmul ceiling")
    lines = [f"{what}: {', '.join(parts)}"]
    more = []
    if steady[0].hfu_of_measured != steady[0].mfu_of_measured:  # something is computed again
        of_sheet = [row.hfu for row in steady if row.hfu is not None]
        of_measured = [row.hfu_of_measured for row in steady if row.hfu_of_measured is not None]
        more += [f"HFU {median(of_sheet):.1%} of the data-sheet peak"] if of_sheet else []
        more += [f"HFU {median(of_measured):.1%} of the measured matmul ceiling"] if of_measured else []
    if joules := [row.joules_per_sample for row in steady if row.joules_per_sample is not None]:
        more.append(f"{median(joules):.3g} J/sample of the devices")
    if more:
        lines.append(f"{what}: {', '.join(more)}")
    held_out = [row.validation_loss for row in rows if row.validation_loss is not None]
    if len(held_out) > 1:
        lines.append(f"{what}: held-out loss {held_out[0]:.3f} → {held_out[-1]:.3f} nats")
    active = [row.length_ms for row in rows if (w := schedule.window(row.step)) is not None and row.step >= w.active]
    if (found := difference(active, times_ms)) is not None:
        lines.append(f"{what}: {_profiling(found)}")
    return lines


def _profiling(found: StepExcess) -> str:
    """Return what the Kineto window cost a step, or that steps differ by as much without it: what recording costs is
    then for the traces to tell.
    """
    inside = f"inside the Kineto window {found.steady_ms + found.ms:,.2f} ms a step in the median"
    if not found.unsteady:
        longer = f"{inside}, {found.fraction:+.1%} against {found.steady_ms:,.2f} outside"
        return f"{longer}; what of that recording takes, the analysis tells" if found.ms > 0 else longer
    if found.placebo_ms is not None and abs(found.ms) <= found.placebo_ms:
        told = f"{inside}, which is no other than outside: steady steps differ by ± {found.placebo_ms:,.2f} themselves"
    else:
        told = f"{inside}, shorter than outside, which no profiling makes it"
    return f"{told}; the machine was unsteady" if abs(found.fraction) >= UNLIKE else told


def _p95(values: list[float]) -> float:
    return quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0]
