"""What the intervals of a comparison rest on, in a few words; what else is in them, only where it matters."""

from msgspec.structs import replace

from scalescope.report.compare.parts import WORTH_NAMING, names_in_words, part_name
from scalescope.report.drawing.numbers import WIDE, capitalized, figure, listing, signed
from scalescope.report.text.waits.change import WAITED, WHO_HAS_THEM, is_the_cause, waits_more
from scalescope.scaling.answer_rows import Basis
from scalescope.scaling.compare.answer import BEYOND_CORES, COMPUTE_THREADS, Comparison, Noise
from scalescope.scaling.trace.kernel_kinds import KINDS

#: The parts of a step in which a loop's thread wants to run.
_RUNS = (*KINDS, "idle_launch", "idle_data")
_STEPS: dict[Basis, str] = {
    "untraced": "steps without a profiler, their median",
    "as_run": "steps as run, without what recording cost",
    "profiled": "steps as profiled",
}
#: Two sides wait for cores alike where one does so no longer by more than this share of it.
_ALIKE = 0.25
#: … and so long, as a share of a step, that it makes any figure doubtful, alike or not.
_MUCH = 0.25


def noise_sentence(answer: Comparison) -> str:
    """Return what the intervals rest on, without the last full stop."""
    noise = answer.noise
    if noise is None:
        return ""
    rests_on = f"{capitalized(_STEPS[answer.basis or 'profiled'])}; {_rests_on(noise, more=not once_each(answer))}"
    return ". ".join(filter(None, (rests_on, _run_delay(answer, noise), _chosen(answer))))


def once_each(answer: Comparison) -> str:
    """Return that one run a side cannot tell a change from how runs differ, where that may hide much; what tells it."""
    noise = answer.noise
    if answer.sure_as_measured is not None and more_threads(answer) is not None:
        return "Run both again with as many threads to compare the rest"
    if answer.sure_as_measured is not None and (workers := _by_workers(answer)) is not None:
        if min(workers) == 0:  # the job's own doing, which is gone on one side
            return ""
        return "Run both again with less work in the loaders' workers, or cores for them, to compare the rest"
    if answer.sure_as_measured is not None:
        return "Whose cores they had is not told: run both again with the cores to themselves"
    if answer.verdict != "same" or noise is None or noise.unit == "repeats" or not is_wide(answer):
        return ""
    return "One run a side cannot tell more: run both again and give all with --baseline and --other"


def is_wide(answer: Comparison) -> bool:
    """Tell whether noise may hide much of a step."""
    return max(-(answer.low_ms or 0.0), answer.high_ms or 0.0) > WIDE * (answer.step_ms or 1.0)


def waits_for_cores(answer: Comparison) -> str:
    """Return how much of a change ranks waited for cores, where that is a good part of it."""
    noise = answer.noise
    if noise is None or (answer.cores_untold and answer.verdict != "same"):
        return ""
    waited = (noise.baseline_run_delay_ms, noise.other_run_delay_ms)
    here, there = names_in_words(answer)
    threads = more_threads(answer)
    why = (
        f", {WHO_HAS_THEM}" if threads is None else f": {threads[1]} threads compute there, and {threads[0]} in {here}"
    )
    if threads is None and (workers := _by_workers(answer)) is not None:
        before, after = (figure(cores, 2) if cores else "none" for cores in workers)
        why = f", of which the loaders' workers use {after} there, and {before} in {here}"
    told = waits_more(answer.change_ms or 0.0, answer.step_ms, waited, why)
    return f"In {there} {told}" if told else ""


def apart_from_waits(answer: Comparison) -> str:
    """Return why what ranks waited for cores, and what is left without it, do not add up to a step's change, where
    both are told: a reader would subtract them.
    """
    if answer.basis != "untraced" or not waits_for_cores(answer):
        return ""
    return "Steps are told by their medians, and waits by their mean: one less the other is no change of the rest"


def _by_workers(answer: Comparison) -> tuple[float, float] | None:
    """Return the cores that the loaders' workers use on both sides, where that is why ranks wait for them."""
    noise = answer.noise
    if noise is None or not noise.by_workers or noise.baseline_worker_cores is None or noise.other_worker_cores is None:
        return None
    return noise.baseline_worker_cores, noise.other_worker_cores


def more_threads(answer: Comparison) -> tuple[int, int] | None:
    """Return with how many threads the baseline's and the other's ranks compute, where the side that waits longer for
    cores has more of them beyond its cores: then these are why. None where it has not, or nothing tells.
    """
    noise, settings = answer.noise, {one.key: one for one in answer.environment}
    threads, beyond = settings.get(COMPUTE_THREADS), settings.get(BEYOND_CORES)
    if noise is None or threads is None or beyond is None or answer.reason == "another_world_size":
        return None
    more_ms = (noise.other_run_delay_ms or 0.0) - (noise.baseline_run_delay_ms or 0.0)
    more = int(beyond.other or 0) - int(beyond.baseline or 0)
    return (int(threads.baseline or 0), int(threads.other or 0)) if more * more_ms > 0 else None


def cores_more_ms(answer: Comparison) -> float | None:
    """Return by how much longer ranks wait for cores, where the scheduler counts far more than undisturbed runs differ
    by: then that is the cause. None where it does not.
    """
    noise = answer.noise
    if noise is None or not waits_for_cores(answer):
        return None
    there, here = noise.baseline_run_delay_ms or 0.0, noise.other_run_delay_ms or 0.0
    return here - there if is_the_cause(answer.step_ms, (there, here)) else None


def cores_in_parts(answer: Comparison) -> str:
    """Return that the parts hold what ranks wait for cores, where that is so much that it leads: an operator that waits
    for one runs on. "" where it does not.
    """
    noise = answer.noise
    if noise is None or cores_more_ms(answer) is None:
        return ""
    waited = (noise.baseline_run_delay_ms, noise.other_run_delay_ms)
    told = [f"{figure(ms or 0.0, 1)} ms in {name}" for name, ms in zip(names_in_words(answer), waited, strict=True)]
    what = "The parts hold what a rank waits for a core, as operators run on meanwhile"
    return f"{what}: {listing(told)}, of a step in the mean."


def without_waiting(answer: Comparison, more_ms: float) -> Comparison:
    """Return the rest of a comparison where ranks wait so much longer for cores: what wants to run takes longer."""
    own = [one for one in answer.parts
           if not (one.name in _RUNS and not one.more_done and one.change_ms * more_ms > 0)]  # fmt: skip
    return replace(answer, parts=own)


def at_once(answer: Comparison) -> str:
    """Return why a part's bounds are wider than one's alone, in a sentence."""
    if answer.noise is None or not answer.parts:
        return ""
    times = figure(answer.noise.parts_factor, 1)
    return f"Parts are tested all at once, so that their bounds are {times} times as wide as one's alone."


def _rests_on(noise: Noise, *, more: bool) -> str:
    repeats = "; repeats tell more" if more else ""
    if noise.unit == "steps":
        return f"one run a side: noise is what steps differ by, and runs of one job are known to{repeats}"
    if noise.unit == "windows":
        of = f"one run a side, of {noise.baseline} and {noise.other} windows"
        return f"{of}: noise is what windows differ by, and runs of one job are known to{repeats}"
    count = f"noise is between {noise.baseline} and {noise.other} repeats"
    if min(noise.baseline, noise.other) < 2:
        return f"{count}, where one stands alone and is taken to vary as the other side's do"
    return count


def _run_delay(answer: Comparison, noise: Noise) -> str:
    """Return for how long ranks had no core, where sides differ by it or it is much of a step: it is in the bounds."""
    waited = (noise.baseline_run_delay_ms, noise.other_run_delay_ms)
    known = [ms for ms in waited if ms is not None]
    step = answer.step_ms
    if max(known, default=0.0) <= WAITED * step or waits_for_cores(answer):
        return ""
    less, most = min(known), max(known)
    alike = len(known) > 1 and most - less <= max(_ALIKE * most, WAITED * step)
    if alike and most <= _MUCH * step:
        return ""
    here, there = names_in_words(answer)
    told = [f"in {name} {_waited(ms)}" for name, ms in zip((here, there), waited, strict=True)]
    return f"Of a step a rank waits for a core, {WHO_HAS_THEM}: {listing(told)}"


def _waited(ms: float | None) -> str:
    return "nothing tells how long" if ms is None else f"{figure(ms, 1)} ms"


def _chosen(answer: Comparison) -> str:
    """Return what other kernels make of a change, which a library may have chosen: it is in the bounds."""
    least = WORTH_NAMING * answer.step_ms
    told = [one for one in answer.parts if one.chosen_ms is not None and abs(one.chosen_ms) > least]
    if not told:
        return ""
    words = listing([f"{part_name(one)} {signed(one.chosen_ms or 0.0, one.low_ms, one.high_ms)}" for one in told])
    return (
        f"Other kernels do the same operators' work ({words}), which libraries choose anew in each run: the bounds "
        "hold that"
    )
