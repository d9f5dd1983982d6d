"""The terminal leads with the verdict, cuts no figure, and is plain where nobody looks at colours."""

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from scalescope.records.rows import SweepRow
from scalescope.report.as_run.recording import partition_title
from scalescope.report.as_run.shown import shown_step
from scalescope.report.drawing.numbers import milliseconds
from scalescope.report.drawing.parts import zero_line
from scalescope.report.drawing.tables import Column, Table
from scalescope.report.terminal.run import print_run
from scalescope.report.terminal.study import print_study
from scalescope.report.terminal.sweep import print_sweep
from scalescope.report.top.bars import run_bars
from scalescope.report.verdict.run import run_verdict
from scalescope.report.views import partition_table, waterfall_table
from scalescope.scaling.answer import AsRun, Replay
from scalescope.scaling.answer_rows import PARTS, Split
from scalescope.scaling.finding.finding import Finding, Remedy
from scalescope.scaling.findings.derived import keep
from tests.report_samples import run_answer, study_answer, sweep_rows

STALL = Finding(code="host_stall", rank=1, ms=4.0, low_ms=3.0, high_ms=5.0, fraction=0.1, backed="replay",
                remedy=Remedy(cure="look_at_host"))  # fmt: skip
RUNS = ["gpt_small-n1", "gpt_small-n2", "gpt_small-n4"]


def printed(show: Callable[[Console], None], *, width: int, terminal: bool) -> str:
    out = io.StringIO()
    show(Console(file=out, width=width, force_terminal=terminal, color_system=None, highlight=False))
    return out.getvalue()


def show_study(console: Console) -> None:
    print_study(study_answer("h200", RUNS), [run_answer(name, n) for name, n in zip(RUNS, (1, 2, 4), strict=True)],
                sweep_rows(), console)  # fmt: skip


@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_figure_is_cut_at_any_width(width: int) -> None:
    run = run_answer("r", 4)
    text = printed(lambda console: print_run(run, console), width=width, terminal=True)
    assert all(len(line) <= width for line in text.splitlines())
    assert "…" not in text
    table = partition_table(run)
    for row in table.rows:
        for column, cell in zip(table.columns, row, strict=True):
            if cell != 0:
                assert column.show(cell) in text


def test_factors_that_compare_ranks_are_not_told_where_ranks_are_missing() -> None:
    run = run_answer("r", 4)
    assert "= load balance 0.999" in printed(lambda console: print_run(run, console), width=200, terminal=False)
    run.quality.missing_ranks, run.ranks = [1, 2, 3], run.ranks[:1]
    text = printed(lambda console: print_run(run, console), width=200, terminal=False)
    assert "load balance" not in text
    assert "Parallel efficiency 95.3% of the ranks traced; how they balance, only traces of all 4 ranks" in text


def test_what_is_noted_of_a_good_trace_is_printed_too() -> None:
    run = run_answer("r", 4)
    run.quality.reasons = ["steps in the traces by Optimizer.step, without ProfilerStep"]
    text = printed(lambda console: print_run(run, console), width=200, terminal=False)
    assert "Noted: steps in the traces by Optimizer.step, without ProfilerStep." in text


def test_what_is_not_split_is_no_part_that_is_0_beside_those_that_are() -> None:
    """*0 ms on every rank: exposed wait or transfer* stood below 62.7 ms of exposed wait and 8.2 of transfer."""
    gone = ["exposed wait or transfer", "exposed copies"]
    assert zero_line(gone) == "0 ms on every rank: exposed copies."
    assert zero_line(gone[:1]) == "" == zero_line([])
    of_one_trace = ["exposed transfer", "exposed wait", "exposed copies"]
    assert zero_line(of_one_trace) == "0 ms on every rank: exposed copies.", "what is not split may be either"


def test_a_table_of_profiled_steps_says_so_where_the_sentence_is_of_the_step_as_run() -> None:
    """*52.4% of the 188.3 ms step is compute* stood above *Where a step goes*, of 206.15 ms, 126 of it compute."""
    run = run_answer("r", 4)
    assert partition_title(run) == "Where a step goes, a rank"
    traced = run.ranks[0].window_ms / run.ranks[0].steps
    run.replay = Replay(traced_ms=traced, replayed_ms=traced, error=0.0, unexplained_ms=0.0, faithful=True)
    own = {f"{part}_ms": run.ranks[0].part_ms(part) / run.ranks[0].steps for part in PARTS}
    ranks = [Split(rank=one.rank, window_ms=0.9 * traced, **own) for one in run.ranks]
    run.as_run = AsRun(step_ms=0.9 * traced, source="given", steps=1, ranks=ranks)
    assert partition_title(run) == "Where a profiled step goes, recording included, a rank"
    assert partition_title(run) in printed(lambda console: print_run(run, console), width=200, terminal=False)
    run.as_run = run.replay = None
    for rank in run.ranks:  # a last step that no next one bounds is longer
        rank.window_ms *= 1.2
    assert partition_title(run) == "Where a profiled step goes, in the mean of all of them, a rank"
    spoken, whole = (sum(one.window_ms / steps for one, steps in ranks) / len(run.ranks) for ranks in (
        [(one, 1) for one in shown_step(run)], [(one, one.steps) for one in run.ranks]))  # fmt: skip
    drawn = run_bars(run)
    assert drawn is not None and drawn.bars[0].value == milliseconds(spoken) != milliseconds(whole), "as sentences have"
    run.steps_by = None
    assert partition_title(run) == "What was recorded, a rank"


def test_the_verdict_comes_first() -> None:
    lines = [line for line in printed(show_study, width=120, terminal=True).splitlines() if line.strip()]
    assert lines[0].startswith("gpt_small: 4 GPUs do 3.77× the work of one")


def test_a_part_that_shrank_is_taken_off_once() -> None:
    study = study_answer("h200", RUNS)
    next(piece for piece in study.waterfall[-1].parts if piece.part == "exposed_wait").ms = -1.5
    text = printed(lambda console: print_study(study, [], [], console), width=120, terminal=False)
    assert "- exposed wait           1.50" in text and "-1.50" not in text


def test_compute_that_became_faster_is_not_called_slower() -> None:
    study = study_answer("h200", RUNS)
    fall = study.waterfall[-1]
    fall.compute_inflation_ms, fall.compute_more_work_ms = -1.25, -0.5
    next(piece for piece in fall.parts if piece.part == "compute").ms = -1.75
    text = printed(lambda console: print_study(study, [], [], console), width=120, terminal=False)
    lines = text.partition("from 1 GPU to 4 GPUs")[2].splitlines()
    assert any(line.split()[:4] == ["-", "faster", "compute", "1.25"] for line in lines), text
    assert any(line.split()[:4] == ["-", "less", "compute", "0.50"] for line in lines), text


def test_a_reason_is_said_once_for_all_the_columns_that_it_is_for() -> None:
    columns = [Column("a", "apples", digits=0), Column("b", "pears", digits=0), Column("c", "plums", digits=0)]
    table = Table(columns, [[None, None, None]], {"a": "no tree", "b": "no tree", "c": "no stones"})
    assert table.absent() == [(["apples", "pears"], "no tree"), (["plums"], "no stones")]


def test_the_waterfall_stands_in_ms_and_percent_and_adds_up() -> None:
    text = printed(show_study, width=120, terminal=False)
    fall = study_answer("h200", RUNS).waterfall[-1]
    _, ms, share, *_ = waterfall_table(fall).rows[0]
    assert isinstance(ms, float) and isinstance(share, float)
    assert f"+ slower compute {ms:.2f} {100 * share:.1f}" in " ".join(text.split())
    assert "step of 1               64.03" in text and "step of 4               67.83" in text


def test_the_sweep_has_nccl_tests_columns() -> None:
    text = printed(lambda console: print_sweep(sweep_rows(), console), width=80, terminal=False)
    lines = text.splitlines()
    at = next(index for index, line in enumerate(lines) if "redop" in line)
    assert lines[at - 1].split() == ["size", "count", "time", "algbw", "busbw"]
    assert lines[at].split() == ["(B)", "(elements)", "type", "redop", "root", "(us)", "(GB/s)", "(GB/s)", "#wrong"]
    assert "all_reduce on 4 ranks, in place" in text
    row = next(line for line in text.splitlines() if line.strip().startswith("1073741824"))
    assert row.split()[:5] == ["1073741824", "268435456", "float32", "sum", "-1"]


def test_a_point_that_was_not_measured_says_why_and_shows_no_zero() -> None:
    rows = [SweepRow("all_reduce", 8, "float8_e4m3fn", 2, "not_available", "gloo rejects float8", "sum")]
    text = printed(lambda console: print_sweep(rows, console), width=100, terminal=False)
    assert "not_available: gloo rejects float8" in text
    line = next(line for line in text.splitlines() if "float8_e4m3fn" in line)
    assert "0.00" not in line and line.count("–") == 4


def test_a_pipe_gets_plain_lines_and_no_color_is_obeyed() -> None:
    script = (
        "import sys; sys.path.insert(0, '.')\n"
        "from tests.report_samples import run_answer\n"
        "from scalescope.report.terminal.console import make_console\n"
        "from scalescope.report.terminal.run import print_run\n"
        "print_run(run_answer('r', 4), make_console())\n"
        "assert 'torch' not in sys.modules and 'altair' not in sys.modules and 'wandb' not in sys.modules\n"
    )
    root = Path(__file__).parent.parent
    clean = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "FORCE_COLOR")}
    piped = subprocess.run(
        [sys.executable, "-c", script], cwd=root, env=clean, capture_output=True, text=True, timeout=200, check=True
    )
    assert "\x1b" not in piped.stdout
    header = next(line for line in piped.stdout.splitlines() if line.startswith("rank"))
    assert header.count("ms") == 8, "a log file has no width, so the table is in one block"
    asked = {**clean, "NO_COLOR": "1", "FORCE_COLOR": "1", "COLUMNS": "100"}
    plain = subprocess.run(
        [sys.executable, "-c", script], cwd=root, env=asked, capture_output=True, text=True, timeout=200, check=True
    )
    assert "\x1b[3" not in plain.stdout, "NO_COLOR forbids colours"


def test_what_may_help_most_is_told_once_above_the_list_and_names_the_rank() -> None:
    """*What may help most*, the line in the list and *Begin with* told one advice three times."""
    run = run_answer("r", 4)
    keep(run, [STALL])
    text = printed(lambda console: print_run(run, console), width=2000, terminal=False)
    advice = run_verdict(run).advice
    assert text.count(advice) == 1
    assert f"What may help most, on rank 1: {advice}" in text
