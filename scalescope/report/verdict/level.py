"""What a card's edge goes by: what is lost of a run's step, by itself and beside a reference."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from scalescope.report.as_run.shown import named_length_ms, shown_step
from scalescope.report.drawing.numbers import WIDE, milliseconds, percent
from scalescope.report.drawing.parts import ALL, Part
from scalescope.report.sentences import WORTH_SAYING, Level, level_of
from scalescope.report.text.of_step import shared_step_ms
from scalescope.report.text.unexplained import is_hardly_explained
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.finding.figures import BETWEEN, EXPOSED, IDLE, UNTOLD_WAITS
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.finding.kinds import is_lost_in_noise
from scalescope.scaling.finding.order import weight
from scalescope.scaling.finding_list import told_of
from scalescope.scaling.verdicts.reference import is_not_in_reference


@dataclass(frozen=True)
class LossOfStep:
    """Where the mean step goes."""

    step_ms: float
    compute_ms: float
    lost: Sequence[tuple[Part, float]]  # the other parts of which there is any, ms, largest first
    told_ms: float  # the step that is named: the job's own, where these are that one as far as is known

    @property
    def reads_otherwise(self) -> bool:
        """Whether its parts add up to another length than the one that is told, as both are written."""
        return milliseconds(self.step_ms) != milliseconds(self.told_ms)

    @property
    def compute(self) -> float:
        """Its share of the step."""
        return self.compute_ms / self.step_ms if self.step_ms else 0.0

    @property
    def ms(self) -> float:
        """All that is not compute."""
        return self.step_ms - self.compute_ms

    def in_words(self, ms: float, *, by_share: bool) -> str:
        """Return so much of the step in ms, as the table has it; in per cent, where another step's length is told."""
        return percent(ms / self.step_ms if self.step_ms else 0.0) if by_share else milliseconds(ms)

    def parts(self, *, by_share: bool = False) -> list[str]:
        """Return what of it is worth saying, in words."""
        worth = [(part, ms) for part, ms in self.lost if ms >= WORTH_SAYING * self.ms]
        return [f"{self.in_words(ms, by_share=by_share)} {part.name}" for part, ms in worth]


def loss_of(run: RunAnalysis) -> LossOfStep:
    """Return where the mean step goes that is shown."""
    ranks = shown_step(run)
    window = statistics.fmean(rank.window_ms for rank in ranks)
    means = [(part, statistics.fmean(rank.part_ms(part.key) for rank in ranks)) for part in ALL]
    lost = sorted(((part, ms) for part, ms in means[1:] if ms > 0), key=lambda item: -item[1])
    return LossOfStep(window, means[0][1], lost, named_length_ms(run, window))


def left_of_step(run: RunAnalysis, loss: LossOfStep, recurs_ms: float) -> float:
    """Return what share of the step is left beside what was found, which a colour goes by.

    Waits that come and go, and are nobody's doing, are no reason for an alarm; what is lost and hardly explained is.
    `recurs_ms`: by how much the step is longer for what recurs.
    """
    first = run.findings[0]
    if first.ms is None:
        bare = any(row.name in (EXPOSED, IDLE, BETWEEN, UNTOLD_WAITS) for row in first.evidence)
        return loss.compute if bare else 1.0
    # what is not listed colours nothing: an edge beyond 30% stood beside causes of 26%
    told = [one for one in told_of(run) if one.ms and not is_lost_in_noise(one)]
    found = sum(_of_shown(run, one, loss) * weight(one) / (one.ms or 1.0) for one in told)
    found += recurs_ms / (loss.step_ms or 1.0)
    return loss.compute if is_hardly_explained(found, 1 - loss.compute) else 1 - found


def _of_shown(run: RunAnalysis, finding: Finding, loss: LossOfStep) -> float:
    """Return a finding's share of the step that is cut into parts, where it is told as one of the job's own."""
    of_its_own = finding.fraction if shared_step_ms(run, finding) is None else None
    return of_its_own or (finding.ms or 0.0) / (loss.step_ms or 1.0)


def level_beside(run: RunAnalysis, loss: LossOfStep, *, by_causes: bool) -> Level:
    """Return the level of a run beside its reference, as its sentence has it: by what causes cost that the reference
    has not, where one of those is told (`by_causes`); else by how much longer the step is.

    Of a change that noise may be all of nothing is known, unless the steps are told to be as long.
    """
    lost = run.lost[0]
    change, low, high = lost.step_change_ms, lost.step_low_ms, lost.step_high_ms
    if by_causes:
        own = [one for one in run.findings if is_not_in_reference(one)]
        told = level_of(1 - sum(_of_shown(run, one, loss) * weight(one) / (one.ms or 1.0) for one in own))
        rest_ms = max(0.0, change or 0.0) if lost.as_measured is None else 0.0  # which noise may be, or not
        return "unknown" if told == "good" and level_of(1 - rest_ms / (lost.from_step_ms + rest_ms)) != "good" else told
    if change is None or low is None or high is None:
        change = statistics.fmean(one.growth_ms for one in run.lost)
    elif lost.as_measured is None and low <= 0 <= high:
        return "good" if max(-low, high) <= WIDE * lost.compared_step_ms else "unknown"
    return level_of(lost.from_step_ms / (lost.from_step_ms + max(0.0, change)))


#: From what is well to what is not; of what is not known, none tells.
_LEVELS: tuple[Level, ...] = ("unknown", "good", "fair", "poor")


def worse(one: Level, other: Level) -> Level:
    """Return the one of two levels that is further from well."""
    return max(one, other, key=_LEVELS.index)
