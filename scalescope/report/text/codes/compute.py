"""Why a rank computes longer, or what else a device does alone, in words."""

from scalescope.report.drawing.numbers import factor, listing, milliseconds, percent
from scalescope.report.text.codes.evidence import (
    beyond,
    computing,
    elements_of,
    first_of,
    in_some_steps,
    is_in_one_step,
    is_of_several,
    is_on_cpu,
    longer,
    longer_beside,
    longer_in,
    longer_there,
    others,
    row_of,
)
from scalescope.report.text.cures.words import line_words
from scalescope.scaling.finding.figures import (
    ANOMALY,
    AROUND,
    BESIDES,
    BY_TURNS,
    CLIPPED_BY_HAND,
    CONVERTING,
    DOUBLE_PRECISION,
    FILLED,
    FULL_PRECISION,
    INPUTS,
    LAYOUT_CONVERSIONS,
    LOOKED_AT,
    NONE_WRITTEN,
    NORMALISATIONS,
    NORMALISED,
    OTHER_KERNELS,
    OWN_TURNS,
    PRECISION,
    PREPARING,
    RECOMPUTED,
    ROUNDS,
    SORTED_SCATTERS,
    TIMES_BESIDE,
    TIMES_COMPUTE,
    UNALIGNED_PRODUCTS,
    UNFUSED,
    UNFUSED_OPTIMISER,
    UNUSED_FORWARD,
    UPDATED_BY_HAND,
)
from scalescope.scaling.finding.finding import EvidenceRow, Finding


def own_work(finding: Finding) -> str:
    if (looks := row_of(finding, ANOMALY)) is not None and looks.calls is not None:
        return (
            f"it looks for NaN behind its backward pass's operators, {looks.calls:,.0f} times a step, as "
            "torch.autograd.set_detect_anomaly has it, which makes the others longer, too"
        )
    told = f"{_launched_alone(finding)}{line_words(finding.remedy)}"
    if row_of(finding, CONVERTING) is None:
        return told
    converts = "it converts a part of the network to another precision and back, whose operators may take longer, too"
    return f"{told.removesuffix(',')}; {converts}"


def _fills(finding: Finding) -> str:
    """Return that a loop of Python fills tensors, and by which operators; "" where it is none."""
    row = row_of(finding, FILLED)
    if row is None or row.calls is None or row.ms is None:
        return ""
    by = listing([f"{one.name} {one.calls:,.0f} times" for one in finding.evidence if one.kind == "operator"])
    does = "it fills tensors element by element in a loop of Python"
    if finding.code == "own_work":
        does += f", which {others(finding)} do not"
    else:  # the others have such a loop, too
        does += f" for longer than {others(finding)}".removesuffix(",")
    return f"{does}, by {row.calls:,.0f} operators a step ({by}) that take {milliseconds(row.ms)}"


def _launched_alone(finding: Finding) -> str:
    if fills := _fills(finding):
        return fills + _around(finding)
    besides = row_of(finding, BESIDES)
    rest = others(finding)
    otherwise = f"it runs {computing(finding)} that {rest} do not"
    if besides is None or not besides.value or besides.calls is None:
        around, most = row_of(finding, AROUND), first_of(finding, "activity")
        if around is not None and around.ms is not None and most is not None and most.ms is not None:
            # one figure: of two side by side nobody knows which of them the cost is to be held against
            whole = milliseconds(most.ms + around.ms)
            return f"{most.name} and what its host does around that, {whole} a step, which {rest} do not run"
        return beyond(finding, f"which {rest} do not run", otherwise) + _around(finding)
    launches = f"{besides.calls:,.0f} launch{'es' * (besides.calls != 1)}"
    most = first_of(finding, "activity")
    if most is not None and most.ms is not None and 0 < round(most.calls or 0.0) < round(besides.calls):
        led = f"led by {most.name} ({most.calls:,.0f} of them, {milliseconds(most.ms)})"
        return f"{launches} a step that {rest} do not make, {led}{_around(finding)}"
    return beyond(finding, f"in {launches} a step that {rest} do not make", otherwise) + _around(finding)


def _around(finding: Finding) -> str:
    row = row_of(finding, AROUND)
    return "" if row is None or row.ms is None else f", with {milliseconds(row.ms)} of its host's time around that"


def more_work(finding: Finding) -> str:
    if fills := _fills(finding):
        return fills + _around(finding) + line_words(finding.remedy)
    inputs = row_of(finding, INPUTS)
    rounds = row_of(finding, ROUNDS)
    if rounds is not None and rounds.calls is not None and rounds.value is not None:
        return _rounds(finding, rounds.calls, rounds.value, None if inputs is None else inputs.value)
    within = next((row for row in finding.evidence if row.kind == "operator"), None)
    if inputs is not None and inputs.value is not None and within is not None and within.calls and within.value:
        return (
            f"it multiplies {factor(inputs.value)} as much as the others, inside the same operators: {within.name} "
            f"{within.calls:,.0f} times a step and not {within.value:,.0f}, as where activations are computed again"
        )
    some = in_some_steps(finding)
    if (larger := elements_of(finding)) and some is None:
        return f"it works on larger inputs, in the same operators: {larger}"
    if larger and some is not None:
        whose = "the ranks compute" if is_of_several(finding) else "it computes"
        return f"{some[0]} {whose} for {longer_there(finding)} longer, on larger inputs: {larger}"
    if inputs is not None and inputs.value is not None:
        return f"it computes on {factor(inputs.value)} as much data as the others, in the same operators"
    if some is not None:
        whose = "the ranks compute" if is_of_several(finding) else "it computes"
        if (more := row_of(finding, TIMES_COMPUTE)) is not None and more.value is not None:
            launch = "launch" if is_of_several(finding) else "launches"
            those = "it takes" if is_in_one_step(finding) else "each of those takes"
            return (
                f"{some[0]} {whose} {factor(more.value)} as long as in the others, and {launch} more, as in "
                f"validation: {those} {some[1]} longer"
            )
        much = f"for {longer_there(finding)} longer than in the others{longer_in(finding)}"
        return f"{some[0]} {whose} {much}{longer_beside(finding, several=is_of_several(finding))}"
    otherwise = f"it runs the common {computing(finding)} more often"
    return beyond(finding, f"which it runs more often than {others(finding)}".removesuffix(","), otherwise) + _around(
        finding
    )


def _rounds(finding: Finding, calls: float, others_calls: float, inputs: float | None) -> str:
    row = first_of(finding, "activity")
    often = f"{'its loops' if row is None else row.name} {calls:,.0f} times a step and not {others_calls:,.0f}"
    if inputs is not None:
        return f"it computes on {factor(inputs)} as much data as the others, as of longer sequences: {often}"
    return f"its loops go round more often than the others', as for longer sequences: {often}"


def slower(finding: Finding) -> str:
    own = row_of(finding, OWN_TURNS)
    if own is not None and own.calls is not None and own.value is not None:
        return (
            f"the device is shared: {own.calls:,.0f} of its kernels a step run, or begin, {milliseconds(own.value)} "
            "later than the same ones do in other steps, now these and now those, as where another process has it by "
            "turns"
        )
    ratio, row = row_of(finding, "times_as_long"), first_of(finding, "activity")
    unlike = row_of(finding, OTHER_KERNELS)
    if unlike is not None and unlike.ms is not None and unlike.others_ms is not None:
        most = "" if row is None else f"; most of all {row.name}"
        named = _precisions(finding)
        how = "as in another precision or layout" if named is None else f"in {named[1]} where theirs are in {named[2]}"
        return (
            f"it runs other kernels than {others(finding)} for the same operators, {how}: "
            f"for {milliseconds(unlike.ms)} a step, where theirs take {milliseconds(unlike.others_ms)}{most}"
        )
    if (dearer := _dearer(finding)) is not None:
        return dearer
    turns = row_of(finding, BY_TURNS)
    if turns is not None and turns.calls is not None and turns.value is not None and turns.ms is not None:
        whose = "other threads have its cores" if is_on_cpu(finding) else "another process has the device"
        return (
            f"{turns.calls:.0f} of its {computing(finding)} a step take {milliseconds(turns.ms)} longer together than "
            f"on the others ({milliseconds(turns.value)} each in the median), and the rest do not, as where {whose} "
            "by turns"
        )
    if ratio is not None and ratio.value is not None:
        times = factor(ratio.value)
        told = f"the same {computing(finding)} take {times} what they take on the others, whatever their kind"
        beside = row_of(finding, TIMES_BESIDE)
        if beside is None or beside.value is None:
            return told
        return f"{told}, and {factor(beside.value)} while ranks exchange data"
    if row is not None and row.ms is not None and row.others_ms is not None:
        return f"it spends {milliseconds(row.ms)} a step on {row.name}, the others {milliseconds(row.others_ms)}"
    whole = row_of(finding, "compute")
    if whole is not None and whole.ms is not None and whole.others_ms is not None:
        return (
            f"it computes for {milliseconds(whole.ms)} a step, the others for {milliseconds(whole.others_ms)} at most"
        )
    return longer(finding, "its compute takes longer than the others'")


#: Of what a rank's dearer operators take, conversions of less than this share are not worth a word.
_HARDLY = 0.02
#: What a precision is called beside its name.
_CALLED = {"float64": "double precision (float64)"}


def _precisions(finding: Finding) -> tuple[EvidenceRow, str, str] | None:
    """Return in which precision a rank computes what the others do in another, with the row that says so."""
    row = next((one for one in finding.evidence if one.name.startswith(f"{PRECISION} ")), None)
    if row is None:
        return None
    _, own, theirs = row.name.split(" ")
    return row, _CALLED.get(own, own), theirs


def _dearer(finding: Finding) -> str | None:
    if (told := _precisions(finding)) is None:
        return None
    row, own, theirs = told
    if row.ms is None or row.others_ms is None or row.calls is None:
        return None
    converting = row_of(finding, CONVERTING)
    converting_ms = 0.0 if converting is None else converting.ms or 0.0
    more = f", and conversions {milliseconds(converting_ms)}" if converting_ms >= _HARDLY * row.ms else ""
    most = [one.name for one in finding.evidence if one.kind == "operator"]
    return (
        f"it computes in {own} what the others do in {theirs}: {row.calls:,.0f} operators take {milliseconds(row.ms)} "
        f"a step where theirs take {milliseconds(row.others_ms)}{more}"
        f"{f'; most of all {listing(most)}' if most else ''}"
    )


def throttled(finding: Finding) -> str:
    ratio, moving = row_of(finding, "times_as_long"), row_of(finding, "what_moves_data_times_as_long")
    if ratio is None or ratio.value is None or moving is None or moving.value is None:
        return "its clocks are held down"
    return (
        f"multiplications take {factor(ratio.value)} what they take on the others, and what moves data "
        f"{factor(moving.value)}: its clocks are held down"
    )


def copies(finding: Finding) -> str:
    row = row_of(finding, "exposed_copies")
    return f"copies run alone for {milliseconds(row.ms)} a step" if row is not None and row.ms else (
        "copies run alone")  # fmt: skip


def unfused_optimizer(finding: Finding) -> str:
    row = first_of(finding, "annotation")
    name = row.name.removeprefix("Optimizer.step#").removesuffix(".step") if row is not None else "the optimizer"
    takes = f" {milliseconds(row.ms)}" if row is not None and row.ms is not None else " time"
    calls = f" in {row.calls:,.0f} {_launched(finding)}" if row is not None and row.calls else ""
    most = [one.name for one in finding.evidence if one.kind == "operator"]
    named = f", most of it {listing(most)}" if most else ""
    told = f"{name} takes{takes} of a profiled step{calls}"
    return f"{told}{named}, where {'one' if is_on_cpu(finding) else 'a few'} would do"


def updates_by_hand(finding: Finding) -> str:
    row = row_of(finding, UPDATED_BY_HAND)
    most = [one.name for one in finding.evidence if one.kind == "operator"]
    calls = f" in {row.calls:,.0f} {_launched(finding)}" if row is not None and row.calls else ""
    takes = f": {_taken(finding, row.ms)}" if row is not None and row.ms is not None else ""
    which = f"{row.value:,.0f} parameters" if row is not None and row.value else "parameters"
    if row_of(finding, CLIPPED_BY_HAND) is not None:
        named = f", most of it {listing(most)}" if most else ""
        does = f"the job squares, sums up and scales the gradients of {which} one at a time"
        return f"{does}{calls}, as clipping does{takes}{named}"
    if len(most) == 1:  # it may scale, copy, or bound them, or their gradients
        return f"the job runs {most[0]} for {which} one at a time{calls}{takes}"
    named = f", most of it {listing(most)}" if most else ""
    if row_of(finding, NONE_WRITTEN) is not None:  # averages, norms, a log
        return f"the job goes through {which} one at a time{calls}{takes}{named}"
    return f"the job updates {which} one at a time{calls}, by no optimizer of torch's{takes}{named}"


def _taken(finding: Finding, ms: float, within: str = "") -> str:
    """Return what activities take of a profiled step, and on devices that launching them is the rest of their cost."""
    if is_on_cpu(finding) or ms >= (finding.ms or 0.0):
        return f"{milliseconds(ms)} of a profiled step{within}"
    return f"{milliseconds(ms)} of a profiled step{within}, and what its host takes to launch them"


def _pieces(finding: Finding) -> str:
    """Return what such a finding counts: operators where hosts compute, what these launch on devices."""
    return "operators" if is_on_cpu(finding) else "kernels"


def _launched(finding: Finding) -> str:
    """Return what parameters that are updated one by one run: on devices each is a launch, which takes the host."""
    return _pieces(finding) if is_on_cpu(finding) else "kernels, a launch each"


def unfused_normalisation(finding: Finding) -> str:
    row, chains = row_of(finding, NORMALISED), row_of(finding, NORMALISATIONS)
    times = f"{chains.calls:,.0f} times a step" if chains is not None and chains.calls else "again and again"
    pieces, runs = _pieces(finding), "runs" if is_on_cpu(finding) else "launches"
    each = f"{chains.value:,.0f} {pieces}" if chains is not None and chains.value else pieces
    most = [one.name for one in finding.evidence if one.kind == "operator"]
    named = f" (most of it {listing(most)})" if most else ""
    takes = f", {_taken(finding, row.ms, ' with the backward pass')}" if row and row.ms is not None else ""
    return f"{times} it {runs} {each} in a row{named}{takes}, where the built-in one is one"


def double_precision(finding: Finding) -> str:
    row = row_of(finding, DOUBLE_PRECISION)
    pieces = _pieces(finding)
    calls = f"{row.calls:,.0f} {pieces}" if row is not None and row.calls else pieces
    takes = f" take {milliseconds(row.ms)} of a profiled step" if row is not None and row.ms is not None else ""
    most = [one.name for one in finding.evidence if one.kind in ("operator", "activity")]
    named = f", most of it {listing(most)}" if most else ""
    less = " what takes about half as long in float32, or less" if is_on_cpu(finding) else ""
    return f"all ranks compute in double precision (float64){less}: {calls}{takes}{named}"


def full_precision(finding: Finding) -> str:
    row = row_of(finding, FULL_PRECISION)
    calls = f"{row.calls:,.0f} kernels" if row is not None and row.calls else "kernels"
    takes = f" take {milliseconds(row.ms)} of a profiled step" if row is not None and row.ms is not None else ""
    share = f", {percent(row.share, 0)} of its compute" if row is not None and row.share is not None else ""
    by_tf32 = row is not None and row.value is not None
    brings = "tf32 brings about the least of that, and bf16 the most" if by_tf32 else "bf16 would use these"
    return f"products run in float32 without the matrix units (tensor cores): {calls}{takes}{share}; {brings}"


def batch_preparation(finding: Finding) -> str:
    prepares = "each rank's own thread prepares its batch, most likely: behind the loader and before the forward pass"
    return f"{prepares} it computes{_for_what(finding, PREPARING)}"


def metrics(finding: Finding) -> str:
    looks = "behind the optimizer's step each rank computes what no gradient and no update needs, metrics most likely,"
    return f"{looks}{_for_what(finding, LOOKED_AT)}"


def _for_what(finding: Finding, figure: str) -> str:
    """Return for how long operators compute, and which most."""
    row = row_of(finding, figure)
    takes = f" for {milliseconds(row.ms)} a profiled step" if row is not None and row.ms is not None else ""
    most = [f"{milliseconds(one.ms or 0.0)} in {one.name}" for one in finding.evidence if one.kind == "operator"]
    return f"{takes} ({listing(most)})" if most else takes


def recomputation(finding: Finding) -> str:
    row = row_of(finding, RECOMPUTED)
    of_device = any(one.kind == "activity" for one in finding.evidence)
    what = "kernels" if of_device else "operators"
    calls = f"{row.calls:,.0f} {what}" if row is not None and row.calls else what
    takes = f", {milliseconds(row.ms)} of a profiled step" if row is not None and row.ms is not None else ""
    most = [one.name for one in finding.evidence if one.kind != "figure"]
    named = f", most of it {listing(most)}" if most else ""
    again = f"the backward pass runs {calls} of the forward pass again{takes}{named}"
    return f"{again}: that is the price of the memory it saves"


def unused_forward(finding: Finding) -> str:
    row = row_of(finding, UNUSED_FORWARD)
    much = f"{milliseconds(row.ms)} of a profiled step's forward pass" if row and row.ms is not None else (
        "a part of the forward pass")  # fmt: skip
    most = [one.name for one in finding.evidence if one.kind in ("operator", "activity")]
    named = f"most of it {listing(most)}" if most else ""
    calls = f"{row.calls:,.0f} {_pieces(finding)}" if row is not None and row.calls else ""
    within = ", ".join(one for one in (calls, named) if one)
    told = f"{much} ({within})" if within else much
    return f"{told} leads to no gradient: the loss does not use its result, or takes it as a fixed value"


def nothing(finding: Finding) -> str:
    """Return what the compute is, of which alone a step is told."""
    return f"the compute is {kinds}" if (kinds := _kinds(finding)) else _ALL_THAT_IS_LEFT


def mostly_compute(finding: Finding) -> str:
    """Return the same of a step that loses nothing: that it is mostly compute, where that is so, and what that is."""
    whole, kinds = row_of(finding, "compute"), _kinds(finding)
    if whole is None or whole.share is None or whole.share < _MOSTLY:
        return nothing(finding)
    return f"the step is mostly compute: {kinds}" if kinds else _ALL_THAT_IS_LEFT


_ALL_THAT_IS_LEFT = "what is left is the compute itself"
#: A step of which so much is compute is called mostly that.
_MOSTLY = 0.5


def _kinds(finding: Finding) -> str:
    """Return of which kinds of kernels the compute is, and what of it is done the long way; "" where none is known."""
    kinds = [row for row in finding.evidence if row.kind == "activity" and row.share is not None]
    if not kinds:
        return ""
    kinds_text = listing([f"{percent(row.share or 0.0, 0)} {row.name}" for row in kinds])
    peak, mfu = row_of(finding, "multiplying_of_peak"), row_of(finding, "mfu")
    reached = ""
    if peak is not None and peak.share is not None:
        reached = f"; multiplications run at {percent(peak.share, 0)} of the data sheet's peak"
    elif mfu is not None and mfu.share is not None:
        reached = f"; the step reaches {percent(mfu.share, 0)} of the data sheet's peak"
    return f"{kinds_text}{reached}{_habits(finding)}"


#: What kernels do the long way, and what would do it in a short one.
_HABITS = {
    FULL_PRECISION: "its products run in fp32 without the matrix units (tf32 or bf16 autocast would use them)",
    DOUBLE_PRECISION: "it computes in double precision",
    UNALIGNED_PRODUCTS: "it multiplies sides that are no multiples of 8 elements (padded ones are quicker)",
    LAYOUT_CONVERSIONS: "it converts layouts around convolutions (channels_last needs none)",
    SORTED_SCATTERS: "it sums up gradients of what was indexed or looked up",
    UNFUSED_OPTIMISER: "its optimizer is a kernel an operation (fused=True is one)",
    UNFUSED: "it runs element by element, an operator a kernel (torch.compile fuses them)",
}
_MOST_HABITS = 2


def _habits(finding: Finding) -> str:
    """Return what of the compute is done the long way, costliest first; what any job has that is not compiled, last."""
    rows = [row for row in finding.evidence if row.name in _HABITS and row.ms is not None]
    rows.sort(key=lambda row: (row.name == UNFUSED, -(row.ms or 0.0)))
    told = [
        f"for {milliseconds(row.ms or 0.0)} a step {_HABITS[row.name]}{_given_back(row, on_cpu=is_on_cpu(finding))}"
        for row in rows[:_MOST_HABITS]
    ]
    return f"; {' and '.join(told)}" if told else ""


def in_double_precision(finding: Finding) -> str:
    """Return that the compute is in double precision, in a sentence behind others; "" where it is not, or hardly."""
    row = row_of(finding, DOUBLE_PRECISION)
    if row is None or row.ms is None:
        return ""
    less = _given_back(row, on_cpu=is_on_cpu(finding))
    return f" For {milliseconds(row.ms)} a step it computes in double precision{less}."


def _given_back(row: EvidenceRow, *, on_cpu: bool) -> str:
    if row.name != DOUBLE_PRECISION or row.value is None:
        return ""
    if on_cpu:
        return f" (in float32 about {milliseconds(row.value)} less)"
    return f" (such kernels in bf16: at most {milliseconds(row.value)} less, by the data sheet)"
