"""Findings, shown: what costs the step, what to do about it, and what came of that where it was tried."""

from collections.abc import Sequence

from scalescope.report.advice.first import begins_on, first_of_series
from scalescope.report.advice.unsteady import is_unsteady_series, measure_again
from scalescope.report.drawing.numbers import capitalized, listing, milliseconds, percent, rank_numbers
from scalescope.report.drawing.panel import Cause, Panel
from scalescope.report.drawing.tables import Cell, Column, Table
from scalescope.report.report_data import ReportData
from scalescope.report.sentences import sentence
from scalescope.report.steadiness import unlike_sentence
from scalescope.report.text import findings as finding_text
from scalescope.report.text.cures.words import cure_elsewhere
from scalescope.report.text.fusing import best_to_do
from scalescope.report.text.late.loading import of_one_rank
from scalescope.report.text.late.together import by_itself, cure_of, whose
from scalescope.report.text.listed import listed, order_sentence
from scalescope.report.text.of_step import basis_sentence, with_one_basis
from scalescope.report.text.recurring import (
    doing_of,
    recurring_advice,
    recurring_because,
    recurring_clause,
    recurring_name,
    recurring_remedy,
    remedy_of,
)
from scalescope.report.text.scaling.scaling_loss import NOT_THE_SCALING, speeds_alone
from scalescope.report.views import devices, grew_within_noise, run_label, waterfall_steps
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import RecurringSteps
from scalescope.scaling.finding.codes import TELLS_MORE
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.finding.kinds import has_upper_end, is_late
from scalescope.scaling.finding_list import told_of
from scalescope.scaling.findings.of_rows.recurring import leads, place
from scalescope.scaling.study_answer import TriedAdvice, Waterfall
from scalescope.scaling.verdicts.step_rows.doubt import is_doubtful

#: Under the table: what to begin with may be another than what costs most, and the sentence above it says which.
_BY_COST = "Rows are in the order of what they cost. "
_OF_STEADY_STEPS = ("measured_ms", "base_step_ms", "run_step_ms")


def findings_table(run: RunAnalysis) -> Table:
    """Return what is listed of a run as a table, most costly first, steps that recur in their place as on a terminal;
    of which step a share is, where any is of another.
    """
    findings = told_of(run)
    at, recurring = place(findings, run), run.recurring
    based = [with_one_basis(run, one) for one in findings]
    which = [step if one.fraction is not None else None for one, step in based]
    other = any(which) or at is not None
    columns = [
        Column("what", "what"),
        Column("rank", "rank", digits=0),
        Column("because", "because"),
        Column("gain_ms", "costs", "ms", 2),
        Column("interval_ms", "95% interval", "ms"),
        Column("fraction", "of the step", "%", 1, 100),
        *([Column("of_step", "which step")] if other else []),
        Column("remedy", "what to do"),
        Column("elsewhere", "in a loop of your own"),
    ]
    rows: list[list[Cell]] = [
        [finding_text.name(one), rank_numbers(one.ranks) or one.rank, finding_text.because(one), one.ms,
         _interval(one), of_one.fraction,
         *([None if step is None else step or "as run"] if other else []),
         f"{cure_of(one)}{by_itself(one)}" if one.remedy is not None else None, finding_text.todo_elsewhere(one)]
        for one, (of_one, _), step in zip(findings, based, which, strict=True)
    ]  # fmt: skip
    if at is not None and recurring is not None:
        rows.insert(at, _recurring_row(recurring))
    return Table(columns, rows, {"rank": "no rank's alone", "gain_ms": "no time is lost by it"})


def causes_of(run: RunAnalysis) -> list[Cause]:
    """Return what costs the step, most costly first, and what to do about each; steps that recur in their place."""
    findings, recurring = listed(run), run.recurring
    told = [_cause(one, run, findings) for one in findings]
    at = place(findings, run)
    if at is not None and recurring is not None:
        told.insert(at, Cause(recurring_clause(recurring), doing_of(recurring), recurring_advice(recurring)))
    return told


def _cause(one: Finding, run: RunAnalysis, findings: Sequence[Finding]) -> Cause:
    here, elsewhere = f"{cure_of(one)}{by_itself(one)}", finding_text.todo_elsewhere(one)
    todo = f"{here}. In a loop of your own: {elsewhere}"
    own = of_one_rank(one, findings)
    if own is not None and own.remedy is not None and one.remedy is not None and own.remedy.cure == one.remedy.cure:
        todo = f"the same as for {whose(own)}, on all ranks"
    return Cause(finding_text.priced(one, run, findings), finding_text.because(one), todo)


def _recurring_row(found: RecurringSteps) -> list[Cell]:
    """Return what steps that recur cost in the mean of all, as a row of the table of findings."""
    low, high, share = found.longer_low_ms, found.longer_high_ms, found.mean_ms / found.longer_ms
    interval = None if low is None or high is None else f"{share * low:.2f} to {share * high:.2f}"
    return [
        recurring_name(found), found.rank, recurring_because(found), found.mean_ms, interval,
        found.mean_ms / (found.usual_ms + found.mean_ms), "mean", recurring_remedy(found),
        cure_elsewhere(remedy_of(found)),
    ]  # fmt: skip


def tried_table(tried: Sequence[TriedAdvice]) -> Table:
    """Return what was expected of advice beside what came of it."""
    columns = [
        Column("run", "run"),
        Column("what", "change"),
        Column("expected_ms", "expected gain", "ms", 2),
        Column("expected_interval_ms", "95% interval", "ms"),
        Column("measured_ms", "measured gain", "ms", 2),
        Column("measured_interval_ms", "95% interval", "ms"),
        Column("base_step_ms", "step before", "ms", 2),
        Column("run_step_ms", "step after", "ms", 2),
    ]
    rows: list[list[Cell]] = [
        [one.run, one.what, one.expected_ms,
         _bound(one) or f"{one.expected_low_ms:.2f} to {one.expected_high_ms:.2f}",
         one.measured_ms, _measured(one), one.base_step_ms, one.run_step_ms]
        for one in tried
    ]  # fmt: skip
    reasons = dict.fromkeys(_OF_STEADY_STEPS, "one of the runs has no steady steps")
    return Table(columns, rows, reasons | {"measured_interval_ms": "one of the runs has fewer than ten steady steps"})


def advice_panels(data: ReportData) -> list[Panel]:
    """Return a panel a replayed run, and one for what was tried."""
    panels = [
        _advice_panel(answer, data, _doubt(answer, data), unsteady=_is_unsteady(answer, data))
        for answer in data.answers
        if answer.replay is not None
    ]
    tried = data.study.tried if data.study is not None else []
    if tried:
        panels.append(Panel("tried", "Advice followed", tried_sentence(tried), tried_table(tried)))
    return panels


def tried_sentence(tried: Sequence[TriedAdvice]) -> str:
    """Return what came of the advice, in words."""
    outcomes = []
    for one in tried:
        expected = f"{_bound(one)} {milliseconds(one.expected_ms)}".lstrip()
        came = "was not measured" if one.measured_ms is None else f"{milliseconds(one.measured_ms)} came"
        outcomes.append(f"{one.what} ({' '.join(one.overrides)}): {expected} a step expected, {came}")
    return f"{'; '.join(outcomes)}."


def _doubt(answer: RunAnalysis, data: ReportData) -> str:
    """Return why no advice is sure, in a sentence; empty where nothing speaks against it.

    It is what the verdict at the top of a page says, too: the table must not be firmer than the first sentence.
    """
    if answer.unpriced is not None:
        return sentence(capitalized(answer.unpriced.text))
    if answer.findings and answer.findings[0].code == "profiler_cost":
        return sentence(capitalized(finding_text.because(answer.findings[0])))
    told = unlike_sentence(answer, devices(answer.world_size, answer.activity))
    if _is_unsteady(answer, data):
        return told if is_doubtful(answer) and told else "The machine was unsteady."
    return told


def _is_unsteady(answer: RunAnalysis, data: ReportData) -> bool:
    """Tell whether the machine was unsteady while a run, or the series that it is of, was measured."""
    study = data.study
    series = {point.series for point in study.efficiency if point.run == answer.name} if study is not None else set()
    return is_doubtful(answer) or any(
        is_unsteady_series(study, one, data.answers) for one in series if study is not None
    )


def _mark(answer: RunAnalysis, data: ReportData) -> str:
    """Return that what brings most of a step does not make its study scale better, where it does not; else ""."""
    first = finding_text.first_to_do(answer.findings)
    if first is None:
        return ""
    grown = [fall for fall in _grown(answer, data) if not grew_within_noise(fall)]
    return NOT_THE_SCALING * any(speeds_alone(first, waterfall_steps(fall)) for fall in grown)


def _grown(answer: RunAnalysis, data: ReportData) -> list[Waterfall]:
    """Return how the step of a study's run is longer than that of its series' smallest, where ranks keep their work."""
    study = data.study
    if study is None:
        return []
    return [
        fall
        for point in study.efficiency
        if point.run == answer.name and point.scaling == "weak"
        for fall in study.waterfall
        if (fall.series, fall.to_world_size) == (point.series, point.world_size)
    ]


def _first(answer: RunAnalysis, data: ReportData) -> str:
    """Return what to do first, as the card at the top of a page has it."""
    grown = next(iter(_grown(answer, data)), None)
    series = data.by_series().get(data.series_of(answer), [])
    return first_of_series(answer, grown, [run.answer for run in series if run.answer is not None])


def _advice_panel(answer: RunAnalysis, data: ReportData, doubt: str, *, unsteady: bool) -> Panel:
    replay = answer.replay
    assert replay is not None
    # by how much, and not how long: the step that the first sentence speaks of may be another than the replayed ones
    off = percent(abs(replay.error), 2)
    than = f"{off} {'longer' if replay.error >= 0 else 'shorter'} than they were"
    than = "as long as they were" if off == percent(0.0, 2) else than
    held = f"the profiled steps, put together again from what each thing waits for, come out {than}."
    first = finding_text.first_to_do(answer.findings)
    if answer.unpriced is not None:
        told = ""
    elif first is None and not replay.faithful:
        told = _priced_all_the_same(answer.findings)
    elif first is None:
        told = "No setting that the replay can try is sure to bring half a per cent of the step."
        told = "" if doubt else told
    else:
        alone = (bool(doubt) and not is_late(first)) or leads(answer) or answer.growing is not None
        mended = best_to_do(answer, first)
        told = f"{mended}{_mark(answer, data)}."
        # where the first card has other advice than to measure again, it is this, in this order
        unsure = unsteady or answer.findings[0].code == "profiler_cost"
        same = unsure or told == (card := _first(answer, data))
        rank = begins_on(answer.findings, first) if same or card.startswith(mended) else None
        where = "" if rank is None else f", on rank {rank}"  # as on a terminal
        if same:
            most = f"most would come{where}{',' if where else ''} of"
            if first.remedy is not None and first.remedy.cure in TELLS_MORE:
                most = "to begin with"  # nothing comes of that by itself
            told = f"{'Of the profiled steps alone, ' if alone else ''}{most}: {told}"
            told = capitalized(told)
        elif alone:
            told = f"Of the profiled steps alone{where}: {card}"
        else:
            told = f"On rank {rank}: {card}" if where else capitalized(card)
    if first is None or answer.unpriced is not None:
        telling = [told, f"How far to trust that: {held}"] if replay.faithful and told else [capitalized(held), told]
    else:
        priced = "" if replay.faithful else _priced_all_the_same(answer.findings)
        telling = [told, f"How far to trust that: {held}", priced]
    again = f"First {measure_again([answer])}." if unsteady and answer.unpriced is None else ""
    rows = f"{capitalized(recurring_advice(answer.recurring))}." if answer.recurring and leads(answer) else ""
    parts = [doubt, rows, again, *telling]
    if first is not None and is_late(first) and not (rows or again):
        parts = [*telling[:1], doubt, *telling[1:]]  # of what all steps tell the profiled ones are no doubt
    by = order_sentence(answer)
    text = " ".join(filter(None, [*parts, basis_sentence(answer, listed(answer)), by]))
    table = findings_table(answer)
    order = _BY_COST if len(table.rows) > 1 and not by else ""
    assumed = f"Assumed: {'; '.join(replay.assumptions)}." if replay.assumptions else ""
    return Panel(
        f"advice-{answer.name}",
        run_label(answer),
        text,
        Table(table.columns, table.rows, table.reasons, f"{order}{assumed}"),
        subject=data.series_of(answer),
        causes=causes_of(answer),
    )


def _priced_all_the_same(findings: Sequence[Finding]) -> str:
    """Return which findings are priced although the replay is a few per cent off, and which, and what else, are not."""
    priced = [f"{finding_text.subject(one)}, {finding_text.cost(one)}" for one in findings if one.ms is not None]
    if not priced:
        return "What a change would bring cannot be told from that."
    unpriced = [finding_text.subject(one) for one in findings if one.ms is None and one.code != "nothing"]
    rest = f"{listing(unpriced)}, and a setting changed, would" if unpriced else "a setting changed would"
    return (
        "Causes that are there are priced all the same, since what is left out is left out with and without them: "
        f"{'; '.join(priced)}. What {rest} bring cannot be told from that."
    )


def _interval(finding: Finding) -> str | None:
    if finding.low_ms is None or finding.high_ms is None:
        return None
    bound = "" if has_upper_end(finding) else _bound(finding)
    return bound or f"{finding.low_ms:.2f} to {finding.high_ms:.2f}"


def _bound(told: Finding | TriedAdvice) -> str:
    """Return whether a figure is a bound, and on which side; "" where it is an expectation."""
    if told.at_least:
        return "at least"
    return "at most" if told.at_most else ""


def _measured(tried: TriedAdvice) -> str | None:
    if tried.measured_low_ms is None or tried.measured_high_ms is None:
        return None
    return f"{tried.measured_low_ms:.2f} to {tried.measured_high_ms:.2f}"
