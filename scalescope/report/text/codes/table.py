"""What each code is called, and what says why it was found. One entry a code; a test sees to that."""

from collections.abc import Callable
from dataclasses import dataclass

from scalescope.report.drawing.numbers import figure, listing, milliseconds, percent
from scalescope.report.text.codes.compute import (
    batch_preparation,
    copies,
    double_precision,
    full_precision,
    metrics,
    more_work,
    nothing,
    own_work,
    recomputation,
    slower,
    throttled,
    unfused_normalisation,
    unfused_optimizer,
    unused_forward,
    updates_by_hand,
)
from scalescope.report.text.codes.evidence import (
    computing,
    first_of,
    idle_words,
    in_all_steps,
    in_some_steps,
    long_steps_of,
    longer,
    longer_beside,
    longer_there,
    rare_steps_of,
    row_of,
    waited_there,
)
from scalescope.report.text.codes.exchanges import (
    bubble,
    buckets,
    experts,
    exposed,
    late_buckets,
    needless_collectives,
    slow_transfer,
    small_collectives,
)
from scalescope.report.text.codes.host_places import placed
from scalescope.report.text.codes.hosts import (
    debug_mode,
    element_reads,
    host_bound,
    loading,
    stall,
    synchronising,
)
from scalescope.report.text.codes.starved import starved
from scalescope.report.text.cures.words import line_words
from scalescope.scaling.finding.codes import Code
from scalescope.scaling.finding.figures import (
    AS_MANY,
    AT_STEP,
    COUNTED_LOADS,
    HOST_SLOWED,
    LATE,
    LATE_RANK,
    LAUNCHES_DIFFER,
    LOADS,
    MET_STEP,
    NO_TRACE,
    SAME_INPUTS,
)
from scalescope.scaling.finding.finding import EvidenceRow, Finding
from scalescope.scaling.finding.kinds import is_of_profiled_steps


@dataclass(frozen=True)
class CodeText:
    """What a code is called, and a clause that says why it was found."""

    name: str
    because: Callable[[Finding], str]


def _alternating(finding: Finding) -> str:
    ranks = [f"{row.value:g}" for row in finding.evidence if row.name == LATE_RANK and row.value is not None]
    if ranks and (loads := row_of(finding, COUNTED_LOADS)) is not None and loads.value is not None:
        return (
            f"ranks {listing(ranks)} have more to compute by turns, by the shapes of their batches: up to "
            f"{figure(loads.value, 1)} times as much in one step as in another{in_all_steps(finding)}"
        )
    if ranks and (loads := row_of(finding, LOADS)) is not None and loads.value is not None:
        times = figure(loads.value, 0 if loads.value >= 10 else 1)
        if len(ranks) == 1:
            return (
                f"rank {ranks[0]} has more to compute, now more and now less: up to {times} times what the rank with "
                "the least has in the step with the least, in all products alike"
            )
        return (
            f"ranks {listing(ranks)} have more to compute by turns, in one step up to {times} times what they have in "
            "another, in all products alike"
        )
    row = first_of(finding, "activity")
    what = f" with {row.name}" if row is not None else ""
    if (gap := next((row for row in finding.evidence if row.name.startswith("gap_before ")), None)) is not None:
        what = f": their hosts do nothing that is recorded {placed(gap)}"
    return f"ranks {listing(ranks)} are late by turns{what}" if ranks else "another rank is late in each step"


def which_are_long(finding: Finding, long: EvidenceRow) -> str:
    """Return which of the job's steps are longer, and by how much, in a clause."""
    at = [f"{row.value:.0f}" for row in finding.evidence if row.name == AT_STEP and row.value is not None]
    which = f" ({listing([*at, '…'] if len(at) < (long.calls or 0) else at)})" if at else ""
    by = f", by what rank {finding.rank} does by itself" if finding.rank is not None else ""
    takes = "takes" if long.calls == 1 else "take"
    each = milliseconds(long.ms or 0.0)
    return f"{long.calls:.0f} of {long.value:.0f} steps{which} {takes} {each} longer than the others{by}"


def so_few_show(finding: Finding) -> str:
    """Return what is known of steps so few that nobody knows how often they come: why, where a window met one."""
    row = next((one for one in finding.evidence if one.name.split()[0] == MET_STEP), None)
    if row is None or row.value is None:
        return "no window shows why, nor do so few show how often they come"
    part, often = row.name.removeprefix(MET_STEP).strip(), "how often they come so few do not show: run for longer"
    if not part or row.ms is None:
        return f"step {row.value:.0f} was profiled and does not show why; {often}"
    does = _does_longer(finding, part).format(f"{milliseconds(row.ms)} longer")
    more = row.calls is not None and part != "idle_data" and row.calls >= _MORE_OPERATORS
    by = f", with {row.calls:.1f} times the operators, as where it validates" if more else ""
    return f"in step {row.value:.0f}, which was profiled, a rank {does}{by}; {often}"


#: So many times the other steps' operators are more work.
_MORE_OPERATORS = 1.1
#: What a rank does for longer in some steps, by what is longer.
_DOES_LONGER = {
    "compute": "computes for {}",
    "idle_data": "loads data for {}",
}


def _does_longer(finding: Finding, part: str) -> str:
    return f"{idle_words(finding)} for {{}}" if part == "idle_launch" else _DOES_LONGER.get(part, "takes {}")


#: What runs no more operators may be slower, or have more data: shapes tell which.
_BY_AS_MANY = ", by as many operators as in the others: slower ones, or on more data"
_SLOWER = ", by as many operators as in the others, on inputs of the same size: they are slower"


def _unsteady(finding: Finding) -> str:
    if (long := long_steps_of(finding)) is not None:
        if rare_steps_of(finding) is not None:
            return f"{which_are_long(finding, long)}; {so_few_show(finding)}"
        return f"{which_are_long(finding, long)}, and no window shows why"
    if (late := row_of(finding, LATE)) is not None and not is_of_profiled_steps(finding):
        why = (
            "no window shows why"
            if row_of(finding, NO_TRACE) is None
            else "its trace, which would show why, is missing"
        )
        return f"by all {late.value:.0f} steps it comes so much later than the others, and {why}"
    if (slowed := row_of(finding, HOST_SLOWED)) is not None and (some := in_some_steps(finding)) is not None:
        whose = row_of(finding, LATE_RANK)
        host = "every host" if whose is None or whose.value is None else f"rank {whose.value:.0f}'s host"
        return f"{some[0]} {host} takes {slowed.value:.1f} times as long for everything, as where other work slows it"
    if (some := in_some_steps(finding)) is not None:
        whose, longer_by = row_of(finding, LATE_RANK), first_of(finding, "figure")
        who = "every rank" if whose is None or whose.value is None else f"rank {whose.value:.0f}"
        does = _does_longer(finding, longer_by.name if longer_by is not None else "")
        many = _BY_AS_MANY if row_of(finding, AS_MANY) is not None else ""
        many = _SLOWER if many and row_of(finding, SAME_INPUTS) is not None else many
        much = f"{does.format(longer_there(finding))} longer{longer_beside(finding)}"
        return f"{some[0]} {who} {much}{waited_there(finding)}{many}{in_all_steps(finding)}"
    row = row_of(finding, "step_spread")
    if row is not None and row.share is not None:
        if (unlike := row_of(finding, LAUNCHES_DIFFER)) is not None:
            return (
                f"steps differ by {percent(row.share, 0)} and in what they do, from {unlike.value:,.0f} to "
                f"{unlike.calls:,.0f} {computing(finding)}: of gradient accumulation, validation or a checkpoint that "
                "is no loss"
            )
        if (slowed := row_of(finding, HOST_SLOWED)) is not None and slowed.value is not None:
            times = f"in some {slowed.value:.1f} times as long for everything as in others"
            return f"steps differ by {percent(row.share, 0)}, and hosts take {times}, as where other work slows them"
        uneven = next((one.name for one in finding.evidence if one.kind == "activity"), None)
        return f"steps differ by {percent(row.share, 0)}{f', most of all {uneven}' if uneven else ''}"
    turns = row_of(finding, LATE_RANK) is not None
    return _alternating(finding) if turns else "it arrives late, and no part of its step is longer"


def _sized_by_all(because: Callable[[Finding], str]) -> Callable[[Finding], str]:
    """Return what says why a rank computes longer, and by what that is sized where it is by all steps."""
    return lambda one: because(one) + in_all_steps(one)


def _with_line(because: Callable[[Finding], str]) -> Callable[[Finding], str]:
    """Return what says why, and in which function of the script that lies where stacks tell one."""
    return lambda one: because(one) + line_words(one.remedy)


def _profiler_cost(finding: Finding) -> str:
    low, high = row_of(finding, "recording_low"), row_of(finding, "recording_high")
    idle = row_of(finding, "idle_launch")
    if low is None or high is None or low.ms is None or high.ms is None:
        return "recording slows the host, and by how much this trace does not tell"
    waits = f" of the {milliseconds(idle.ms)} that the device idles" if idle is not None and idle.ms else ""
    return (
        f"GPU-bound or host-bound: cannot be told from this trace, since recording may cost {milliseconds(low.ms)} to "
        f"{milliseconds(high.ms)}{waits}"
    )


CODES: dict[Code, CodeText] = {
    "own_work": CodeText("work of its own", _sized_by_all(own_work)),
    "more_work": CodeText("more work", _sized_by_all(more_work)),
    "slower_compute": CodeText("slower compute", _sized_by_all(slower)),
    "alternating_load": CodeText("alternating load", _alternating),
    "data_loading": CodeText("loading data", loading),
    "host_stall": CodeText("a stalled host", stall),
    "host_starved": CodeText("a starved host", starved),
    "host_bound": CodeText("launching", host_bound),
    "element_reads": CodeText("reading one by one", _with_line(element_reads)),
    "unfused_optimizer": CodeText("an unfused optimizer", unfused_optimizer),
    "updates_by_hand": CodeText("updating by hand", _with_line(updates_by_hand)),
    "unfused_normalisation": CodeText("hand-written normalisation", _with_line(unfused_normalisation)),
    "double_precision": CodeText("double precision", double_precision),
    "full_precision": CodeText("multiplying in plain float32", full_precision),
    "batch_preparation": CodeText("batch preparation", _with_line(batch_preparation)),
    "metrics": CodeText("metrics", _with_line(metrics)),
    "recomputation": CodeText("activation checkpointing", recomputation),
    "unused_forward": CodeText("unused forward work", unused_forward),
    "synchronising": CodeText("synchronising", synchronising),
    "recompilation": CodeText("recompilation", lambda one: longer(one, "code is compiled in the step")),
    "allocation": CodeText("allocation", lambda one: longer(one, "memory is taken from the driver in the step")),
    "copies": CodeText("exposed copies", _with_line(copies)),
    "small_buckets": CodeText(
        "small buckets", lambda one: buckets(one, "each costs a launch and a round of messages")
    ),
    "small_collectives": CodeText("small collectives", small_collectives),
    "needless_collectives": CodeText("needless collectives", needless_collectives),
    "late_bucket": CodeText("late buckets", late_buckets),
    "slow_transfer": CodeText("slow transfers", slow_transfer),
    "exposed_transfer": CodeText("exposed transfer", exposed),
    "debug_mode": CodeText("a mode for debugging", debug_mode),
    "late_root": CodeText("a late root", lambda one: longer(one, "the others wait for its broadcast")),
    "contention": CodeText(
        "contention", lambda one: longer(one, "compute is slower while collectives run beside it")
    ),
    "throttled": CodeText("throttling", throttled),
    "pipeline_bubble": CodeText("a pipeline bubble", bubble),
    "expert_imbalance": CodeText("uneven experts", experts),
    "unsteady": CodeText("unsteady steps", _unsteady),
    "profiler_cost": CodeText("recording", _profiler_cost),
    "nothing": CodeText("nothing", nothing),
}  # fmt: skip
