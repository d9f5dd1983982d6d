"""One run on a terminal: its verdict, with what may help most, where its step goes, and what that costs."""

from rich.console import Console
from rich.text import Text

from scalescope.report.as_run.recording import as_run_table, as_run_title, of_other_steps, partition_title
from scalescope.report.as_run.shown import OTHER_STEPS, differs, is_shown_alone, shown_efficiency
from scalescope.report.drawing import parts
from scalescope.report.drawing.numbers import figure
from scalescope.report.panels.compute_lines import compute_lines, compute_title, efficiency_told, legend_lines
from scalescope.report.panels.lost import lost_legend, lost_table, lost_title, noise_sentence
from scalescope.report.panels.roles import roles_table, worth_showing
from scalescope.report.shares import has_kinds, iterations_table
from scalescope.report.steadiness import profiling_line, recording_line
from scalescope.report.terminal.console import print_line
from scalescope.report.terminal.tables import print_table
from scalescope.report.terminal.verdicts import print_findings, print_notes, print_verdict
from scalescope.report.verdict.run import run_verdict
from scalescope.report.views import (
    lacking_ranks,
    partition_table,
)
from scalescope.scaling.answer import Efficiency, RunAnalysis
from scalescope.scaling.as_run.step import step_as_run
from scalescope.scaling.verdicts.step_rows.doubt import is_doubtful

#: Less communication than this share of the step, unsplit, moves no efficiency factor by a figure that is shown.
_UNSPLIT = 0.005


def print_run(answer: RunAnalysis, console: Console) -> None:
    """Print one run: its verdict, the mean step's partition a rank, and the efficiency that follows."""
    verdict = run_verdict(answer)
    print_verdict(console, verdict)
    if answer.ranks and answer.quality.verdict != "unusable":
        alone = is_shown_alone(answer)
        table = as_run_table(answer) if alone else partition_table(answer)
        table, gone = table.without_zero_columns([*(f"{part.key}_ms" for part in parts.ALL[1:]), "before_window_ms"])
        print_table(console, table, as_run_title(answer) if alone else partition_title(answer))
        beside = of_other_steps(answer, "this table", OTHER_STEPS)
        for line in [parts.zero_line(gone), *legend_lines(answer, table), beside]:
            if line:
                print_line(console, line, "dim")
        _print_compute(console, answer)
        if has_kinds(answer):
            print_table(console, iterations_table(answer), "The server's iterations by kind, means over ranks")
    if worth_showing(answer):
        table, _ = roles_table(answer).without_zero_columns(["exposed_unsplit_ms"])
        print_table(console, table, "Communication by what its groups are for, on the mean rank", blank_absent=True)
    if differs(answer) and not is_shown_alone(answer):
        table, gone = as_run_table(answer).without_zero_columns([f"{part.key}_ms" for part in parts.ALL[1:]])
        print_table(console, table, as_run_title(answer))
        if line := parts.zero_line(gone):
            print_line(console, line, "dim")
    if told := recording_line(answer):
        print_line(console, told)
    if answer.lost:
        table, gone = lost_table(answer.lost)
        print_table(console, table, lost_title(answer.lost))
        if told := noise_sentence(answer.lost):
            print_line(console, told)
        for line in (parts.zero_line(gone), lost_legend(table)):
            if line:
                print_line(console, line, "dim")
    print_findings(console, answer, unsteady=is_doubtful(answer))
    factors, whose = shown_efficiency(answer)
    if factors is not None and answer.world_size > 1:
        print_line(console, _efficiency_line(factors, whose, answer))
    print_notes(console, verdict)
    reasons = answer.quality.reasons if answer.quality.verdict == "good" else []  # else the verdict says them
    for reason in [*reasons, *([answer.unpriced.text] if answer.unpriced is not None else [])]:
        print_line(console, f"Noted: {reason}.", "dim")
    if line := profiling_line(answer):
        print_line(console, line)


def _print_compute(console: Console, run: RunAnalysis) -> None:
    """Print what the compute is."""
    lines = compute_lines(run)
    if lines:
        console.print()
        console.print(Text(compute_title(run), style="bold"), soft_wrap=not console.is_terminal)
    for line in lines:
        print_line(console, line)


def _efficiency_line(factors: Efficiency, whose: str, answer: RunAnalysis) -> str:
    """Return the efficiency with its factors; without those where ranks are missing, which they compare, or where more
    of the communication is unsplit than is told apart: transfer and serialisation are cut out of it.
    """
    whole = efficiency_told(factors, whose)
    if lacking_ranks(answer):
        return f"{whole} of the ranks traced; how they balance, only traces of all {answer.world_size} ranks can tell."
    if _is_unsplit(answer):
        return f"{whole}; its factors are not told: most of the exposed communication is not split."
    return (
        f"{whole} = load balance {figure(factors.load_balance, 3)} × waiting {figure(factors.serialisation, 3)} "
        f"× transfer {figure(factors.transfer, 3)} × copies {figure(factors.memory, 3)} "
        f"× idling {figure(factors.orchestration, 3)} (1: nothing is lost to it)"
    )


def _is_unsplit(answer: RunAnalysis) -> bool:
    """Tell whether more of the exposed communication is unsplit than is told apart, and enough to matter."""
    _, ranks = step_as_run(answer)
    unsplit = sum(one.exposed_unsplit_ms for one in ranks)
    told = sum(one.exposed_transfer_ms + one.exposed_wait_ms for one in ranks)
    return unsplit > max(told, _UNSPLIT * sum(one.window_ms for one in ranks))
