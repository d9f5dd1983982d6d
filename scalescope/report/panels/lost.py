"""What a run lost against a reference: each rank's step there and here, and the parts of its growth."""

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from scalescope.records.statistics import digits_of
from scalescope.report.drawing import parts
from scalescope.report.drawing.numbers import READS_AS_ZERO_MS, WIDE, capitalized, figure, listing, milliseconds, quoted
from scalescope.report.drawing.panel import Key, Panel, drawing
from scalescope.report.drawing.parts import INFLATION, MORE_WORK, Part
from scalescope.report.drawing.tables import Cell, Column, Table
from scalescope.report.report_data import ReportData
from scalescope.report.text.reference import gone_clause, is_of_the_gone, outweighed_by, parts_verdict, told_cause
from scalescope.report.text.waits.change import for_want_of_cores
from scalescope.report.views import run_label, waterfall_steps
from scalescope.scaling.answer import RankLoss, RunAnalysis
from scalescope.scaling.answer_rows import PARTS, AsMeasured, OtherWork, SurePart
from scalescope.scaling.verdicts.reference import known_ms_of

_WORTH_SAYING = 0.05  # of the growth
_A_WORD = 0.002  # of it: all smaller parts together, which then show in a sum of what is told
#: A rank is singled out where others' waits grew by more than its own: by this share of the step, and of its growth.
_SINGLES_OUT, _EXPLAINS = 0.005, 0.1
#: What others do so much of, too, is not that rank's.
_ALIKE = 0.5
#: Steps that differ by less than this share of what they may differ by are as long.
_AS_LONG = 0.05
#: Two runs' own steps are known far better than how runs differ where their part of the bounds is no larger a share.
_FAR_BETTER = 0.75
_MOST_NAMED = 3  # parts that changed beyond noise, in one sentence
_MOST_BARS = 160  # ranks in one chart
#: Beside it the same run's step stands without what recording costs.
_RECORDED = "Profiled steps of both, recording included."
_MEANING = {
    INFLATION.key: "The same compute kernels take longer than in the reference, for larger inputs, too.",
    MORE_WORK.key: "Compute kernels that the reference does not have, or has fewer of.",
    "compute": "Compute of steps that only one of the two accounts counts, where kernels are compared.",
}


def lost_table(losses: Sequence[RankLoss]) -> tuple[Table, list[str]]:
    """Return one row a rank, in ms a step, whose parts add up to the growth; and the parts that are 0 everywhere."""
    found = [{part.key: ms for part, ms in waterfall_steps(loss)} for loss in losses]
    present, gone = [], []
    for part in _all_parts():
        seen = [ms[part.key] for ms in found if part.key in ms]
        if any(abs(ms) >= READS_AS_ZERO_MS for ms in seen):
            present.append(part)
        elif seen:
            gone.append(part.name)
    columns = [
        Column("rank", "rank", digits=0),
        Column("from_step_ms", "reference's profiled step", "ms", 2),
        Column("to_step_ms", "profiled step", "ms", 2),
        Column("growth_ms", "growth", "ms", 2),
        *(Column(f"{part.key}_ms", part.name, "ms", 2) for part in present),
    ]
    rows: list[list[Cell]] = [
        [loss.rank, loss.from_step_ms, loss.to_step_ms, loss.growth_ms, *(ms.get(part.key) for part in present)]
        for loss, ms in zip(losses, found, strict=True)
    ]
    reason = "the kernels of the two runs are too unlike to be laid side by side, or one has more and smaller ones"
    split = {f"{part.key}_ms": reason for part in (INFLATION, MORE_WORK)}
    return Table(columns, rows, split | {"compute_ms": "told apart as slower and more compute"}), gone


def lost_legend(table: Table) -> str:
    """Return what the table's columns of compute are: larger inputs make the same kernels longer."""
    shown = [part for part in (INFLATION, MORE_WORK) if any(one.key == f"{part.key}_ms" for one in table.columns)]
    return "".join(f"{part.name} = {_MEANING[part.key][0].lower()}{_MEANING[part.key][1:]} " for part in shown).rstrip()


def lost_sentence(run: RunAnalysis) -> str:
    """Return by how much the mean rank's profiled step grew against the reference, and to what the growth belongs."""
    loss, grown = run.lost[0], _grown(run)
    text = f"Against {quoted(loss.reference)} a profiled step"
    if abs(grown) < READS_AS_ZERO_MS:
        return f"{text} lost nothing ({_span(run)}).{_beyond_noise(run)}"
    text = f"{text} of the mean rank is {_longer(grown)} ({_span(run)})"
    if noise := noise_sentence(run.lost):
        return f"{text}. {noise}"
    return f"{text}: {_where(run, grown)}.{_beyond_noise(run)}"


def lost_title(losses: Sequence[RankLoss]) -> str:
    """Return of which steps the table is, and that what they differ by is within noise, where it is."""
    sure = losses[0].as_measured is not None or losses[0].sure_parts or _does_other_work(losses[0])
    within = ": within noise" if losses[0].within_noise and not sure else ""
    return f"What a profiled step lost against {quoted(losses[0].reference)}, a rank, recording included{within}"


def noise_sentence(losses: Sequence[RankLoss]) -> str:
    """Return by how much the job's step changed, where that is within noise; else ""."""
    loss = losses[0]
    change, low, high = loss.step_change_ms, loss.step_low_ms, loss.step_high_ms
    if not loss.within_noise or change is None or low is None or high is None:
        return ""
    digits = digits_of((high - low) / 2)
    waited = (loss.from_run_delay_ms, loss.to_run_delay_ms)
    cores = for_want_of_cores(change, loss.compared_step_ms, waited, untold=False)
    bounds = f"95%: {figure(low, digits)} to {figure(high, digits)} ms"
    told = f"{capitalized(_compared_as(loss))} changed by {figure(change, digits)} ms ({bounds}), within noise{cores}"
    if (sure := loss.as_measured) is not None:
        digits = digits_of((sure.high_ms - sure.low_ms) / 2)
        measured = f"{figure(change, digits)} ms ({_bounds(sure.low_ms, sure.high_ms)}) as measured"
        told = f"{capitalized(_compared_as(loss))} changed by {measured}, and is {_free(sure)}"
    whole = [*(_name_of(one) for one in loss.other_work if not one.within_noise), *map(_name_of, loss.sure_parts)]
    if changed := parts_verdict(whole, [_name_of(one) for one in loss.other_work if one.within_noise]):
        return f"{told}. {changed}."
    return f"{told}: no part of the growth as profiled is a finding."


def lost_clause(run: RunAnalysis) -> str:
    """Return whether a run is slower or faster than its reference, by how much, and where that went; no full stop.

    The steps are those without a profiler, where both have them; where the time went, the profiled ones tell.
    """
    loss, grown = run.lost[0], _grown(run)
    change, low, high = loss.step_change_ms, loss.step_low_ms, loss.step_high_ms
    if change is None or low is None or high is None:
        if abs(grown) < READS_AS_ZERO_MS:
            return f"a step is as long as {quoted(loss.reference)}'s ({_span(run)})"
        return f"a step is {_longer(grown)} than {quoted(loss.reference)}'s ({_span(run)}): {_where(run, grown)}"
    digits = digits_of((high - low) / 2)
    least, most = (low, high) if change > 0 else (-high, -low)
    bounds = f"95%: {figure(least, digits)} to {figure(most, digits)} ms"
    if (sure := loss.as_measured) is not None:
        return (
            f"a step is {_longer(change)} than {quoted(loss.reference)}'s as measured ({_job_span(run)}; "
            f"{_measured_bounds(sure)}), and {_free(sure)}"
        )
    if low <= 0 <= high:
        known = max(-low, high) <= WIDE * loss.compared_step_ms
        how = "is as long as" if known else "cannot be told in length from"
        waited = (loss.from_run_delay_ms, loss.to_run_delay_ms)
        cores = for_want_of_cores(change, loss.compared_step_ms, waited, untold=False)  # within noise it is in any case
        signed = f"95%: {figure(low, digits)} to {figure(high, digits)} ms"  # of the change, which is told from and to
        within = f"within noise ({_job_span(run)}; {signed}{'' if known else _own_bounds(loss)}){cores}"
        gone = gone_clause(run)
        if gone:  # which is said once
            sure_parts = [one for one in loss.sure_parts if not is_of_the_gone(run, one.part, one.change_ms)]
            other_work = [one for one in loss.other_work if not is_of_the_gone(run, one.part, one.change_ms)]
            loss = msgspec.structs.replace(loss, sure_parts=sure_parts, other_work=other_work)
        if not loss.sure_parts and not _does_other_work(loss):
            return "; ".join(filter(None, (gone, f"a step {how} {quoted(loss.reference)}'s, {within}")))
        its = f"its length is {quoted(loss.reference)}'s" if known else "its length cannot be told from that"
        besides = [f"it has {_sure_parts(loss)}"] if loss.sure_parts else []
        first = [_other_work(loss), *besides] if _does_other_work(loss) else [f"a step has {_sure_parts(loss)}"]
        return "; ".join(filter(None, (gone, *first, f"{its}, {within}")))
    waited = (loss.from_run_delay_ms, loss.to_run_delay_ms)
    cores = for_want_of_cores(change, loss.compared_step_ms, waited, untold=loss.cores_untold)
    span = f"{_job_span(run)}{', medians without a profiler' * _is_measured(loss)}"
    told = f"a step is {_longer(change)} than {quoted(loss.reference)}'s ({span}; {bounds}){cores}"
    if low <= grown <= high:
        return f"{told}: {_as_profiled(run, grown, change)}"
    # the job's steps differ by another length than the ranks' windows do in the mean, where those end at unlike places
    if abs(grown) < READS_AS_ZERO_MS:
        return told
    which = "the mean rank's" if _is_as_profiled(run) else "as profiled the mean rank's"
    return f"{told}; {which} is {_longer(grown)}: {_where(run, grown)}"


def _sure_parts(loss: RankLoss) -> str:
    """Return what parts a step has more or less of than the reference's, beyond noise."""
    more = [
        f"{_in_digits(one)} {'more' if one.change_ms > 0 else 'less'} {_name_of(one)}"
        f"{f' on rank {one.rank}' if one.rank is not None else ''}"
        for one in loss.sure_parts[:_MOST_NAMED]
    ]
    return f"{listing(more)} than {quoted(loss.reference)}'s"


def _does_other_work(loss: RankLoss) -> bool:
    return bool(loss.other_work or loss.other_calls)


def _other_work(loss: RankLoss) -> str:
    """Return what a step does more or less often than the reference's, which is counted; no full stop."""
    calls = [f"{one.other_calls:,} {one.operation} calls a step for {one.baseline_calls:,}"
             for one in loss.other_calls[:_MOST_NAMED]]  # fmt: skip
    told = [
        f"{parts.named(one.part).name if one.part in PARTS else one.part} {one.other_calls:,} calls a step for "
        f"{one.baseline_calls:,}{f' on rank {one.rank}' if one.rank is not None else ''} "
        f"({_in_digits(one)} {'more' if one.change_ms > 0 else 'less'}; {_bounds_of(one)})"
        for one in loss.other_work[:_MOST_NAMED]
    ]
    return f"a step does not do the same work as {quoted(loss.reference)}'s: {listing([*calls, *told])}"


def _bounds_of(one: SurePart | OtherWork) -> str:
    """Return the bounds of by how much more, or less, a part takes."""
    return _bounds(one.low_ms, one.high_ms) if one.change_ms > 0 else _bounds(-one.high_ms, -one.low_ms)


def _own_bounds(loss: RankLoss) -> str:
    """Return that the bounds of a change are wide for what runs differ by, where each run's own step is known far
    better; else "".
    """
    own, low, high = (loss.from_own_ms, loss.to_own_ms), loss.step_low_ms, loss.step_high_ms
    if None in own or low is None or high is None:
        return ""
    there, here = (ms or 0.0 for ms in own)
    if math.hypot(there, here) > _FAR_BETTER * (high - low) / 2:
        return ""
    return (
        f", by what one run of a job differs from the next: by their own steps they are known to ± "
        f"{milliseconds(there)} and ± {milliseconds(here)}"
    )


def _in_digits(one: SurePart | OtherWork) -> str:
    return f"{figure(abs(one.change_ms), digits_of((one.high_ms - one.low_ms) / 2))} ms"


def _name_of(one: SurePart | OtherWork) -> str:
    return parts.named(one.part).name if one.part in PARTS else one.part


def beside_cause(run: RunAnalysis) -> str:
    """Return by how much a step is longer or shorter than the reference's, beside a cause that this one has not."""
    loss = run.lost[0]  # parts are not told: they are of profiled steps that changed by another length
    change, low, high = loss.step_change_ms or 0.0, loss.step_low_ms or 0.0, loss.step_high_ms or 0.0
    if (sure := loss.as_measured) is not None:
        return (
            f"against {quoted(loss.reference)} the step is {_longer(change)} as measured ({_job_span(run)}; "
            f"{_measured_bounds(sure)}), and {_free(sure)}"
        )
    digits = digits_of((high - low) / 2)
    waited = (loss.from_run_delay_ms, loss.to_run_delay_ms)
    cores = for_want_of_cores(change, loss.compared_step_ms, waited, untold=loss.cores_untold and not loss.within_noise)
    within = ", within noise" if loss.within_noise else ""
    known_ms = known_ms_of(cause, change) if (cause := told_cause(run)) else 0.0  # which is no noise, and told before
    if loss.within_noise and known_ms:
        rest = change - known_ms
        length = "as long" if abs(rest) < _AS_LONG * (high - low) / 2 else _longer(rest)
        within = f", and without {'the first of them' * (len(loss.come) > 1) or 'that cause'} {length}, within noise"
        low, high = low - known_ms, high - known_ms
    if high < 0:
        low, high = -high, -low  # of how much shorter it is; within noise they are signed, as it may be either
    bounds = f"{_job_span(run)}; 95%: {figure(low, digits)} to {figure(high, digits)} ms"
    named = [(one, f"{_in_digits(one)} of {_name_of(one)}") for one in loss.other_work[:_MOST_NAMED]]
    more = outweighed_by(run, named)
    other = f". {capitalized(_other_work(loss))}{more}" if _does_other_work(loss) else ""
    return f"against {quoted(loss.reference)} the step is {_longer(change)}{within} ({bounds}){cores}{other}"


def _free(sure: AsMeasured) -> str:
    """Return by how much a step is longer, or shorter, without what ranks waited for cores, which is within noise."""
    digits = digits_of((sure.free_high_ms - sure.free_low_ms) / 2)
    told = f"{figure(abs(sure.free_ms), digits)} ms {'longer' if sure.free_ms > 0 else 'shorter'}"
    return f"{told}, within noise ({_bounds(sure.free_low_ms, sure.free_high_ms)}), without what ranks waited for cores"


def _measured_bounds(sure: AsMeasured) -> str:
    """Return the bounds of how much longer, or shorter, a step is as measured."""
    return _bounds(sure.low_ms, sure.high_ms) if sure.low_ms > 0 else _bounds(-sure.high_ms, -sure.low_ms)


def _bounds(low: float, high: float) -> str:
    digits = digits_of((high - low) / 2)
    return f"95%: {figure(low, digits)} to {figure(high, digits)} ms"


def _longer(ms: float) -> str:
    return f"{milliseconds(abs(ms))} {'longer' if ms > 0 else 'shorter'}"


def _grown(run: RunAnalysis) -> float:
    """Return by how much the mean rank's step grew, ms."""
    return sum(loss.growth_ms for loss in run.lost) / len(run.lost)


def _span(run: RunAnalysis) -> str:
    count = len(run.lost)
    steps = ([loss.from_step_ms for loss in run.lost], [loss.to_step_ms for loss in run.lost])
    return " to ".join(milliseconds(sum(step) / count) for step in steps)


def _job_span(run: RunAnalysis) -> str:
    """Return the two steps that are compared, as `compare` tells them."""
    loss = run.lost[0]
    there, here = loss.from_measured_ms, loss.to_measured_ms
    if there is None or here is None:
        there, here = loss.from_compared_ms, loss.to_compared_ms
    return _span(run) if there is None or here is None else f"{milliseconds(there)} to {milliseconds(here)}"


def _is_as_profiled(run: RunAnalysis) -> bool:
    """Tell whether the steps that are compared are the profiled ones, of which the parts are, too, or as long."""
    return run.lost[0].from_measured_ms is None and _job_span(run) == _span(run)


def _is_measured(loss: RankLoss) -> bool:
    """Tell whether the steps that are compared are those without a profiler."""
    return loss.from_measured_ms is not None and loss.to_measured_ms is not None


def _compared_as(loss: RankLoss) -> str:
    """Return what the two steps are that are compared."""
    if loss.from_measured_ms is not None:
        return "the step as run, the median of those without a profiler,"
    return "the step as run" if loss.compared_by == "as_run" else "the step"


def _late(run: RunAnalysis, grown: float) -> RankLoss | None:
    """Return the rank for which the others came to wait, or cease to: what it does is why; None where none stands out.

    Where waits changed alike on all ranks, none does; nor where most of what it does others do as well, nor where the
    others waited for another rank by as much.
    """
    waits = [sum(one.ms for one in loss.parts if one.part == "exposed_wait") for loss in run.lost]
    if len(waits) < 2 or run.lost[0].places is not None:
        return None
    chosen = (min if grown > 0 else max)(range(len(waits)), key=waits.__getitem__)
    gap = max(abs(wait - waits[chosen]) for wait in waits)
    if gap <= max(_SINGLES_OUT * run.lost[0].compared_step_ms, _EXPLAINS * abs(grown)):
        return None
    late, sign = run.lost[chosen], 1 if grown > 0 else -1
    others = [loss for loss in run.lost if loss is not late]
    most = max(late.parts, key=lambda one: sign * one.ms)
    alike = sum(one.ms for loss in others for one in loss.parts if one.part == most.part) / len(others)
    return late if sign * most.ms > 0 and sign * alike < _ALIKE * abs(most.ms) else None


def _as_profiled(run: RunAnalysis, grown: float, told_ms: float) -> str:
    """Return where the growth of profiled steps lies. Where it is another than the one `told_ms`, its largest parts
    alone: a third figure, and parts that add up to it, seem to be of the step that is told.
    """
    if _is_as_profiled(run):
        return _where(run, grown)
    late = _late(run, grown)
    own = grown if late is None else late.growth_ms or grown
    if milliseconds(own) == milliseconds(told_ms) or (own > 0) != (told_ms > 0):
        return f"as profiled, {_where(run, grown)}"
    return _most_of(run, grown)


def _largest(losses: Sequence[RankLoss], grown: float) -> list[tuple[str, float]]:
    """Return the parts that are worth saying of the mean of some ranks' growth, ms, most first."""
    sums: dict[str, float] = {}
    for loss in losses:
        for part, ms in waterfall_steps(loss):
            sums[part.key] = sums.get(part.key, 0.0) + ms / len(losses)
    return sorted(
        ((key, ms) for key, ms in sums.items() if abs(ms) >= _WORTH_SAYING * abs(grown)), key=lambda item: -item[1]
    )


def _most_of(run: RunAnalysis, grown: float) -> str:
    """Return what the profiled steps' growth mostly is, or what of a shorter step is gone, of the rank that the others
    wait for; else of the mean rank.
    """
    late = _late(run, grown)
    own = grown if late is None else late.growth_ms or grown
    largest = [(key, ms) for key, ms in _largest(run.lost if late is None else [late], own) if ms * own > 0]
    named = sorted(largest, key=lambda item: -abs(item[1]))[:_MOST_NAMED]
    told = listing([f"{milliseconds(abs(ms))} {parts.named(key).name}" for key, ms in named]) or "none of their parts"
    what, waiting = ("that is mostly", "come to wait") if own > 0 else ("gone are mostly", "waited")
    whose = "the mean rank" if late is None else f"rank {late.rank}, for which the others {waiting}"
    return f"in the profiled steps {what} {told} on {whose}"


def _where(run: RunAnalysis, grown: float) -> str:
    """Return which parts the step's growth is, and which came back; of a step that is shorter these come first.

    They are those of the rank that the others wait for, where there is one; else the mean rank's.
    """
    late = _late(run, grown)
    losses, whose = run.lost if late is None else [late], ""
    if late is not None:
        grown = late.growth_ms or grown
        waiting = "come to wait" if grown > 0 else "waited"
        whose = f"on rank {late.rank}, for which the others {waiting}, "
    largest = _largest(losses, grown)
    rest = grown - sum(ms for _, ms in largest) if largest else 0.0
    more = [f"{milliseconds(ms)} {parts.named(key).name}" for key, ms in largest if ms > 0]
    back = [f"{milliseconds(-ms)} {parts.named(key).name}" for key, ms in reversed(largest) if ms < 0]
    if abs(rest) >= _A_WORD * abs(grown):  # so that what is told adds up
        (more if rest > 0 else back).append(f"{milliseconds(abs(rest))} in smaller parts")
    if grown < 0:
        return f"{whose}gone are {listing(back) or 'none of its parts'}" + (f"; {listing(more)} came" if more else "")
    return whose + listing(more) + (f"; {listing(back)} came back" if back else "")


def _beyond_noise(run: RunAnalysis) -> str:
    """Return by how much the step that is compared changed, which step that is, and whether that is beyond noise."""
    loss = run.lost[0]
    change, low, high = loss.step_change_ms, loss.step_low_ms, loss.step_high_ms
    if change is None or low is None or high is None:
        return ""
    digits = digits_of((high - low) / 2)
    where = "within" if low <= 0 <= high else "beyond"
    bounds = f"95%: {figure(low, digits)} to {figure(high, digits)} ms"
    span = "" if _is_as_profiled(run) else f"{_job_span(run)}; "
    waited = (loss.from_run_delay_ms, loss.to_run_delay_ms)
    cores = for_want_of_cores(change, loss.compared_step_ms, waited, untold=loss.cores_untold and where == "beyond")
    told = f"{capitalized(_compared_as(loss))} changed by {figure(change, digits)} ms ({span}{bounds})"
    return f" {told}, {where} noise{cores}."


def lost_panels(data: ReportData) -> list[Panel]:
    """Return a panel a run that was analysed against a reference: each rank's growth as a stack of its parts."""
    panels = []
    for run in data.answers:
        if not run.lost:
            continue
        table, gone = lost_table(run.lost)
        note = parts.zero_line(gone)
        rows = [row for loss in run.lost[:_MOST_BARS] for row in _bars(loss)]
        present = [part for part in _all_parts() if any(row["part"] == part.name for row in rows)]
        charts = drawing() if rows else None
        panels.append(
            Panel(
                f"lost-{run.name}",
                f"{run_label(run)}, against {quoted(run.lost[0].reference)}",
                lost_sentence(run),
                Table(table.columns, table.rows, table.reasons, f"{note} {_RECORDED}".lstrip()),
                [
                    charts.partition(
                        rows,
                        list(dict.fromkeys(row["label"] for row in rows)),
                        [(part.name, f"var({part.variable})") for part in present],
                        "ms a profiled step, against the reference",
                    )
                ]
                if charts
                else [],
                [Key(part.name, f"var({part.variable})", _MEANING.get(part.key, part.meaning)) for part in present],
                "" if rows else "no rank's step differs",
                subject=data.series_of(run),
            )
        )
    return panels


def _bars(loss: RankLoss) -> list[dict[str, Any]]:
    order = [part.key for part in _all_parts()]
    return [
        {"label": f"rank {loss.rank}", "part": part.name, "order": order.index(part.key), "ms": ms,
         "share": ms / loss.from_step_ms if loss.from_step_ms else 0.0}
        for part, ms in waterfall_steps(loss) if abs(ms) >= READS_AS_ZERO_MS
    ]  # fmt: skip


def _all_parts() -> list[Part]:
    return [INFLATION, MORE_WORK, *parts.ALL]
