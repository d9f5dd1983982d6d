"""A verdict, its notes and its findings on a terminal."""

from collections.abc import Sequence

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
from scalescope.scaling.finding import Finding
from scalescope.scaling.findings.of_rows.recurring import place

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
    findings = finding_text.listed(run)
    recurring = run.recurring
    at = place(findings, run)
    if not findings and at is None:
        _print_older_advice(console, run)
        return
    console.print()
    console.print(Text("What costs the step, and what to do", style="bold"), soft_wrap=not console.is_terminal)
    entries = [_entry(one, run, findings) for one in findings]
    if at is not None and recurring is not None:
        told = f"{with_doing(recurring_clause(recurring), recurring)}."
        entries.insert(at, (told, f"{capitalized(recurring_advice(recurring))}."))
    # what the verdict says first comes before all that is priced by such steps; the rows of all steps come before it
    doubtful = (1 if at == 0 else 0) if unsteady and findings else None
    for number, (told, todo) in enumerate(entries):
        if number == doubtful:
            print_line(console, "First measure again: the machine was unsteady. Of the profiled steps alone:")
        print_line(console, f"{number + 1}. {told}")
        print_line(console, f"   {todo}", "dim")


def _entry(one: Finding, run: RunAnalysis, findings: Sequence[Finding]) -> tuple[str, str]:
    """Return what a finding costs, and what to do about it, in a line each."""
    assert one.remedy is not None
    here, elsewhere = f"{capitalized(cure_of(one))}{by_itself(one)}", finding_text.todo_elsewhere(one)
    return f"{finding_text.line(one, run, findings)}.", f"{here}. In a loop of your own: {elsewhere}."


def _print_older_advice(console: Console, run: RunAnalysis) -> None:
    """Print the advice of an answer of schema 1, which holds its words."""
    older = [one for one in run.advice if one.what]
    if older:
        console.print()
        console.print(Text("What to do next, by the replayed step", style="bold"), soft_wrap=not console.is_terminal)
    for number, advice in enumerate(older, 1):
        print_line(console, f"{number}. {advice_sentence(advice)}.")
        print_line(console, f"   Because {advice.because}. In a script of your own: {advice.elsewhere}.", "dim")
