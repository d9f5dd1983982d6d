"""Whether what `compare` says of jobs is right: the same twice is the same, a known difference is named and sized."""

import gzip
import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from math import comb, sqrt
from pathlib import Path
from statistics import fmean, median, variance

import msgspec

from comparisons.cases import CASES, SAME, Case, case_of
from comparisons.rows import ROWS, Row, by_windows, read_rows, side, traces_alone, workers, write_rows
from scalescope.records.statistics import NORMAL_95
from scalescope.report.compare.parts import moved
from scalescope.report.compare.sentences import headline, verdict_sentences
from scalescope.scaling.compare.alike.samples import mean_samples
from scalescope.scaling.compare.answer import Comparison
from scalescope.scaling.compare.compare import compare
from scalescope.scaling.compare.difference import Difference, difference
from scalescope.scaling.compare.measurement import Repeat

MOST_CALLED_DIFFERENT = 0.1
NEAR = 0.1
MOST_PAIRS = 100  # of one kind and size of split
_MOST_A_SIDE = 5
#: Of more splits than these, pairs are drawn, in rounds in which no run comes twice.
_MOST_SPLITS = 5000
NARROW_PERCENT = 0.5
SAID, LINES = "said.jsonl.gz", "compare_known.txt"
TWICE, KNOWN = "same_twice.tsv", "known_differences.tsv"
_MOST_KERNELS = 40  # of one comparison, in what is kept


class Twice(msgspec.Struct, frozen=True):
    """Splits of what did not differ, of one size."""

    what: str
    a_side: int
    called_different: int
    of: int
    a_part_in: int
    half_interval_percent: float
    narrow: int  # pairs whose interval is no wider than ± 0.5% of the step

    @property
    def right(self) -> bool:
        return self.called_different <= max(1, MOST_CALLED_DIFFERENT * self.of)

    def __str__(self) -> str:
        return (f"A/A {self.what}, {self.a_side} a side: {self.called_different} of {self.of} called different, a part "
                f"in {self.a_part_in}; intervals ± {self.half_interval_percent:.2f}%, {self.narrow} of them within "
                f"± {NARROW_PERCENT}%")  # fmt: skip


class Known(msgspec.Struct, frozen=True):
    """A known change, and what was said of it; ms a step."""

    what: str
    true_ms: float
    true_error_ms: float
    found_ms: float | None
    low_ms: float | None
    high_ms: float | None
    size_right: bool
    named: bool | None  # None: of rows without their traces much that is named is not known
    unseen_right: int  # of so many comparisons with a run left out, whose step the change then has to be
    unseen: int
    first: str  # what users read first

    @property
    def right(self) -> bool:
        return self.size_right and self.named is not False and self.unseen_right >= 0.9 * self.unseen

    def __str__(self) -> str:
        if self.found_ms is None:
            return f"A/B {self.what}: {self.first}"
        unseen = f" [runs left out: {self.unseen_right} of {self.unseen} sizes right]" if self.unseen else ""
        return (f"A/B {self.what}: {self.found_ms:+.2f} ({self.low_ms:+.2f} to {self.high_ms:+.2f}) ms, true "
                f"{self.true_ms:+.2f} ± {self.true_error_ms:.2f}{'' if self.size_right else '; WRONG SIZE'}"
                f"{'; NOT NAMED' if self.named is False else ''}: {self.first}{unseen}")  # fmt: skip


def check(out: Path, kept: Path | None = None) -> Iterator[Twice | Known]:
    """Yield what was compared and what came out; `kept`: the folder for results."""
    rows = read_rows(out)
    found: list[Twice | Known] = []
    answers: list[tuple[str, Comparison]] = []
    if kept is not None:
        write_rows(kept / ROWS, rows)
    for model in sorted({row.model for row in rows}):
        by_case: dict[str, list[Row]] = {}
        for row in sorted((row for row in rows if row.model == model), key=lambda row: row.number):
            by_case.setdefault(row.case, []).append(row)
        for one in _of_model(model, by_case, answers):
            found.append(one)
            yield one
    if kept is not None:
        (kept / LINES).write_text("".join(f"{one}\n" for one in found), encoding="utf-8")
        for path, kind in ((kept / TWICE, Twice), (kept / KNOWN, Known)):
            table = [kind.__struct_fields__, *(msgspec.structs.astuple(one) for one in found if isinstance(one, kind))]
            path.write_text("".join("\t".join(map(_cell, cells)) + "\n" for cells in table), encoding="utf-8")
        with gzip.open(kept / SAID, "wb") as file:
            for what, answer in answers:
                short = msgspec.structs.replace(answer, kernels=answer.kernels[:_MOST_KERNELS])
                file.write(msgspec.json.encode({"what": what, "first": headline(answer), "answer": short}) + b"\n")


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _of_model(
    model: str, by_case: Mapping[str, Sequence[Row]], answers: list[tuple[str, Comparison]]
) -> Iterator[Twice | Known]:
    same = [row.repeat for row in by_case.get(SAME, [])]
    traced = [traces_alone(one) for one in same if one.windows]
    windows = [window for one in same for window in by_windows(one)]
    found_cases = {name: case for name in by_case if (case := case_of(name, model)) is not None and same}
    known = [case for case in dict.fromkeys(each.name for each in CASES) if case in found_cases and case != SAME]
    error = _between_runs_ms(by_case)
    most = min(len(same) // 2, _MOST_A_SIDE)
    sizes = range(1, most + 1)
    with ProcessPoolExecutor(workers()) as pool:
        alike = [pool.submit(same_twice, f"{model} {SAME}", same, size) for size in sizes]
        alike += [pool.submit(same_twice, f"{model} {what}", of, 1) for what, of in (("traces", traced),
                                                                                    ("windows", windows))]  # fmt: skip
        if len(same) >= 4 * _MOST_A_SIDE:  # two pairs of the largest size that share no run
            alike += [pool.submit(same_twice, f"{model} traces", traced, _MOST_A_SIDE)]
            alike += [pool.submit(apart, f"{model} {SAME}", same, size, in_turns=in_turns)
                      for size, in_turns in ((1, True), (_MOST_A_SIDE, True), (_MOST_A_SIDE, False))]  # fmt: skip
        differing = [pool.submit(_known, f"{model} {name}", by_case[SAME], by_case[name], found_cases[name], error)
                     for name in known]  # fmt: skip
        yield from (twice for one in alike if (twice := one.result()) is not None)
        for each in differing:
            found, answer = each.result()
            answers.append((found.what, answer))
            yield found


def same_twice(what: str, repeats: Sequence[Repeat], size: int) -> Twice | None:
    """Return how many interleaved splits of undisturbed repeats are called different; None where there is none."""
    return _twice(what, repeats, size, _chosen(len(repeats), size))


def apart(what: str, repeats: Sequence[Repeat], size: int, *, in_turns: bool) -> Twice | None:
    """Return the same of pairs that share no run, in the order in which runs were made.

    `in_turns`: the runs of a pair belong to its sides by turns; else one side's all come before the other's.
    """
    pairs = []
    for first in range(0, len(repeats) - 2 * size + 1, 2 * size):
        own = range(first, first + 2 * size)
        pairs.append((tuple(own[::2]), tuple(own[1::2])) if in_turns else (tuple(own[:size]), tuple(own[size:])))
    return _twice(f"{what}, {'in turns' if in_turns else 'one after the other'}", repeats, size, pairs)


_Split = tuple[tuple[int, ...], tuple[int, ...]]


def _twice(what: str, repeats: Sequence[Repeat], size: int, splits: Sequence[_Split]) -> Twice | None:
    if not splits:
        return None
    found = [_compared([repeats[at] for at in one], [repeats[at] for at in other]) for one, other in splits]
    wrong = sum(not one.low_ms <= 0 <= one.high_ms for one in found)
    parts = sum(any(not part.within_noise for part in one.parts) for one in found)
    halves = [100 * (one.high_ms - one.low_ms) / 2 / one.baseline_ms for one in found]
    return Twice(what, size, wrong, len(found), parts, median(halves), sum(half <= NARROW_PERCENT for half in halves))


def _chosen(count: int, size: int) -> list[_Split]:
    """Return splits of so many repeats: all of them, of too many 100, which overlap as little as can be."""
    dice = random.Random(size)
    if comb(count, size) * comb(max(0, count - size), size) // 2 <= _MOST_SPLITS:
        splits = list(_splits(count, size))
        dice.shuffle(splits)
        return splits[:MOST_PAIRS]
    found: list[_Split] = []
    while len(found) < MOST_PAIRS:
        order = dice.sample(range(count), count)
        for first in range(0, count - 2 * size + 1, 2 * size):
            one, other = sorted(order[first : first + size]), sorted(order[first + size : first + 2 * size])
            found.append((tuple(one), tuple(other)))
    return found[:MOST_PAIRS]


def _splits(count: int, size: int) -> Iterator[_Split]:
    for one in itertools.combinations(range(count), size):
        for other in itertools.combinations([at for at in range(count) if at not in one], size):
            if one < other:
                yield one, other


def _compared(baseline: Sequence[Repeat], other: Sequence[Repeat], rate: float = 1.0) -> Difference:
    found = difference(side("one", baseline), side("other", other), rate)
    assert found is not None
    return found


def _between_runs_ms(by_case: Mapping[str, Sequence[Row]]) -> float:
    """Return by how much runs of one job differ, as a standard deviation, over all jobs."""
    several = [[row.step_ms for row in rows] for rows in by_case.values() if len(rows) > 1]
    degrees = sum(len(one) - 1 for one in several)
    return sqrt(sum(variance(one) * (len(one) - 1) for one in several) / degrees) if degrees else 0.0


def _known(
    what: str, same: Sequence[Row], other: Sequence[Row], case: Case, error_ms: float
) -> tuple[Known, Comparison]:
    """Return what was found of a known change, and the whole answer.

    The length of a host's delay is known. Otherwise the truth is the difference of the steps of runs that the
    comparison does not see: each run of the changed job is left out once, with the undisturbed ones of its turn. A
    device's delay is no exception: where power limits its clocks, what it is idle for makes its other kernels faster,
    and a step grows by less than the delay.
    """
    answer = compare([side("same", [row.repeat for row in same])], [side("other", [row.repeat for row in other])])
    delays = [row.delay_ms for row in other if row.delay_ms is not None]
    if delays and same[0].repeat.identity.activity == "cpu":
        truth = fmean(delays)
        return scored(what, answer, (truth, truth, truth), case), answer
    before, after = (mean_samples(rows[0].repeat.identity) or 1.0 for rows in (same, other))
    rate = before / after
    inside = []
    for left in other:
        beside = [row for row in same if row.number // 2 == left.number]
        seen = [row.repeat for row in same if row not in beside], [row.repeat for row in other if row is not left]
        if not (beside and all(seen)):
            continue
        true = rate * left.step_ms - fmean(row.step_ms for row in beside)
        off = NORMAL_95 * error_ms * sqrt(1 + 1 / len(beside))
        found = _compared(*seen, rate)
        inside.append(_holds(found.change_ms, found.low_ms, found.high_ms, (true - off, true, true + off)))
    truth = rate * fmean(row.step_ms for row in other) - fmean(row.step_ms for row in same)
    off = NORMAL_95 * error_ms * sqrt(1 / len(other) + 1 / len(same))
    return scored(what, answer, (truth - off, truth, truth + off), case, inside), answer


def _holds(change: float, low: float, high: float, truth: tuple[float, float, float]) -> bool:
    """Tell whether a change's interval meets the truth's, or it is within a tenth of the truth."""
    return (low <= truth[2] and truth[0] <= high) or abs(change - truth[1]) <= NEAR * abs(truth[1])


def known_change(
    what: str, baseline: Sequence[Repeat], other: Sequence[Repeat], truth: tuple[float, float, float]
) -> Known:
    """Return what was found of a change whose cost lies between two bounds, and is most likely what is between."""
    return scored(what, compare([side("same", baseline)], [side("other", other)]), truth)


def scored(
    what: str,
    answer: Comparison,
    truth: tuple[float, float, float],
    case: Case | None = None,
    unseen: Sequence[bool] = (),
) -> Known:
    """Return what was said of a known change, and whether it is right: its size, and what is told first."""
    change, low_ms, high_ms = answer.change_ms, answer.low_ms, answer.high_ms
    told = moved(answer)
    first = " ".join(verdict_sentences(answer))
    moves, says = (case.moves, case.says) if case is not None else ((), "")
    named = any(part.name in moves for part in told[:2]) or bool(says and says in first) or not (moves or says)
    # what cannot be told from noise as a whole, and is nothing that can be counted, need not be named
    named = named or (answer.verdict == "same" and not told and not says)
    held = change is not None and low_ms is not None and high_ms is not None and _holds(change, low_ms, high_ms, truth)
    return Known(what, truth[1], (truth[2] - truth[0]) / 2, change, low_ms, high_ms, held,
                 named if named or answer.kernels else None, sum(unseen),
                 len(unseen), first)  # fmt: skip
