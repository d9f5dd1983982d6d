"""An analysis as Markdown, to be pasted into an issue: what it says first, the findings, the figures folded below."""

from collections.abc import Iterator, Sequence

from scalescope.records.console import counted
from scalescope.report.as_run.recording import as_run_table, as_run_title, partition_title
from scalescope.report.as_run.shown import differs, is_shown_alone
from scalescope.report.drawing import parts
from scalescope.report.drawing.markdown import escaped, finished, folded, lines_of
from scalescope.report.panels.compute_lines import compute_lines
from scalescope.report.panels.lost import lost_table, lost_title
from scalescope.report.sentences import Verdict
from scalescope.report.text import findings as text
from scalescope.report.text.beside import beside_sentences
from scalescope.report.text.late.together import by_itself, cure_of
from scalescope.report.text.listed import entries_of, listed, order_sentence
from scalescope.report.text.of_step import basis_sentence
from scalescope.report.text.recurring import recurring_advice, recurring_clause, with_doing
from scalescope.report.text.scaling.factors import cores_sentence
from scalescope.report.verdict.run import run_verdict
from scalescope.report.verdict.study import study_verdicts
from scalescope.report.views import efficiency_table, partition_table, run_label, waterfall_table
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import RecurringSteps
from scalescope.scaling.study_answer import Answer, StudyAnalysis

_ZEROS = [*(f"{part.key}_ms" for part in parts.ALL[1:]), "before_window_ms"]


def for_an_issue(answers: Sequence[Answer]) -> str:
    """Return the answers as Markdown: a study first, with the findings of each of its runs that has some."""
    studies = [one for one in answers if isinstance(one, StudyAnalysis)]
    runs = [one for one in answers if isinstance(one, RunAnalysis)]
    lines: list[str] = []
    for told in beside_sentences(runs):
        lines += [escaped(told), ""]
    for study in studies:
        lines += _study(study, runs)
    for run in runs:
        lines += _run(run, briefly=bool(studies))
    return finished(lines)


def _study(study: StudyAnalysis, runs: Sequence[RunAnalysis]) -> Iterator[str]:
    for verdict in study_verdicts(study, runs):
        yield from _verdict(verdict)
    if study.efficiency:
        yield from lines_of(efficiency_table(study))
        yield ""
        if held := cores_sentence(study.efficiency, runs):
            yield f"- {escaped(held)}"
            yield ""
    for fall in study.waterfall:
        title = f"{fall.series}: where the step's growth from {fall.from_world_size} to {fall.to_world_size} went"
        yield from folded(title, waterfall_table(fall))
    for reason in study.reasons:
        yield f"- {escaped(reason)}"
    yield ""


def _run(run: RunAnalysis, *, briefly: bool) -> Iterator[str]:
    """Yield a run's lines; `briefly`: a study has said already how it scales."""
    if briefly and not run.findings:
        return
    if briefly:
        yield f"### {escaped(run_label(run))}"
        yield ""
    else:
        yield f"<sub>{escaped(_about(run))}</sub>"
        yield ""
        yield from _verdict(run_verdict(run))
    yield from _listed(run)
    yield ""
    if run.ranks and run.quality.verdict != "unusable" and not is_shown_alone(run):
        table, _ = partition_table(run).without_zero_columns(_ZEROS)
        yield from folded(partition_title(run), table)
    if differs(run):
        table, _ = as_run_table(run).without_zero_columns(_ZEROS)
        yield from folded(as_run_title(run), table)
    if run.lost:
        yield from folded(lost_title(run.lost), lost_table(run.lost)[0])
    if told := compute_lines(run):
        yield "<details><summary>What the compute is</summary>"
        yield ""
        yield from (f"- {escaped(line)}" for line in told)
        yield ""
        yield "</details>"
        yield ""
    for reason in run.quality.reasons if run.quality.verdict == "good" else ():
        yield f"- {escaped(reason)}"


def _listed(run: RunAnalysis) -> Iterator[str]:
    """Yield what costs the step, most costly first, with what to do about it; steps that recur in their place."""
    for line in filter(None, (basis_sentence(run, listed(run)), order_sentence(run))):
        yield escaped(line)
        yield ""
    for number, one in enumerate(entries_of(run), 1):
        if isinstance(one, RecurringSteps):
            yield f"{number}. {escaped(with_doing(recurring_clause(one), one))}"
            yield f"   {escaped(recurring_advice(one))}"
            continue
        yield f"{number}. {escaped(text.line(one, run, run.findings))}"
        if one.remedy is not None:
            elsewhere = text.todo_elsewhere(one)
            yield f"   {escaped(cure_of(one))}{by_itself(one)}; in a loop of your own: {escaped(elsewhere)}"


def _verdict(verdict: Verdict) -> Iterator[str]:
    yield f"**{escaped(verdict.headline)}**"
    yield ""
    for sentence in (*verdict.sentences, *verdict.notes):
        yield f"- {escaped(sentence)}"
    yield ""


def _about(run: RunAnalysis) -> str:
    windows = counted(run.windows, "window")
    steps = counted(run.ranks[0].steps, "step") if run.ranks else "no steps"
    return " · ".join(
        filter(None, (run_label(run), run.device, f"{steps} in {windows}", f"trace {run.quality.verdict}"))
    )
