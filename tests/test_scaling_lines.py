"""Where stacks were recorded, what a script's own function makes is told with that function.

tests/data/lines: a small script on two ranks, by tests/lines_job.py; h200_…: one on an H200, with what torch and Python
themselves call left out where it takes less than 0.2 ms.
"""

import dataclasses
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scalescope import RunAnalysis
from scalescope.report.text.cures.words import cure_elsewhere, cure_text
from scalescope.report.text.findings import because
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.finding.finding import EvidenceRow, Remedy
from scalescope.scaling.findings.candidate import Candidate
from scalescope.scaling.findings.prices.late_together import of_one_line
from scalescope.scaling.rank.records.callers import OwnCode
from scalescope.scaling.ranks.summary import read_rank
from scalescope.scaling.trace.intervals import Intervals
from scalescope.scaling.trace.reader import read_trace
from tests.gloo_traces import analysed

RECORDED = Path(__file__).parent / "data" / "lines"


def _recorded(case: str) -> RunAnalysis:
    return analysed(RECORDED / case)


def _function(line: str | None) -> str | None:
    """Return a function's name, whose line in this file may be another one by now."""
    return line if line is None else line.rpartition(": ")[2]


@pytest.mark.parametrize(
    ("case", "code", "function"),
    [
        ("stall", "host_stall", "audit"),  # on one rank
        ("both", "host_stall", "both"),  # which calls two, of which neither holds most of it
        ("loop", "host_stall", "train"),  # by itself: the rest of the step lies there, too
        ("bare", "host_stall", "decoded"),  # a batch that the loop makes itself, row by row
        ("loader", "data_loading", "decoded"),
        ("reads", "element_reads", "figures"),
        ("walked", "batch_preparation", "walk"),
        ("by_hand", "updates_by_hand", "updated"),
        ("metrics", "metrics", "<listcomp>"),
        ("own", "own_work", "<listcomp>"),
    ],
)
def test_what_a_function_of_the_script_makes_is_told_with_it(case: str, code: str, function: str) -> None:
    """Of a host that slept in `audit` a newcomer was told that it stood still, and to let py-spy look at it."""
    answer = _recorded(case)
    # what Python does between single reads may cost as much as these
    first = next(one for one in answer.findings if one.code != "host_bound" or case != "reads")
    assert first.code == code and first.remedy is not None and _function(first.remedy.line) == function
    assert f"in {first.remedy.line}" in run_verdict(answer).headline
    if case == "loop":  # its line would be that on which recording began
        assert first.remedy.line == "tests/lines_job.py: train"
    if case == "stall":
        assert cure_text(first.remedy) == f"look at {first.remedy.line}, where that holds the host up"
        assert "py-spy" not in cure_elsewhere(first.remedy) and "I/O" in cure_elsewhere(first.remedy)


def test_of_two_functions_that_the_loop_calls_neither_is_named_for_both() -> None:
    """Each place has its own; that both lie in the training loop, as everything does, tells nothing."""
    answer = _recorded("apart")
    first = answer.findings[0]
    assert first.code == "host_stall" and first.remedy is not None and first.remedy.line is None
    gaps = [row.line for row in first.evidence if row.name.startswith("gap_before")]
    assert sorted(map(str, map(_function, gaps))) == ["audit", "report"]
    headline = run_verdict(answer).headline
    assert all(f", in {line}" in headline for line in gaps) and "train" not in headline


def test_a_normalisation_that_is_written_out_is_told_with_its_function(tmp_path: Path) -> None:
    """A real trace without stacks, and a function around each of its chains."""
    for rank in range(2):
        name = f"rank{rank}.json.gz"
        file = RECORDED.parent / "normalised" / "layer" / name
        trace = json.loads(gzip.decompress(file.read_bytes()))
        record = read_rank(file, for_replay=True).record
        assert record is not None
        base = read_trace(file).header.base_ns
        for one in record.long_way.chains if rank == 0 else ():  # of the other rank nothing is known
            if one.operators:
                begin, end = record.start[one.activities[0]] - base, record.end[one.activities[-1]] - base
                event = {"ph": "X", "cat": "python_function", "name": "net.py(9): normed", "ts": begin / 1e3 - 0.5,
                         "dur": (end - begin) / 1e3 + 1, "pid": 1, "tid": _loop_of(trace)}  # fmt: skip
                trace["traceEvents"].append(event)
        (tmp_path / name).write_bytes(gzip.compress(json.dumps(trace).encode()))
    answer = analysed(tmp_path)
    assert answer.findings[0].code == "unfused_normalisation"
    assert run_verdict(answer).headline.endswith(", in net.py(9): normed.")


def _loop_of(trace: dict[str, Any]) -> int:
    return int(next(one["tid"] for one in trace["traceEvents"] if one["name"].startswith("ProfilerStep")))


def test_what_ranks_do_in_unlike_functions_is_told_without_one() -> None:
    """Two ranks of three stall, each in another function: *on each of them, in audit* was true of one."""
    rows = [EvidenceRow(kind="figure", name="gap_before aten::mm", ms=9.0, line=line) for line in ("a.py(1): a", "b")]
    causes = [
        Candidate(code="host_stall", rank=rank, evidence=(row,), remedy=Remedy(cure="look_at_host", line=row.line))
        for rank, row in enumerate(rows)
    ]
    unlike, alike = of_one_line(causes), of_one_line([causes[0], causes[0]])
    assert unlike is not None and unlike.line is None and alike is not None and alike.line == "a.py(1): a"


@pytest.mark.parametrize(
    ("case", "operator", "function"),
    [("items", "aten::item", "decoded"), ("nonzero", "aten::nonzero", "forward"), ("cpu", "aten::to", "moved")],
)
def test_what_makes_a_host_wait_for_its_device_is_told_with_its_function(
    case: str, operator: str, function: str
) -> None:
    """Of an H200, whose host reads 64 values, counts what a mask leaves in six layers, and copies 16 rows."""
    evidence = read_rank(RECORDED / f"h200_{case}" / "rank0.json.gz").summary.host_evidence
    assert evidence is not None
    (waits,) = evidence.synchronising
    assert (waits.operator, _function(waits.line)) == (operator, function)


def test_a_hook_of_the_backward_pass_is_told_that_autograd_calls_on_a_thread_of_its_own() -> None:
    """The loop's own thread is in `train` meanwhile, which calls the backward pass."""
    first = _recorded("h200_hook").findings[0]
    assert first.code == "host_stall" and first.remedy is not None and _function(first.remedy.line) == "paused"
    evidence = read_rank(RECORDED / "h200_hook" / "rank0.json.gz").summary.host_evidence
    assert evidence is not None
    within = {gaps.line for gaps in evidence.gaps.places if gaps.within == "in_backward"}
    assert within == {first.remedy.line, None}  # never the loop, which does nothing itself there


def test_copies_are_told_with_the_function_that_makes_them() -> None:
    copies = [one for one in _recorded("h200_cpu").findings if one.code in ("copies", "synchronising")]
    assert copies and all(one.remedy is not None and _function(one.remedy.line) == "moved" for one in copies)


def test_values_that_are_read_one_by_one_are_told_with_their_function() -> None:
    told = [one for one in _recorded("h200_items").findings if one.code == "synchronising"]
    assert told and ", 64 times a step, in g.py(7): decoded, and the device then" in because(told[0])


#: A loop that calls two functions, one behind the other, and then does something itself.
LOOP = OwnCode(
    stacks=((), ("train",), ("train", "audit"), ("train", "report")),
    threads={1: (np.array([0, 10, 40, 70]), np.array([1, 2, 3, 1]))},
    span_ns=100,
    held_ns={"train": 100, "audit": 30, "report": 30},
)


def _between(begin: int, end: int) -> Intervals:
    return Intervals(np.array([begin]), np.array([end]))


@pytest.mark.parametrize(
    ("begin", "end", "function"),
    [
        (10, 40, "audit"),
        (12, 48, "audit"),  # most of which lies there
        (20, 60, None),  # half and half: both are in the loop, but so is everything
        (70, 90, "train"),  # by itself
    ],
)
def test_a_function_that_all_of_the_step_lies_in_is_told_of_what_it_does_itself(
    begin: int, end: int, function: str | None
) -> None:
    assert LOOP.during(_between(begin, end), 1) == function


def test_a_function_that_little_else_lies_in_is_told_of_those_that_it_calls() -> None:
    named = {"train": "step", "audit": "audit", "report": "report"}
    stacks = tuple(tuple(named[one] for one in stack) for stack in LOOP.stacks)
    own = dataclasses.replace(LOOP, stacks=stacks, span_ns=300, held_ns={"step": 100, "audit": 30, "report": 30})
    assert own.during(_between(20, 60), 1) == "step"


def test_a_loop_is_told_of_nothing_that_lies_in_a_pass() -> None:
    assert LOOP.during(_between(70, 90), 1, in_pass=True) is None
    assert LOOP.during(_between(10, 40), 1, in_pass=True) == "audit"
