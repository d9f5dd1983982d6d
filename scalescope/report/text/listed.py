"""Which findings are listed, and why in this order where that is not the order of what they cost."""

from msgspec.structs import replace

from scalescope.report.drawing.numbers import listing
from scalescope.report.text.findings import following
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_steps import RecurringSteps
from scalescope.scaling.finding.figures import EXPOSED_TRANSFER, MAY_BE_OTHERS
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.finding.kinds import is_of_all_alike, is_of_resting_workers, is_within_noise
from scalescope.scaling.finding_list import told_of
from scalescope.scaling.findings.of_rows.recurring import place

#: What is listed lower is larger by more than this share, so that a reader sees it.
_SEEN = 0.02


def listed(run: RunAnalysis) -> list[Finding]:
    """Return those of them that are listed: no launching that is as little as any eager step of CPUs has. Transfer that
    comes first without a cause is one, where it is no less than those.
    """
    told = following(told_of(run))
    sent = bare_transfer(run.findings[0]) if told and run.findings else None
    if sent is None:
        return told
    at = next((at for at, one in enumerate(told) if (one.ms or 0.0) <= (sent.ms or 0.0)), len(told))
    return [*told[:at], sent, *told[at:]]


def bare_transfer(finding: Finding) -> Finding | None:
    """Return the transfer that a step without a cause loses as a bound, where less of it is what is advised."""
    sent = next((row for row in finding.evidence if row.name == EXPOSED_TRANSFER), None)
    if finding.code != "nothing" or sent is None or finding.remedy is None or finding.remedy.cure != "send_less":
        return None
    return replace(finding, code="exposed_transfer", ms=sent.ms, fraction=sent.share, at_most=True, evidence=(sent,))


def entries_of(run: RunAnalysis) -> list[Finding | RecurringSteps]:
    """Return what is listed, steps that recur in their place."""
    findings = listed(run)
    entries: list[Finding | RecurringSteps] = list(findings)
    if (at := place(findings, run)) is not None and run.recurring is not None:
        entries.insert(at, run.recurring)
    return entries


def order_sentence(run: RunAnalysis) -> str:
    """Return why larger figures are listed behind smaller ones, by what those are; "" where none is."""
    entries = entries_of(run)
    behind = [
        one for at, one in enumerate(entries) if any(_ms(one) > (1 + _SEEN) * _ms(before) for before in entries[:at])
    ]
    if not behind:
        return ""
    reasons = list(dict.fromkeys(_why_behind(one) for one in behind))
    return f"Not in the order of size: less weight is given to {listing(reasons)}."


def _ms(entry: Finding | RecurringSteps) -> float:
    return entry.mean_ms if isinstance(entry, RecurringSteps) else entry.ms or 0.0


def _why_behind(entry: Finding | RecurringSteps) -> str:
    """Return what a finding is that stands behind a smaller one."""
    if isinstance(entry, RecurringSteps):
        return "what is in a few steps alone"
    if entry.at_most:
        return "bounds (at most)"
    if entry.remedy is not None and entry.remedy.lacks_cores:
        return "what may come back only with more cores"
    if is_of_resting_workers(entry):
        return "what taking ready batches over costs"
    if any(row.name == MAY_BE_OTHERS for row in entry.evidence):
        return "what may in part have other causes"
    if is_within_noise(entry):
        return "what noise may have made"
    return "what is no fault" if is_of_all_alike(entry) else "what is less sure"
