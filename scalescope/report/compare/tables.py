"""A comparison's figures as tables: parts, kernels, surroundings, points."""

from scalescope.report.compare.lead import parts_of_lead
from scalescope.report.compare.noise import cores_in_parts
from scalescope.report.compare.parts import moved, names_of, part_name
from scalescope.report.compare.sentences import NOT_AS_RUN, kernels_are_as_long
from scalescope.report.drawing.numbers import listing
from scalescope.report.drawing.tables import Cell, Column, Table
from scalescope.report.text.reference import parts_verdict
from scalescope.scaling.compare.answer import REST, Comparison, CountedWork, GateLine, KernelChange, PartChange

_MATCHED = {
    "name": "name",
    "operator": "operator",
    "place": "place",
    "kind": "kind",
    "only_baseline": "baseline only",
    "only_other": "other only",
}

#: What the last row is called, by what the step's change is told of; as pages call a step.
_STEPS = {"untraced": "step as run, measured", "as_run": "step as run", "profiled": "step as profiled"}

_WHAT_REST_IS = (
    "“{}”: the step as run, which is the median of those without a profiler, less the profiled one, whose parts the "
    "rows above are; below zero the profiled steps were the longer ones{}."
)
#: … and the row below it, where that change is sure, and this one within noise.
_WITHOUT_WAITS = "without what ranks waited for cores"
#: What a reader is to make of it where it is no change of the job's for sure.
_REST_IS_NOISE = ". What it changed by is within noise: the few profiled steps of a run may be longer or shorter"


def parts_table(answer: Comparison) -> Table:
    """Return each part of the step on both sides, its change with its bounds; they add up to the last row.

    Where a step launches more or fewer kernels, how many, and what those take that the other side has not.
    """
    here, there = names_of(answer)
    columns = [
        Column("part", "part"),
        Column("baseline_ms", here, "ms", 2),
        Column("other_ms", there, "ms", 2),
        Column("change_ms", "change", "ms", 3),
        Column("low_ms", "from", "ms", 3),
        Column("high_ms", "to", "ms", 3),
        Column("rank", "of rank"),
        Column("noise", ""),
    ]
    seen = sorted(
        (one for one in answer.parts if one.name != REST), key=lambda one: (one.within_noise, -abs(one.change_ms))
    )
    rest = [one for one in answer.parts if one.name == REST]
    ordered = [*seen, *rest]
    rows: list[list[Cell]] = [
        [part_name(one), one.baseline_ms, one.other_ms, one.change_ms,
         *((None, None) if _tells_nothing(one, answer) else (one.low_ms, one.high_ms)),
         "mean of all" if one.rank is None else str(one.rank), "within noise" if one.within_noise else ""]
        for one in ordered
    ]  # fmt: skip
    if rest and seen:  # what it is the rest beside
        sums = [sum(getattr(one, key) for one in seen) for key in ("baseline_ms", "other_ms", "change_ms")]
        without = ", without recording" if answer.parts_by == "as_run" else ""
        rows.insert(len(seen), [f"the profiled step{without}", *sums, None, None, "", ""])
    whole_rows = _step_rows(answer)
    rows += whole_rows
    counted = [one.work for one in ordered]
    if any(work is not None and work.baseline_calls != work.other_calls for work in counted):
        told = any(work is not None and work.change_ms is not None for work in counted)
        columns += [Column("calls", "calls a step")]
        columns += [Column("work_ms", "by their number", "ms", 3)] if told else []
        profiled = [None] * (len(rows) - len(counted) - len(whole_rows))  # of no one kind, as the whole is
        works = [*counted[: len(seen)], *profiled, *counted[len(seen) :], *[None] * len(whole_rows)]
        for row, work in zip(rows, works, strict=True):
            row += [_calls(work), *([work.change_ms if work is not None else None] if told else [])]
    reasons = {"work_ms": "both sides launch as many, kernels were exchanged for others, or more are smaller ones"}
    sums_only = not any(_tells_nothing(one, answer) for one in rest)
    told_wide = "a sum of the parts above it, whose bounds are theirs"
    reasons |= dict.fromkeys(("low_ms", "high_ms"), told_wide if sums_only else f"{told_wide}; or wider than the step")
    if answer.sure_as_measured is not None:
        reasons |= dict.fromkeys(("baseline_ms", "other_ms"), "without waits for cores the change alone is told")
    note = ""
    if rest:
        note = _WHAT_REST_IS.format(part_name(rest[0]), _REST_IS_NOISE if rest[0].within_noise else "")
    return Table(columns, rows, reasons, note)


def _step_rows(answer: Comparison) -> list[list[Cell]]:
    """Return the whole step's change: in two rows where it is beyond noise as measured, and within it without what
    ranks waited for cores, as the first sentences and a limit have it.
    """
    step: list[Cell] = [_STEPS[answer.basis or "profiled"], answer.baseline_ms, answer.other_ms, answer.change_ms]
    if (told := answer.sure_as_measured) is None:
        return [[*step, answer.low_ms, answer.high_ms, "", "within noise" if answer.verdict == "same" else ""]]
    free: list[Cell] = [_WITHOUT_WAITS, None, None, told.free_ms, told.free_low_ms, told.free_high_ms]
    return [[*step, told.low_ms, told.high_ms, "", ""], [*free, "", "within noise"]]


def _tells_nothing(part: PartChange, answer: Comparison) -> bool:
    """Tell whether bounds of what traces do not show are wider than the step itself."""
    return part.name == REST and part.within_noise and part.high_ms - part.low_ms > 2 * answer.step_ms


def parts_sentence(answer: Comparison) -> str:
    """Return which parts changed beyond noise, and that all of them add up to the step's change."""
    caused = parts_of_lead(answer)
    sure = [part_name(one) for one in answer.parts
            if answer.is_sure(one) or (one.more_done and not one.within_noise) or one in caused]  # fmt: skip
    of_window = [one for one in answer.parts
                 if answer.is_of_the_window(one) and not one.within_noise and one not in caused]  # fmt: skip
    longer = [part_name(one) for one in of_window if answer.is_of_longer_steps(one)]
    slowed = [part_name(one) for one in of_window if not answer.is_of_longer_steps(one)]
    why = f" In the profiled steps alone, {listing(slowed)} changed: {NOT_AS_RUN}." if slowed else ""
    why += f" By the longer steps among the profiled ones {listing(longer)} changed." if longer else ""
    # what is launched more, or less, is sure of these alone, and not that they changed
    counted = [part_name(one) for one in moved(answer) if one.more_done and part_name(one) not in sure]
    whose = f"They are rank {answer.of_accused}'s, which is named above. " if answer.of_accused is not None else ""
    adds_up = f"The parts add up to the step's change. {whose}{cores_in_parts(answer)}".rstrip()
    if not sure:
        which = "No part changed beyond noise."
        if answer.sure_as_measured is not None:
            which = "No part by itself changed beyond noise; as measured the whole step did."
        if counted:
            which = f"{parts_verdict([], counted)}."
        elif answer.in_the_mean:
            which = "Of the steps between the longer ones no part changed for sure."
        elif slowed:
            which = "No part of the job's steps changed for sure."
        return f"{which}{why} {adds_up}"
    others = "no other part's change is sure" if of_window else "each other part's change is within noise"
    rest = f"; {others}" if len(sure) < len(answer.parts) else ""
    return f"{parts_verdict(sure, counted)}{rest}.{why} {adds_up}"


def _calls(work: CountedWork | None) -> str:
    if work is None:
        return ""
    same = work.baseline_calls == work.other_calls
    return f"{work.other_calls}" if same else f"{work.baseline_calls} → {work.other_calls}"


def kernels_table(answer: Comparison, most: int | None = None) -> Table:
    """Return the kernels side by side, most changed first; longest first where what they differ by is within noise."""
    alike = kernels_are_as_long(answer)
    columns = [
        Column("operator", "operator", names=True),
        Column("kind", "kind"),
        Column("matched_by", "matched by"),
        Column("baseline_name", "kernel there", names=True),
        Column("other_name", "kernel here", names=True),
        Column("baseline_calls", "calls", "", 0),
        Column("other_calls", "calls here", "", 0),
        Column("baseline_us", "there", "µs", 1),
        Column("other_us", "here", "µs", 1),
        Column("ratio", "ratio a call", "", 2),
        Column("expected_ratio", "by data sheets", "", 2),
        Column("bound", "bound by"),
        Column("share", "share of the change", "%", 1, 100),
    ]
    rows: list[list[Cell]] = [
        [one.operator or "–", one.kind, _MATCHED[one.matched_by], one.baseline_name or "–", one.other_name or "–",
         one.baseline_calls, one.other_calls, one.baseline_us, one.other_us, one.ratio, one.expected_ratio, one.bound,
         one.share]
        for one in (sorted(answer.kernels, key=_longest, reverse=True) if alike else answer.kernels)[:most]
    ]  # fmt: skip
    reasons = {
        "ratio": "one side has no such kernel",
        "expected_ratio": "neither memory nor products alone bind it, nothing tells that they do, or no data sheet",
        "share": "the kernels' changes add up to nothing",
    }
    if alike:
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    # no data sheet tells anything of CPUs, and then nothing is told of what binds
    told = any(row[at] not in (None, "unknown") for row in rows for at in (10, 11))
    kept = [at for at, column in enumerate(columns) if told or column.key not in ("expected_ratio", "bound")]
    return Table([columns[at] for at in kept], [[row[at] for at in kept] for row in rows], reasons)


def _longest(row: KernelChange) -> float:
    return max(row.baseline_us, row.other_us)


def settings_table(answer: Comparison) -> Table:
    """Return what differs in the surroundings, likely ones first."""
    here, there = names_of(answer)
    columns = [Column("what", "what"), Column("baseline", here), Column("other", there), Column("likely", "")]
    rows: list[list[Cell]] = [
        [one.key, one.baseline if one.baseline is not None else "not set",
         one.other if one.other is not None else "not set", "likely" if one.likely else ""]
        for one in answer.environment
    ]  # fmt: skip
    return Table(columns, rows)


def outcome(line: GateLine) -> str:
    """Return what came of a limit."""
    return "cannot be told" if line.untold else "held" if line.held else "FAILED"


def gate_table(answer: Comparison) -> Table:
    """Return each limit, and what was found."""
    columns = [Column("expression", "fails if"), Column("held", ""), Column("text", "found")]
    return Table(columns, [[one.expression, outcome(one), one.text] for one in answer.gate])


def points_table(answer: Comparison) -> Table:
    """Return two sweeps point by point."""
    here, there = names_of(answer)
    columns = [
        Column("operation", "operation"),
        Column("bytes", "size", "B", 0),
        Column("dtype", "type"),
        Column("group_size", "ranks", "", 0),
        Column("variant", "variant"),
        Column("baseline_us", f"time, {here}", "µs", 2),
        Column("other_us", f"time, {there}", "µs", 2),
        Column("baseline_bus_gb_s", f"busbw, {here}", "GB/s", 2),
        Column("other_bus_gb_s", f"busbw, {there}", "GB/s", 2),
        Column("ratio", "ratio of bandwidths", "", 3),
        Column("low", "from", "", 3),
        Column("high", "to", "", 3),
        Column("differs", ""),
    ]
    rows: list[list[Cell]] = [
        [one.operation, one.bytes, one.dtype, one.group_size, one.variant, one.baseline_us, one.other_us,
         one.baseline_bus_gb_s, one.other_bus_gb_s, one.ratio, one.low, one.high, "differs" if one.differs else ""]
        for one in answer.points
    ]  # fmt: skip
    unknown = "neither side tells its spread"
    return Table(columns, rows, {"low": unknown, "high": unknown, "ratio": "one side has no time"})
