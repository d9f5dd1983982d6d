"""Whatever a folder holds, on a terminal."""

from rich.console import Console

from scalescope.report.report_data import ReportData
from scalescope.report.sentences import sweep_verdict
from scalescope.report.terminal.console import print_line
from scalescope.report.terminal.run import print_run
from scalescope.report.terminal.study import print_closing, print_study
from scalescope.report.terminal.sweep import print_sweep
from scalescope.report.terminal.tables import print_panel
from scalescope.report.terminal.verdicts import print_verdict


def print_report_data(
    data: ReportData, console: Console, *, points_were_shown: bool = False, briefly: bool = False
) -> None:
    """Print whatever a folder holds: a study, a training run or a sweep, and what could not be read.

    `points_were_shown`: a sweep's table stands on the terminal already, row by row as they were measured. `briefly`: of
    a study no more than fits on a screen.
    """
    if data.study is not None:
        if briefly:
            print_closing(data.study, data.answers, console)
        else:
            print_study(data.study, data.answers, [] if points_were_shown else data.sweep, console)
        if data.sweep and (briefly or points_were_shown):
            print_verdict(console, sweep_verdict(data.sweep))
    else:
        for answer in data.answers:
            print_run(answer, console)
        if data.sweep and points_were_shown:
            print_verdict(console, sweep_verdict(data.sweep))
        elif data.sweep:
            print_sweep(data.sweep, console)
    if data.scorecard:  # its catalogue is YAML, for whose reader nothing else has to wait
        from scalescope.report.scorecard import catalog_of, scorecard_panels

        for panel in scorecard_panels(data.scorecard, catalog_of(data.folder)):
            print_panel(panel, console)
    for note in [*data.notes, *(run.reason for run in data.runs if run.reason)]:
        print_line(console, note, "yellow")
