"""What hosts do step after step at one place of the code, or wherever Python runs, in words."""

from scalescope.report.drawing.numbers import milliseconds
from scalescope.report.text.codes.evidence import host_does, is_of_several
from scalescope.scaling.evidence.interruptions import SWITCH_INTERVAL_NS
from scalescope.scaling.finding import EACH_PASS, OWN_THREAD, EvidenceRow, Finding
from scalescope.scaling.trace.backward_calls import BACKWARD_CALL
from scalescope.scaling.trace.families import ENGINE_FRAMES

_BEFORE = "gap_before "


#: Calls whose first operators nobody knows by name.
_CALLED = {
    "DistributedDataParallel.forward": "the forward pass of DistributedDataParallel",
    "FullyShardedDataParallel.forward": "the forward pass of FullyShardedDataParallel",
    BACKWARD_CALL: "the backward pass (aten::ones_like)",
}


def called(place: str) -> str:
    """Return what a loop calls at a place, as its writer would say it; an operator's name where nothing else tells."""
    return _CALLED.get(place, place)


def each_pass(finding: Finding, gaps: EvidenceRow) -> str | None:
    """Return how often a host stands still where, if it does so whenever it comes there; None otherwise."""
    row = next((one for one in finding.evidence if one.name.startswith(EACH_PASS)), None)
    if row is None or row.ms is None or row.calls is None:
        return None
    before, after = row.name.removeprefix(EACH_PASS).strip(), called(gaps.name.removeprefix(_BEFORE))
    # autograd's frame around a node says no more than the node
    place = f"before {after}" if before.startswith(ENGINE_FRAMES) else f"between {before} and {after}"
    each = milliseconds(row.ms)
    comes = "they come" if is_of_several(finding) else "it comes"
    return f"typically {each} each of the {row.calls:.0f} times that {comes} {place}: Python there, such as a hook"


def lock_waits(finding: Finding, waits: EvidenceRow) -> str:
    """Return that hosts wait for the interpreter's lock, and by what that is known."""
    whose = host_does(finding, "wait", "waits")
    which = "each" if is_of_several(finding) else "this"
    quantum = milliseconds(SWITCH_INTERVAL_NS / 1e6)
    often = f"{waits.calls:.0f} times a step" if waits.calls is not None else "again and again"
    own = next((row for row in finding.evidence if row.name.startswith(f"{OWN_THREAD} ")), None)
    holder = f"another thread of {which} process"
    if own is not None and own.value is not None:
        name = own.name.removeprefix(OWN_THREAD).strip()
        holder = f"{name}, a thread of {which} process that uses {own.value:.2f} of a core,"
    return (
        f"{whose} {often}, now here and now there, for just over {quantum}, Python's switch interval: "
        f"{holder} holds the interpreter's lock"
    )
