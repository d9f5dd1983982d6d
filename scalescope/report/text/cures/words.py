"""A finding's remedy in words that fit the job, and where it is to be done."""

import re

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
from scalescope.scaling.finding.codes import EVENS_OUT, Cure
from scalescope.scaling.finding.finding import EvidenceRow, Remedy


def lacks_cores_to_load(remedy: Remedy) -> bool:
    """Tell whether who would load, or prepare, in processes of their own finds no core, which the cure's words say."""
    return remedy.on_cpu and remedy.lacks_cores and remedy.cure in ON_FULL_CORES


#: What is to be looked at where stacks tell a function, behind its name.
_BY_LINE: dict[Cure, str] = {
    "look_at_rank": ", which launches that on this rank alone",
    "look_at_host": ", where that holds the host up",
    "find_wait": ": what the host waits for there, or why it sleeps",
    "fill_at_once": ": fill tensors at once there, not element by element, or once, before the first step",
    "find_python": ": compute less there, less often, or by operators on whole tensors",
}
#: Of what nobody knows, but that a host does it: which function that is, stacks tell.
_UNSEEN: frozenset[Cure] = frozenset({"look_at_host", "find_wait", "find_python", "less_python", "do_less_often"})
#: Which ask what a host does at a place, where nobody knows: so they may ask what runs there, too.
_FIND: frozenset[Cure] = frozenset({"look_at_host", "find_wait"})
_NAMES_IT = f"{WITH_STACKS} puts the function that does it into the trace, and makes recorded steps longer"
_PY_SPY = re.compile(r"py-spy [^;:]*[;:] ")


def _what(remedy: Remedy, several: bool = False) -> str:
    told = _sized(_of(remedy, several).what, remedy)
    if remedy.beside is None or remedy.cure not in _FIND or remedy.line is not None or several:
        return told  # a function that stacks tell is of both
    return f"{told}, and what runs {remedy.beside} there, on that rank alone"


def _of(remedy: Remedy, several: bool = False) -> CureText:
    """Return a cure in words that fit where it is to be done; `several`: on several ranks."""
    if remedy.line is not None and remedy.cure in _BY_LINE:
        line = _function(remedy.line).replace("{", "{{").replace("}", "}}")
        # what stacks would tell is told
        told = CURES[remedy.cure].elsewhere.partition(WITH_STACKS)[0].rstrip(" .")
        return CureText(f"look at {line}{_BY_LINE[remedy.cure]}", _PY_SPY.sub("", told))
    if several and remedy.cure in ON_SEVERAL:
        return ON_SEVERAL[remedy.cure]
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
    return _what(remedy)


#: How much of what a rank's surplus costs is saved where the others take it over, by how many ranks there are: of more,
#: nearly all.
_SAVED = {2: "half", 3: "two thirds", 4: "three quarters"}


def cure_text(remedy: Remedy, several: bool = False) -> str:
    """Return what to do: `use larger gradient buckets with strategy.bucket_mib=25`."""
    how = f" with {' '.join(remedy.overrides)}" if remedy.overrides else ""
    return f"{_what(remedy, several)}{how}"


def cure_elsewhere(remedy: Remedy, several: bool = False) -> str:
    """Return what does it in a loop of the reader's own."""
    told = _sized(_of(remedy, several).elsewhere, remedy)
    if remedy.cure in _UNSEEN and remedy.line is None and not remedy.jax:
        return f"{told}. {_NAMES_IT}"
    saved = _SAVED.get(int(remedy.size or 0)) if remedy.cure in EVENS_OUT and not several else None
    return told if saved is None else f"{told}. If the others take over what it has more of, {saved} of this is saved"


def line_words(told: Remedy | EvidenceRow | None) -> str:
    """Return in which function of a script lies what is told, behind that; "" where no stacks tell."""
    if told is None or told.line is None:
        return ""
    called = "called " if isinstance(told, Remedy) and told.cure in ("look_at_rank", "fill_at_once") else ""
    return f", {called}in {_function(told.line)}"


def _function(line: str) -> str:
    """Return a function as one would call it: a script's own lines are in none."""
    file, _, name = line.partition(": ")
    return f"{file}, outside of its functions" if name == "<module>" else line


def _sized(words: str, remedy: Remedy) -> str:
    """Return words with what the cure is given: MiB of a bucket where nothing says how much."""
    return words.format(size=remedy.size if remedy.size is not None else 25)
