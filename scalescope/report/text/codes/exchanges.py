"""What ranks exchange and wait for, in words: collectives, pipelines, experts."""

from scalescope.records.console import counted
from scalescope.report.drawing.numbers import factor, figure, listing, milliseconds, percent
from scalescope.report.text.codes.evidence import first_of, row_of
from scalescope.scaling.finding.figures import (
    BARRIERS,
    EXPOSED,
    EXPOSED_TRANSFER,
    EXPOSED_WAIT,
    MAY_WAIT,
    OBJECTS,
    ONE_WAITS,
    PASSES,
    SLOWER_BESIDE,
    SPARSE,
    WAITED_AT_THEM,
)
from scalescope.scaling.finding.finding import EvidenceRow, Finding
from scalescope.scaling.finding.kinds import is_all_of_it

#: Of communication that nothing hides, less than this share is not told apart; nor is what a rank waits the less.
_LITTLE = 0.1
_NAMES = {EXPOSED_WAIT: "waits of ranks for each other", EXPOSED_TRANSFER: "transfer"}
#: What a trace without shapes leaves open of collectives on gloo.
_SIZELESS = "whose sizes record_shapes=True would tell"


def _round(finding: Finding) -> str:
    """Return what several rounds of messages take, and one at its quickest, in words; "" where that is not told."""
    row = row_of(finding, "a_round")
    if row is None or row.ms is None or row.others_ms is None:
        return ""
    each = f"each takes {milliseconds(row.ms)}, and {milliseconds(row.others_ms)} where nothing holds its messages up"
    bare = row_of(finding, "bare_rounds")
    if bare is None or bare.ms is None or bare.others_ms is None:
        return each
    stays = f"of which {milliseconds(bare.others_ms)} would stay if they travelled together"
    return f"{each}; nothing hides {milliseconds(bare.ms)} of them a step, {stays}"


def buckets(finding: Finding, why: str) -> str:
    count, size = row_of(finding, "all_reduces"), row_of(finding, "median_bucket_mib")
    why = _round(finding) or why
    if count is not None and count.calls is not None and size is None:
        sizeless = f", {_SIZELESS}" if finding.at_most else ""
        return f"{_of_all(count, 'all-reduce')}{sizeless}: {why}"
    if count is None or count.calls is None or size is None or size.value is None:
        return why
    return f"{_of_all(count, 'all-reduce')} of {_mib(size.value)} in the median: {why}"


def _of_all(count: EvidenceRow, what: str) -> str:
    """Return how many collectives a step has, in words; where some alone are meant, of how many."""
    calls, whole = round(count.calls or 0.0), round(count.value or 0.0)
    return f"{calls} of the {counted(whole, what)} a step" if whole > calls else f"{counted(calls, what)} a step"


def late_buckets(finding: Finding) -> str:
    last, whole = row_of(finding, "last_bucket_mib"), row_of(finding, "gradients_mib")
    if last is None or last.value is None or whole is None or whole.value is None:
        return buckets(finding, "the last ones begin too late to hide")
    return (
        f"{_mib(last.value)} of {_mib(whole.value)} of gradients come in one piece at the end, where nothing hides them"
    )


def small_collectives(finding: Finding) -> str:
    count, size, operation = (
        row_of(finding, "collectives"),
        row_of(finding, "median_bytes"),
        first_of(finding, "activity"),
    )
    why = _round(finding) or "each takes a round of messages, however little it carries"
    if (others := row_of(finding, MAY_WAIT)) is not None:
        whom = "for the other rank" if others.value == 1 else "for the other ranks"
        why = f"waits {whom} or rounds of messages, which one rank's trace does not tell apart"
    if count is not None and count.calls is not None and size is None and operation is not None:
        sizeless = f", {_SIZELESS}" if finding.at_most else ""
        return f"{_of_all(count, 'collective')}, most of them {operation.name}{sizeless}: {why}"
    if count is None or count.calls is None or size is None or size.value is None or operation is None:
        return why
    return f"{_of_all(count, 'collective')}, most of them {operation.name}, of {_bytes(size.value)}: {why}"


def needless_collectives(finding: Finding) -> str:
    """Return which barriers and collectives of objects each step has, and what ranks spend in them, in words."""
    barriers = row_of(finding, BARRIERS)
    objects = [row for row in finding.evidence if row.name.startswith(f"{OBJECTS} ")]
    told = [] if barriers is None else [_each_step(barriers, "barrier", "{count:.0f} barriers")]
    told += [_each_step(row, row.name.removeprefix(OBJECTS).strip(), "{count:.0f} times {name}") for row in objects]
    if not told:
        return "barriers or exchanges of Python objects in each step"
    pickles = " (which pickles and unpickles)" if objects else ""
    inside_ms = sum(row.ms or 0.0 for row in (barriers, *objects) if row is not None)
    needs = "training needs neither" if len(told) > 1 else "training does not need that"
    text = f"each step has {listing(told)}{pickles}, and {needs}: a rank is there for {milliseconds(inside_ms)}"
    waited = row_of(finding, WAITED_AT_THEM)
    if waited is None or (waited.ms or 0.0) < _LITTLE * inside_ms:
        return text
    back = "which it may as well do at the next collective"
    return f"{text}, {milliseconds(waited.ms or 0.0)} of it waiting for a later one, {back}"


def _each_step(row: EvidenceRow, name: str, several: str) -> str:
    count = round(row.calls or 1.0)
    if count > 1:
        return several.format(count=count, name=name)
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


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


def exchanged(finding: Finding, *, alone: bool = True) -> str:
    """Return what a step exchanges while nothing computes, in words; "" where that is not told.

    `alone`: no other cause is told beside it, so that it may be called faultless.
    """
    moved, size, passes = first_of(finding, "activity"), row_of(finding, "median_bytes"), row_of(finding, PASSES)
    if moved is None or moved.calls is None:
        return ""
    calls = round(moved.calls)
    text = f"in {calls} collectives a step, most of them {moved.name}" if calls > 1 else f"in one {moved.name} a step"
    if passes is not None and passes.calls is not None:
        each = f"gradients are exchanged in each of the step's {passes.calls:.0f} backward passes"
        cores = "; the others may take cores from the compute as well" if finding.at_least else ""
        beside = row_of(finding, SLOWER_BESIDE)
        if beside is not None and beside.ms:
            cores = f"; compute beside the others is slower, by {milliseconds(beside.ms)}"
        return f"{text}: {each}, where the last exchange would do{cores}"
    text += _size_words(size.value if size is not None else None, row_of(finding, SPARSE))
    if told := next((words for name, words in _MOSTLY.items() if row_of(finding, name) is not None), ""):
        return text + told
    if not is_all_of_it(finding):
        return text
    return f"{text}. That is what the job sends{', and no fault is found in it' * alone}"


def _size_words(bytes_each: float | None, sparse: EvidenceRow | None) -> str:
    """Return of what size collectives are in the median; of those that carry sparse tensors no trace tells it."""
    median = "" if bytes_each is None else f"of {_bytes(bytes_each)} in the median"
    if sparse is None or not sparse.calls:
        return f", {median or _SIZELESS}"
    if not median:
        return ", of sparse tensors, whose sizes traces do not tell"
    return f", {round(sparse.calls) or 'some'} of them of sparse tensors and the others {median}"


def bare_communication(finding: Finding, exposed_ms: float, step: str) -> str:
    """Return how long ranks wait for each other, who for whom, and how much is transfer, of what nothing hides
    and nothing explains, in a sentence; "" where the two are not told apart. `step`: what that is called.
    """
    rows = [row for row in (row_of(finding, name) for name in (EXPOSED_WAIT, EXPOSED_TRANSFER)) if row is not None]
    told = sorted((row for row in rows if (row.ms or 0.0) >= _LITTLE * exposed_ms), key=lambda row: -(row.ms or 0.0))
    if not told:
        return ""
    parts = listing([_NAMES[row.name] + (f" ({milliseconds(row.ms or 0.0)})" if len(told) > 1 else "") for row in told])
    whole_ms = exposed_ms if len(told) > 1 else told[0].ms or 0.0  # of one alone its own: the other is not called by it
    bare = f"{milliseconds(whole_ms)} of the {step} are {parts} that nothing hides, and no single cause of it is found."
    return f"{bare}{_who_waits(finding)}" if any(row.name == EXPOSED_WAIT for row in told) else bare


def _who_waits(finding: Finding) -> str:
    """Return which of two ranks waits for the other, and for how long, in a sentence; "" where both do alike."""
    row = row_of(finding, ONE_WAITS)
    if row is None or row.ms is None or row.others_ms is None or row.value is None:
        return ""
    late = 1 - int(row.value)
    told = f" Rank {row.value:.0f} waits {milliseconds(row.ms)} for rank {late}"
    back = f", which waits {milliseconds(row.others_ms)} for it"
    return f"{told}{back if row.others_ms >= _LITTLE * row.ms else ''}."


def exposed(finding: Finding) -> str:
    bare = row_of(finding, EXPOSED)
    if bare is not None and bare.ms is not None and (told := exchanged(finding)):
        return f"nothing hides {milliseconds(bare.ms)} of transfer, {told}"
    row = row_of(finding, "gradients_mib")
    travel = f"{_mib(row.value)} a step travel" if row is not None and row.value else "data travel"
    return f"{travel}, and compute does not hide all of it"


def slow_transfer(finding: Finding) -> str:
    row = row_of(finding, "bus_gb_s")
    if row is None or row.value is None or row.share is None:
        return "data move slower than they could"
    moved = figure(row.value, 0 if row.value >= 10 else 2)
    return f"collectives move {moved} GB/s, {percent(row.share, 0)} of what they could"


def bubble(finding: Finding) -> str:
    row, own, slow = row_of(finding, "bubble"), row_of(finding, "schedule"), row_of(finding, "slow_stage")
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


def experts(finding: Finding) -> str:
    row = row_of(finding, "tokens")
    if row is None or row.share is None or row.value is None:
        return "some experts have more tokens than others"
    return f"its experts have {percent(row.share, 0)} of the tokens, {factor(row.value)} the mean rank's"
