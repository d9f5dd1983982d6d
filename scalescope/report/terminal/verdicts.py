"""A verdict, its notes and its findings on a terminal."""

from rich.console import Console
from rich.text import Text

from scalescope.report.advice.first import advice_sentence
from scalescope.report.drawing.numbers import capitalized
from scalescope.report.sentences import Level, Verdict
from scalescope.report.terminal.console import print_line
from scalescope.report.text import findings as finding_text
from scalescope.report.text.late.together import by_itself, cure_of
from scalescope.report.text.recurring import recurring_advice, recurring_clause, with_doing
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.findings.of_rows.recurring import leads

_STYLES: dict[Level, str] = {"good": "green", "fair": "yellow", "poor": "red", "unknown": "bold"}


def print_verdict(console: Console, verdict: Verdict) -> None:
    console.print()
    console.print(Text(verdict.headline, style=_STYLES[verdict.level]), soft_wrap=not console.is_terminal)
    for sentence in verdict.sentences:
        print_line(console, sentence)
    if verdict.advice:
        print_line(console, f"{verdict.advice_title}: {verdict.advice}")
    if verdict.command:
        console.print(Text(f"  {verdict.command}"), soft_wrap=True)  # a line's end within it would be pasted, too


def print_notes(console: Console, verdict: Verdict) -> None:
    if verdict.notes:
        console.print()
    for note in verdict.notes:
        print_line(console, note)


def print_findings(console: Console, run: RunAnalysis, *, unsteady: bool) -> None:
    """Print what costs the step, most costly first, and what to do about each."""
    findings = finding_text.following(run.findings)
    recurring = run.recurring if leads(run) else None
    if not findings and recurring is None:
        _print_older_advice(console, run)
        return
    console.print()
    console.print(Text("What costs the step, and what to do", style="bold"), soft_wrap=not console.is_terminal)
    if recurring is not None:  # the rows of all steps tell, whatever the profiled ones were like
        print_line(console, f"1. {with_doing(recurring_clause(recurring), recurring)}.")
        print_line(console, f"   {capitalized(recurring_advice(recurring))}.", "dim")
        if not findings:
            return
    if unsteady:  # what the verdict says first comes before all that is priced by such steps
        print_line(console, "First measure again: the machine was unsteady. Of the profiled steps alone:")
    for number, one in enumerate(findings, 1 if recurring is None else 2):
        print_line(console, f"{number}. {finding_text.line(one, run, findings)}.")
        assert one.remedy is not None
        here, elsewhere = f"{capitalized(cure_of(one))}{by_itself(one)}", finding_text.todo_elsewhere(one)
        print_line(console, f"   {here}. In a loop of your own: {elsewhere}.", "dim")


def _print_older_advice(console: Console, run: RunAnalysis) -> None:
    """Print the advice of an answer of schema 1, which holds its words."""
    older = [one for one in run.advice if one.what]
    if older:
        console.print()
        console.print(Text("What to do next, by the replayed step", style="bold"), soft_wrap=not console.is_terminal)
    for number, advice in enumerate(older, 1):
        print_line(console, f"{number}. {advice_sentence(advice)}.")
        print_line(console, f"   Because {advice.because}. In a script of your own: {advice.elsewhere}.", "dim")
