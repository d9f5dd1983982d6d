"""The check behind `parallel_truth.py check`: what the analysis says of the cases' traces beside what is true of them.

Torch-free. How long a rank worked, and how long its steps are, is read off the traces by a reader of its own; all else
is the case's own arithmetic.
"""

import gzip
import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parallelism.cases import WORK, Case, Experts, Pipeline, Tensor
from scalescope import RunAnalysis, analyze
from scalescope.records.errors import UserError
from scalescope.scaling.verdicts.groups import by_role

Event = dict[str, Any]

POINTS = 0.03  # of the step, that a bubble may be off
IMBALANCE = 0.02  # relative
COST = 0.1  # relative, of what a finding costs
MESSAGE_BYTES = 4 * 256 * 64  # of an all-reduce of activations
GRADIENT_BYTES = 4 * MESSAGE_BYTES


@dataclass(frozen=True)
class Row:
    """One claim."""

    case: str
    what: str
    true: str
    found: str
    right: bool


@dataclass(frozen=True)
class Own:
    """One rank's steps, read off its trace: ms of work and from step to step, the mean."""

    work_ms: float
    step_ms: float


def check(cases: Sequence[Case], out: Path, markdown: bool) -> int:
    """Analyse the cases' traces and print the table. Returns the exit code."""
    rows: list[Row] = []
    for case in cases:
        try:
            analysis = analyze(out / case.name)
            assert isinstance(analysis, RunAnalysis)
            rows.extend(claims(case, analysis, read(out / case.name)))
        except (UserError, OSError) as error:
            rows.append(Row(case.name, "traces", "", str(error), False))
    for made in sorted(out.glob("made_*.json")):
        print(" · ".join(f"{key} {value}" for key, value in json.loads(made.read_text()).items() if value is not None))
    columns = ("case", "claim", "true", "found", "")
    lines = [columns, *((one.case, one.what, one.true, one.found, "right" if one.right else "WRONG") for one in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    for number, line in enumerate(lines):
        if markdown:
            print("| " + " | ".join(line) + " |")
            if number == 0:
                print("|" + "---|" * len(columns))
        else:
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    wrong = sum(not row.right for row in rows)
    print(f"{len(rows) - wrong} of {len(rows)} claims are right")
    return 1 if wrong or not rows else 0


def claims(case: Case, analysis: RunAnalysis, own: dict[int, Own]) -> Iterable[Row]:
    """Yield every claim about a case."""
    yield Row(case.name, "the traces are good", "good", analysis.quality.verdict, analysis.quality.verdict == "good")
    if isinstance(case.of, Pipeline):
        yield from _of_pipeline(case, case.of, analysis, own)
    elif isinstance(case.of, Tensor):
        yield from _of_tensor(case, case.of, analysis)
    else:
        yield from _of_experts(case, case.of, analysis, own)


def _of_pipeline(case: Case, of: Pipeline, analysis: RunAnalysis, own: dict[int, Own]) -> Iterable[Row]:
    if len(analysis.pipelines) != 1:
        yield Row(case.name, "it is one pipeline", "1", str(len(analysis.pipelines)), False)
        return
    (row,) = analysis.pipelines
    stages = list(range(case.ranks))
    yield Row(case.name, "its stages", str(stages), str(row.stages), row.stages == stages)
    yield Row(
        case.name, "micro-batches", str(of.microbatches), str(row.micro_batches), row.micro_batches == of.microbatches
    )
    schedule, found = of.own_bubble(case.ranks), row.schedule_bubble
    yield Row(case.name, "the schedule's own bubble", f"{schedule:.1%}", f"{found or 0:.1%}",
              found is not None and abs(found - schedule) < 1e-6)  # fmt: skip
    step_ms = statistics.fmean(one.step_ms for one in own.values())
    idle = 1 - statistics.fmean(one.work_ms for one in own.values()) / step_ms
    moving_ms = sum(rank.exposed_transfer_ms for rank in analysis.ranks) / sum(rank.steps for rank in analysis.ranks)
    both = row.bubble + moving_ms / step_ms
    shown = f"{both:.1%} ({moving_ms / step_ms:.1%} of it moving data)"
    yield Row(case.name, "what is no work", f"{idle:.1%}", shown, abs(both - idle) <= POINTS)
    if of.slow_stage is None:
        # where the ranks' own traces have more idling than the schedule asks for, the machine was not quiet
        most = max(schedule, idle - moving_ms / step_ms) + POINTS
        yield Row(case.name, "… which is the schedule's own", f"{schedule:.1%}", f"{row.bubble:.1%}",
                  schedule - POINTS <= row.bubble <= most)  # fmt: skip
    yield Row(case.name, "the slow stage", str(of.slow_stage), str(row.slow_rank), row.slow_rank == of.slow_stage)
    work_ms = [one.work_ms for one in own.values()]
    # of an uneven pipeline what even stages bring, else what more micro-batches do: no more than the schedule costs
    filling_ms = max(work_ms) * schedule / (1 - schedule)
    if of.slow_stage is not None:
        true_ms = max(work_ms) - statistics.fmean(work_ms)
    else:
        true_ms = min(idle * step_ms - moving_ms, filling_ms)
    yield from _first(case, analysis, "pipeline_bubble", true_ms, POINTS * step_ms)


def _of_tensor(case: Case, of: Tensor, analysis: RunAnalysis) -> Iterable[Row]:
    found = {str(row.role): row for row in by_role(analysis.groups)}
    roles = {"tp"} if of.degree == case.ranks else {"tp", "dp"}
    if analysis.activity == "cpu" and len(roles) > 1:
        roles = {"None"}  # gloo's records name no group, and ranks differ: then none is to be told
    yield Row(case.name, "roles", str(sorted(roles)), str(sorted(found)), set(found) == roles)
    for role in sorted(roles & found.keys() - {"None"}):
        row = found[role]
        size = MESSAGE_BYTES if role == "tp" else GRADIENT_BYTES
        calls = of.calls(role)
        yield Row(case.name, f"{role}: calls a step", str(calls), f"{row.calls:.2f}", abs(row.calls - calls) < 0.01)
        yield Row(case.name, f"{role}: bytes a step", str(calls * size), f"{row.bytes:.0f}", row.bytes == calls * size)
        share = row.exposed_ms / row.communication_ms if row.communication_ms else 0.0
        yield Row(case.name, f"{role}: exposed, all of it", "100%", f"{share:.1%}", share > 1 - POINTS)


def _of_experts(case: Case, of: Experts, analysis: RunAnalysis, own: dict[int, Own]) -> Iterable[Row]:
    uneven = of.imbalance > 1
    rows = analysis.experts
    yield Row(case.name, "uneven groups of experts", str(int(uneven)), str(len(rows)), len(rows) == int(uneven))
    if not uneven or len(rows) != 1:
        codes = [one.code for one in analysis.findings]
        yield Row(case.name, "expert_imbalance is found", str(uneven), str("expert_imbalance" in codes),
                  uneven == ("expert_imbalance" in codes))  # fmt: skip
        return
    (row,) = rows
    yield Row(case.name, "imbalance", f"{of.imbalance:.2f}", f"{row.imbalance:.3f}",
              abs(row.imbalance / of.imbalance - 1) <= IMBALANCE)  # fmt: skip
    fullest = of.shares.index(max(of.shares))
    yield Row(case.name, "the fullest rank", str(fullest), str(row.rank), row.rank == fullest)
    # balanced experts compute as much in all: what they save is what the fullest rank has beyond the mean
    more = own[fullest].work_ms - statistics.fmean(one.work_ms for one in own.values())
    yield from _first(case, analysis, "expert_imbalance", more, COST * more)


def _first(case: Case, analysis: RunAnalysis, code: str, true_ms: float, off_ms: float) -> Iterable[Row]:
    """The finding comes first, with its ms."""
    first = analysis.findings[0] if analysis.findings else None
    ms = first.ms or 0.0 if first else 0.0
    found = f"{first.code} {ms:.2f} ms" if first else "none"
    right = first is not None and first.code == code and abs(ms - true_ms) <= off_ms
    yield Row(case.name, "the first finding, with what it costs", f"{code} {true_ms:.2f} ms", found, right)


def read(folder: Path) -> dict[int, Own]:
    """Return every rank's work and steps. Raises OSError."""
    found = {}
    for path in sorted(folder.glob("rank*.pt.trace.json.gz")):
        with gzip.open(path, "rt") as file:
            events = [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]
        steps = sorted(
            (float(event["ts"]), float(event["dur"])) for event in events
            if event.get("cat") == "user_annotation" and event["name"].startswith("ProfilerStep#")
        )  # fmt: skip
        work = [
            event for event in events if event.get("cat") in ("kernel", "cpu_op") and event["name"].startswith(WORK)
        ]
        gpu = any(event.get("cat") == "kernel" for event in events)
        rank = int(path.name.removeprefix("rank").split(".")[0])
        found[rank] = _on_device(steps, work, events) if gpu else _on_host([at for at, _ in steps], work)
    return found


def _on_device(steps: list[tuple[float, float]], work: list[Event], events: list[Event]) -> Own:
    """On a device work is late against the annotations: each piece is its step's that launched it, by correlation.

    What ran before the first of them was launched before the window, and is nobody's here.
    """
    launched = {
        event["args"]["correlation"]: float(event["ts"]) for event in events
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event.get("args", {})
    }  # fmt: skip
    pieces: list[list[tuple[float, float]]] = [[] for _ in steps]
    for event in work:
        if event["cat"] != "kernel":
            continue
        at = launched.get(event["args"]["correlation"], 0.0)
        for number, (begin, length) in enumerate(steps):
            if begin <= at < begin + length:
                pieces[number].append((float(event["ts"]), float(event["dur"])))
    begins = [min(one)[0] for one in pieces]
    return Own(
        statistics.fmean(sum(us for _, us in one) for one in pieces) / 1e3,
        (begins[-1] - begins[0]) / (len(steps) - 1) / 1e3,
    )


def _on_host(steps: list[float], work: list[Event]) -> Own:
    inside = [float(event["dur"]) for event in work if steps[0] <= float(event["ts"]) < steps[-1]]
    count = len(steps) - 1
    return Own(sum(inside) / count / 1e3, (steps[-1] - steps[0]) / count / 1e3)
