"""Steps that are longer every so often, in words: how often, by how much, and how many of them were recorded."""

from scalescope.records.console import counted
from scalescope.records.statistics import digits_of
from scalescope.report.drawing.numbers import capitalized, figure, listing, milliseconds, ordinal, signed
from scalescope.report.text.codes.evidence import longer_parts, row_of
from scalescope.report.text.cures.words import cure_text
from scalescope.report.text.findings import because, headline
from scalescope.report.text.long import with_cause
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import RecurringChange, RecurringSteps
from scalescope.scaling.finding.codes import Code
from scalescope.scaling.finding.figures import EXPOSED, GARBAGE, IDLE, IN_STEPS, TIMES_COMPUTE
from scalescope.scaling.finding.finding import Finding, Remedy

#: What a rank does in them, where a window shows that, in short.
_DOES: dict[Code, str] = {
    "more_work": "what rank {rank} computes",
    "own_work": "what rank {rank} computes",
    "slower_compute": "what rank {rank} computes",
    "data_loading": "the data that rank {rank} loads",
    "host_stall": "what holds up rank {rank}'s host",
}

#: The same by what of a profiled one takes longer, where several parts of it do.
_TAKES_LONGER = {
    "compute": "what it computes",
    "idle_data": "the data that it loads",
    "idle_launch": "what it does that is not recorded (such as saving)",
}

#: What the job's own loop does less of, by how long it took.
_LESS = {
    "saving_ms": "save checkpoints less often (checkpoint_every), or in the background where they are not "
    "(checkpoint_mode=background)",
    "validating_ms": "validate less often (validate_every), or on fewer samples (data.validation_samples)",
}
#: Who begins an epoch in them: what the loader does there costs so, and it need not.
_ENTERED = "which is entered anew there"
_STARTS = "which starts its workers anew there"
#: Of the time that a step is longer by: what less than this makes is not named, and from the other on it is all.
_MUCH, _ALL = 0.2, 0.9
#: Lengths that are no further apart are one.
_SAME = 0.05


def is_told(run: RunAnalysis) -> bool:
    """Tell whether they cost enough to be worth a word."""
    return run.recurring is not None and run.recurring.is_worth_a_word


def recurring_clause(found: RecurringSteps) -> str:
    """Return which steps are longer, and what that costs, without a full stop."""
    return f"{_which(found)}: {milliseconds(found.mean_ms)} a step in the mean"


def recurring_name(found: RecurringSteps) -> str:
    """Return what such steps are called in a list of what costs a step."""
    return "what the loop does between steps" if found.every == 1 else f"every {ordinal(found.every)} step"


def recurring_because(found: RecurringSteps) -> str:
    """Return which steps are longer, and what a window shows them to do, beside what that costs in the mean."""
    return with_doing(_which(found), found)


def _which(found: RecurringSteps) -> str:
    if found.every == 1:
        which = "each step" if found.held == found.of else f"{found.held} of {found.of} steps"
        what = f"before {which} of {milliseconds(found.usual_ms)} the loop is held up for {_longer(found)}"
        return f"{what}{_for_the_loop(found).removesuffix(' before it')}"
    what = f"every {ordinal(found.every)} step takes {_longer(found)} longer than the others"
    return f"{what}' {milliseconds(found.usual_ms)}{_for_what(found)}"


def _for_what(found: RecurringSteps) -> str:
    """Return what they do, and whose it is, in short; "" where nothing tells."""
    if held := _for_the_loop(found) or _for_the_loader(found):
        return held
    doing = found.doing
    rank = found.rank if doing is None or doing.rank is None else doing.rank
    if doing is not None and any(row.name == GARBAGE for row in doing.evidence):
        return f", for Python's garbage collector{f' on rank {rank}' if rank is not None else ''}"
    if rank is None:
        return ""
    if doing is not None and len(parts := longer_parts(doing)) > 1:
        return f", for {listing([_TAKES_LONGER[part] for part in parts])}".replace(" it ", f" rank {rank} ", 1)
    if doing is not None and doing.code in _DOES and (found.rank is None or doing.code != "host_stall"):
        return f", for {_DOES[doing.code].format(rank=rank)}"
    return f", for what rank {rank} does before the others go on"


def _for_the_loop(found: RecurringSteps) -> str:
    """Return what of it the loop saved or validated before the step, where that is much of it; "" where it is not."""
    held_ms = found.saving_ms + found.validating_ms
    if held_ms < _MUCH * found.longer_ms:
        return ""
    kinds = (("saving a checkpoint", found.saving_ms), ("validation", found.validating_ms))
    what = listing([name for name, ms in kinds if ms >= _MUCH * held_ms])
    return f", for {what} before it" if held_ms >= _ALL * found.longer_ms else (
        f", {milliseconds(held_ms)} of it for {what} before it"
    )  # fmt: skip


def _for_the_loader(found: RecurringSteps) -> str:
    """Return what of it the host is in its loader, where that is much of it, and why that is so there; else ""."""
    if not _waits_for_its_loader(found):
        return ""
    whose = "the loader" if found.rank is None else f"rank {found.rank}'s loader"
    why = f", {_STARTS if found.workers_started else _ENTERED}" if found.loader_entered else ""
    whole = found.loading_ms >= _ALL * found.longer_ms
    return f", {'all' if whole else milliseconds(found.loading_ms)} of it in {whose}{why}"


def _waits_for_its_loader(found: RecurringSteps) -> bool:
    return found.loading_ms >= _MUCH * found.longer_ms


def _longer(found: RecurringSteps) -> str:
    """Return by how much, with its interval where that is known and wide enough to be seen."""
    longer = milliseconds(found.longer_ms)
    if found.longer_low_ms is None or found.longer_high_ms is None:
        return longer
    low, high = milliseconds(found.longer_low_ms), milliseconds(found.longer_high_ms)
    return longer if low == high else f"{longer} ({low} to {high})"


def recurring_sentence(run: RunAnalysis, found: RecurringSteps) -> str:
    """Return the same with how many of them were recorded, in a sentence."""
    recorded = recorded_of(run, found)
    clause = capitalized(recurring_clause(found))
    return (
        f"{clause}. {capitalized(with_doing(recorded, found))}." if recorded else f"{clause}, by the job's own clock."
    )


def as_costly_sentence(found: RecurringSteps) -> str:
    """Return that they may cost as much as what was said before, and what they cost, in a sentence."""
    return f"What recurs may cost as much: {recurring_clause(found)}."


def recorded_sentence(run: RunAnalysis, found: RecurringSteps, such: str = "such a longer one") -> str:
    """Return how many of them were recorded, and what a window shows them to do; "" where none is profiled."""
    recorded = recorded_of(run, found, such)
    return f"{with_doing(capitalized(recorded), found)}." if recorded else ""


def with_doing(told: str, found: RecurringSteps) -> str:
    """Return what is told of them, and what a window shows them to do, where one does; without a full stop."""
    return told if found.doing is None else with_cause(told, doing_of(found))


def doing_of(found: RecurringSteps) -> str:
    """Return what a window shows them to do, and on which rank; "" where none does."""
    if found.doing is None:
        return ""
    where = f"on rank {found.doing.rank}, " if found.doing.rank is not None else ""
    return f"{where}{because(found.doing)}{_beside_the_mean(found, found.doing)}"


def _beside_the_mean(found: RecurringSteps, doing: Finding) -> str:
    """Return how long the profiled ones of them are, where that is another length than all of theirs in the mean."""
    row = row_of(doing, IN_STEPS)
    of_steps = next((one.name for one in doing.evidence), "") in (*_TAKES_LONGER, TIMES_COMPUTE)
    if row is None or not row.ms or not of_steps or abs(row.ms / found.longer_ms - 1) <= _SAME:
        return ""
    mean_ms = milliseconds(found.longer_ms)
    if not longer_parts(doing):  # of the profiled ones it is said
        return f"; the mean one of them takes {mean_ms} longer"
    which = "that step" if row.calls == 1 else "each of these"
    return f"; {which} takes {milliseconds(row.ms)} longer in all, the mean one of them {mean_ms}"


def recurring_advice(found: RecurringSteps) -> str:
    """Return what to do about them, and what that brings."""
    return f"{recurring_remedy(found)}: at most {milliseconds(found.mean_ms)} a step"


def recurring_words(one: RecurringChange, here: str, there: str) -> str:
    """Return what steps that recur take on both sides, what they do, and what they cost in the mean step."""
    digits = digits_of((one.high_ms - one.low_ms) / 2)
    bounds = " to ".join(figure(ms, digits).replace("-", "−") for ms in (one.low_ms, one.high_ms))
    told = f"{_how_often_there(one, here, there)}: {signed(one.change_ms, one.low_ms, one.high_ms)} (95%: {bounds})"
    return f"{told} in the mean step"


def _how_often_there(one: RecurringChange, here: str, there: str) -> str:
    collecting = ", as Python collects its garbage" if collects(one) else ""
    if 1 in (one.baseline_every, one.other_every):
        told = [(there, _by_the_loop(one.other_every, one.other_each_ms)),
                (here, _by_the_loop(one.baseline_every, one.baseline_each_ms))]  # fmt: skip
        (first, held), (second, beside) = told if one.other_every is not None else told[::-1]
        return f"In {first} {held}, and in {second} {beside}"
    if one.other_every is None:
        each = f"{milliseconds(one.baseline_each_ms)} longer{collecting}"
        return f"In {here} every {ordinal(one.baseline_every or 0)} step takes {each}, and in {there} none does"
    longer = (
        f"In {there} every {ordinal(one.other_every)} step takes {milliseconds(one.other_each_ms)} longer{collecting}"
    )
    if one.baseline_every is None:
        return f"{longer}, and in {here} none does"
    every = f"every {ordinal(one.baseline_every)} " if one.baseline_every != one.other_every else ""
    return f"{longer}, and in {here} {every}{milliseconds(one.baseline_each_ms)}"


def _by_the_loop(every: int | None, each_ms: float) -> str:
    """Return what a side's loop does between steps, beside one whose loop is held up at no one period."""
    if every is None:
        return "it is not"
    if every == 1:
        return f"the loop is held up between steps, for {milliseconds(each_ms)} at a time"
    return f"every {ordinal(every)} step takes {milliseconds(each_ms)} longer"


def collects(one: RecurringChange) -> bool:
    known = one.doing.remedy if one.doing is not None else None
    return known is not None and known.cure == "collect_less"


def recurring_remedy(found: RecurringSteps) -> str:
    """Return what to do about them."""
    less = [what for ms, what in _LESS.items() if getattr(found, ms) >= _MUCH * found.longer_ms]
    if less:
        return listing(less)
    cure = remedy_of(found)
    if cure.cure == "collect_less":
        return cure_text(cure)
    step = f"every {ordinal(found.every)} step does"
    if cure.cure == "keep_loader":
        beside = "" if found.loading_ms >= _ALL * found.longer_ms else f"; and see what else {step}, such as validation"
        return f"{cure_text(cure)}{beside}"
    return (
        f"see what {step} beside training (validation, saving, logging, "
        "loading several batches at once), and do it less often or in the background"
    )


def remedy_of(found: RecurringSteps) -> Remedy:
    """Return the cure of what they do, as far as anything tells that."""
    known = found.doing.remedy if found.doing is not None else None
    if known is not None and known.cure == "collect_less":
        return known
    entered = found.loader_entered and not _for_the_loop(found) and _waits_for_its_loader(found)
    return Remedy(cure="keep_loader" if entered else "do_less_often")


def pace(found: RecurringSteps) -> float:
    """Return the throughput of all steps over that of those between."""
    return found.usual_ms / (found.usual_ms + found.mean_ms)


def left_of_shown(found: RecurringSteps) -> float:
    """Return what share of the step that is shown beside them is left of it without what they cost in the mean."""
    return 1 - found.mean_ms / found.usual_ms if found.usual_ms else 0.0


def longer_by_ms(run: RunAnalysis) -> float:
    """Return by how much the mean profiled step is longer for those among them that are longer every so often, ms."""
    if run.recurring is None or not run.steps:
        return 0.0
    recorded, begun = _recorded(run, run.recurring)
    return run.recurring.longer_ms * begun / recorded


def long_ones(run: RunAnalysis, found: RecurringSteps) -> str:
    """Return how many of the profiled steps are longer, where that is why these are."""
    recorded, begun = _recorded(run, found)
    one = "is one" if begun == 1 else "are some"
    return f"{begun} of the {recorded} {one} of the long ones, as every {ordinal(found.every)} step is"


def _recorded(run: RunAnalysis, found: RecurringSteps) -> tuple[int, int]:
    """Return how many steps are profiled, and with how many of them such a longer one begins."""
    recorded = {one.step for one in run.steps}
    return len(recorded), sum(found.begins_in(step) for step in recorded)


def recorded_of(run: RunAnalysis, found: RecurringSteps, such: str = "such a one") -> str:
    """Return how many of the profiled steps are such; "" where none is profiled, and where no step itself is."""
    recorded, begun = _recorded(run, found)
    if not recorded or found.every == 1:
        return ""
    of_all = f"of the {counted(recorded, 'profiled step')} " if recorded > 1 else "profiled step "
    number = ("the one " if begun else "no ") if recorded == 1 else f"{begun or 'none'} "
    return f"{number}{of_all}{'are' if begun > 1 else 'is'} {such}"


def beside_recurring(run: RunAnalysis) -> str:
    """Return what the profiled steps tell beside those that recur, where these are among them and nothing else is
    found; "" where it is not so.

    The other ranks' wait for one that saves is communication that nothing hides, and its cause is found.
    """
    first = next(iter(run.findings), None)
    if first is None or first.code != "nothing" or run.recurring is None or not _recorded(run, run.recurring)[1]:
        return ""
    if any(row.name in (EXPOSED, IDLE) for row in first.evidence):
        return ""  # which is what is left beside theirs
    return f"Beside that {headline(first, 0.0, run.world_size, run=run)}"
