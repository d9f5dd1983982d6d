"""How every verb that measures or analyses ends: with the figures on the terminal and in the report."""

import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from scalescope.cli.outputs import Outputs, outputs
from scalescope.records.console import clean
from scalescope.records.errors import ExitCode, UserError
from scalescope.records.folder import RunFolder
from scalescope.records.outputs.overwriting import refuse_to_lose
from scalescope.scaling.analyze import analyze, analyze_base
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.projection.outlook import NO_OUTLOOK, Outlook
from scalescope.scaling.study_answer import Answer, StudyAnalysis, without_timeline
from scalescope.scaling.verdicts.groups import named_roles

if TYPE_CHECKING:
    from rich.console import Console

    from scalescope.scaling.as_run.untraced_step import Untraced
    from scalescope.scaling.join.explained import Explained

#: Of references' names in that of a file, so that with what stands around them file systems take it.
_LONGEST_NAME = 50


@dataclass(frozen=True)
class Asked:
    """What is to be analysed and shown, and beside what."""

    paths: list[Path]
    json: Path | None = None  # where the answer goes, too
    markdown: Path | None = None  # where a text for an issue goes
    html: Path | None = None  # where the page goes; None: into a run folder, and nowhere of plain traces
    redact: bool = False  # what goes there names no host, no user and no absolute path
    references: Sequence[Path] = ()  # undisturbed runs on as many ranks: what was lost against them
    bases: Sequence[Path] = ()  # the same job on fewer ranks: how it scales from there
    outlook: Outlook = NO_OUTLOOK  # other sweeps than a study's own, and GPU counts to project to
    step_ms: Sequence[float] = field(default=())  # the paths' steps without a profiler, one each, where they are known
    points_were_shown: bool = False  # the rows of a sweep that has just ended stand on the terminal
    briefly: bool = False  # of a study: its counts in one table, and its verdicts
    roles: Mapping[str, str] = field(default_factory=dict)  # of process groups, where plain traces do not tell them


def show(asked: Asked, executor: Executor | None = None) -> ExitCode:
    """Analyse, print and report what was measured; return the exit code: whether plain traces tell anything."""
    with outputs(json=asked.json, markdown=asked.markdown) as out:
        answers = _show(asked, executor, out)
    return told(answers, asked.paths)


def told(answers: Sequence[Answer], paths: Sequence[Path]) -> ExitCode:
    """Return the exit code of plain traces' answers; where none tells anything, say so on stderr."""
    runs = [one for one in answers if isinstance(one, RunAnalysis)]
    if len(runs) < len(answers) or not runs or any(one.quality.verdict != "unusable" for one in runs):
        return ExitCode.OK
    why = next((reason for one in runs for reason in one.quality.reasons), "nothing can be read")
    line = f"scalescope: {', '.join(map(str, paths))}: the traces do not say where the time goes: {why}"
    print(clean(line), file=sys.stderr)
    return ExitCode.USER_INPUT


def _show(asked: Asked, executor: Executor | None, out: Outputs) -> list[Answer]:
    """Return the answers of plain traces."""
    for path in asked.paths:
        if asked.references and asked.html is None and _is_run(path):  # somebody's own may have that name
            page = _page_against(path, asked.references)
            refuse_to_lose(page, "page", str(page), "name another FILE with --html")
    found = _analysed(asked, executor)
    for run in (one for _, answers in found for one in answers if isinstance(one, RunAnalysis)):
        run.groups = named_roles(run.groups, asked.roles)
    if asked.json is not None or asked.markdown is not None:
        written = [answer for _, answers in found for answer in answers]
        written = redacted_answers(written, asked.paths) if asked.redact else written
        written = [without_timeline(answer) for answer in written]
        sweeps = [] if written else [row for path in asked.paths for row in RunFolder(path).read_sweep()]
        out.put_json(asked.json, written[0] if len(written) == 1 else written or sweeps)
        if asked.markdown is not None:
            from scalescope.report.markdown import for_an_issue

            out.put(asked.markdown, for_an_issue(written))
    plain = [answer for path, answers in found for answer in answers if not _is_run(path) or asked.bases]
    shown = redacted_answers(plain, asked.paths) if asked.redact else plain
    report = (
        write_page(shown, asked.paths[0], asked.html, redact=asked.redact) if plain and asked.html is not None else None
    )
    if out.alone and (asked.bases or not any(_is_run(path) for path, _ in found)):
        return plain
    from scalescope.report.terminal.console import make_console

    console = make_console()
    _print_relations(plain, console)
    for path, answers in found:
        if _is_run(path) and not asked.bases:
            _show_run_folder(path, asked, console)
        else:
            _print(answers, console)
    if report is not None:
        print(f"report: {report}")
    return plain


def _analysed(asked: Asked, executor: Executor | None) -> list[tuple[Path, list[Answer]]]:
    """Return the answers to each path, or to all of them where they are files, which are ranks of one job."""
    paths = asked.paths
    if asked.bases:
        return [(paths[0], analyze_base(paths[0], asked.bases, None, executor, asked.outlook))]
    groups = [paths] if all(path.is_file() for path in paths) else [[path] for path in paths]
    untraced = _given_steps(asked)
    plain: list[tuple[Path, Explained]] = []
    found = [
        (
            group[0],
            analyze(
                group,
                None,
                executor,
                asked.references,
                asked.outlook,
                {one: untraced[one] for one in group if one in untraced},
                plain=plain,
            ),
        )
        for group in groups
    ]
    if len(plain) > 1:
        from scalescope.scaling.beside import tell_relations

        tell_relations(plain)
    return found


def _given_steps(asked: Asked) -> "dict[Path, Untraced]":
    if not asked.step_ms:
        return {}
    from scalescope.scaling.as_run.untraced import given_steps

    return given_steps(asked.step_ms, asked.paths)


def _print_relations(answers: Sequence[Answer], console: "Console") -> None:
    """Print how the traces of several folders relate, before what each of them tells."""
    from scalescope.report.terminal.console import print_line
    from scalescope.report.text.beside import beside_sentences

    for text in beside_sentences([one for one in answers if isinstance(one, RunAnalysis)]):
        print_line(console, text)


def _is_run(path: Path) -> bool:
    return (path / "run.json").is_file()


def _page_against(path: Path, references: Sequence[Path]) -> Path:
    """Return where the page of a run beside its references goes: the run's own page, of it alone, stays."""
    names = "-".join(dict.fromkeys(one.resolve().name for one in references))
    return path / f"report-against-{names[:_LONGEST_NAME]}.html"


def _show_run_folder(path: Path, asked: Asked, console: "Console") -> None:
    # a page's templates and charts: plain traces need not wait for them
    from scalescope.report.html import write_redacted_report, write_report
    from scalescope.report.report_data import read_report_data
    from scalescope.report.terminal.folder import print_report_data

    folder = RunFolder(path)
    # before the tables: whoever reads those may stop early
    redacted = asked.redact and asked.html is not None
    out = asked.html or (_page_against(path, asked.references) if asked.references else None)
    report = write_redacted_report(folder, None, out) if redacted else write_report(folder, out)
    data = read_report_data(folder)
    print_report_data(data, console, points_were_shown=asked.points_were_shown, briefly=asked.briefly)
    print(f"report: {report}")


def _print(answers: Sequence[Answer], console: "Console") -> None:
    """Print the answers of plain traces; of several world sizes how they compare, then the largest run."""
    from scalescope.report.terminal.run import print_run
    from scalescope.report.terminal.study import print_study

    runs = [one for one in answers if isinstance(one, RunAnalysis)]
    for study in (one for one in answers if isinstance(one, StudyAnalysis)):
        print_study(study, runs, [], console)
        runs = runs[:1]
    for run in runs:
        print_run(run, console)


def redacted_answers(answers: list[Answer], paths: Sequence[Path]) -> list[Answer]:
    """Return answers without what they reveal of where these paths' traces are from."""
    from scalescope.report.redaction.report_data import pseudonyms_of
    from scalescope.report.redaction.structs import redacted_twice

    return redacted_twice(answers, pseudonyms_of([RunFolder(path) for path in paths]))


def write_page(answers: Sequence[Answer], path: Path, out: Path, *, redact: bool = False) -> Path:
    """Write the page of plain traces, `redact`: not under their folder's name.

    Raises UserError where it cannot be written.
    """
    from scalescope.report.html import write_traces_report

    resolved = path.resolve()
    try:
        return write_traces_report(answers, "traces" if redact else resolved.name, out)
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}; name another file with --html") from error
