"""How every verb that measures or analyses ends: with the figures on the terminal and in the report."""

from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path

from scalescope.records.folder import RunFolder
from scalescope.report.terminal import make_console, print_report_data, print_run
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis, write_answers
from scalescope.scaling.as_run.untraced import given_steps
from scalescope.scaling.projection.outlook import NO_OUTLOOK, Outlook


def show(
    paths: list[Path],
    json: Path | None = None,
    html: Path | None = None,
    executor: Executor | None = None,
    references: Sequence[Path] = (),
    outlook: Outlook = NO_OUTLOOK,
    step_ms: Sequence[float] = (),
) -> None:
    """Analyse, print and report what was measured; against `references`, what it lost, too.

    `outlook`: other sweeps than a study's own, and GPU counts to project to. `step_ms`: the steps of the paths without
    a profiler, one each, where they are known.
    """
    # files that are given together are ranks that belong together; folders are runs of their own
    groups = [paths] if all(path.is_file() for path in paths) else [[path] for path in paths]
    untraced = given_steps(step_ms, paths)
    found = [
        (
            group[0],
            analyze(group, None, executor, references, outlook, {one: untraced[one] for one in group if untraced}),
        )
        for group in groups
    ]
    if json is not None:
        write_answers(json, [answer for _, answers in found for answer in answers])
    console = make_console()
    for path, answers in found:
        if (path / "run.json").is_file():
            # a page's templates and charts: plain traces need not wait for them
            from scalescope.report.html import write_report
            from scalescope.report.report_data import read_report_data

            folder = RunFolder(path)
            report = write_report(folder, html)  # before the tables: whoever reads those may stop early
            print_report_data(read_report_data(folder), console)
            print(f"report: {report}")
        else:
            for answer in answers:
                if isinstance(answer, RunAnalysis):
                    print_run(answer, console)
