"""A verdict, its notes and its findings on a terminal."""

from rich.console import Console
from rich.text import Text

from scalescope.report.advice.first import advice_sentence
from scalescope.report.drawing.numbers import capitalized
from scalescope.report.panels.advice import causes_of
from scalescope.report.sentences import Level, Verdict
from scalescope.report.terminal.console import print_line
from scalescope.report.text.listed import listed, order_sentence
from scalescope.report.text.long import with_cause
from scalescope.report.text.of_step import basis_sentence
from scalescope.scaling.answer import RunAnalysis
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
    causes = causes_of(run)
    if not causes:
        _print_older_advice(console, run)
        return
    console.print()
    console.print(Text("What costs the step, and what to do", style="bold"), soft_wrap=not console.is_terminal)
    findings = listed(run)
    at = place(findings, run)
    for line in filter(None, (basis_sentence(run, findings), order_sentence(run))):
        print_line(console, line, "dim")
    # what the verdict says first comes before all that is priced by such steps; the rows of all steps come before it
    doubtful = (1 if at == 0 else 0) if unsteady and findings else None
    for number, one in enumerate(causes):
        if number == doubtful:
            print_line(console, "First measure again: the machine was unsteady. Of the profiled steps alone:")
        told = with_cause(one.told, one.because) if one.because else one.told
        print_line(console, f"{number + 1}. {told}.")
        print_line(console, f"   {capitalized(one.todo)}.", "dim")


def _print_older_advice(console: Console, run: RunAnalysis) -> None:
    """Print the advice of an answer of schema 1, which holds its words."""
    older = [one for one in run.advice if one.what]
    if older:
        console.print()
        console.print(Text("What to do next, by the replayed step", style="bold"), soft_wrap=not console.is_terminal)
    for number, advice in enumerate(older, 1):
        print_line(console, f"{number}. {advice_sentence(advice)}.")
        print_line(console, f"   Because {advice.because}. In a script of your own: {advice.elsewhere}.", "dim")
