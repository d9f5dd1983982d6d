"""What hosts do step after step at one place of the code, or wherever Python runs, in words."""

from scalescope.report.drawing.numbers import milliseconds
from scalescope.report.text.codes.evidence import host_does, is_of_several, row_of
from scalescope.scaling.evidence.host_calls import OBJECT_COLLECTIVES
from scalescope.scaling.evidence.interruptions import SWITCH_INTERVAL_NS
from scalescope.scaling.finding.figures import EACH_PASS, OWN_THREAD
from scalescope.scaling.finding.finding import EvidenceRow, Finding, LoopPlace
from scalescope.scaling.findings.of_rows.off_cpu import OFF_CPU, ON_CPU
from scalescope.scaling.trace.backward_calls import BACKWARD_CALL
from scalescope.scaling.trace.families import ENGINE_FRAMES

#: So begins the name of a row that is of a gap.
BEFORE = "gap_before "
_FORWARDS = ("DistributedDataParallel.forward", "FullyShardedDataParallel.forward")

#: Calls whose first operators nobody knows by name.
_CALLED = {
    "DistributedDataParallel.forward": "the forward pass of DistributedDataParallel",
    "FullyShardedDataParallel.forward": "the forward pass of FullyShardedDataParallel",
    BACKWARD_CALL: "the backward pass (aten::ones_like)",
}


#: Where in the loop something lies, and the calls that are told by it: no word more is needed of these.
_IN_LOOP: dict[LoopPlace, tuple[str, tuple[str, ...]]] = {
    "in_forward": ("in the forward pass", ()),
    "in_backward": ("in the backward pass", ()),
    "in_optimizer": ("in the optimizer's step", ()),
    "before_forward": ("before the forward pass", ()),
    "after_forward": ("after the forward pass and before the backward pass", ()),
    "after_backward": ("after the backward pass and before the optimizer's step", ("Optimizer.step#",)),
    "after_optimizer": ("after the optimizer's step", ()),
    "optimizer_to_forward": ("after the optimizer's step and before the next forward pass", _FORWARDS),
    "backward_to_forward": ("after the backward pass and before the next forward pass", _FORWARDS),
    "before_first": ("before the step's first operator", ()),
}


#: What a host may do many times at a place of the loop that is in none of its passes: no record tells one from another.
_BETWEEN_PASSES = "Python or I/O there, such as a metric, a log or what it writes to a file"

#: Places that the call which follows says as well.
_SAID_BY_CALL = {("after_forward", BACKWARD_CALL), *(("before_forward", name) for name in _FORWARDS)}


def placed(row: EvidenceRow, *, on_cpu: bool = True) -> str:
    """Return where a host stands still: in the loop, where that is known, and before which operator.

    `on_cpu`: else reading a value waits for the device, too.
    """
    name = row.name.removeprefix(BEFORE)
    waits = "" if on_cpu else ", for which it waits for the device"
    reads = {"before": f"right after .item() reads a value{waits}", "after": "", None: ""}[row.read]
    pickles = ", which pickles" if name in OBJECT_COLLECTIVES.values() else ""
    before = f"before {called(name)}{pickles}" if row.read != "after" else f"before .item() reads a value{waits}"
    if row.place is None or (row.place, name) in _SAID_BY_CALL:
        return f"{before}, {reads}" if reads else before
    told, calls = _IN_LOOP[row.place]
    beside = ", ".join(one for one in (reads, "" if calls and name.startswith(calls) else before) if one)
    return f"{told} ({beside})" if beside else told


def in_loop(place: LoopPlace | None, before: str) -> str:
    """Return where in the loop something lies, or before which operator where that is not known."""
    return _IN_LOOP[place][0] if place is not None else f"before {called(before or 'the end of the step')}"


def called(place: str) -> str:
    """Return what a loop calls at a place, as its writer would say it; an operator's name where nothing else tells."""
    return _CALLED.get(place, place)


def each_pass(finding: Finding, gaps: EvidenceRow) -> str | None:
    """Return how often a host stands still where, if it does so whenever it comes there; None otherwise."""
    row = next((one for one in finding.evidence if one.name.startswith(EACH_PASS)), None)
    if row is None or row.ms is None or row.calls is None:
        return None
    before, after = row.name.removeprefix(EACH_PASS).strip(), called(gaps.name.removeprefix(BEFORE))
    # autograd's frame around a node says no more than the node
    place = f"before {after}" if before.startswith(ENGINE_FRAMES) else f"between {before} and {after}"
    each = milliseconds(row.ms)
    comes = "they come" if is_of_several(finding) else "it comes"
    often = f"typically {each} each of the {row.calls:.0f} times that {comes} {place}"
    between = gaps.place not in (None, "in_forward", "in_backward", "in_optimizer")
    where = f", {_IN_LOOP[gaps.place][0]}" if between and gaps.place is not None else ""
    if row_of(finding, OFF_CPU) is not None:
        return f"{often}{where}: it is off its core there, asleep or waiting for I/O or a lock"
    if row_of(finding, ON_CPU) is not None:
        return f"{often}{where}: it computes there, as in {'a metric or a log' if between else 'a hook'} in Python"
    return f"{often}{where}: {_BETWEEN_PASSES if between else 'Python there, such as a hook'}"


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
