"""Of which profiled steps it is that a step is told without recording: those whose end a next one tells.

Tables, bars and growths as profiled are of all of them, so both are never told without saying which is which.
"""

from dataclasses import dataclass

from scalescope.records.console import counted
from scalescope.report.drawing.numbers import milliseconds, numbers_named, ordinal
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.rank.records.record import MOST_STEPS
from scalescope.scaling.verdicts.step_rows.doubt import longer_for_long_ones_ms, told_numbers, told_steps


@dataclass(frozen=True)
class Replayed:
    """How many of the profiled steps of a rank are replayed, and how long those are as profiled."""

    steps: int
    of: int
    traced_ms: float
    numbers: tuple[int, ...] = ()  # which of the profiled ones they are, where that is known
    first: bool = False  # they are the first of these

    @property
    def why(self) -> str:
        """Why it is so many, to go behind which they are; "" where it is neither of the usual reasons."""
        if self.first and self.steps == self.of - 1:
            return "the last only tells where the one before it ends"
        if self.first and self.steps == MOST_STEPS - 1:
            return f"at most {MOST_STEPS} are read, and the last of these only tells where the one before it ends"
        return ""

    @property
    def of_which(self) -> str:
        """Of how many of the profiled steps something is, and which: `7 of the 10 profiled steps, 22 to 28`."""
        which = f", {numbers_named(self.numbers)}" if self.numbers else ""
        return f"{self.steps} of the {self.of} profiled steps{which}"

    @property
    def which(self) -> str:
        """Which they are, to go before a verb: `2 of the 3 profiled steps take`."""
        return f"{self.steps} of the {self.of} profiled steps {'takes' if self.steps == 1 else 'take'}"

    @property
    def length(self) -> str:
        """Which they are, and how long as profiled, to go before what recording takes of that."""
        mean = " in the mean" if self.steps > 1 else ""
        which = f" ({numbers_named(self.numbers)})" if self.numbers else ""
        return f"Of the {self.of} profiled steps {self.steps} are told of{which}, {milliseconds(self.traced_ms)}{mean}"


@dataclass(frozen=True)
class LongAmong:
    """How many of the steps that figures are of are longer as one is every so often, and by how much these all are."""

    count: int
    every: int | None  # None: they came once
    longer_ms: float  # the mean step, for them

    @property
    def which(self) -> str:
        """How many they are, to go behind the steps that are told of."""
        return f", {self.count} of them {'a longer one' if self.count == 1 else 'longer ones'}"

    @property
    def without(self) -> str:
        """What is left out where they are."""
        if self.every is None:
            return f"without what {counted(self.count, 'step')} took longer for once"
        return f"without what every {ordinal(self.every)} step takes longer"

    def of(self, beyond_ms: float) -> str:
        """Return what of so many ms that steps are longer is for them, after a comma; "" where these are shorter."""
        if beyond_ms <= 0:
            return ""
        whole, theirs = milliseconds(beyond_ms), milliseconds(self.longer_ms)
        much = f"{theirs} of that " if self.longer_ms < beyond_ms and theirs != whole else ""
        return f", {much}for the longer {'one' if self.count == 1 else 'ones'} among them"


def long_among(run: RunAnalysis) -> LongAmong | None:
    """Return which of the steps that figures are of are longer as one is every so often, or came once; None where none
    is, or where such cost too little to be told."""
    if run.once is not None and (among := [step for step in told_numbers(run) if step in run.once.steps]):
        return LongAmong(len(among), None, longer_for_long_ones_ms(run))
    (_, count), found = told_steps(run), run.recurring
    if found is None or not count or not found.is_worth_a_word:
        return None
    return LongAmong(count, found.every, longer_for_long_ones_ms(run))


def between_longer_ones(run: RunAnalysis) -> str:
    """Return after a comma that the job's measured step is one between those that are longer every so often; or ""."""
    return ", between the longer ones" if run.recurring is not None and run.recurring.is_worth_a_word else ""


#: Why a window has fewer steps than it was to.
_WHY = {
    "many_operators": "a step has many operators",
    "loop_ended": "the loop ended",
    "no_room": "profiler.max_mib was reached",
}


def why_fewer(run: RunAnalysis) -> str:
    """Return in brackets why fewer steps were recorded than asked for, or than the default, after a space; or ""."""
    told = run.fewer_recorded
    return "" if told is None else f" (not {told.wanted}, as {_WHY[told.why]})"


def fewer_steps_sentence(run: RunAnalysis) -> str:
    """Return the same as a sentence, where no other one tells how many steps were profiled; or ""."""
    if run.fewer_recorded is None or fewer_replayed(run) is not None:
        return ""
    recorded = max(one.steps for one in run.ranks)
    return f"{counted(recorded, 'step')} {'was' if recorded == 1 else 'were'} profiled{why_fewer(run)}."


def fewer_replayed(run: RunAnalysis) -> Replayed | None:
    """Return which of a run's profiled steps are replayed; None where all are, or none is."""
    told, replay = run.as_run, run.replay
    if told is None or replay is None or not told.ranks or not told.steps:
        return None
    recorded = max((one.steps for one in run.ranks), default=0)
    if told.steps >= recorded:
        return None
    numbers = sorted({one.step for one in run.steps})
    first = bool(told.step_numbers) and told.step_numbers == numbers[: told.steps]
    return Replayed(told.steps, recorded, replay.traced_ms, tuple(told.step_numbers), first)


def beside_all(run: RunAnalysis, all_ms: float) -> str:
    """Return of which steps a run's mean of all profiled ones is, and of which the one without recording; "" where no
    other one is told."""
    fewer, without = fewer_replayed(run), without_recording(run)
    if fewer is None or not without:
        return ""
    return f"{milliseconds(all_ms)} is the mean of all {fewer.of} profiled steps, recording included; {without}."


def without_recording(run: RunAnalysis) -> str:
    """Return of how many profiled steps the one without recording is, and how long that is; "" where it is of all."""
    fewer, told = fewer_replayed(run), run.as_run
    if fewer is None or told is None or told.replayed_ms is None:
        return ""
    return f"the {milliseconds(told.replayed_ms.value)} step without recording is of {fewer.steps} of them"
