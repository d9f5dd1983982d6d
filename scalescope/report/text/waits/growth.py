"""What a step's growth is of waits for cores, by all steps' own rows, in words: beside what the traces tell of it."""

from scalescope.records.console import counted
from scalescope.report.drawing.numbers import milliseconds
from scalescope.report.text.cures.words import cure_elsewhere, cure_text
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.finding.finding import Remedy
from scalescope.scaling.study_answer import GrownCoreWaits, Waterfall


def waits_clause(fall: Waterfall, waits: GrownCoreWaits, *, may_be_nothing: bool) -> str:
    """Return what of the measured growth are waits for cores, to end a first sentence with.

    `may_be_nothing`: the growth itself, by what steps differ by; the waits are known better than that.
    """
    grown_ms = fall.measured_growth_ms
    grew = "" if grown_ms is None else milliseconds(grown_ms, fall.noise_ms)
    longer = f"by all steps' own rows ranks wait {_cost(waits)} a step longer for a core"
    if may_be_nothing or grown_ms is None:
        return f"within noise the loss may be nothing, though {longer}"
    if waits.high_ms > grown_ms:
        return f"{longer}, which may be all of the {grew} by which the measured one grew"
    told = f"by all steps' own rows about {_cost(waits)} of the {grew} by which the measured step grew"
    return f"{told} are waits for a core"


def waits_sentence(fall: Waterfall) -> str:
    """Return what ranks wait for cores at both counts, to stand beside the traces' parts; "" where none is told."""
    waits = fall.core_waits
    if waits is None:
        return ""
    return (
        f"The rows of all steps, which no window need have met, tell what the mean rank waits for a core in a step: "
        f"{milliseconds(waits.from_ms)} on {counted(fall.from_world_size, 'rank')}, {milliseconds(waits.to_ms)} on "
        f"{fall.to_world_size}. The traces have such waits within their other parts."
    )


def waits_advice(waits: GrownCoreWaits, run: RunAnalysis, *, sized: bool = True) -> str:
    """Return what to do about waits for cores, by who shares these. `run`: the larger one."""
    jax = run.framework == "jax"
    remedy = Remedy(cure="free_cores", origin=run.origin, jax=jax)
    if waits.ranks is None or waits.threads is None or waits.cores is None:
        told = cure_text(remedy)
    elif waits.threads > waits.cores:
        size = float(max(1, waits.cores // max(1, waits.ranks)))
        fewer = Remedy(cure="fewer_threads", size=size, origin=run.origin, jax=jax)
        told = f"{cure_text(fewer)} ({cure_elsewhere(fewer)})"
    elif waits.ranks >= waits.cores:
        told = (
            "have more cores than ranks, since the threads that move data need some, and let nothing else run on them"
        )
    else:
        told = f"{cure_text(remedy)}, and let nothing else run on them"
    return f"{told}: up to {milliseconds(waits.high_ms)} a step" if sized else told


def _cost(waits: GrownCoreWaits) -> str:
    half = waits.high_ms - waits.ms
    return f"{milliseconds(waits.ms, half)} ({milliseconds(waits.low_ms, half)} to {milliseconds(waits.high_ms, half)})"


def who_has_the_cores(waits: GrownCoreWaits) -> str:
    """Return in a sentence who shares the cores, as far as that is known: nothing tells whose thread ran meanwhile."""
    if waits.ranks is None or waits.threads is None or waits.cores is None:
        return "Other processes, or the job's own other threads, have it."
    ranks, cores = counted(waits.ranks, "rank"), counted(waits.cores, "core")
    if waits.threads > waits.cores:
        return f"Here {ranks} compute with {counted(waits.threads, 'thread')} on {cores}."
    return f"Here {ranks}, their other threads and whatever else runs share {cores}."
