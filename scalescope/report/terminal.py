"""What a terminal shows: the verdict in a sentence, then its figures. Plain lines where nobody looks at colours.

A figure is never cut: a table wider than the terminal is printed in blocks that each repeat the first column, as
numpy's and pandas' users know it.
"""

from collections.abc import Callable, Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from scalescope.records.console import clean, styled_stream
from scalescope.records.rows import SweepRow
from scalescope.records.statistics import decimals
from scalescope.report.as_run import (
    as_run_sentence,
    as_run_table,
    as_run_title,
    differs,
    of_other_steps,
    shown_efficiency,
)
from scalescope.report.drawing import parts
from scalescope.report.drawing.numbers import capitalized, figure, listing, percent
from scalescope.report.drawing.panel import Panel
from scalescope.report.drawing.tables import ABSENT, Cell, Column, Table, without_middle
from scalescope.report.panels.advice import advice_sentence, tried_table
from scalescope.report.panels.compute_lines import compute_lines, legend_lines
from scalescope.report.panels.lost import lost_table
from scalescope.report.panels.roles import roles_table, worth_showing
from scalescope.report.report_data import ReportData
from scalescope.report.sentences import Level, Verdict, sweep_verdict
from scalescope.report.shares import has_kinds, iterations_table
from scalescope.report.steadiness import profiling_line
from scalescope.report.text import findings as finding_text
from scalescope.report.text.cures import cure_text
from scalescope.report.verdict.run import run_verdict
from scalescope.report.verdict.study import is_unsteady_series, study_verdicts
from scalescope.report.views import (
    activities,
    devices,
    efficiency_table,
    grew_within_noise,
    lacking_ranks,
    partition_table,
    points_of,
    series_names,
    sweep_variant,
    waterfall_steps,
)
from scalescope.scaling.answer import Efficiency, RunAnalysis
from scalescope.scaling.as_run.step import step_as_run
from scalescope.scaling.study_answer import StudyAnalysis, Waterfall
from scalescope.scaling.verdicts.step_rows.doubt import is_doubtful

_STYLES: dict[Level, str] = {"good": "green", "fair": "yellow", "poor": "red", "unknown": "bold"}
#: Less communication than this share of the step, unsplit, moves no efficiency factor by a figure that is shown.
_UNSPLIT = 0.005
_PAD = 2  # blanks between two columns
_Pad = Callable[[str, int], str]
#: Steps that sentences are of, and which are longer or shorter by this share than those of the table, are told apart.
_OTHER_STEPS = 0.01
_PLAIN_WIDTH = 10_000  # a log file has no width
#: … but names of kernels lose their middles for its lines to be no longer than this. Of a name so many characters stay
#: at least, and so many at most.
_PLAIN_ROOM = 200
_SHORT_NAME, _LONG_NAME = 20, 44


class _Console(Console):
    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield what is shown, cleaned of what a terminal would obey; rich's own control segments stay."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=clean(segment.text))

    def on_broken_pipe(self) -> None:
        """Leave it to the front door that the reader has gone: rich would end with 1, which is a failed check."""
        raise BrokenPipeError


def make_console() -> Console:
    """Return the console that all of this prints to: colours on a terminal only, and not where NO_COLOR is set."""
    console = _Console(file=styled_stream(), highlight=False)
    return console if console.is_terminal else _Console(file=styled_stream(), highlight=False, width=_PLAIN_WIDTH)


def print_run(answer: RunAnalysis, console: Console) -> None:
    """Print one run: its verdict, the mean step's partition a rank, and the efficiency that follows."""
    verdict = run_verdict(answer)
    _print_verdict(console, verdict)
    if answer.ranks and answer.quality.verdict != "unusable":
        table = partition_table(answer)
        table, gone = table.without_zero_columns([*(f"{part.key}_ms" for part in parts.ALL[1:]), "before_window_ms"])
        where = "Where a step goes, a rank" if answer.steps_by is not None else "What was recorded, a rank"
        _print_table(console, table, where)
        if gone:
            _print_line(console, f"0 ms on every rank: {', '.join(gone)}.", "dim")
        for line in [*legend_lines(answer, table), of_other_steps(answer, "this table", _OTHER_STEPS)]:
            if line:
                _print_line(console, line, "dim")
        _print_compute(console, answer)
        if has_kinds(answer):
            _print_table(console, iterations_table(answer), "The server's iterations by kind, means over ranks")
    if worth_showing(answer):
        table, _ = roles_table(answer).without_zero_columns(["exposed_unsplit_ms"])
        _print_table(console, table, "Communication by what its groups are for, on the mean rank", blank_absent=True)
    if differs(answer):
        table, gone = as_run_table(answer).without_zero_columns([f"{part.key}_ms" for part in parts.ALL[1:]])
        _print_table(console, table, as_run_title(answer))
        if gone:
            _print_line(console, f"0 ms on every rank: {', '.join(gone)}.", "dim")
    if told := as_run_sentence(answer):
        _print_line(console, told)
    if answer.lost:
        table, gone = lost_table(answer.lost)
        _print_table(console, table, f"What a step lost against {answer.lost[0].reference}, a rank")
        if gone:
            _print_line(console, f"0 ms on every rank: {', '.join(gone)}.", "dim")
    _print_findings(console, answer, unsteady=is_doubtful(answer))
    factors, whose = shown_efficiency(answer)
    if factors is not None and answer.world_size > 1:
        _print_line(console, _efficiency_line(factors, whose, answer))
    _print_notes(console, verdict)
    reasons = answer.quality.reasons if answer.quality.verdict == "good" else []  # else the verdict says them
    for reason in [*reasons, *([answer.unpriced.text] if answer.unpriced is not None else [])]:
        _print_line(console, f"Noted: {reason}.", "dim")
    if line := profiling_line(answer):
        _print_line(console, line)
    if verdict.advice and answer.ranks and answer.quality.verdict != "unusable":  # the end is what is read first there
        console.print()
        _print_line(console, _begin_with(answer, verdict.advice), "bold")


def _begin_with(answer: RunAnalysis, advice: str) -> str:
    """Return what to do first, and on which rank, where it is one's alone."""
    first = finding_text.first_to_do(answer.findings)
    alone = first is not None and first.rank is not None and advice.startswith(finding_text.todo(first))
    return f"Begin with{f' rank {first.rank}' if first is not None and alone else ''}: {advice}"


def _print_compute(console: Console, run: RunAnalysis) -> None:
    """Print what the compute is."""
    lines = compute_lines(run)
    if lines:
        console.print()
        console.print(Text("What the compute is", style="bold"), soft_wrap=not console.is_terminal)
    for line in lines:
        _print_line(console, line)


def _efficiency_line(factors: Efficiency, whose: str, answer: RunAnalysis) -> str:
    """Return the efficiency with its factors; without those where ranks are missing, which they compare, or where more
    of the communication is unsplit than is told apart: transfer and serialisation are cut out of it.
    """
    whole = f"Parallel efficiency{f' {whose}' if whose else ''} {percent(factors.parallel)}"
    if lacking_ranks(answer):
        return f"{whole} of the ranks traced; how they balance, only traces of all {answer.world_size} ranks can tell."
    if _is_unsplit(answer):
        return f"{whole}; its factors are not told: most of the exposed communication is not split."
    return (
        f"{whole} = load balance {figure(factors.load_balance, 3)} × serialisation {figure(factors.serialisation, 3)} "
        f"× transfer {figure(factors.transfer, 3)} × memory {figure(factors.memory, 3)} "
        f"× orchestration {figure(factors.orchestration, 3)}"
    )


def _is_unsplit(answer: RunAnalysis) -> bool:
    """Tell whether more of the exposed communication is unsplit than is told apart, and enough to matter."""
    _, ranks = step_as_run(answer)
    unsplit = sum(one.exposed_unsplit_ms for one in ranks)
    told = sum(one.exposed_transfer_ms + one.exposed_wait_ms for one in ranks)
    return unsplit > max(told, _UNSPLIT * sum(one.window_ms for one in ranks))


def print_report_data(data: ReportData, console: Console, *, points_were_shown: bool = False) -> None:
    """Print whatever a folder holds: a study, a training run or a sweep, and what could not be read.

    `points_were_shown`: a sweep's table stands on the terminal already, row by row as they were measured.
    """
    if data.study is not None:
        print_study(data.study, data.answers, data.sweep, console)
    else:
        for answer in data.answers:
            print_run(answer, console)
        if data.sweep and points_were_shown:
            _print_verdict(console, sweep_verdict(data.sweep))
        elif data.sweep:
            print_sweep(data.sweep, console)
    if data.scorecard:  # its catalogue is YAML, for whose reader nothing else has to wait
        from scalescope.report.scorecard import catalog_of, scorecard_panels

        for panel in scorecard_panels(data.scorecard, catalog_of(data.folder)):
            print_panel(panel, console)
    for note in [*data.notes, *(run.reason for run in data.runs if run.reason)]:
        _print_line(console, note, "yellow")


def print_study(
    study: StudyAnalysis,
    runs: Sequence[RunAnalysis],
    sweep_rows: Sequence[SweepRow],
    console: Console,
) -> None:
    """Print a study: a verdict a series, the scaling table, and the waterfall of each series in ms and percent."""
    verdicts = study_verdicts(study, runs)
    for verdict in verdicts:
        _print_verdict(console, verdict)
    kinds = activities(runs)
    for series in series_names(study):
        points = points_of(study, series)
        if points:
            table = efficiency_table(study)
            rows = [row[1:] for row in table.rows if row[0] == series]
            columns = list(table.columns)[1:]
            columns[0] = Column("world_size", "CPU ranks" if kinds.get(points[0].run) == "cpu" else "GPUs", digits=0)
            kept = [index for index in range(len(columns)) if any(row[index] is not None for row in rows)]
            rows = [[row[index] for index in kept] for row in rows]
            _print_table(console, Table([columns[index] for index in kept], rows, table.reasons), series)
        for fall in (fall for fall in study.waterfall if fall.series == series):
            _print_waterfall(console, fall, kinds.get(points[0].run) if points else None)
        largest = [run for run in runs if points and run.name == points[-1].run]
        for run in largest:
            _print_findings(console, run, unsteady=is_unsteady_series(study, series, runs))
    for verdict in verdicts:
        _print_notes(console, verdict)
    if study.tried:
        _print_table(console, tried_table(study.tried), "Advice followed: expected and measured")
    for reason in study.reasons:
        _print_line(console, f"Note: {reason}", "yellow")
    if sweep_rows:
        print_sweep(sweep_rows, console)


def print_sweep(rows: Sequence[SweepRow], console: Console) -> None:
    """Print a sweep's points a group, under nccl-tests' column names; a point that was not measured says why."""
    if not rows:
        _print_line(console, "The sweep has no points yet.", "bold")
        return
    _print_verdict(console, sweep_verdict(rows))
    columns = [
        Column("size", "size", "(B)", 0),
        Column("count", "count", "(elements)", 0),
        Column("type", "type"),
        Column("redop", "redop"),
        Column("root", "root", digits=0),
        Column("time", "time", "(us)", 2),
        *([Column("half", "±", "(%)", 1, 100)] if any(row.relative_half is not None for row in rows) else []),
        Column("algbw", "algbw", "(GB/s)", 2),
        Column("busbw", "busbw", "(GB/s)", 2),
        Column("wrong", "#wrong", digits=0),
        *([Column("wide", "")] if any(row.is_wide for row in rows) else []),
    ]
    groups: dict[tuple[str, int, str], list[SweepRow]] = {}
    for row in rows:
        groups.setdefault((row.operation, row.group_size, sweep_variant(row)), []).append(row)
    for (operation, group_size, variant), members in groups.items():
        cells: list[list[Cell]] = [[_sweep_cells(row)[column.key] for column in columns] for row in members]
        _print_table(console, Table(columns, cells), f"{operation} on {group_size} ranks, {variant}", grouped=False)
        reasons = dict.fromkeys(
            f"{row.status}: {row.reason or 'no reason given'}" for row in members if not row.time_us
        )
        for reason in reasons:
            sizes = [str(row.bytes) for row in members if f"{row.status}: {row.reason or 'no reason given'}" == reason]
            _print_line(console, f"{ABSENT} at {listing(sizes)} B: {reason}", "yellow")


def _sweep_cells(row: SweepRow) -> dict[str, Cell]:
    """Return a point's cells by column; figures with the digits that its interval leaves."""

    def within(value: float | None) -> str | None:
        return None if value is None else figure(value, decimals(value, row.relative_half, 2 if value >= 0.1 else 4))

    return {
        "size": str(row.bytes),
        "count": _text(row.count),
        "type": row.dtype,
        "redop": row.reduction or "none",
        "root": str(-1 if row.root is None else row.root),
        "time": within(row.time_us),
        "half": row.relative_half,
        "algbw": within(row.alg_gb_s),
        "busbw": within(row.bus_gb_s),
        "wrong": row.wrong,
        "wide": "wide" if row.is_wide else "",
    }


def print_panel(panel: Panel, console: Console) -> None:
    """Print a panel of a report without its charts: what it says, and its table."""
    console.print()
    _print_line(console, panel.sentence if panel.table.rows else f"{panel.title}: {panel.sentence}")
    if panel.table.rows:
        _print_table(console, panel.table, panel.title)
    if panel.table.note:
        _print_line(console, panel.table.note, "dim")


def _print_verdict(console: Console, verdict: Verdict) -> None:
    console.print()
    console.print(Text(verdict.headline, style=_STYLES[verdict.level]), soft_wrap=not console.is_terminal)
    for sentence in verdict.sentences:
        _print_line(console, sentence)
    if verdict.advice:
        _print_line(console, f"What may help most: {verdict.advice}")


def _print_notes(console: Console, verdict: Verdict) -> None:
    if verdict.notes:
        console.print()
    for note in verdict.notes:
        _print_line(console, note)


def _print_findings(console: Console, run: RunAnalysis, *, unsteady: bool) -> None:
    """Print what costs the step, most costly first, and what to do about each."""
    findings = finding_text.following(run.findings)
    if not findings:
        _print_older_advice(console, run)
        return
    console.print()
    doubt = ": of the profiled steps alone, for the machine was unsteady" if unsteady else ""
    console.print(Text(f"What costs the step, and what to do{doubt}", style="bold"), soft_wrap=not console.is_terminal)
    for number, one in enumerate(findings, 1):
        _print_line(console, f"{number}. {finding_text.line(one)}.")
        assert one.remedy is not None
        here, elsewhere = capitalized(cure_text(one.remedy)), finding_text.todo_elsewhere(one)
        _print_line(console, f"   {here}. In a loop of your own: {elsewhere}.", "dim")


def _print_older_advice(console: Console, run: RunAnalysis) -> None:
    """Print the advice of an answer of schema 1, which holds its words."""
    older = [one for one in run.advice if one.what]
    if older:
        console.print()
        console.print(Text("What to do next, by the replayed step", style="bold"), soft_wrap=not console.is_terminal)
    for number, advice in enumerate(older, 1):
        _print_line(console, f"{number}. {advice_sentence(advice)}.")
        _print_line(console, f"   Because {advice.because}. In a script of your own: {advice.elsewhere}.", "dim")


def _print_waterfall(console: Console, fall: Waterfall, activity: str | None) -> None:
    title = f"{fall.series}: from {devices(fall.from_world_size, activity)} to {devices(fall.to_world_size, activity)}"
    columns = [
        Column("part", "the step's growth"),
        Column("ms", "ms a step", "", 2),
        Column("share", "% of the growth", "", 1, 100),
    ]
    grown = fall.growth_ms
    shared = grown > 0 and not grew_within_noise(fall)
    rows: list[list[Cell]] = [[f"step of {fall.from_world_size}", fall.from_step_ms, None]]
    rows += [
        [f"+ {part.name}" if ms >= 0 else f"- {part.shrunk or part.name}", abs(ms), ms / grown if shared else None]
        for part, ms in waterfall_steps(fall)
        if abs(ms) >= 0.005
    ]
    rows.append([f"step of {fall.to_world_size}", fall.to_step_ms, None])
    _print_table(console, Table(columns, rows), title, blank_absent=True)


def _print_table(
    console: Console, table: Table, title: str, *, grouped: bool = True, blank_absent: bool = False
) -> None:
    """Print a table in as many blocks as the width asks for; the first column leads each of them."""

    def show(column: Column, value: Cell) -> str:
        if value is None and blank_absent:
            return ""
        text = column.show(value)
        return text if grouped else text.replace(",", "")

    shown = [[show(column, value) for column, value in zip(table.columns, row, strict=True)] for row in table.rows]
    heads = [_head(column) for column in table.columns]
    _shorten_names(table.columns, shown, console)
    widths = [
        max([len(line) for line in heads[index]] + [len(row[index]) for row in shown])
        for index in range(len(table.columns))
    ]
    console.print()
    console.print(Text(title, style="bold"), soft_wrap=not console.is_terminal)
    pads = [str.rjust if column.is_figure else str.ljust for column in table.columns]
    tall = max(len(lines) for lines in heads)
    headers = [[""] * (tall - len(lines)) + lines for lines in heads]
    for block in _blocks(widths, console.width):
        lines = [Text(_line(block, pads, widths, [head[at] for head in headers]), "dim") for at in range(tall)]
        if console.is_terminal:
            lines.append(Text("─" * (sum(widths[index] for index in block) + _PAD * (len(block) - 1)), "dim"))
        lines += [Text(_line(block, pads, widths, row)) for row in shown]
        for line in lines:
            console.print(line, soft_wrap=True)  # rich would cut a column; a line that is too long wraps instead
    for titles, reason in [] if blank_absent else table.absent():
        if reason != "not measured":
            _print_line(console, f"{ABSENT} under {listing(titles)}: {reason}", "dim")


def _shorten_names(columns: Sequence[Column], shown: list[list[str]], console: Console) -> None:
    """Take the middles out of long names of kernels, in place, so that a row of theirs fits; --json and pages have all.

    On a terminal a block holds two of them; a log has no width, and a line of one is not to be longer than a wide
    terminal's.
    """
    named = [at for at, column in enumerate(columns) if column.names]
    if not named:
        return
    room = console.width // 3
    if not console.is_terminal:
        others = sum(
            _PAD + max(len(text) for text in [*_head(column), *(row[at] for row in shown)])
            for at, column in enumerate(columns)
            if at not in named
        )
        room = (_PLAIN_ROOM - others) // len(named) - _PAD
    for row in shown:
        for at in named:
            row[at] = without_middle(row[at], min(max(room, _SHORT_NAME), _LONG_NAME))


def _blocks(widths: Sequence[int], room: int) -> list[list[int]]:
    """Return the columns of each block. One that alone is too wide still gets its block: it wraps, never cut."""
    blocks = [[0]]
    used = widths[0]
    for index in range(1, len(widths)):
        if used + _PAD + widths[index] > room and len(blocks[-1]) > 1:
            blocks.append([0])
            used = widths[0]
        blocks[-1].append(index)
        used += _PAD + widths[index]
    return blocks


def _line(block: list[int], pads: Sequence[_Pad], widths: Sequence[int], cells: Sequence[str]) -> str:
    return (" " * _PAD).join(pads[index](cells[index], widths[index]) for index in block).rstrip()


def _head(column: Column) -> list[str]:
    """Return a column's title on one or two lines, its unit below: figures decide how wide a column is, not words."""
    pieces = column.title.split(" ")
    lines = [column.title] if len(column.title) <= 10 else _halves(pieces)
    return [*lines, column.unit] if column.unit else lines


def _halves(pieces: list[str]) -> list[str]:
    best = min(range(len(pieces)), key=lambda cut: abs(len(" ".join(pieces[:cut])) - len(" ".join(pieces[cut:]))))
    return [line for line in (" ".join(pieces[:best]), " ".join(pieces[best:])) if line]


def _print_line(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style=style), soft_wrap=not console.is_terminal)


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)
