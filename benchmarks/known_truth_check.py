"""The check behind `known_truth.py check`: what the analysis says of the cases' traces beside what is true of them.

Torch-free. The truth is read off the traces by a reader of its own (known_truth_reader.py), so that nothing of scaling/
is checked by itself. It is what was injected, but for the step: that grows by what was injected and by whatever else
changed with it. A device at its power limit runs faster after a rest, and a host that has slept slower; the account of
a step's growth is held against the growth.
"""

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from known_truth_cases import DATA, INJECTED, LATE_ROOT, SLOW_COMPUTE, SLOW_DATA, Case
from known_truth_reader import Truth, idle_before_collectives, read_pace, read_truth

from scalescope import RunAnalysis, analyze
from scalescope.records.errors import UserError
from scalescope.scaling.answer_rows import PARTS, Collective
from scalescope.scaling.compare.lost import lost_time
from scalescope.scaling.finding.finding import Finding, ranks_of
from scalescope.scaling.join.explained import Explained
from scalescope.scaling.run import explain_run
from scalescope.scaling.verdicts.stragglers import STRAGGLER_FRACTION

IDLE = ("idle_data", "idle_launch", "idle_queued")

Milliseconds = dict[str, float]  # by part, and "window"


@dataclass(frozen=True)
class Row:
    """One claim about one rank. `right` is None where the figure is shown for its own sake."""

    case: str
    rank: int | None
    what: str
    true_ms: float | None
    found_ms: float | None
    right: bool | None
    note: str = ""


def check(cases: Sequence[Case], out: Path, tolerance: float, markdown: bool) -> int:
    """Analyse the cases' traces and print the table. Returns the exit code."""
    explained: dict[str, Explained] = {}
    rows: list[Row] = []
    made = out / "made.json"
    facts = json.loads(made.read_text()) if made.is_file() else {}
    cases = [case for case in cases if case.needs() <= facts.get("world_size", case.needs())]
    for case in cases:
        try:
            explained[case.name] = explain_run(out / case.name)
        except UserError as error:
            rows.append(Row(case.name, None, "traces", None, None, False, str(error)))
    for case in cases:
        if case.name in explained:
            rows.extend(Check(case, explained, out, tolerance).rows())
    print(" · ".join(f"{key} {value}" for key, value in facts.items() if value is not None))
    for line in table(rows, markdown):
        print(line)
    wrong = [row for row in rows if row.right is False]
    checked = sum(row.right is not None for row in rows)
    print(f"{checked - len(wrong)} of {checked} figures are right, within {tolerance:.0%} of what was injected")
    return 1 if wrong or not checked else 0


class Check:
    """All claims about one case."""

    def __init__(self, case: Case, explained: dict[str, Explained], out: Path, tolerance: float) -> None:
        self.case, self.folder, self.tolerance = case, out / case.name, tolerance
        self.here = explained[case.name]
        there = [name for name in case.references if name in explained]
        self.references = [explained[name] for name in there]
        self.undisturbed = [out / name for name in there]
        analysis = analyze(self.folder)  # what users are told, which is more than a window says
        assert isinstance(analysis, RunAnalysis)
        self.analysis = analysis
        self.steps = {rank.rank: rank.steps for rank in self.analysis.ranks}
        self.disturbed = case.rank_of(self.analysis.world_size)
        self.all_disturbed = case.ranks_of(self.analysis.world_size)
        self.others = [rank for rank in self.steps if rank not in self.all_disturbed]

    def rows(self) -> Iterable[Row]:
        quality = self.analysis.quality
        yield self.row(None, "the traces are good", right=quality.verdict == "good", note="; ".join(quality.reasons))
        if self.case.injection is None:
            yield self._undisturbed()
            return
        if not self.references:
            yield self.row(None, "an undisturbed run", right=False, note=f"none of {self.case.references} is there")
            return
        gpu = self.analysis.activity == "gpu"
        self.truth = self._injected(self.disturbed)
        yield self._named()
        for rank in self.all_disturbed:
            yield from self._straggler(rank)
        if self.case.injection == SLOW_DATA:
            yield self._data_row()
        elif gpu or self.case.injection == SLOW_COMPUTE:
            others = self._paced(self.disturbed, "compute") if gpu else 0.0
            note = f"{self.truth.a_step:.2f} injected; its other kernels {others:+.2f}"
            found = self.change(self.disturbed)["compute"]
            yield self.compare(self.disturbed, "more compute", found, note, self.truth.a_step + others)
        else:
            yield self.compare(self.disturbed, "more idle, the host late", self.change(self.disturbed)["idle_launch"])
        if self.case.injection == LATE_ROOT:
            yield from self._rooted()
        else:
            for rank in self.others:
                yield from self._lost_time(rank)

    def _undisturbed(self) -> Row:
        """Nobody is named; in a synchronised loop perhaps a rank whose host is late all by itself.

        There the host is never ahead of the device, so a step is as slow as the slower of the hosts, and hosts differ.
        Whether that is so is read off the traces by a reader of its own.
        """
        found = self.analysis.stragglers
        note = "; ".join(f"rank {one.rank}: {one.lost_ms:.2f} ms, {one.verdict}" for one in found)
        if not found or not self.case.synced:
            return self.row(None, "no straggler", right=not found, note=note or self._window_note())
        late = {rank: idle_before_collectives(_trace(self.folder, rank)) for rank in self.steps}
        true = True
        for one in found:
            more = late[one.rank] - statistics.fmean(value for rank, value in late.items() if rank != one.rank)
            enough = more >= STRAGGLER_FRACTION * self.mean(self.here, one.rank)["window"]
            true = true and enough and "host" in one.verdict
            note += (
                f"; before a step's first collective rank {one.rank}'s device idles {more:.2f} ms more than the others'"
            )
        return self.row(None, "a straggler only where a host is late", right=true, note=note)

    def _paced(self, rank: int, what: Literal["period", "compute"]) -> float:
        """Return by how much a rank's period, or its own kernels, are longer than undisturbed, by its traces alone."""
        here, there = (
            [getattr(read_pace(_trace(folder, rank)), what) for folder in folders]
            for folders in ([self.folder], self.undisturbed)
        )
        return statistics.fmean(here) - statistics.fmean(there)

    def _injected(self, rank: int) -> Truth:
        """Return what was injected into a rank's steps, by its own trace."""
        annotation = DATA if self.case.injection == SLOW_DATA else INJECTED
        return read_truth(_trace(self.folder, rank), annotation, self.case.injection or "")

    def _named(self) -> Row:
        """Whoever was disturbed is named, and nobody else."""
        named = sorted(one.rank for one in self.analysis.stragglers)
        verdicts = "; ".join(
            f"rank {', '.join(map(str, ranks_of(one)))}: {one.code}" for one in self.analysis.findings if ranks_of(one)
        )
        alone = len(self.all_disturbed) == 1
        what = "it alone is named the straggler" if alone else "they alone are named stragglers"
        return self.row(self.disturbed, what, right=named == sorted(self.all_disturbed), note=verdicts)

    def _straggler(self, rank: int) -> Iterable[Row]:
        """A disturbed rank's figure is what it did; what it cost is not the raw wait."""
        mine = next((one for one in self.analysis.stragglers if one.rank == rank), None)
        if mine is None:
            return
        true_ms = self._injected(rank).a_step
        found_ms = _beyond_the_others(self.analysis.findings, rank)
        yield self.compare(rank, "the verdict's own figure", found_ms, true_ms=true_ms)
        exposed = statistics.fmean(self.mean(self.here, other)["exposed_wait"] for other in self.others)
        yield self.row(
            rank,
            "what it cost is not above it",
            found=mine.lost_ms,
            right=mine.lost_ms <= true_ms * (1 + self.tolerance),
            note=f"exposed wait of the others {exposed:.2f} ms",
        )

    def _lost_time(self, rank: int) -> Iterable[Row]:
        """On a rank that waits: the step's growth, found again as exposed wait, slower compute and idle.

        A rank that waits at the end of its backward pass also has no compute left to hide the transfers that follow.
        """
        loss = next(one for one in lost_time(self.references, self.here) if one.rank == rank)
        change = {part.part: part.ms for part in loss.parts}
        grown = self._paced(rank, "period")
        yield self.compare(rank, "the step's growth", loss.growth_ms, self._but_for_the_injection(), grown)
        inflation = change["compute"] if loss.compute_inflation_ms is None else loss.compute_inflation_ms
        idle = sum(change[part] for part in IDLE)
        found = change["exposed_wait"] + inflation + idle
        bare = change["exposed_transfer"]
        note = f"{change['exposed_wait']:.2f} + {inflation:.2f} + {idle:.2f}"
        yield self.compare(rank, "exposed wait + slower compute + idle", found, note, grown)
        note = f"{bare:+.2f}; all else {loss.growth_ms - found - bare:+.2f}"
        yield self.compare(rank, "the same + transfer laid bare", found + bare, note, grown)
        raw = self._raw_wait(self.here, rank)
        before = statistics.fmean(self._raw_wait(one, rank) for one in self.references)
        yield self.row(rank, "raw wait, for comparison", found=raw, note=f"{before:.2f} ms undisturbed")

    def _but_for_the_injection(self) -> str:
        """Return what else of the disturbed rank's own step changed: the step grows by that too, or less."""
        loss = next(one for one in lost_time(self.references, self.here) if one.rank == self.disturbed)
        parts = {part.part: part.ms for part in loss.parts}
        changed = {
            "compute": parts["compute"],
            "wait": parts["exposed_wait"],
            "idle": sum(parts[part] for part in IDLE),
        }
        delayed_host = self.analysis.activity == "cpu" and self.case.injection != SLOW_COMPUTE
        changed["idle" if self.case.injection == SLOW_DATA or delayed_host else "compute"] -= self.truth.a_step
        changes = ", ".join(f"{what} {change:+.2f}" for what, change in changed.items())
        return f"{self.truth.a_step:.2f} injected; rank {self.disturbed}'s own step, beside that: {changes}"

    def _data_row(self) -> Row:
        """Return the row of idle time while loading. A device step begins after its loading: it holds the next one's.

        So a last step that is open-ended has none, and the first loading lies in no step.
        """
        closed = [one for one in self.analysis.steps if one.rank == self.disturbed and not one.open_ended]
        values = [self.truth.by_step[step] for step in sorted(self.truth.by_step)]
        injected = statistics.fmean(values[len(values) - len(closed) :])
        return self.compare(
            self.disturbed,
            "idle while the host loads data",
            statistics.fmean(one.idle_data_ms for one in closed),
            true_ms=injected,
        )

    def _rooted(self) -> Iterable[Row]:
        """The members of the broadcast wait for its root, the root waits for nobody, and transfer is the wire's."""
        for rank in self.steps:
            reference = statistics.fmean(_broadcast_wait(one, rank) for one in self.references)
            wait = (_broadcast_wait(self.here, rank) - reference) / self.steps[rank]
            exposed = self.change(rank)["exposed_wait"]
            if rank == self.disturbed:
                yield self.nothing(rank, "the root's wait in its broadcast", wait)
                yield self.nothing(rank, "the root's exposed wait", exposed)
            else:
                yield self.compare(rank, "wait in the broadcast", wait)
                yield self.compare(rank, "exposed wait", exposed)
        here = _transfers(self.here)
        there = [value for one in self.references for value in _transfers(one)]
        if not here or not there:
            yield self.row(self.disturbed, "the broadcast's transfer", right=False, note="no broadcast was matched")
            return
        more = statistics.median(here) - statistics.median(there)
        note = f"{statistics.median(here):.3f} ms, undisturbed {statistics.median(there):.3f} ms"
        yield self.nothing(self.disturbed, "the broadcast's transfer grew by", more, note)

    def _window_note(self) -> str:
        return "step " + ", ".join(f"{self.mean(self.here, rank)['window']:.2f}" for rank in self.steps) + " ms"

    def _raw_wait(self, explained: Explained, rank: int) -> float:
        """Return the wait of all collectives of one rank, hidden or not, added up, ms a step."""
        waits = sum(one.wait_us.get(rank, 0.0) for one in _in_steps(explained))
        return waits / 1e3 / self.steps[rank]

    def mean(self, explained: Explained, rank: int) -> Milliseconds:
        """Return one rank's parts and window, ms a step."""
        split = next(one for one in explained.analysis.ranks if one.rank == rank)
        return {part: split.part_ms(part) / split.steps for part in PARTS} | {"window": split.window_ms / split.steps}

    def change(self, rank: int) -> Milliseconds:
        """Return by how much one rank's parts are larger than undisturbed, ms a step."""
        here = self.mean(self.here, rank)
        there = [self.mean(one, rank) for one in self.references]
        return {part: value - statistics.fmean(one[part] for one in there) for part, value in here.items()}

    def compare(self, rank: int, what: str, found: float | None, note: str = "", true_ms: float | None = None) -> Row:
        """Return a row that is right where what was found is what is true: what was injected, unless told."""
        true = self.truth.a_step if true_ms is None else true_ms
        right = found is not None and abs(found - true) <= self.tolerance * self.truth.a_step
        return Row(self.case.name, rank, what, true, found, right, note)

    def nothing(self, rank: int, what: str, found: float, note: str = "") -> Row:
        """Return a row that is right where nothing of what was injected is found."""
        return Row(self.case.name, rank, what, 0.0, found, abs(found) <= self.tolerance * self.truth.a_step, note)

    def row(
        self, rank: int | None, what: str, found: float | None = None, right: bool | None = None, note: str = ""
    ) -> Row:
        """Return a row whose claim is no equality."""
        true = self.truth.a_step if found is not None else None
        return Row(self.case.name, rank, what, true, found, right, note)


def _trace(folder: Path, rank: int) -> Path:
    return next(folder.glob(f"rank{rank}.*.json.gz"))


def _in_steps(explained: Explained) -> list[Collective]:
    return [one for one in explained.analysis.collectives if one.step is not None]


def _broadcasts(explained: Explained) -> list[Collective]:
    return [one for one in _in_steps(explained) if one.operation == "broadcast"]


def _broadcast_wait(explained: Explained, rank: int) -> float:
    """Return a rank's wait in all broadcasts of the window, in ms."""
    return sum(one.wait_us.get(rank, 0.0) for one in _broadcasts(explained)) / 1e3


def _transfers(explained: Explained) -> list[float]:
    return [one.transfer_us / 1e3 for one in _broadcasts(explained) if one.transfer_us is not None]


HEADINGS = ("case", "rank", "what", "true ms", "found ms", "ratio", "", "")


def table(rows: Sequence[Row], markdown: bool) -> list[str]:
    """Return the rows as lines of text."""
    cells = [HEADINGS, *map(_cells, rows)]
    if markdown:
        lines = ["| " + " | ".join(line) + " |" for line in cells]
        return [lines[0], "|" + "---|" * len(HEADINGS), *lines[1:]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]


def _cells(row: Row) -> tuple[str, ...]:
    ratio = "" if row.true_ms in (None, 0.0) or row.found_ms is None else f"{row.found_ms / row.true_ms:.3f}"
    return (
        row.case,
        "all" if row.rank is None else str(row.rank),
        row.what,
        "" if row.true_ms is None else f"{row.true_ms:.3f}",
        "" if row.found_ms is None else f"{row.found_ms:.3f}",
        ratio,
        {True: "right", False: "WRONG", None: ""}[row.right],
        row.note.replace("|", "/"),
    )


def _beyond_the_others(findings: Iterable[Finding], rank: int) -> float | None:
    """Return what a rank's findings say that it does longer than the others, ms a step; None where they do not."""
    found_ms = [
        row.ms - (row.others_ms or 0.0)
        for finding in findings
        for row in finding.evidence
        if rank in ranks_of(finding) and row.ms is not None
    ]
    return max(found_ms, default=None)
