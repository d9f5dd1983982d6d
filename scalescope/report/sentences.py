"""What a report says in words of one sweep and of one growth, and what a verdict is made of. Pure functions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scalescope.records.rows import SweepRow
from scalescope.report.drawing.numbers import (
    READS_AS_ZERO_MS,
    capitalized,
    figure,
    listing,
    microseconds,
    milliseconds,
    percent,
    rate,
    size,
)
from scalescope.report.drawing.parts import Part
from scalescope.report.grown import lengthened_ms, shortened_ms
from scalescope.report.text.waits.growth import waits_sentence
from scalescope.report.views import grew_within_noise, waterfall_steps
from scalescope.scaling.study_answer import Waterfall

Level = Literal["good", "fair", "poor", "unknown"]

#: Parts of a loss below this share are not worth a reader's sentence.
WORTH_SAYING = 0.05
#: From which share of the ideal on a verdict is good, and fair: of a scaling efficiency, or of a step; and of what the
#: links allow, which no library reaches in full.
GOOD, FAIR = 0.9, 0.7
GOOD_LINKS, FAIR_LINKS = 0.7, 0.4
PERFECT = 1.05
#: So many words are read at once, at most.
LONGEST = 35
#: Smaller calls measure latency: no share of a link's rate.
_FILLS_A_LINK = 2**20


@dataclass(frozen=True)
class Verdict:
    """One subject's verdict: a headline, the sentences that explain it, what may help most, and what else is to know.

    A terminal shows the notes after the tables. A page folds them, but for `cautions`, which are among them or the
    sentences: what the headline must not be read without. `begins_on`: on which rank the advice begins, where it is for
    one alone. `command`: what does what the advice says, to be pasted into a shell. `whose`: the job that the
    headline begins with, which a page sets above it. `is_beside`: the level is of a run beside its reference.
    """

    subject: str
    level: Level
    headline: str
    sentences: tuple[str, ...] = ()
    advice: str = ""
    notes: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    begins_on: int | None = None
    command: str = ""
    whose: str = ""
    is_beside: bool = False

    @property
    def advice_title(self) -> str:
        """What stands before the advice: on which rank it begins, where one alone is to do something."""
        return "What may help most" if self.begins_on is None else f"What may help most, on rank {self.begins_on}"

    @property
    def told(self) -> str:
        """The headline without whose it is, where that stands above it."""
        return capitalized(self.headline.removeprefix(f"{self.whose}: ")) if self.whose else self.headline

    @property
    def text(self) -> str:
        return " ".join(
            [
                self.headline,
                *self.sentences,
                *([f"{self.advice_title}: {self.advice}"] if self.advice else []),
                *([self.command] if self.command else []),
                *self.notes,
            ]
        )


#: With what a sentence begins of growths that contradict each other.
UNSTEADY = "The machine was unsteady: "


def sweep_verdict(rows: Sequence[SweepRow]) -> Verdict:
    """Return what the collectives reach: the best bandwidth beside its ceiling, the shortest time, what went wrong."""
    measured = [row for row in rows if row.bus_gb_s is not None and row.time_us is not None]
    headlines: list[str] = []
    level: Level = "unknown"
    for operation in dict.fromkeys(row.operation for row in measured):
        of_it = [row for row in measured if row.operation == operation]
        group = max(row.group_size for row in of_it)
        best = max((row for row in of_it if row.group_size == group), key=lambda row: row.bus_gb_s or 0.0)
        fastest = min((row for row in of_it if row.group_size == group), key=lambda row: row.time_us or 0.0)
        reached = f"{rate(best.bus_gb_s or 0.0, best.relative_half)} GB/s busbw{_wide(best)}"
        text = f"{operation} reaches {reached} at {size(best.bytes)} on {group} ranks"
        if best.ceiling_gb_s and best.bytes >= _FILLS_A_LINK:
            share = (best.bus_gb_s or 0.0) / best.ceiling_gb_s
            assumed = f" ({best.ceiling_assumes})" if best.ceiling_assumes else ""
            text += f", {percent(share)} of the {rate(best.ceiling_gb_s)} GB/s that the links allow{assumed}"
            level = level_of(share, good=GOOD_LINKS, fair=FAIR_LINKS) if level == "unknown" else level
        takes = f"{microseconds(fastest.time_us or 0.0, fastest.relative_half)}{_wide(fastest)}"
        headlines.append(f"{text}; its shortest call, of {size(fastest.bytes)}, takes {takes}.")
    sentences: list[str] = []
    if not headlines:
        headlines = ["No point of the sweep was measured."]
    if wrong := sum(row.wrong or 0 for row in rows):
        level = "poor"
        sentences.append(f"{figure(wrong, 0)} elements of the results were wrong: no figure of such a call counts.")
    if unchecked := sum(row.wrong is None for row in measured):
        sentences.append(f"{_of_points(unchecked, len(measured))} measured without checking the result.")
    if missing := [row for row in rows if row.time_us is None]:
        reasons = list(dict.fromkeys(row.reason or row.status.replace("_", " ") for row in missing))
        more = f" and {len(reasons) - 3} more reasons" if len(reasons) > 3 else ""
        sentences.append(f"{_of_points(len(missing), len(rows))} not measured: {'; '.join(reasons[:3])}{more}.")
    return Verdict("sweep", level, headlines[0], (*headlines[1:], *sentences))


def _wide(row: SweepRow) -> str:
    """Return how well a point is known, after a space, where that is not well; "" where it is, or nothing tells."""
    return f" (± {percent(row.relative_half or 0.0, 0)}, wide)" if row.is_wide else ""


def loss_sentence(fall: Waterfall) -> str:
    """Return where a step's growth went, and what of it all steps' own rows tell, which no window need have met."""
    return " ".join(filter(None, (_traced_loss(fall), waits_sentence(fall))))


def _traced_loss(fall: Waterfall) -> str:
    """Return where a step's growth went, beside its measured growth; where those contradict each other, that first."""
    measured, noise = fall.measured_growth_ms, fall.noise_ms
    if measured is None or noise is None:
        return _growth_sentence(fall)
    if grew_within_noise(fall) and not fall.unsteady:
        return (
            f"In the traces a step grew by no more than noise: {milliseconds(abs(fall.growth_ms))} "
            f"{'more' if fall.growth_ms > 0 else 'less'}, where such steps differ by ± {milliseconds(noise)} anyway. "
            f"So they do not tell what it went to. {_measured_growth(fall, measured)}."
        )
    grew = f"the measured step {_grew(measured, noise)} and the profiled one "
    longer = min(measured, fall.growth_ms) >= 0
    grew += f"by {milliseconds(fall.growth_ms, noise)}" if longer else _grew(fall.growth_ms, noise)
    differ = f"differ by ± {milliseconds(noise, noise)} anyway"
    if grew_within_noise(fall) and fall.unsteady:  # then it has no shares
        return f"{UNSTEADY}{grew} ({_span(fall)}). Such steps {differ}, so the traces do not tell what it went to."
    if not fall.unsteady:
        return f"{_growth_sentence(fall)} {_measured_growth(fall, measured)}{_why_they_differ(fall, measured, noise)}."
    alone = _parts_alone(fall, noise)
    if abs(fall.growth_ms - measured) <= noise <= abs(measured):
        return (
            f"{UNSTEADY}on {fall.from_world_size} or {fall.to_world_size} ranks the profiled steps are far from the "
            f"measured ones. Despite that, both growths agree: {grew}, where such steps {differ}. {alone}"
        )
    return f"{UNSTEADY}{grew}, where such steps {differ}. {alone}"


def _why_they_differ(fall: Waterfall, measured_ms: float, noise_ms: float) -> str:
    """Return what a reader has to know who sees two growths that are not the same; "" where they are."""
    apart_ms = abs(fall.growth_ms - measured_ms)
    if apart_ms > noise_ms:
        # on devices, whose hosts recording slows: elsewhere the machine was unsteady
        return ": recording lengthens the profiled steps"
    low, high = fall.measured_growth_low_ms, fall.measured_growth_high_ms
    if low is None or high is None or low <= fall.growth_ms <= high:
        return ""
    return f"; the profiled steps are few, and tell their own growth to ± {milliseconds(noise_ms, noise_ms)} only"


def _measured_growth(fall: Waterfall, measured: float) -> str:
    """Return what the steps outside of the windows grew by, as well as those many steps tell it."""
    low, high = fall.measured_growth_low_ms, fall.measured_growth_high_ms
    if low is None or high is None:
        return f"Measured outside the traces it {_grew(measured)}"
    half = (high - low) / 2
    least, most = (low, high) if measured >= 0 else (-high, -low)
    told = f"{milliseconds(least, half)} to {milliseconds(most, half)}"
    return f"Measured outside the traces it {_grew(measured, half)} ({told})"


def _grew(ms: float, half: float | None = None) -> str:
    """Return by how much a step grew, as well as that is known, or became shorter."""
    return f"grew by {milliseconds(ms, half)}" if ms >= 0 else f"became {milliseconds(-ms, half)} shorter"


def _growth_sentence(fall: Waterfall) -> str:
    """Return where a step's growth went, largest part first; what became shorter is said as given back."""
    grew = f"A step grew by {milliseconds(fall.growth_ms)} ({_span(fall)})"
    shared = f"Of the {milliseconds(fall.growth_ms)} by which a step grew ({_span(fall)})"
    return _told_growth(fall, grew, shared, f"{grew}. Of what became longer")


def _parts_alone(fall: Waterfall, noise_ms: float) -> str:
    """Return where the growth went of profiled steps that stand for no others; no digits below what they differ by."""
    alone = f"the profiled steps alone ({_span(fall)})"
    shared = f"Of the growth of {alone}"
    return _told_growth(fall, f"Of {alone}", shared, f"Of what became longer in {alone}", noise_ms)


def _told_growth(fall: Waterfall, grew: str, shared: str, of_longer: str, noise_ms: float | None = None) -> str:
    """Return the parts of a growth: shares that add up to all of what became longer, and what became shorter in ms.

    `grew`: what parts in ms begin with; `shared`: shares of all of it; `of_longer`: shares where others became shorter.
    """
    grown = fall.growth_ms
    if grown < READS_AS_ZERO_MS:
        return f"The profiled step did not grow ({_span(fall)})."
    steps = sorted(waterfall_steps(fall), key=lambda step: -step[1])
    whole, shorter = lengthened_ms(steps), shortened_ms(steps)
    more = [(part, ms) for part, ms in steps if ms / grown >= WORTH_SAYING]
    back = [(part, -ms) for part, ms in reversed(steps) if -ms / grown >= WORTH_SAYING]
    came_back = [f"{milliseconds(ms, noise_ms)} {part.name}" for part, ms in back]
    if more and more[0][1] > grown:
        # parts that grew and parts that shrank make up for each other
        told = listing([f"{milliseconds(ms, noise_ms)} {part.name}" for part, ms in more])
        return f"{grew}: {told}{f'; {listing(came_back)} came back' if came_back else ''}."
    shares = _shares([(part, ms / whole) for part, ms in more])
    if not shorter:
        return f"{shared}, {shares}."
    within = ", within noise" if fall.noise_ms is not None and shorter <= fall.noise_ms else ""
    less = f"{listing(came_back)} came back" if came_back else f"other parts became {milliseconds(shorter)} shorter"
    return f"{of_longer}, {shares}. {capitalized(less)}{within}."


def _span(fall: Waterfall) -> str:
    return f"{milliseconds(fall.from_step_ms)} to {milliseconds(fall.to_step_ms)} in the mean of the traces"


#: What shares leave of the whole is said from here on: below it they add up to that as they are rounded.
_REST = 0.01


def _shares(shares: Sequence[tuple[Part, float]]) -> str:
    """Return `60% are slower compute, 25% exposed transfer, 12% exposed wait and 3% the rest`."""
    if not shares:
        return "no part makes up as much as a twentieth"
    first, *others = ((percent(share, 0), part.name) for part, share in shares)
    rest = 1 - sum(share for _, share in shares)
    left = [f"{percent(rest, 0)} the rest"] if rest >= _REST else []
    return listing([f"{first[0]} are {first[1]}", *(f"{share} {name}" for share, name in others), *left])


def _of_points(count: int, of: int) -> str:
    return f"{count} of {of} points {'was' if count == 1 else 'were'}"


def level_of(share: float, good: float = GOOD, fair: float = FAIR) -> Level:
    return "good" if share >= good else "fair" if share >= fair else "poor"


def joined(told: str, more: str) -> str:
    """Return a sentence with a clause more; with a sentence more where it would be too long to be read at once."""
    last, first = told.rsplit(". ", 1)[-1], more.split(". ", 1)[0]
    if len(f"{last} {first}".split()) > LONGEST:
        return f"{told} {capitalized(more)}."
    return f"{told.removesuffix('.')}; {more}."


def sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
