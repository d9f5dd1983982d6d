"""Scoring findings against the truth. Torch-free; knows of the analysis only its `findings` and `as_run`.

A window is analysed twice: *told* the untraced step (`--step-ms`), as a user reads it off a log, and *untold*.

Told, the first finding must be the injected cause: its code, its rank (null where it is nobody's alone), ms within 15%
of the measured cost; and its interval must cover the cost (meet the interval that the cost itself is known within) and
be no wider than ±25%. A cause that costs less than 1% of the step is none: then, as for undisturbed jobs, the one
finding must be `nothing`. Where the job has something else wrong with it that costs as much (`others` of the truth, and
what its limits show: a job whose step is longer than its devices take is host-bound, whatever is injected, and where
nothing is), that may come first, and the injected cause among the rest. Which of two costs more is known no better than
both are: where their intervals overlap either may come first.
A truth that the untraced steps could not settle, since hosts or clocks varied by more than the cause costs, judges no
first finding and no size; nor does one that is known to worse than ±25% judge a size, or how wide an interval is.

Untold, nothing may be claimed that the truth contradicts: a cause on a rank, with a lower bound above 0, where the
truth has none of 1% of the step; and the range given for the step as run must hold the untraced step.
"""

import hashlib
import json
import statistics
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from causes.truth import FILE, Truth

LEAST_SHARE = 0.008  # of the step: what costs less is nothing; of an injected 1%, slack may swallow a little
SIZE_TOLERANCE, WIDTH_TOLERANCE = 0.15, 0.25
SETTLED_SHARE = 0.015  # of the step: a cost known to lie within this of 0 is nothing
AS_LARGE = 0.85  # of the injected cause's cost: what else costs that much may come first
CAUSE, NOTHING, UNSETTLED = "cause", "nothing", "unsettled"
CLAIMS_NOTHING = ("nothing", "profiler_cost", "unsteady")


@dataclass(frozen=True)
class Finding:
    """What is read of a finding."""

    code: str
    rank: int | None
    ms: float | None
    low_ms: float | None
    high_ms: float | None

    @classmethod
    def of(cls, found: dict[str, Any]) -> "Finding":
        return cls(found["code"], found.get("rank"), found.get("ms"), found.get("low_ms"), found.get("high_ms"))

    def __str__(self) -> str:
        who = "" if self.rank is None else f" of rank {self.rank}"
        size = "" if self.ms is None else f" {self.ms:.2f} ({_or_dash(self.low_ms)}–{_or_dash(self.high_ms)})"
        return f"{self.code}{who}{size}"


@dataclass(frozen=True)
class Expected:
    """A true cause."""

    codes: tuple[str, ...]
    ranks: tuple[int | None, ...]
    cost_ms: float
    low_ms: float
    high_ms: float

    def named_by(self, found: Finding) -> bool:
        return found.code in self.codes and found.rank in self.ranks


@dataclass
class Score:
    """A window's verdicts; None where a question does not arise."""

    window: str
    truth: Truth
    first: str  # the first finding, in words
    first_right: bool | None = None
    found: bool | None = None  # the injected cause is among the findings
    off: float | None = None  # its ms over the cost, less 1
    size_right: bool | None = None
    covered: bool | None = None
    narrow: bool | None = None
    accused: list[str] = field(default_factory=list)  # ranks blamed for nothing, told
    without_step_first: str = ""
    without_step_first_right: bool | None = None
    without_step_accused: list[str] = field(default_factory=list)
    range_right: bool | None = None  # untold: the range holds the untraced step
    error: str | None = None


def expected(truth: Truth) -> list[Expected]:
    """Return the true causes of a window, the injected one first; none where it costs next to nothing."""
    causes = []
    if state(truth) == CAUSE:
        ranks = tuple(truth.rank) if isinstance(truth.rank, list) else (truth.rank,)
        codes = (truth.code, *truth.codes)
        causes.append(Expected(codes, ranks, truth.cost_ms, truth.cost_low_ms, truth.cost_high_ms))
    for one in truth.causes_beside:
        if one["cost_ms"] >= LEAST_SHARE * truth.step_ms:
            low, high = one.get("low_ms", one["cost_ms"]), one.get("high_ms", one["cost_ms"])
            causes.append(Expected((one["code"],), (one["rank"],), one["cost_ms"], low, high))
    return causes


def state(truth: Truth) -> str:
    """Return whether what was injected is a cause, nothing, or cannot be told from how much the steps vary."""
    if truth.code == "nothing":
        return NOTHING
    if truth.cost_low_ms > 0 and truth.cost_ms >= LEAST_SHARE * truth.step_ms:
        return CAUSE
    small = max(-truth.cost_low_ms, truth.cost_high_ms) <= SETTLED_SHARE * truth.step_ms
    wanted_ms = truth.amount.get("ms", 0.0) + truth.amount.get("share", 0.0) * truth.step_ms
    return NOTHING if small and wanted_ms < LEAST_SHARE * truth.step_ms else UNSETTLED


def is_first_right(truth: Truth, findings: Sequence[Finding]) -> bool | None:
    """Whether the first finding is a true cause that nothing else outweighs for sure, by what is known of both costs;
    None where the truth is not settled.
    """
    if state(truth) == UNSETTLED:
        return None
    causes = expected(truth)
    if not causes:
        return [one.code for one in findings] == ["nothing"]
    if not findings:
        return False
    most = max(one.low_ms for one in causes)
    return any(one.named_by(findings[0]) and one.high_ms >= AS_LARGE * most for one in causes)


def accusations(truth: Truth, findings: Sequence[Finding]) -> list[str]:
    """Return the findings that blame a rank, with certainty, for what the truth does not know."""
    causing = {rank for one in expected(truth) for rank in one.ranks}
    if state(truth) == UNSETTLED:
        causing |= set(truth.rank) if isinstance(truth.rank, list) else {truth.rank}
    return [
        str(one)
        for one in findings
        if one.rank is not None and one.rank not in causing and one.code not in CLAIMS_NOTHING and (one.low_ms or 0) > 0
    ]


def score(window: str, truth: Truth, with_step: dict[str, Any], without_step: dict[str, Any]) -> Score:
    """Return the verdicts on a window's two analyses."""
    findings = [Finding.of(one) for one in with_step["findings"]]
    bare = [Finding.of(one) for one in without_step["findings"]]
    result = Score(window, truth, str(findings[0]) if findings else "–")
    result.first_right = is_first_right(truth, findings)
    result.accused = accusations(truth, findings)
    result.without_step_first = str(bare[0]) if bare else "–"
    result.without_step_first_right = is_first_right(truth, bare)
    result.without_step_accused = accusations(truth, bare)
    as_run = without_step.get("as_run") or {}
    if as_run.get("low_ms") is not None and as_run.get("high_ms") is not None:
        result.range_right = as_run["low_ms"] <= untraced_step(truth) <= as_run["high_ms"]
    if state(truth) != CAUSE:
        return result
    cause = expected(truth)[0]
    named = [one for one in findings if cause.named_by(one)]
    ranks = {one.rank for one in named}
    result.found = ranks == set(cause.ranks)
    if not named:
        return result
    # several late ranks: their findings together
    mine = [next(one for one in named if one.rank == rank) for rank in sorted(ranks, key=str)]
    ms, low, high = (_sum([getattr(one, name) for one in mine]) for name in ("ms", "low_ms", "high_ms"))
    if ms is not None:
        result.off = ms / cause.cost_ms - 1
        is_known = max(cause.high_ms - cause.cost_ms, cause.cost_ms - cause.low_ms) <= WIDTH_TOLERANCE * cause.cost_ms
        if is_known:
            result.size_right = abs(result.off) <= SIZE_TOLERANCE
    if ms is not None and low is not None and high is not None:
        result.covered = low <= cause.high_ms and high >= cause.low_ms
        if is_known:
            result.narrow = max(high - ms, ms - low) <= WIDTH_TOLERANCE * ms
    return result


def untraced_step(truth: Truth) -> float:
    """Return the step before the process used a profiler, ms, as a user would give it."""
    steps = [step for rank in truth.step_ms_untraced for stretch in rank for step in stretch]
    return statistics.fmean(steps) if truth.varies else statistics.median(steps)


def windows(out: Path, only: Sequence[str] | None = None) -> Iterator[tuple[str, Truth]]:
    """Return the finished windows by LAUNCH/CASE."""
    for file in sorted(out.glob(f"*/*/{FILE}")):
        truth = Truth.read(file.parent).of_window
        if only is None or truth.launch in only or f"{truth.launch}/{truth.case}" in only:
            yield f"{truth.launch}/{file.parent.name}", truth


def analyse(command: Sequence[str], folder: Path, step_ms: float | None) -> dict[str, Any]:
    """Return what the analysis says of a folder. Raises RuntimeError with its last words where it fails."""
    answer = folder / ("analysis.untold.json" if step_ms is None else "analysis.told.json")
    given = [] if step_ms is None else ["--step-ms", f"{step_ms:.4f}"]
    done = subprocess.run(
        [*command, str(folder), "--json", str(answer), *given], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError((done.stderr or done.stdout).strip().splitlines()[-1:])
    found: dict[str, Any] = json.loads(answer.read_text())
    return found


def is_tuned_on(window: str) -> bool:
    """Whether a window (LAUNCH/CASE) is of the half that the analysis may be tuned on: the hash of its name is even."""
    return int(hashlib.sha1(window.rpartition("/")[2].encode()).hexdigest(), 16) % 2 == 0


def check(
    out: Path, only: Sequence[str] | None, command: Sequence[str], markdown: bool, half: str | None = None
) -> int:
    """Analyse every window of a half (`tuned`, `other`; None: all), print the table and the totals.

    Of the other half it prints the totals alone. Returns the exit code: 1 where a first finding is wrong.
    """
    from causes.tables import score_table, totals

    def scored(window: tuple[str, Truth]) -> Score:
        name, truth = window
        folder = out / name
        try:
            with_step = analyse(command, folder, untraced_step(truth))
            return score(name, truth, with_step, analyse(command, folder, None))
        except (RuntimeError, KeyError, OSError, json.JSONDecodeError) as error:
            return Score(name, truth, "–", first_right=False, error=f"{type(error).__name__}: {error}")

    with ThreadPoolExecutor(2) as pool:
        chosen = [one for one in windows(out, only) if half is None or is_tuned_on(one[0]) == (half == "tuned")]
        scores = list(pool.map(scored, chosen))
    print("\n".join(totals(scores) if half == "other" else score_table(scores, markdown)))
    return 0 if scores and all(one.first_right is not False for one in scores) else 1


def _sum(values: Sequence[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return sum(known) if len(known) == len(values) else None


def _or_dash(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
