"""What a step that loses nothing worth a word consists of: its kinds of kernels, and how far they are from the peak."""

from collections.abc import Sequence

from msgspec.structs import replace

from scalescope.hardware.peaks import USUAL_PRECISION
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import KindRow
from scalescope.scaling.as_run.of_job import kinds_of_step
from scalescope.scaling.as_run.step import step_as_run
from scalescope.scaling.finding.codes import Cure
from scalescope.scaling.finding.figures import (
    BETWEEN,
    DOUBLE_PRECISION,
    EXPOSED,
    EXPOSED_TRANSFER,
    EXPOSED_WAIT,
    FULL_PRECISION,
    IDLE,
    LAYOUT_CONVERSIONS,
    ONE_WAITS,
    UNALIGNED_PRODUCTS,
    UNTOLD_WAITS,
)
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.finding.order import is_usual_launching
from scalescope.scaling.findings.candidate import Scene
from scalescope.scaling.findings.computing.habits import habits_of
from scalescope.scaling.findings.computing.wider_numbers import onto_matrix_units
from scalescope.scaling.rank.records.backward_passes import accumulates
from scalescope.scaling.trace.kernel_kinds import MULTIPLYING

_MOST_KINDS = 3
#: Where so much of the step is communication that nothing hides, or nothing runs, that is no step of which nothing is
#: lost.
_MUCH = 0.1
#: What nobody knows to be no waiting is told from this share of the step on.
_SOME = 0.02
_CURES: dict[str, Cure] = {
    DOUBLE_PRECISION: "narrower_numbers",
    FULL_PRECISION: "matrix_units",
    LAYOUT_CONVERSIONS: "channels_last",
    UNALIGNED_PRODUCTS: "pad_sides",
}
#: Of what nothing hides, so much may be not told to be the one or the other; and so much is waits where they matter.
_UNTOLD, _WAITS = 0.05, 1 / 3
#: One of two ranks waits for the other where it does so many times as long.
_BY_FAR = 1.5
_SPLIT = ("exposed_wait", "exposed_transfer", "exposed_unsplit")
_COMMUNICATION = ("exposed_transfer", "exposed_wait", "exposed_unsplit")
_IDLE = ("idle_data", "idle_launch", "idle_queued")


def nothing(scene: Scene, found: Sequence[Finding] = ()) -> Finding:
    """Return the finding of a step without any other: nothing between the devices is wrong. `found`: what is beside it,
    which is little.
    """
    analysis = scene.analysis
    compute = scene.share_ms("compute")
    rows = [EvidenceRow(kind="figure", name="compute", ms=compute, share=compute / scene.step_ms)]
    usual_ms = scene.step_ms - scene.for_longer_ones_ms("window")
    exposed = sum(map(scene.share_ms, _COMMUNICATION)) - scene.for_longer_ones_ms(*_COMMUNICATION)
    if exposed >= _MUCH * usual_ms:
        rows.append(EvidenceRow(kind="figure", name=EXPOSED, ms=exposed, share=exposed / scene.step_ms))
        rows += _waits_and_transfer(scene, exposed)
    idle = sum(map(scene.share_ms, _IDLE)) - scene.for_longer_ones_ms(*_IDLE)
    if idle >= _MUCH * usual_ms:
        between = _between(scene, found)
        if between is not None and idle - (between.ms or 0.0) < _MUCH * usual_ms:
            rows.append(between)
        else:
            rows.append(EvidenceRow(kind="figure", name=IDLE, ms=idle, share=idle / scene.step_ms))
    untold = _untold_waits_ms(scene)
    if untold >= _SOME * scene.step_ms:
        rows.append(EvidenceRow(kind="figure", name=UNTOLD_WAITS, ms=untold, share=untold / scene.step_ms))
    rows += _kinds(analysis.kinds)
    rows += _of_peak(scene)
    wasteful = list(habits_of(scene))
    rows += wasteful
    return Finding(
        code="nothing",
        ms=None,
        low_ms=None,
        high_ms=None,
        evidence=tuple(rows),
        remedy=Remedy(cure=_cure(scene, wasteful, rows, found), accumulates=accumulates(scene.replayer.records)),
        backed="replay",
    )


def _between(scene: Scene, found: Sequence[Finding]) -> EvidenceRow | None:
    """Return for how long nothing runs between the operators of hosts that compute, where that is what any eager step
    has: it has a cause, and none that is wrong. None where it is more, or devices compute.
    """
    ms = scene.share_ms("idle_launch") - scene.for_longer_ones_ms("idle_launch")
    usual = (one for one in found if is_usual_launching(replace(one, ms=ms), scene.step_ms))
    calls = next((row.calls for one in usual for row in one.evidence if row.name == "launches"), None)
    if calls is None or not scene.replayer.on_cpu:
        return None
    return EvidenceRow(kind="figure", name=BETWEEN, ms=ms, calls=calls, share=ms / scene.step_ms)


def _waits_and_transfer(scene: Scene, exposed_ms: float) -> Sequence[EvidenceRow]:
    """Return what of communication that nothing hides ranks wait for each other, and transfer; nothing where that is
    not told.
    """
    wait, transfer, unsplit = (scene.share_ms(part) - scene.for_longer_ones_ms(part) for part in _SPLIT)
    if unsplit > _UNTOLD * exposed_ms:
        return ()
    rows = [
        EvidenceRow(kind="figure", name=name, ms=max(0.0, ms), share=max(0.0, ms) / scene.step_ms)
        for name, ms in ((EXPOSED_WAIT, wait), (EXPOSED_TRANSFER, transfer))
    ]
    own = sorted((rank.part_ms("exposed_wait"), rank.rank) for rank in step_as_run(scene.analysis)[1])
    usual = not scene.for_longer_ones_ms("exposed_wait")
    if len(own) == 2 and len(scene.side.ranks) == 2 and usual and own[1][0] >= _BY_FAR * own[0][0]:
        (less, _), (more, rank) = own
        rows.append(EvidenceRow(kind="figure", name=ONE_WAITS, ms=more, others_ms=less, value=float(rank)))
    return rows


def _untold_waits_ms(scene: Scene) -> float:
    """Return what of a step may be waiting before collectives on copy engines, ms: transfer, and queued kernels."""
    records = scene.replayer.records.values()
    if not any(one.by_copies for record in records for one in record.collectives):
        return 0.0
    return scene.share_ms("exposed_transfer") + scene.share_ms("idle_queued")


def _are_waits(rows: Sequence[EvidenceRow]) -> bool:
    """Tell whether much of what nothing hides is waits of ranks for each other: no faster operator mends those."""
    wait, exposed = (next((row.ms or 0.0 for row in rows if row.name == name), 0.0) for name in (EXPOSED_WAIT, EXPOSED))
    return wait > 0 and wait >= _WAITS * exposed


def _are_transfer(rows: Sequence[EvidenceRow]) -> bool:
    """Tell whether what nothing hides is told to be transfer, for the most part: it is what is said first."""
    return any(row.name == EXPOSED_TRANSFER for row in rows) and not _are_waits(rows)


def _cure(scene: Scene, wasteful: Sequence[EvidenceRow], rows: Sequence[EvidenceRow], found: Sequence[Finding]) -> Cure:
    """Return what mends the costliest habit that a setting mends, in the settings' own framework; else what has to do
    with what is said first: of waits, what tells whose they are, of transfer, to send less, and of idle time, what the
    most of it is.
    """
    mended = [row for row in wasteful if row.name in _CURES]
    if mended and scene.analysis.framework == "torch":
        name = max(mended, key=lambda row: row.ms or 0.0).name
        return onto_matrix_units(scene.peak) if name == FULL_PRECISION else _CURES[name]
    if _are_waits(rows):
        return "profile_longer"
    if _are_transfer(rows):
        return "send_less"
    names = [row.name for row in rows]
    idles = (IDLE in names or BETWEEN in names) and EXPOSED not in names
    return _idle_cure(scene, found) if idles else "faster_kernels"


def _idle_cure(scene: Scene, found: Sequence[Finding]) -> Cure:
    """Return what has to do with most of the time in which nothing runs: no faster operator shortens that."""
    most = max(_IDLE, key=lambda part: scene.share_ms(part) - scene.for_longer_ones_ms(part))
    if most != "idle_launch":
        return "load_ahead" if most == "idle_data" else "profile_longer"
    launching = next((one for one in found if one.code == "host_bound" and one.remedy is not None), None)
    return launching.remedy.cure if launching is not None and launching.remedy is not None else "look_at_host"


def tell_kinds(run: RunAnalysis) -> None:
    """Let a step without a finding consist of what the table of kinds has: once it is known of which step that is."""
    for at, one in enumerate(run.findings):
        if one.code == "nothing":
            first = next((place for place, row in enumerate(one.evidence) if _is_kind(row)), len(one.evidence))
            rest = [row for row in one.evidence if not _is_kind(row)]
            told = (*rest[:first], *_kinds(kinds_of_step(run)), *rest[first:])
            run.findings[at] = replace(one, evidence=told)


def _is_kind(row: EvidenceRow) -> bool:
    return row.kind == "activity" and row.share is not None


def _kinds(kinds: Sequence[KindRow]) -> Sequence[EvidenceRow]:
    computing = [row for row in kinds if row.share_of_compute is not None]
    computing.sort(key=lambda row: -row.ms)
    return [
        EvidenceRow(kind="activity", name=row.kind, ms=row.ms, calls=row.calls, share=row.share_of_compute)
        for row in computing[:_MOST_KINDS]
    ]


def _of_peak(scene: Scene) -> Sequence[EvidenceRow]:
    """Return what multiplications reach of the data sheet's peak while they run, and the whole step (MFU)."""
    rows = []
    throughput, facts = scene.analysis.throughput, scene.facts
    if throughput is not None and throughput.mfu is not None:
        rows.append(EvidenceRow(kind="figure", name="mfu", share=throughput.mfu))
    multiplying = sum(row.ms for row in scene.analysis.kinds if row.kind in MULTIPLYING)
    precision = facts.precision if facts is not None else None
    peak = scene.peak.tflops(precision or USUAL_PRECISION) if scene.peak is not None else None
    if facts is not None and facts.flops_per_sample and peak and multiplying:
        flops = facts.hardware_flops_per_sample or facts.flops_per_sample
        reached = flops * facts.samples_per_rank_step / (multiplying / 1e3) / 1e12
        rows.append(EvidenceRow(kind="figure", name="multiplying_of_peak", share=reached / peak, value=reached))
    return rows
