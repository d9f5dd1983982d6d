"""Findings as sentences: what costs the step most, what else does, and what to do about it."""

from collections.abc import Sequence
from dataclasses import dataclass

from scalescope.report.drawing.numbers import about, capitalized, milliseconds
from scalescope.report.text.codes.compute import in_double_precision, mostly_compute
from scalescope.report.text.codes.evidence import beyond_its_cause_ms, is_of_several, rare_steps_of
from scalescope.report.text.codes.exchanges import bare_communication, exchanged
from scalescope.report.text.codes.once import is_known_once, once_sentences, one_step_of
from scalescope.report.text.codes.table import CODES, so_few_show, which_are_long
from scalescope.report.text.cures.words import cure_elsewhere, cure_text, lacks_cores_to_load
from scalescope.report.text.late.loading import beside_one_rank
from scalescope.report.text.late.together import (
    by_itself,
    cost_together,
    cure_of,
    evened,
    provided,
    then_the_latest,
    whose,
    with_the_others,
)
from scalescope.report.text.long import and_then, with_cause
from scalescope.report.text.of_step import of_mean_step, share, shared_step_ms, step_named
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.finding.codes import ON_THE_DEVICE, TELLS_MORE, Code
from scalescope.scaling.finding.figures import (
    BETWEEN,
    EXPOSED,
    GOES_WITH_IT,
    IDLE,
    LOOPS_WAIT,
    STEADY_STEPS,
    UNTOLD_WAITS,
)
from scalescope.scaling.finding.finding import Finding, ranks_of
from scalescope.scaling.finding.kinds import (
    has_upper_end,
    is_all_of_it,
    is_certain,
    is_counted,
    is_hiding_on_cores,
    is_late,
    is_lost_in_noise,
    is_now_and_then,
    is_of_one_step,
    is_once,
    is_within_noise,
)
from scalescope.scaling.finding.order import (
    LITTLE,
    as_costly,
    hidden_by_noise,
    hiding,
    weight,
    worth_leading,
)
from scalescope.scaling.finding.sizes import as_bound, evened_out
from scalescope.scaling.findings.of_rows.core_waits import UNTOLD_CORES, is_wait_for_cores
from scalescope.scaling.verdicts.step_rows.doubt import is_of_the_job

#: What a bound has beyond the time of what is named, by what that is.
_GOES_WITH = {"host_bound": "where other causes, or queued kernels, hide it"}
#: What a code is called where it is of the hosts of all ranks.
_OF_HOSTS: dict[Code, str] = {"host_stall": "stalled hosts", "host_starved": "starved hosts"}
_WAITS = "that waits for it"
#: What stands behind what the compute is where ranks compute on CPUs and nothing tells whether they wait for cores.
_ANY_WAITS = ", with any waits for cores in it, which traces do not tell (on Linux profile_steps does)"
#: What is said before advice against what the job is.
_NO_FAULT = "no fault is found in what the job sends; who would change that can "
#: What bounds the gain of hiding transfer behind threads that compute on all cores.
_AS_CORES = ", as far as the threads that move the data find a core: the ranks compute on all of them"
_MORE = "profile more steps (active=20)"


@dataclass(frozen=True)
class Lead:
    """What a verdict's first sentence says by all findings."""

    text: str
    doubtful: str = ""  # what noise keeps out of it, in a sentence of its own
    is_otherwise: bool = False  # no finding is said: it says where the step goes


def cost(finding: Finding, *, even: bool = False) -> str:
    """Return what a finding costs, at most or at least, or between what, or "". `even`: what evening out brings."""
    brings = evened(finding) if even else ""
    if finding.ms is None:
        return ""
    if finding.at_most:
        return f"at most {milliseconds(finding.ms)}"
    if has_upper_end(finding):  # the least alone would be read as what it costs
        return f"between {milliseconds(finding.ms)} and {milliseconds(finding.high_ms or 0.0)}"
    if finding.at_least:
        return f"at least {milliseconds(finding.ms)}{f' ({brings})' if brings else ''}"
    if finding.low_ms is None or finding.high_ms is None:
        return milliseconds(finding.ms)
    if any(row.name == LOOPS_WAIT for row in finding.evidence):
        return f"about {about(finding.ms)} ({about(finding.low_ms)} to {about(finding.high_ms)})"
    bounds = f"{milliseconds(finding.low_ms)} to {milliseconds(finding.high_ms)}"
    return f"{milliseconds(finding.ms)} ({bounds}{f'; {brings}' if brings else ''})"


def subject(finding: Finding) -> str:
    """Return who or what costs: `rank 1`, or what the code is called."""
    return whose(finding) or name(finding)


def name(finding: Finding) -> str:
    """Return what costs, in the words of its code, or of what is known of it."""
    if finding.ranks and finding.code == "own_work":
        return "work of their own"
    if is_wait_for_cores(finding):
        return "waits for cores"
    if is_of_several(finding) and finding.code in _OF_HOSTS:
        return _OF_HOSTS[finding.code]
    return CODES[finding.code].name


def because(finding: Finding) -> str:
    """Return why, from the evidence; of several ranks, what each of them does."""
    return f"on each of them {_because(finding)}" if finding.ranks else _because(finding)


def _because(finding: Finding) -> str:
    told = CODES[finding.code].because(finding)
    more = next((row.ms for row in finding.evidence if row.name == GOES_WITH_IT and row.ms is not None), None)
    return told if more is None else f"{told}, and {milliseconds(more)} more {_GOES_WITH.get(finding.code, _WAITS)}"


def first_sentence(
    findings: Sequence[Finding],
    step_ms: float,
    ranks: int,
    *,
    of_it: str = "",
    which: str = "",
    run: RunAnalysis | None = None,
) -> str:
    """Return the first sentence of a verdict, but for the run's name: of the first finding.

    Where the second finding may as well be the first, or the first one hides behind another, it names both. `of_it`: a
    sentence about the first one alone, before any other is named. `which` and `run`: see `headline`.
    """
    others = [one for one in findings[1:] if one.ms is not None and not one.at_most]  # a bound accuses nobody
    told = headline(findings[0], step_ms, ranks, alone=not others, which=which, run=run)
    if (also := findings[0].also_late) is not None and not is_within_noise(findings[0]):
        same = [one for one in others if also.order == "together" and set(ranks_of(one)) & set(also.ranks)]
        every = f"{'; '.join([told.removesuffix('.'), *(f'{subject(one)}: {because(one)}' for one in same)])}."
        return f"{every} {of_it}".rstrip()
    if beside_what_it_sends(findings) is not None:
        nothing = ", or nothing" if is_within_noise(others[0]) and not is_certain(others[0]) else ""
        return and_then(
            told, f"beside it {subject(others[0])} may cost {cost(others[0])}{nothing}: {because(others[0])}", of_it
        )
    if (beside := beside_waits(findings)) is not None:
        return and_then(told, f"beside it {subject(beside)} {verb(beside)} {cost(beside)}: {because(beside)}", of_it)
    if (before := hiding(findings)) is not None:
        return and_then(told, f"what comes before it is {subject(before)}, {cost(before)}: {because(before)}", of_it)
    if (other := as_costly(findings)) is not None:
        if _compute_alike(findings[0], other):
            return and_then(told, f"its compute costs {cost(other)} beside that: {because(other)}", of_it)
        as_much = f"{subject(other)} may cost as much, {cost(other)}: {because(other)}"
        # which of them it is no order tells: one sentence names both, however long
        return and_then(told, as_much, of_it) if of_it else f"{told.removesuffix('.')}; {as_much}."
    return f"{told} {of_it}".rstrip()


def _compute_alike(finding: Finding, other: Finding) -> bool:
    """Tell whether both are what one rank computes beyond the others: parts of one sum, of which neither is a rival."""
    return finding.rank == other.rank is not None and finding.code in ON_THE_DEVICE and other.code in ON_THE_DEVICE


def beside_what_it_sends(findings: Sequence[Finding]) -> Finding | None:
    """Return what is said beside transfer that comes first and is no fault of the job: what may be one; or None."""
    if not findings or not is_all_of_it(findings[0]):
        return None
    return next((one for one in findings[1:] if one.ms is not None and not one.at_most), None)


def beside_waits(findings: Sequence[Finding]) -> Finding | None:
    """Return what is said beside what comes first where that is waiting for cores: the first cause that is sure.

    Or that ranks wait for cores, where such a cause comes first. Neither has to do with the other: a cause in the job
    is there on any machine, and what has its cores may be none of the job's. None where only one of them is told, or
    the other one is little of the step.
    """
    sure = [one for one in findings if is_wait_for_cores(one) or is_of_the_job(one)]
    if len(sure) < 2 or sure[0] is not findings[0]:
        return None
    if is_wait_for_cores(sure[0]):
        return next((one for one in sure[1:] if (one.fraction or 0.0) >= LITTLE or is_counted(one.evidence)), None)
    return next((one for one in sure if is_wait_for_cores(one)), None)


def headline(
    finding: Finding,
    step_ms: float,
    ranks: int,
    *,
    alone: bool = True,
    beside: bool = False,
    which: str = "",
    run: RunAnalysis | None = None,
) -> str:
    """Return what a finding costs a step, in a sentence; `ranks`: of the job; `alone`: nothing else may cost it;
    `beside`: another rank is late for sure, and what this one may cost is no figure to lay beside that one's; `which`:
    what the step is where it is not the one as run, such as `without recording`, or PROFILED; `run`: whose it is, which
    tells of other lengths of its step.
    """
    step = step_named(step_ms, which, first=True)
    if which and run is not None and (job_ms := shared_step_ms(run, finding)) is not None:
        step = step_named(job_ms, "")
    if finding.code == "profiler_cost":
        return f"{because(finding)}; {cure_text(finding.remedy)}." if finding.remedy else f"{because(finding)}."
    if finding.ms is None:
        exposed = next((row.ms for row in finding.evidence if row.name == EXPOSED), None)
        if exposed is not None:
            if bare := bare_communication(finding, exposed, step):
                return f"{bare}{in_double_precision(finding)}"
            return (
                f"{milliseconds(exposed)} of the {step} are communication that nothing hides, "
                f"and no single cause of it is found. {capitalized(because(finding))}."
            )
        idle = next((row.ms for row in finding.evidence if row.name == IDLE), None)
        if idle is not None:
            return (
                f"nothing runs for {milliseconds(idle)} of the {step}, and no single cause of it "
                f"is found. {capitalized(because(finding))}."
            )
        untold = next((row.ms for row in finding.evidence if row.name == UNTOLD_WAITS), None)
        if untold is not None:
            return (
                f"nothing that the traces tell between the ranks is wrong, but up to {milliseconds(untold)} of the "
                f"{step} may be waits for a rank before copy engines move its data, which no "
                f"trace tells. {capitalized(because(finding))}."
            )
        where = "between the ranks" if ranks > 1 else "around the compute"
        between = next((row for row in finding.evidence if row.name == BETWEEN), None)
        if between is not None and between.calls:
            return (
                f"nothing {where} is wrong. Between the {between.calls:,.0f} operators of a step nothing runs for "
                f"{milliseconds(between.ms or 0.0)}, as in any eager step of CPUs; {because(finding)}."
            )
        # two sentences: behind a colon what the compute is would read as what is wrong
        cores = _ANY_WAITS if any(row.name == UNTOLD_CORES for row in finding.evidence) else ""
        return f"nothing {where} is wrong. {capitalized(mostly_compute(finding))}{cores}."
    if is_of_one_step(finding):
        return (
            f"{subject(finding)} {verb(finding)} {milliseconds(finding.ms)} of the {step}, the only one "
            f"that is recorded whole: {because(finding)}; whether it is so in others, one step does not tell."
        )
    if is_all_of_it(finding):  # what the job is rather than what is the matter with it
        return (
            f"{milliseconds(finding.ms)} of the {step} are transfer that nothing hides, "
            f"{exchanged(finding, alone=alone)}."
        )
    # what is there in some steps may be more than the typical one takes
    whole = "a step in the mean" if is_now_and_then(finding) else f"of the {step}"
    if (steady := next((row.ms for row in finding.evidence if row.name == STEADY_STEPS), None)) is not None:
        whole = "a step in the mean" + (f", {of_mean_step(run, finding, steady)}" if steady else "")
    if (rare := rare_steps_of(finding)) is not None:
        return (
            f"{which_are_long(finding, rare)}: {milliseconds(finding.ms)} {whole}. {capitalized(so_few_show(finding))}."
        )
    if is_within_noise(finding) and is_certain(finding):
        how_much = _HOW_MUCH.get(finding.code, "how much, the noise hides")
        return f"{subject(finding)} may cost {cost(finding)} {whole}: {because(finding)}; {how_much}."
    if is_known_once(finding):
        return f"{once_sentences(finding)}."
    if is_within_noise(finding) and is_once(finding):
        return f"{with_cause(one_step_of(finding), because(finding))}."
    if is_within_noise(finding):
        nobody = "no rank is late for sure; " if finding.rank is not None and is_now_and_then(finding) else ""
        size = up_to(finding) if beside else cost(finding)
        return f"{with_cause(f'{nobody}{subject(finding)} may cost {size} {whole}, or nothing', because(finding))}."
    if (also := finding.also_late) is not None and also.order == "together" and also.is_told:
        return (
            f"{with_the_others(finding)} cost {cost_together(finding, also)} {whole} together; {subject(finding)}: "
            f"{because(finding)}."
        )
    size = cost(finding, even=run is not None and bool(run.lost))
    told = f"{subject(finding)} {verb(finding)} {size} {whole}{provided(finding)}"
    return f"{with_cause(told, because(finding))}{_why_more(finding)}{then_the_latest(finding)}."


#: What a cause that is there for sure may cost nothing for, but for noise: what it hides behind.
_HOW_MUCH: dict[Code, str] = {"slow_transfer": "how much depends on how fast the hosts launch"}


def _why_more(finding: Finding) -> str:
    """Return why a host that stands still, or loads, costs more than it does so for; "" where it does not."""
    if finding.code not in ("host_stall", "data_loading") or finding.at_most or is_now_and_then(finding):
        return ""
    more_ms = beyond_its_cause_ms(finding)
    if not more_ms or (is_late(finding) and finding.code == "data_loading"):
        return ""  # of loading its cause says it, before what it says of the others' workers
    if is_late(finding):
        return f": {milliseconds(more_ms)} more than that"
    return f", and {milliseconds(more_ms)} more are waits behind it"


def verb(finding: Finding) -> str:
    """Return `cost` or `costs`, by whether its subject is several."""
    several = finding.ranks or (finding.rank is None and subject(finding).endswith("s"))
    return "cost" if several else "costs"


def headline_of_all(
    findings: Sequence[Finding],
    step_ms: float,
    ranks: int,
    otherwise: str,
    *,
    of_it: str = "",
    which: str = "",
    run: RunAnalysis | None = None,
) -> Lead:
    """Return the first sentence of a verdict by all its findings, costliest first, and what noise keeps out of it.

    What is lost in noise accuses nobody there: what is sure and no trifle beside it is said, or `otherwise`, where the
    step goes. `of_it`: see `first_sentence`; `which`, `run`: see `headline`.
    """
    first = doubtful_above(findings)
    if first is None:
        return Lead(first_sentence(findings, step_ms, ranks, of_it=of_it, which=which, run=run))
    sure = worth_leading(findings)
    beside = is_doubtful_beside(first, findings)
    doubtful = capitalized(headline(first, step_ms, ranks, beside=beside, which=which, run=run))
    if sure is not None:
        told = headline(sure, step_ms, ranks, alone=False, which=which, run=run)
        return Lead(f"{told} {of_it}".rstrip(), doubtful)
    nobody = "no rank" if first.rank is not None else "nothing"
    return Lead(f"{nobody} stands out from the noise: {otherwise}", doubtful, is_otherwise=True)


def is_doubtful_beside(finding: Finding, findings: Sequence[Finding]) -> bool:
    """Tell whether noise may have made a rank late where another one is named for sure."""
    sure = worth_leading(findings) if is_lost_in_noise(finding) and finding.rank is not None else None
    return sure is not None and sure.rank is not None and finding.rank not in ranks_of(sure)


def up_to(finding: Finding) -> str:
    """Return what a finding may cost at most, where its middle is no figure to lay beside one that is sure."""
    return f"up to {milliseconds(max(finding.ms or 0.0, finding.high_ms or 0.0))}"


def doubtful_above(findings: Sequence[Finding]) -> Finding | None:
    """Return what would be the costliest if noise had not made it, as it may have; None where noise made nothing such.

    What leads stands before it in the list.
    """
    first = findings[0]
    if is_lost_in_noise(first):
        return first
    above = [one for one in findings[1:] if is_lost_in_noise(one) and weight(one) > weight(first)]
    return max(above, key=weight, default=None) if worth_leading(findings) is first else None


def line(finding: Finding, run: RunAnalysis | None = None, findings: Sequence[Finding] = ()) -> str:
    """Return a finding in a line: `rank 1, work of its own: 3.6 ms (3.1 ms to 4.1 ms), 4.5%: spin_kernel, …`.

    `run`: whose it is; it tells of which step that share is. `findings`: among which it is told.
    """
    return with_cause(priced(finding, run, findings), because(finding))


def priced(finding: Finding, run: RunAnalysis | None = None, findings: Sequence[Finding] = ()) -> str:
    """Return such a line without its reason: who or what costs, and how much of the step."""
    who, beside = f"{whose(finding)}, " if finding.rank is not None else "", beside_one_rank(finding, findings)
    noise = ", within noise" * (is_within_noise(finding) and rare_steps_of(finding) is None)
    size = f": {cost(finding)}{share(finding, run)}{provided(finding)}{noise}" if finding.ms is not None else ""
    if is_doubtful_beside(finding, findings):
        size = f": {up_to(finding)}, within noise"
    return f"{who}{name(finding)}{beside}{size}"


def todo(finding: Finding, run: RunAnalysis | None = None) -> str:
    """Return what to do and what it brings: `use larger buckets with …: 0.4 ms (0.2 ms to 0.5 ms) a step, 2.0%`.

    Of what other ranks are to take over that is a part of what it costs; what only tells more saves nothing by itself.
    `run`: whose it is; it tells of which step that share is.
    """
    if finding.remedy is None:
        return ""
    evened = evened_out(finding)
    brings = finding if evened is None else evened
    nothing = ", or nothing" * is_within_noise(finding)
    size = ""
    tells = finding.remedy.cure in TELLS_MORE
    if tells:
        nothing = ""
    elif finding.ms is not None:
        if finding.remedy.lacks_cores and not is_hiding_on_cores(brings):
            nothing += "" if lacks_cores_to_load(finding.remedy) else _AS_CORES
            brings = as_bound(brings)
        size = f": {cost(brings)} a step{share(brings, run)}{provided(finding)}{nothing}"
    more = (
        "" if evened is None or finding.ms is None else f"; all {milliseconds(finding.ms)} where the surplus is dropped"
    )
    more += "; and record more steps" if is_of_one_step(finding) else ""
    return f"{_NO_FAULT * is_all_of_it(finding)}{cure_of(finding)}{size}{by_itself(finding)}{more}"


def todo_elsewhere(finding: Finding) -> str:
    """Return what does it in a loop of the reader's own."""
    return cure_elsewhere(finding.remedy, bool(finding.ranks) or is_of_several(finding)) if finding.remedy else ""


def more_steps(findings: Sequence[Finding]) -> str:
    """Return that more steps are to be profiled where these leave open what may be most of it, or whether what is to be
    done first brings anything; "" where they do not.
    """
    hidden, first = hidden_by_noise(findings), first_to_do(findings)
    once = first is not None and is_within_noise(first) and is_once(first)
    if hidden is None and first is not None and (is_lost_in_noise(first) or once):
        return f"{_MORE}, since these do not tell whether anything is wrong; if it is, "
    if hidden is None or hidden.ms is None:
        return ""
    then = "if it does" if first is hidden else "what is sure"
    costs = f"{subject(hidden)} {verb(hidden)} {milliseconds(hidden.ms)}"
    return f"{_MORE}, since these do not tell whether {costs} a step or nothing; {then}, "


def first_to_do(findings: Sequence[Finding]) -> Finding | None:
    """Return the finding to begin with: what the first sentence names; else the costliest that is there or costs
    something for sure and is no trifle beside the others, or else any.
    """
    found = following(findings)
    if found and found[0] is findings[0] and doubtful_above(findings) is None:
        return found[0]
    return worth_leading(found) or next(iter(found), None)


def following(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings of which something is to be gained, in their order."""
    return [one for one in findings if one.ms is not None and one.remedy is not None]


def straggler_text(run: RunAnalysis, rank: int) -> str:
    """Return what a rank that a run's findings name does; of a file of schema 1, the words that it holds."""
    reasons = [_because(one) for one in run.findings if rank in ranks_of(one)]
    return "; ".join(reasons) or next((one.verdict for one in run.stragglers if one.rank == rank), "")


def why_nothing(run: RunAnalysis) -> str:
    """Return why a run that was looked at has no remedy that a setting of ours could make."""
    return run.unpriced.text if run.unpriced is not None else "no setting is sure to make the step shorter"
