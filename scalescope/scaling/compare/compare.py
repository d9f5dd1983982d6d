"""Compares two measurements of anything: reads both sides, lays like beside like, says what changed and by how much."""

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import fmean

import msgspec

from scalescope.scaling.answer_rows import Basis
from scalescope.scaling.compare.alike.environment import differing
from scalescope.scaling.compare.alike.ranks_held import of_ranks_held
from scalescope.scaling.compare.alike.same_work import amounts, same_work
from scalescope.scaling.compare.alone import AnalysisOf, doing_of, first_of_longer, found_alone
from scalescope.scaling.compare.answer import Comparison, GapChange, GateLine, LateChange, Reason, Side, Verdict
from scalescope.scaling.compare.difference import Difference, as_both_split, difference, within_amounts
from scalescope.scaling.compare.gate import Limit, judge
from scalescope.scaling.compare.kernels.gaps import standing_gaps
from scalescope.scaling.compare.kernels.matching import Matched, another_size, match_sides
from scalescope.scaling.compare.kernels.work import rank_with_other_work, with_work
from scalescope.scaling.compare.measurement import Measurement, ranks_in_all
from scalescope.scaling.compare.points import compare_points
from scalescope.scaling.compare.read import label_of, read_side
from scalescope.scaling.compare.rows.irregular import irregular_change
from scalescope.scaling.compare.rows.late import late_change
from scalescope.scaling.compare.rows.places import places_change
from scalescope.scaling.compare.rows.recurring import recurring_change
from scalescope.scaling.finding.codes import Code
from scalescope.scaling.finding.finding import Finding, ranks_of
from scalescope.scaling.sweeps.comparison import describe_row
from scalescope.scaling.trace.kernel_kinds import KINDS

#: Where parts that changed for sure tell less of a step's change, what tells it is asked of the runs' own analyses.
_TOLD = 0.5
#: Causes whose doing is kernels of several kinds, more of which are launched or all of which are dearer: they say why.
_SAY_WHY: tuple[Code, ...] = ("recomputation", "unfused_normalisation", "double_precision", "full_precision")
_CORES_UNTOLD = (
    "nothing tells whether the ranks had their cores to themselves: beside other processes steps on CPUs differ by "
    "more than these bounds"
)


def compare_paths(
    baseline: Sequence[Path],
    other: Sequence[Path],
    limits: Sequence[Limit] = (),
    jobs: int | None = None,
    analysis_of: AnalysisOf | None = None,
) -> Comparison:
    """Return two measurements side by side, each given as a path, or as paths that are repeats of one job.

    `limits`: what the changes may come to. `jobs`: processes that read traces. `analysis_of`: what tells a run's
    causes, for those of one side alone. Raises UserError where a path holds nothing that can be compared.
    """
    return compare(*read_both(baseline, other, jobs), limits, analysis_of)


def read_both(
    baseline: Sequence[Path], other: Sequence[Path], jobs: int | None = None
) -> tuple[list[Measurement], list[Measurement]]:
    """Return both sides' measurements. Raises UserError where a path holds nothing that can be compared."""
    labels = [[label_of(path) for path in side] for side in (baseline, other)]
    whole = labels[0] == labels[1]  # of one name in two places, the place tells them apart
    return read_side(baseline, jobs, whole=whole), read_side(other, jobs, whole=whole)


def compare(
    baseline: Sequence[Measurement],
    other: Sequence[Measurement],
    limits: Sequence[Limit] = (),
    analysis_of: AnalysisOf | None = None,
) -> Comparison:
    """Return two sides, a measurement a job each, side by side; of several jobs, the worst, with all as `members`."""
    pairs, alone = _paired(baseline, other)
    names = (_side_name(baseline), _side_name(other))
    if not pairs:
        return _nothing_in_common(baseline, other, names, limits)
    found = [_compared(before, after, _applying(limits, before, pairs), analysis_of) for before, after in pairs]
    if len(found) == 1 and not alone:
        return found[0]
    worst = max(found, key=_badness)
    gate = [
        msgspec.structs.replace(line, text=f"{member.other}: {line.text}") for member in found for line in member.gate
    ]
    gate += [GateLine(expression=limit.expression, held=False, text=f"{told}: not measured in “{names[1]}”")
             for limit in limits for told in _missing(baseline, pairs)]  # fmt: skip
    return msgspec.structs.replace(
        worst, baseline=names[0], other=names[1], members=found, notes=[*alone, *worst.notes], gate=gate
    )


def _applying(
    limits: Sequence[Limit], measured: Measurement, pairs: Sequence[tuple[Measurement, Measurement]]
) -> list[Limit]:
    """Return the limits that are of such a measurement: a sweep has no steps, and where there is one, runs no busbw."""
    sweeps = any(before.launches for before, _ in pairs)
    if len(pairs) == 1:
        return list(limits)
    return [limit for limit in limits if (limit.metric == "busbw" and sweeps) == bool(measured.launches)]


def _missing(baseline: Sequence[Measurement], pairs: Sequence[tuple[Measurement, Measurement]]) -> list[str]:
    """Return the baseline's jobs that the other side has not: a gate must not hold because a job is gone."""
    compared = {before.name for before, _ in pairs}
    return [one.name for one in baseline if one.repeats and one.name not in compared]


def _side_name(side: Sequence[Measurement]) -> str:
    return side[0].name.partition("/")[0]


def _badness(one: Comparison) -> tuple[int, float]:
    order: dict[Verdict, int] = {"not_comparable": 0, "same": 1, "faster": 2, "slower": 3}
    return order[one.verdict], one.change or 0.0


def _paired(
    baseline: Sequence[Measurement], other: Sequence[Measurement]
) -> tuple[list[tuple[Measurement, Measurement]], list[str]]:
    """Return what is laid beside what, and which jobs stand alone.

    One job a side is laid beside the other's, whatever differs; of several, those of like series.
    """
    pairs: list[tuple[Measurement, Measurement]] = []
    alone: list[str] = []
    sweeps = [[one for one in side if one.launches] for side in (baseline, other)]
    runs = [[one for one in side if one.repeats] for side in (baseline, other)]
    if len(runs[0]) == 1 and len(runs[1]) == 1:
        pairs.append((runs[0][0], runs[1][0]))
    else:
        there = {one.first.series: one for one in runs[1]}
        here = {one.first.series: one for one in runs[0]}
        pairs += [(one, there[series]) for series, one in here.items() if series in there]
        for side, others in ((here, there), (there, here)):
            alone += [f"only {one.name} has {one.first.name}" for series, one in side.items() if series not in others]
    if sweeps[0] and sweeps[1]:
        pairs.append((sweeps[0][0], sweeps[1][0]))
    elif pairs:
        alone += [f"only {one.name} has a sweep" for side in sweeps for one in side]
    return pairs, alone


def _nothing_in_common(
    baseline: Sequence[Measurement], other: Sequence[Measurement], names: tuple[str, str], limits: Sequence[Limit]
) -> Comparison:
    runs = [any(one.repeats for one in side) for side in (baseline, other)]
    if runs[0] != runs[1]:
        reason: Reason = "another_kind"
        text = "one holds runs, the other a sweep"
    else:
        reason, text = "nothing_in_common", "no job of one is in the other: same model, settings, ranks and batch"
    return _refused(names, reason, [text], baseline[0], other[0], limits)


def _refused(
    names: tuple[str, str],
    reason: Reason,
    notes: list[str],
    baseline: Measurement,
    other: Measurement,
    limits: Sequence[Limit],
) -> Comparison:
    answer = Comparison(
        baseline=names[0],
        other=names[1],
        kind="run" if baseline.repeats else "sweep",
        verdict="not_comparable",
        reason=reason,
        environment=differing(baseline, other),
        notes=notes,
    )
    answer.gate = [judge(limit, answer, baseline, other) for limit in limits]
    return answer


def _compared(
    baseline: Measurement, other: Measurement, limits: Sequence[Limit], analysis_of: AnalysisOf | None
) -> Comparison:
    answer = _runs(baseline, other) if baseline.repeats else _sweeps(baseline, other)
    same_steps = answer.kind == "run" and answer.by_rate is None and answer.verdict != "not_comparable"
    if analysis_of is not None and same_steps and not answer.on_both_sides:
        analysis_of = cache(analysis_of)
        if answer.recurring is not None and answer.recurring.differs:
            doing = doing_of(baseline, other, answer.recurring, analysis_of)
            answer.recurring = msgspec.structs.replace(answer.recurring, doing=doing)
        if answer.verdict == "same":
            answer.alone = found_alone(answer, baseline, other, analysis_of)
        elif answer.parts and (_sure_share(answer) < _TOLD or has_other_kernels(answer, baseline)):
            longer: Side = "other" if answer.verdict == "slower" else "baseline"
            found = first_of_longer(baseline, other, longer, analysis_of)
            untold = _sure_share(answer) < _TOLD
            answer.alone = [one for one in found if untold or one.finding.code in _SAY_WHY]
        first = [one.finding for one in answer.alone[:1]]
        answer = of_accused(answer, baseline, other, first)
    answer.gate = [judge(limit, answer, baseline, other) for limit in limits]
    if analysis_of is not None and same_steps and answer.verdict != "same" and any(one.untold for one in answer.gate):
        known = msgspec.structs.replace(answer, alone=found_alone(answer, baseline, other, analysis_of))
        answer.gate = [judge(limit, known, baseline, other) for limit in limits]
    return answer


def of_accused(answer: Comparison, baseline: Measurement, other: Measurement, first: Sequence[Finding]) -> Comparison:
    """Return a comparison with the parts and kernels of the rank that its first cause names, be it of either side:
    another one's tables do not show it. `first`: that cause, or none.

    As it is where it names none or several, or another rank's steps alone do more; and where a loop that stands still,
    or ranks that changed places, are told before. The step's change and its bounds stay.
    """
    ranks = [rank for one in first for rank in ranks_of(one)]
    if not ranks and answer.late is not None:
        ranks = [answer.late.rank]
    alone = rank_with_other_work(baseline, other)
    held = ranks_in_all([*baseline.windows, *other.windows])
    mine = ranks[0] if len(ranks) == 1 and ranks[0] in held and alone in (None, *ranks) else None
    if mine is None or not answer.parts or answer.gaps or answer.places is not None or answer.by_rate is not None:
        return answer
    if all(one.rank == mine for one in answer.parts):
        return msgspec.structs.replace(answer, of_accused=mine)
    *sides, _ = of_ranks_held(baseline, other)
    found = difference(*as_both_split(*sides), accused=mine)
    assert found is not None  # as it was compared before
    matched = match_sides(baseline, other, mine, 1.0)
    parts = with_work(within_amounts(found.parts), baseline, other, matched.alone_us, alone, matched.resized)
    return msgspec.structs.replace(
        answer, of_accused=mine, parts=parts, kernels=matched.rows, kernels_rank=matched.rank,
        matched_share=matched.share,
    )  # fmt: skip


def has_other_kernels(answer: Comparison, side: Measurement) -> bool:
    """Tell whether kernels are more on one side or, where hosts compute, surely longer: as in a dearer precision."""
    on_cpus = side.first.identity.activity == "cpu"
    longer = (one.name in KINDS and not one.within_noise for one in answer.parts)
    return any(one.other_calls for one in answer.parts) or (on_cpus and any(longer))


def _sure_share(answer: Comparison) -> float:
    """Return how much of a step's change the parts tell that changed for sure."""
    told = sum(one.told_ms or 0.0 for one in answer.parts if answer.is_sure(one) or one.more_done)
    return told / answer.change_ms if answer.change_ms else 0.0


def _runs(baseline: Measurement, other: Measurement) -> Comparison:
    names = (baseline.name, other.name)
    work = same_work(baseline.first, other.first)
    if work.rate is None:
        assert work.reason is not None
        return _refused(names, work.reason, work.notes, baseline, other, ())
    *held, of_ranks = of_ranks_held(baseline, other)
    places = places_change(baseline, other, work.rate)
    found = difference(*as_both_split(*held), work.rate, single_out=places is None)
    if found is None:
        text = "one has steps without a profiler only, the other traces only" if _has_some(baseline, other) else ""
        return _refused(names, "not_measured", [*([text] if text else []), *work.notes], baseline, other, ())
    alone = rank_with_other_work(baseline, other)
    rank = next((part.rank for part in found.parts if part.rank is not None), None) if alone is None else alone
    matched = match_sides(baseline, other, rank, work.rate)
    if (differs := _batch_differs(baseline, other, matched)) is not None:
        return _refused(names, "another_batch", [differs, *work.notes], baseline, other, ())
    parts = with_work(within_amounts(found.parts), baseline, other, matched.alone_us, alone, matched.resized)
    changed = sorted((one for one in parts if one.told_ms is not None), key=lambda one: -abs(one.told_ms or 0.0))
    told = [note for side in (baseline, other) for one in side.repeats for note in one.notes]
    untold = baseline.cores_untold or other.cores_untold
    late = _late(baseline, other, found, work.rate)
    step_ms = fmean((found.baseline_ms, found.other_ms))
    noise_share = (found.high_ms - found.low_ms) / 2 / math.hypot(found.baseline_ms, found.other_ms) * math.sqrt(2)
    recurring = recurring_change(baseline, other, step_ms, noise_share, work.rate)
    return Comparison(
        baseline=names[0],
        other=names[1],
        verdict=_verdict(found.low_ms, found.high_ms),
        reason=work.reason,
        change_ms=found.change_ms,
        low_ms=found.low_ms,
        high_ms=found.high_ms,
        baseline_ms=found.baseline_ms,
        other_ms=found.other_ms,
        by_rate=work.rate if work.rate != 1.0 else None,
        samples=work.samples,
        basis=found.basis,
        noise=found.noise,
        as_measured=found.as_measured,
        job_untold=_job_untold(baseline, other, matched),
        cores_untold=untold,
        parts=parts,
        parts_by=_parts_by(baseline, other),
        amounts=amounts(baseline.first, other.first),
        gaps=_gaps(baseline, other, step_ms, late, work.rate),
        late=late,
        places=places,
        recurring=recurring,
        irregular=irregular_change(baseline, other, work.rate, told_apart=recurring is not None),
        kernels=matched.rows,
        kernels_rank=matched.rank,
        matched_share=matched.share,
        environment=differing(baseline, other, [one.name for one in changed]),
        on_both_sides=_on_both_sides(baseline, other),
        notes=list(
            dict.fromkeys(
                [
                    *work.notes,
                    *_batch_untold(baseline, other, matched),
                    *matched.notes,
                    *of_ranks,
                    *told,
                    *([_CORES_UNTOLD] if untold else []),
                ]
            )
        ),
    )


def _late(baseline: Measurement, other: Measurement, found: Difference, rate: float) -> LateChange | None:
    """Return the rank that others wait for longer, where steps do as much on both sides."""
    alike = rate == 1.0 and found.basis == "untraced"
    return late_change(baseline, other, (found.baseline_ms, found.other_ms)) if alike else None


def _gaps(
    baseline: Measurement, other: Measurement, step_ms: float, late: LateChange | None, rate: float
) -> list[GapChange]:
    """Return where ranks' loops stand still for longer, where the loop's thread is all there is of a rank."""
    on_cpus = all(side.first.identity.activity == "cpu" for side in (baseline, other))
    return standing_gaps(baseline, other, step_ms, late) if on_cpus and rate == 1.0 else []


def _on_both_sides(baseline: Measurement, other: Measurement) -> list[str]:
    """Return the runs that both sides hold: they differ from themselves by nothing."""
    there = {one.path.resolve() for one in baseline.repeats}
    return [one.name for one in other.repeats if one.path.resolve() in there]


def _batch_untold(baseline: Measurement, other: Measurement, matched: Matched) -> list[str]:
    """Say that steps may be of other batches, where neither facts nor grids tell how many samples a step takes."""
    if not _size_untold(baseline, other, matched):
        return []
    return ["nothing tells whether a step takes as many samples on both sides: of another batch it would be as much "
            "longer or shorter"]  # fmt: skip


def _size_untold(baseline: Measurement, other: Measurement, matched: Matched) -> bool:
    """Tell whether neither facts nor grids tell how many samples a step takes on both sides."""
    sides = [side.first.identity for side in (baseline, other)]
    told = all(one.samples_by_rank and not one.counts_batches for one in sides)
    return not told and matched.work_ratio is None


def _job_untold(baseline: Measurement, other: Measurement, matched: Matched) -> bool:
    """Tell whether nothing but kernels speaks for one job: unnamed on one side at least, and of steps of any size."""
    named = all(side.first.identity.model is not None for side in (baseline, other))
    return not named and _size_untold(baseline, other, matched)


def _batch_differs(baseline: Measurement, other: Measurement, matched: Matched) -> str | None:
    """Return why traces are of another batch, where nothing else tells either side's; None where they are not."""
    told = [bool(side.first.identity.samples_by_rank) for side in (baseline, other)]
    return None if all(told) else another_size(matched.work_ratio)


def _parts_by(baseline: Measurement, other: Measurement) -> Basis | None:
    """Return how the profiled steps are told whose parts are compared; None where a side has none."""
    if not (baseline.windows and other.windows):
        return None
    windows = [*baseline.windows, *other.windows]
    return "as_run" if all(window.basis == "as_run" for window in windows) else "profiled"


def _has_some(baseline: Measurement, other: Measurement) -> bool:
    return all(any(one.windows or one.steady_ms for one in side.repeats) for side in (baseline, other))


def _verdict(low: float, high: float) -> Verdict:
    return "slower" if low > 0 else "faster" if high < 0 else "same"


def _sweeps(baseline: Measurement, other: Measurement) -> Comparison:
    points, found = compare_points(baseline.launches, other.launches)
    names = (baseline.name, other.name)
    if not points:
        text = "no point in common: both sides have to measure the same sizes, group sizes, modes and paths"
        return _refused(names, "nothing_in_common", [text], baseline, other, ())
    different = [one.ratio for one in points if one.differs and one.ratio]
    return Comparison(
        baseline=names[0],
        other=names[1],
        kind="sweep",
        verdict="same" if not different else "slower" if sum(map(math.log, different)) < 0 else "faster",
        points=points,
        only_baseline=[describe_row(row) for row in found.only_baseline],
        only_other=[describe_row(row) for row in found.only_other],
        environment=differing(baseline, other, ["exposed_transfer"]),
        notes=_launches(baseline, other),
    )


def _launches(baseline: Measurement, other: Measurement) -> list[str]:
    counts = (len(baseline.launches), len(other.launches))
    if min(counts) > 1:
        return [f"points vary as between {counts[0]} and {counts[1]} launches"]
    return ["one launch on a side: what launches are known to differ by is in its intervals; sweep launches=3 gives "
            "narrower ones"]  # fmt: skip
