"""A finding's code in words: what it is called, and what its evidence says. One entry a code; a test sees to that."""

from collections.abc import Callable
from dataclasses import dataclass

from scalescope.records.console import counted
from scalescope.records.steps.annotations import LOADING
from scalescope.report.drawing.numbers import factor, figure, listing, milliseconds, ordinal, percent
from scalescope.report.text.host_places import each_pass, lock_waits
from scalescope.scaling.evidence.host_calls import OBJECT_COLLECTIVES
from scalescope.scaling.finding import (
    ANOMALY,
    BESIDE,
    BESIDES,
    EVERY,
    EXPOSED,
    HIDDEN,
    IN_STEPS,
    INPUTS,
    LATE,
    LAUNCHES_DIFFER,
    LOADS,
    LOCK_WAITS,
    PASSES,
    READ_VALUES,
    SHOWN_BY_WAITS,
    Code,
    EvidenceRow,
    Finding,
    is_all_of_it,
    is_of_one_step,
    is_of_steady_steps,
)


@dataclass(frozen=True)
class CodeText:
    """What a code is called, and a clause that says why it was found."""

    name: str
    because: Callable[[Finding], str]


def _row(finding: Finding, name: str) -> EvidenceRow | None:
    return next((row for row in finding.evidence if row.name == name), None)


def _first(finding: Finding, kind: str) -> EvidenceRow | None:
    return next((row for row in finding.evidence if row.kind == kind), None)


def _beyond(finding: Finding, how: str, otherwise: str) -> str:
    row = _first(finding, "activity")
    if row is None:
        return otherwise
    took = f", {milliseconds(row.ms)} a step" if row.ms is not None else ""
    return f"{row.name}{took}, {how}"


def _on_cpu(finding: Finding) -> bool:
    return finding.remedy is not None and finding.remedy.on_cpu


def _computing(finding: Finding) -> str:
    """Return what computes: a device has kernels."""
    return "operators" if _on_cpu(finding) else "kernels"


def _own_work(finding: Finding) -> str:
    if (looks := _row(finding, ANOMALY)) is not None and looks.calls is not None:
        return (
            f"it looks for NaN behind its backward pass's operators, {looks.calls:,.0f} times a step, as "
            "torch.autograd.set_detect_anomaly has it, which makes the others longer, too"
        )
    besides = _row(finding, BESIDES)
    otherwise = f"it runs {_computing(finding)} that the others do not"
    if besides is None or not besides.value or besides.calls is None:
        return _beyond(finding, "which the others do not run", otherwise)
    launches = f"{besides.calls:,.0f} launch{'es' * (besides.calls != 1)}"
    return _beyond(finding, f"in {launches} a step that the others do not make", otherwise)


def _more_work(finding: Finding) -> str:
    inputs = _row(finding, INPUTS)
    within = next((row for row in finding.evidence if row.kind == "operator"), None)
    if inputs is not None and inputs.value is not None and within is not None and within.calls and within.value:
        return (
            f"it multiplies {factor(inputs.value)} as much as the others, inside the same operators: {within.name} "
            f"{within.calls:,.0f} times a step and not {within.value:,.0f}, as where activations are computed again"
        )
    if inputs is not None and inputs.value is not None:
        return f"it computes on {factor(inputs.value)} as much data as the others, in the same operators"
    if (some := _in_steps(finding)) is not None:
        whose = "the ranks compute" if finding.rank is None else "it computes"
        return f"{some[0]} {whose} for {some[1]} longer than in the others"
    otherwise = f"it runs the common {_computing(finding)} more often"
    return _beyond(finding, "which it runs more often than the others", otherwise)


def _slower(finding: Finding) -> str:
    ratio, row = _row(finding, "times_as_long"), _first(finding, "activity")
    turns = _row(finding, "by_turns")
    if turns is not None and turns.calls is not None and turns.value is not None:
        what = "its cores" if _on_cpu(finding) else "the device"
        return (
            f"{turns.calls:.0f} of its {_computing(finding)} a step take {milliseconds(turns.value)} longer than on "
            f"the others, and the rest do not: another process has {what} by turns"
        )
    if ratio is not None and ratio.value is not None:
        times = factor(ratio.value)
        return f"the same {_computing(finding)} take {times} what they take on the others, whatever their kind"
    if row is not None and row.ms is not None and row.others_ms is not None:
        return f"its {row.name} takes {milliseconds(row.ms)} a step, the others' {milliseconds(row.others_ms)}"
    whole = _row(finding, "compute")
    if whole is not None and whole.ms is not None and whole.others_ms is not None:
        return (
            f"it computes for {milliseconds(whole.ms)} a step, the others for {milliseconds(whole.others_ms)} at most"
        )
    return _longer(finding, "its compute takes longer than the others'")


def _throttled(finding: Finding) -> str:
    ratio, moving = _row(finding, "times_as_long"), _row(finding, "what_moves_data_times_as_long")
    if ratio is None or ratio.value is None or moving is None or moving.value is None:
        return "its clocks are held down"
    return (
        f"multiplications take {factor(ratio.value)} what they take on the others, and what moves data "
        f"{factor(moving.value)}: its clocks are held down"
    )


def _longer(finding: Finding, otherwise: str) -> str:
    row = finding.evidence[0] if finding.evidence else None
    return f"{otherwise}: +{milliseconds(row.ms)} a step" if row is not None and row.ms is not None else otherwise


def _alternating(finding: Finding) -> str:
    ranks = [f"{row.value:g}" for row in finding.evidence if row.name == "late_rank" and row.value is not None]
    if ranks and (loads := _row(finding, LOADS)) is not None and loads.value is not None:
        times = figure(loads.value, 0 if loads.value >= 10 else 1)
        return (
            f"ranks {listing(ranks)} have more to compute by turns, in one step up to {times} times what they have in "
            "another, in all products alike"
        )
    row = _first(finding, "activity")
    what = f" with {row.name}" if row is not None else ""
    if (gap := next((row for row in finding.evidence if row.name.startswith("gap_before ")), None)) is not None:
        what = f": their hosts do nothing that is recorded before {gap.name.removeprefix('gap_before ')}"
    return f"ranks {listing(ranks)} are late by turns{what}" if ranks else "another rank is late in each step"


def _loading(finding: Finding) -> str:
    if (long := _long_steps(finding)) is not None:
        whose = "the hosts wait" if finding.rank is None else "its host waits"
        often = f"in {long.calls:.0f} of {long.value:.0f} steps"
        return f"{often} {whose} {milliseconds(long.ms or 0.0)} for a batch, which its loader makes too slowly"
    if (some := _in_steps(finding)) is not None:
        whose = "the hosts load" if finding.rank is None else "its host loads"
        return f"{some[0]} {whose} data for {some[1]} longer than in the others"
    row = _first(finding, "annotation")
    whose = "the hosts load" if finding.rank is None else "its host loads"
    # torch's own mark of its loader tells nothing beyond that data are loaded
    plain = row is None or row.name in ("loading", LOADING) or row.name.startswith("enumerate(DataLoader)")
    named = f" ({row.name})" if row is not None and not plain else ""
    row = row or _row(finding, "idle_data")
    took = f" for {milliseconds(row.ms)}" if row is not None and row.ms is not None else ""
    took += " a step" if took and not is_of_one_step(finding) else ""
    # a worker goes on while its rank waits for another one: how slow it is shows once that other is mended
    hidden = (
        "; the others' workers go on meanwhile, and may be as slow"
        if finding.rank is not None and row is not None and "MultiProcessingDataLoader" in row.name
        else ""
    )
    if (late := _row(finding, LATE)) is not None:
        told = f"and all {late.value:.0f} steps tell what it costs"
        return f"{whose} data{named}{took} in the profiled steps, {told}{hidden}"
    meanwhile = "while nothing computes" if _on_cpu(finding) else "while the device has nothing to do"
    return f"{whose} data{named}{took} {meanwhile}{hidden}"


#: What a host may do that no profiler records.
_UNRECORDED = "(sleep, I/O, Python, a lock)"


def _stall(finding: Finding) -> str:
    row = _first(finding, "figure")
    if row is None or row.ms is None:
        return "its host launches nothing for a while"
    place = row.name.removeprefix("gap_before ")
    where = f" before {place}" if place != row.name else ""
    if row.name.startswith("gap_in "):
        where = f" in {row.name.removeprefix('gap_in ')}, which pickles and unpickles"
    elif place in OBJECT_COLLECTIVES.values():
        where += ", which pickles"
    whose = "the hosts do" if finding.rank is None else "its host does"
    if (some := _in_steps(finding)) is not None and row.name == "idle_launch":
        hosts = "the hosts keep" if finding.rank is None else "its host keeps"
        return f"{some[0]} {hosts} nothing running for {some[1]} longer than in the others"
    nothing = f"{whose} nothing that is recorded {_UNRECORDED} for {milliseconds(row.ms)}"
    if is_of_one_step(finding) or finding.backed == "bound":
        beside = f" a step, the others' for {milliseconds(row.others_ms)} at most" if row.others_ms is not None else ""
        return f"{nothing}{beside}{where}"
    nothing += " a step"
    if (steps := _row(finding, IN_STEPS)) is not None and steps.ms is not None:
        often = f"in {steps.calls:.0f} of {steps.value:.0f} steps"
        nothing = f"{whose} nothing that is recorded {_UNRECORDED} for {milliseconds(steps.ms)} {often}"
    if (every := _row(finding, EVERY)) is not None and every.value is not None:
        nothing += f", every {ordinal(round(every.value))} one,"
    if (each := each_pass(finding, row)) is not None:
        return f"{whose} nothing that is recorded for {milliseconds(row.ms)} a step, {each}{_shown(finding)}"
    return f"{nothing}{where}{_shown(finding)}"


def _shown(finding: Finding) -> str:
    """Return why a stall shows at all, where hosts that ran ahead would hide it."""
    waits = _row(finding, SHOWN_BY_WAITS)
    if waits is None:
        return ""
    often = f" {waits.calls:.0f} times a step" if waits.calls is not None and waits.calls >= 1.5 else " in each step"
    return f", which nothing hides, as all hosts wait for their devices{often}"


def _in_steps(finding: Finding) -> tuple[str, str] | None:
    """Return in which profiled steps a cause is there, and by how much those are longer, in words."""
    row = _row(finding, IN_STEPS)
    if row is None or row.ms is None or row.calls is None or row.value is None or is_of_steady_steps(finding):
        return None
    if is_of_one_step(finding):
        return None  # beside which there are no others
    return f"in {row.calls:.0f} of {row.value:.0f} profiled steps", milliseconds(row.ms)


def _long_steps(finding: Finding) -> EvidenceRow | None:
    """Return the row of long steps where a finding is of the job's own steady ones."""
    row = _row(finding, IN_STEPS) if is_of_steady_steps(finding) else None
    return row if row is not None and row.calls is not None and row.value is not None else None


def _starved(finding: Finding) -> str:
    threads, cores = _row(finding, "threads"), _row(finding, "cores")
    if threads is not None and threads.value is not None and cores is not None and cores.value is not None:
        number = f"{cores.value:.0f} core{'s' if cores.value != 1 else ''}"
        return f"the ranks compute with {counted(round(threads.value), 'thread')} on {number}, which take turns"
    if (waits := _row(finding, LOCK_WAITS)) is not None:
        return lock_waits(finding, waits)
    row, off = _row(finding, "host_ms"), _row(finding, "interruptions")
    if off is not None and off.ms is not None:
        whose, which = ("their hosts stand", "their") if finding.rank is None else ("its host stands", "its")
        beside = f" (the others' {milliseconds(off.others_ms)})" if off.others_ms is not None else ""
        return (
            f"{whose} still for {milliseconds(off.ms)} a step{beside}, now here and now there: others use {which} cores"
        )
    if row is None or row.ms is None or row.others_ms is None:
        return "all that its host does takes longer than on the others"
    return (
        f"its host takes {milliseconds(row.ms)} for the launches that take the others' {milliseconds(row.others_ms)}: "
        "its cores or its interpreter are shared"
    )


def _host_bound(finding: Finding) -> str:
    row, launches = _row(finding, "idle_launch"), _row(finding, "launches")
    if _on_cpu(finding) and row is not None and row.ms:
        count = f"{launches.calls:,.0f} " if launches is not None and launches.calls else ""
        idle = milliseconds(row.ms)
        return f"between the {count}operators of a step the hosts do other things, such as Python, for up to {idle}"
    if _on_cpu(finding):
        return "between the operators of a step the hosts do other things, such as Python"
    idle = f"the devices wait {milliseconds(row.ms)} a step for launches" if row is not None and row.ms else (
        "the devices wait for launches")  # fmt: skip
    if _row(finding, HIDDEN) is not None:
        idle = "without what devices do beyond that, they wait for launches"
    if launches is None or not launches.calls:
        return idle
    beside = _row(finding, BESIDE)
    turns = (
        f", while another thread of the process, which runs no operators, launches {beside.calls:,.0f}: they take turns"
        if beside is not None and beside.calls
        else ""
    )
    return f"{idle}, {launches.calls:,.0f} of them{turns}"


def _synchronising(finding: Finding) -> str:
    row = _first(finding, "operator")
    what = f" in {row.name}" if row is not None else ""
    times = f", {row.calls:,.0f} times a step" if row is not None and row.calls else ""
    waits = f"the host waits for the device{what}{times}, and the device then for the host"
    values = _row(finding, READ_VALUES)
    if values is None or not values.ms:
        return waits
    return (
        f"{waits}; {milliseconds(values.ms)} of kernels compute what is read, and go with it if nothing else needs it"
    )


#: What a trace without shapes leaves open of collectives on gloo.
_SIZELESS = "whose sizes record_shapes=True would tell"


def _round(finding: Finding) -> str:
    """Return what several rounds of messages take, and one at its quickest, in words; "" where that is not told."""
    row = _row(finding, "a_round")
    if row is None or row.ms is None or row.others_ms is None:
        return ""
    return f"each takes {milliseconds(row.ms)}, and {milliseconds(row.others_ms)} where nothing holds its messages up"


def _buckets(finding: Finding, why: str) -> str:
    count, size = _row(finding, "all_reduces"), _row(finding, "median_bucket_mib")
    why = _round(finding) or why
    if count is not None and count.calls is not None and size is None:
        sizeless = f", {_SIZELESS}" if finding.at_most else ""
        return f"{count.calls:.0f} all-reduces a step{sizeless}: {why}"
    if count is None or count.calls is None or size is None or size.value is None:
        return why
    return f"{counted(round(count.calls), 'all-reduce')} a step of {_mib(size.value)} in the median: {why}"


def _late_buckets(finding: Finding) -> str:
    last, whole = _row(finding, "last_bucket_mib"), _row(finding, "gradients_mib")
    if last is None or last.value is None or whole is None or whole.value is None:
        return _buckets(finding, "the last ones begin too late to hide")
    return (
        f"{_mib(last.value)} of {_mib(whole.value)} of gradients come in one piece at the end, where nothing hides them"
    )


def _small_collectives(finding: Finding) -> str:
    count, size, operation = _row(finding, "collectives"), _row(finding, "median_bytes"), _first(finding, "activity")
    why = _round(finding) or "each takes a round of messages, however little it carries"
    if count is not None and count.calls is not None and size is None and operation is not None:
        sizeless = f", {_SIZELESS}" if finding.at_most else ""
        return f"{count.calls:.0f} collectives a step, most of them {operation.name}{sizeless}: {why}"
    if count is None or count.calls is None or size is None or size.value is None or operation is None:
        return why
    calls = counted(round(count.calls), "collective")
    return f"{calls} a step, most of them {operation.name}, of {_bytes(size.value)}: {why}"


def _bytes(value: float) -> str:
    return _mib(value / (1 << 20)) if value >= 1 << 10 else f"{value:.0f} B"


def _mib(value: float) -> str:
    return f"{value:.1f} MiB" if value >= 1 else f"{value * 1024:.1f} KiB"


#: What most of a bare transfer's time is, by the cure.
_MOSTLY = {
    "reduce_in_fp32": ", in fp64",
    "broadcast_less": "; most of the time is broadcasts of buffers before each forward pass",
    "merge_collectives": "; most of the time is small ones, a round of messages each",
    "merge_tensors": "; most of the time is small ones, a round of messages each",
}


def exchanged(finding: Finding) -> str:
    """Return what a step exchanges while nothing computes, in words; "" where that is not told."""
    moved, size, passes = _first(finding, "activity"), _row(finding, "median_bytes"), _row(finding, PASSES)
    if moved is None or moved.calls is None:
        return ""
    calls = round(moved.calls)
    text = f"in {calls} collectives a step, most of them {moved.name}" if calls > 1 else f"in one {moved.name} a step"
    if passes is not None and passes.calls is not None:
        return f"{text}: gradients are exchanged in each of the step's {passes.calls:.0f} backward passes"
    bytes_each = size.value if size is not None else None
    text += f", {_SIZELESS}" if bytes_each is None else f", of {_bytes(bytes_each)} in the median"
    if told := next((words for name, words in _MOSTLY.items() if _row(finding, name) is not None), ""):
        return text + told
    return f"{text}; that is what the job sends, and no fault is found in it" if is_all_of_it(finding) else text


def _exposed(finding: Finding) -> str:
    bare = _row(finding, EXPOSED)
    if bare is not None and bare.ms is not None and (told := exchanged(finding)):
        return f"nothing hides {milliseconds(bare.ms)} of transfer, {told}"
    row = _row(finding, "gradients_mib")
    travel = f"{_mib(row.value)} a step travel" if row is not None and row.value else "data travel"
    return f"{travel}, and compute does not hide all of it"


def _slow_transfer(finding: Finding) -> str:
    row = _row(finding, "bus_gb_s")
    if row is None or row.value is None or row.share is None:
        return "data move slower than they could"
    moved = figure(row.value, 0 if row.value >= 10 else 2)
    return f"collectives move {moved} GB/s, {percent(row.share, 0)} of what they could"


def _copies(finding: Finding) -> str:
    row = _row(finding, "exposed_copies")
    return f"copies and fills run alone for {milliseconds(row.ms)} a step" if row is not None and row.ms else (
        "copies and fills run alone")  # fmt: skip


def _nothing(finding: Finding) -> str:
    kinds = [row for row in finding.evidence if row.kind == "activity" and row.share is not None]
    if not kinds:
        return "what is left is the compute itself"
    kinds_text = listing([f"{percent(row.share or 0.0, 0)} {row.name}" for row in kinds])
    peak, mfu = _row(finding, "multiplying_of_peak"), _row(finding, "mfu")
    reached = ""
    if peak is not None and peak.share is not None:
        reached = f"; multiplications run at {percent(peak.share, 0)} of the data sheet's peak"
    elif mfu is not None and mfu.share is not None:
        reached = f"; the step reaches {percent(mfu.share, 0)} of the data sheet's peak"
    return f"the compute is {kinds_text}{reached}"


def _bubble(finding: Finding) -> str:
    row, own, slow = _row(finding, "bubble"), _row(finding, "schedule"), _row(finding, "slow_stage")
    if row is None or row.share is None:
        return "stages wait for each other"
    text = f"stages stand idle for {percent(row.share)} of the step"
    if own is not None and own.share is not None and own.calls is not None and row.calls is not None:
        batches = counted(round(row.calls), "micro-batch", "micro-batches")
        text += f", the schedule's own with {batches} on {own.calls:.0f} stages is "
        text += percent(own.share)
    if slow is not None and slow.value is not None and slow.ms is not None and slow.others_ms:
        text += f"; rank {slow.value:.0f}'s stage computes {factor(slow.ms / slow.others_ms)} as long as the others'"
    return text


def _experts(finding: Finding) -> str:
    row = _row(finding, "tokens")
    if row is None or row.share is None or row.value is None:
        return "some experts have more tokens than others"
    return f"its experts have {percent(row.share, 0)} of the tokens, {factor(row.value)} the mean rank's"


def _unsteady(finding: Finding) -> str:
    if (long := _long_steps(finding)) is not None:
        each = milliseconds(long.ms or 0.0)
        return f"{long.calls:.0f} of {long.value:.0f} steps take {each} longer than the others, and no window shows why"
    if (late := _row(finding, LATE)) is not None:
        return f"by all {late.value:.0f} steps it comes so much later than the others, and no window shows why"
    row = _row(finding, "step_spread")
    if row is not None and row.share is not None:
        if (unlike := _row(finding, LAUNCHES_DIFFER)) is not None:
            return (
                f"steps differ by {percent(row.share, 0)} and in what they do, from {unlike.value:,.0f} to "
                f"{unlike.calls:,.0f} {_computing(finding)}: of gradient accumulation, validation or a checkpoint that "
                "is no loss"
            )
        uneven = next((one.name for one in finding.evidence if one.kind == "activity"), None)
        return f"steps differ by {percent(row.share, 0)}{f', most of all {uneven}' if uneven else ''}"
    return _alternating(finding) if _row(finding, "late_rank") else "it arrives late, and no part of its step is longer"


def _profiler_cost(finding: Finding) -> str:
    low, high, idle = _row(finding, "recording_low"), _row(finding, "recording_high"), _row(finding, "idle_launch")
    if low is None or high is None or low.ms is None or high.ms is None:
        return "recording slows the host, and by how much this trace does not tell"
    waits = f" of the {milliseconds(idle.ms)} that the device idles" if idle is not None and idle.ms else ""
    return (
        f"GPU-bound or host-bound: cannot be told from this trace, since recording may cost {milliseconds(low.ms)} to "
        f"{milliseconds(high.ms)}{waits}"
    )


CODES: dict[Code, CodeText] = {
    "own_work": CodeText(
        "work of its own",
        _own_work,
    ),
    "more_work": CodeText("more work", _more_work),
    "slower_compute": CodeText("slower compute", _slower),
    "alternating_load": CodeText("alternating load", _alternating),
    "data_loading": CodeText("loading data", _loading),
    "host_stall": CodeText("a stalled host", _stall),
    "host_starved": CodeText("a starved host", _starved),
    "host_bound": CodeText("launching", _host_bound),
    "synchronising": CodeText("synchronising", _synchronising),
    "recompilation": CodeText("recompilation", lambda one: _longer(one, "code is compiled in the step")),
    "allocation": CodeText("allocation", lambda one: _longer(one, "memory is taken from the driver in the step")),
    "copies": CodeText("exposed copies", _copies),
    "small_buckets": CodeText(
        "small buckets", lambda one: _buckets(one, "each costs a launch and a round of messages")
    ),
    "small_collectives": CodeText("small collectives", _small_collectives),
    "late_bucket": CodeText("late buckets", _late_buckets),
    "slow_transfer": CodeText("slow transfers", _slow_transfer),
    "exposed_transfer": CodeText("exposed transfer", _exposed),
    "late_root": CodeText("a late root", lambda one: _longer(one, "the others wait for its broadcast")),
    "contention": CodeText(
        "contention", lambda one: _longer(one, "compute is slower while collectives run beside it")
    ),
    "throttled": CodeText("throttling", _throttled),
    "pipeline_bubble": CodeText("a pipeline bubble", _bubble),
    "expert_imbalance": CodeText("uneven experts", _experts),
    "unsteady": CodeText("unsteady steps", _unsteady),
    "profiler_cost": CodeText("recording", _profiler_cost),
    "nothing": CodeText("nothing", _nothing),
}  # fmt: skip
