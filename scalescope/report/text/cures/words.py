"""A finding's remedy in words that fit the job, and where it is to be done."""

from scalescope.report.text.cures.table import CURES, WITH_STACKS, CureText
from scalescope.report.text.cures.where import (
    ACCUMULATING,
    BY_BACKEND,
    BY_ORIGIN,
    COMPILED,
    IN_JAX,
    INFERENCE,
    LINKS_OF_HOSTS,
    MPI_ON_ONE_HOST,
    ON_CPUS,
    ON_CPUS_OF_ONE_HOST,
    ON_FULL_CORES,
    ON_ONE_HOST,
    ON_SEVERAL,
    OTHER_INTERFACES,
)
from scalescope.scaling.finding.codes import EVENS_OUT
from scalescope.scaling.finding.finding import Remedy


def lacks_cores_to_load(remedy: Remedy) -> bool:
    """Tell whether who would load, or prepare, in processes of their own finds no core, which the cure's words say."""
    return remedy.on_cpu and remedy.lacks_cores and remedy.cure in ON_FULL_CORES


def _of(remedy: Remedy, several: bool = False) -> CureText:
    """Return a cure in words that fit where it is to be done; `several`: on several ranks."""
    if several and remedy.cure in ON_SEVERAL:
        return ON_SEVERAL[remedy.cure]
    if remedy.line is not None and remedy.cure == "look_at_rank":
        told = CURES[remedy.cure].elsewhere.partition(WITH_STACKS)[0].rstrip(" .")  # stacks are there
        line = remedy.line.replace("{", "{{").replace("}", "}}")
        return CureText(f"look at {line}, which launches that on this rank alone", told)
    if lacks_cores_to_load(remedy):
        return ON_FULL_CORES[remedy.cure]
    in_jax = remedy.jax and remedy.cure in IN_JAX
    if (remedy.cure, remedy.origin) in BY_ORIGIN and not in_jax:
        return BY_ORIGIN[remedy.cure, remedy.origin]
    if in_jax:
        return IN_JAX[remedy.cure]
    if remedy.compiled and not remedy.on_cpu and remedy.cure in COMPILED:
        return COMPILED[remedy.cure]
    if remedy.on_cpu and remedy.one_host and remedy.cure in ON_CPUS_OF_ONE_HOST:
        return ON_CPUS_OF_ONE_HOST[remedy.cure]
    if remedy.on_cpu and remedy.cure in ON_CPUS:
        return ON_CPUS[remedy.cure]
    if not remedy.on_cpu and remedy.cure in (own := BY_BACKEND.get(remedy.backend, {})):
        return MPI_ON_ONE_HOST if remedy.one_host and own[remedy.cure] is LINKS_OF_HOSTS else own[remedy.cure]
    if remedy.inference and remedy.cure in INFERENCE:
        return INFERENCE[remedy.cure]
    if remedy.accumulates and remedy.cure in ACCUMULATING:
        return ACCUMULATING[remedy.cure]
    one_host = remedy.one_host or (not remedy.on_cpu and remedy.backend in OTHER_INTERFACES)
    return ON_ONE_HOST.get(remedy.cure, CURES[remedy.cure]) if one_host else CURES[remedy.cure]


def cure_what(remedy: Remedy) -> str:
    """Return what to do, without the key that does it."""
    return _sized(_of(remedy).what, remedy)


#: How much of what a rank's surplus costs is saved where the others take it over, by how many ranks there are: of more,
#: nearly all.
_SAVED = {2: "half", 3: "two thirds", 4: "three quarters"}


def cure_text(remedy: Remedy, several: bool = False) -> str:
    """Return what to do: `use larger gradient buckets with strategy.bucket_mib=25`."""
    how = f" with {' '.join(remedy.overrides)}" if remedy.overrides else ""
    return f"{_sized(_of(remedy, several).what, remedy)}{how}"


def cure_elsewhere(remedy: Remedy, several: bool = False) -> str:
    """Return what does it in a loop of the reader's own."""
    told = _sized(_of(remedy, several).elsewhere, remedy)
    saved = _SAVED.get(int(remedy.size or 0)) if remedy.cure in EVENS_OUT and not several else None
    return told if saved is None else f"{told}. If the others take over what it has more of, {saved} of this is saved"


def line_words(remedy: Remedy | None) -> str:
    """Return which line of a script calls what is to be looked at, behind what that is; "" where no stacks tell."""
    if remedy is None or remedy.line is None:
        return ""
    return f", called in {remedy.line}"


def _sized(words: str, remedy: Remedy) -> str:
    """Return words with what the cure is given: MiB of a bucket where nothing says how much."""
    return words.format(size=remedy.size if remedy.size is not None else 25)
