"""What each rank lost against an undisturbed run of the same job on as many ranks.

Where a rank is slow, the others' steps grow as well. On each of them the growth is exposed wait, slower compute (the
same kernels beside collectives that wait), idle time, and transfer laid bare: buckets that the backward pass used to
hide are reduced after it. The parts add up to the growth exactly, as in the waterfall between rank counts.

The last step of a window ends with its last activity, so it lacks what the host does before the next one (loading
data). It is left out where there are others.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import msgspec

from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from scalescope.records.steps.unevenness import half_of_median
from scalescope.scaling.answer import RankLoss
from scalescope.scaling.answer_rows import PARTS, OtherCalls, OtherWork, SurePart, WaterfallPart
from scalescope.scaling.compare.alike.same_work import another_job, other_names
from scalescope.scaling.compare.answer import Comparison
from scalescope.scaling.compare.compare import compare, of_accused, read_both
from scalescope.scaling.compare.measurement import EXPOSED, UNSPLIT, Measurement
from scalescope.scaling.compare.windows import bounded, identity_of
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.join.explained import Explained
from scalescope.scaling.rank.kernels import KernelTable
from scalescope.scaling.verdicts.step_rows.steady import measured_steps
from scalescope.scaling.verdicts.waterfall import MeanStep, compute_split, mean_step

#: A part that changed by less of the step is no word worth, however sure that is: as `compare` has it.
_WORTH_NAMING = 0.001
#: Of fewer steps no median is known by itself.
_FEWEST_STEPS = 8


def lost_time(references: Sequence[Explained], run: Explained) -> list[RankLoss]:
    """Return what each rank lost a step against the references' mean (one run, or those before and after), by rank.

    Raises UserError where a reference is another job or of another world size, or no rank has profiled steps in all of
    the runs.
    """
    name = ", ".join(one.analysis.name for one in references)
    for one in references:
        if one.analysis.world_size != run.analysis.world_size:
            raise UserError(
                f"{one.analysis.name} ran on {one.analysis.world_size} ranks and {run.analysis.name} on "
                f"{run.analysis.world_size}: lost time is told rank by rank, against a run on as many; how a "
                "job scales from fewer ranks is told by --base"
            )
        if (refused := another_job(identity_of(one), identity_of(run))) is not None:
            raise UserError(f"{run.analysis.name} is not {one.analysis.name}'s job: {refused.notes[0]}; give a run of "
                            "the same job, undisturbed")  # fmt: skip
    ranks = [rank for rank in sorted(run.partitions) if all(one.partitions.get(rank) for one in (run, *references))]
    if not ranks or not references:
        raise UserError(f"no rank has profiled steps both in {run.analysis.name} and in {name or 'a reference'}")
    world = range(run.analysis.world_size)
    lacks = [rank for rank in world if not all(one.partitions.get(rank) for one in references)]
    return [_loss(rank, name, references, run, lacks) for rank in ranks]


class Compared(msgspec.Struct, frozen=True):
    """A run beside its references, as `compare` has them: the two measurements, and what they differ by."""

    baseline: Measurement
    other: Measurement
    found: Comparison

    def of_accused(self, first: Sequence[Finding]) -> Comparison:
        """Return the comparison with the parts of the rank that the first cause told names, as `compare` has it."""
        return of_accused(self.found, self.baseline, self.other, first)


def compared(run: Path, references: Sequence[Path], jobs: int | None) -> Compared | None:
    """Return a run beside its references; None where they are not to be compared."""
    try:
        baseline, other = read_both(references, [run], jobs)
        found = compare(baseline, other)
    except UserError:
        return None
    return Compared(baseline[0], other[0], found)


def of_rank_named(lost: Sequence[RankLoss], beside: Compared, first: Sequence[Finding]) -> list[RankLoss]:
    """Return the losses with what is sure of the parts of the rank that the first cause told names, be it the run's or
    one that is gone: so that this and `compare` say one thing of the parts.
    """
    named = beside.of_accused(first)
    sure, work = sure_parts(named), other_work(named)
    return [msgspec.structs.replace(one, sure_parts=sure, other_work=work) for one in lost]


def with_noise(
    lost: Sequence[RankLoss], beside: Compared | None, run: Path, references: Sequence[Path]
) -> list[RankLoss]:
    """Return the losses with the change of the job's step and its bounds, as a comparison of both has them.

    Raises UserError where that would scale one side's times by its samples: what ranks lost is told of one batch.
    """
    if beside is None:
        return list(lost)
    found = beside.found
    if found.change_ms is None:
        return list(lost)
    if found.samples is not None and found.samples.rate is not None:
        there, here = max(found.samples.baseline), max(found.samples.other)
        raise UserError(
            f"{found.other} is not {found.baseline}'s job: a rank's step takes {here:,} samples for {there:,}; give a "
            "run of the same batch, or compare them a sample: scalescope compare "
            f"{references[0]} {run}"
        )
    noise, sure = found.noise, sure_parts(found)
    return [
        msgspec.structs.replace(
            one,
            step_change_ms=found.change_ms,
            step_low_ms=found.low_ms,
            step_high_ms=found.high_ms,
            from_measured_ms=found.baseline_ms if found.basis == "untraced" else None,
            to_measured_ms=found.other_ms if found.basis == "untraced" else None,
            from_compared_ms=found.baseline_ms,
            to_compared_ms=found.other_ms,
            compared_by=found.basis,
            samples=found.samples,
            places=found.places,
            from_run_delay_ms=noise.baseline_run_delay_ms if noise is not None else None,
            to_run_delay_ms=noise.other_run_delay_ms if noise is not None else None,
            cores_untold=found.cores_untold,
            as_measured=found.sure_as_measured,
            sure_parts=sure,
            other_work=other_work(found),
            other_calls=other_calls(found),
            recurring=found.recurring,
            from_own_ms=_own_ms(references) if found.basis == "untraced" else None,
            to_own_ms=_own_ms([run]) if found.basis == "untraced" else None,
        )
        for one in lost
    ]


def sure_parts(found: Comparison) -> list[SurePart]:
    """Return the parts that are beyond noise where the whole step is within it: else the ranks' own tell of its growth.

    What changes by more or fewer kernels is no part's growth, and what steps that recur may have made is theirs.
    """
    low, high = found.low_ms, found.high_ms
    if low is None or high is None or not low <= 0 <= high or found.cores_untold:
        return []
    least = _WORTH_NAMING * found.step_ms
    often = found.recurring is not None and found.recurring.differs
    sure = [one for one in found.parts if found.is_sure(one) and not one.more_done and abs(one.change_ms) > least]
    return [
        SurePart(part=one.name, change_ms=one.change_ms, low_ms=one.low_ms, high_ms=one.high_ms,
                 rank=one.rank if one.of_one_rank else None)
        for one in sorted(() if often else sure, key=lambda one: -abs(one.change_ms))
    ]  # fmt: skip


def other_work(found: Comparison) -> list[OtherWork]:
    """Return what a step that may be as long as the reference's runs more or fewer kernels of, as `compare` has it."""
    low, high, least = found.low_ms, found.high_ms, _WORTH_NAMING * found.step_ms
    if low is None or high is None or not low <= 0 <= high:
        return []
    told = []
    for one in found.parts:
        work, counted = one.work, one.counted
        if work is None or not one.more_done or not (found.is_sure(one) or abs(one.told_ms or 0.0) > least):
            continue
        change, bounds = one.change_ms, (one.low_ms, one.high_ms)
        if counted is not None and counted.change_ms is not None:
            change, bounds = counted.change_ms, (counted.low_ms or 0.0, counted.high_ms or 0.0)
        told.append(
            OtherWork(part=one.name, baseline_calls=work.baseline_calls, other_calls=work.other_calls,
                      change_ms=change, low_ms=bounds[0], high_ms=bounds[1], rank=work.rank,
                      within_noise=counted is not None)
        )  # fmt: skip
    return sorted(told, key=lambda one: -abs(one.change_ms))


def other_calls(found: Comparison) -> list[OtherCalls]:
    """Return of which collectives a step makes another number, where it may be as long as the reference's."""
    low, high = found.low_ms, found.high_ms
    if low is None or high is None or not low <= 0 <= high:
        return []
    return [
        OtherCalls(operation=one.operation, baseline_calls=round(one.baseline), other_calls=round(one.other))
        for one in found.amounts
        if one.amount == "collectives" and one.operation is not None
    ]


def _own_ms(paths: Sequence[Path]) -> float | None:
    """Return how far the median of a single run's own steady steps is known, ms; None of several, or where no rows
    tell.
    """
    if len(paths) > 1 or not (paths[0] / "run.json").is_file():
        return None
    steady = measured_steps(RunFolder(paths[0]).read_steps()).steady
    return half_of_median([row.length_ms for row in steady]) if len(steady) >= _FEWEST_STEPS else None


def _loss(rank: int, name: str, references: Sequence[Explained], run: Explained, lacks: list[int]) -> RankLoss:
    before = mean_step([bounded(one, rank) for one in references])
    after = mean_step([bounded(run, rank)])
    split = _split([one.kernels[rank] for one in references], [run.kernels[rank]])
    parts = _changes(before, after)
    if lacks or run.analysis.quality.missing_ranks:
        parts = _unsplit(parts)
    return RankLoss(
        rank=rank,
        reference=name,
        from_step_ms=float(before.window) / 1e6,
        to_step_ms=float(after.window) / 1e6,
        growth_ms=float(after.window - before.window) / 1e6,
        parts=[WaterfallPart(part=part, ms=ms) for part, ms in parts.items()],
        compute_inflation_ms=None if split is None else float(split[0]) / 1e6,
        compute_more_work_ms=None if split is None else float(split[1]) / 1e6,
        other_names=other_names(identity_of(references[0]), identity_of(run)),
        reference_lacks=lacks,
    )


def _split(there: Sequence[KernelTable], here: Sequence[KernelTable]) -> tuple[float, float] | None:
    """Return how much slower the reference's kernels are in the run, and what kernels the run has besides, ns a step.

    Told by the kernels of the one that computes less, whichever is the reference: so what one of both runs besides is
    the same work when it is gone. None where that has too few of them in common.
    """
    less, more = sorted((there, here), key=lambda own: fmean(one.total_ns / max(1, one.steps) for one in own))
    split, sign = compute_split(less, more), 1 if less is there else -1
    return None if split is None else (sign * float(split[0]), sign * float(split[1]))


def _changes(before: MeanStep, after: MeanStep) -> Mapping[str, float]:
    pairs = zip(PARTS, before.parts, after.parts, strict=True)
    return {part: float(new - old) / 1e6 for part, old, new in pairs}


def _unsplit(changes: Mapping[str, float]) -> Mapping[str, float]:
    """Return the changes with those of all exposed communication as one, where one side does not tell its waits."""
    whole = sum(changes[part] for part in EXPOSED)
    return {part: whole if part == UNSPLIT else 0.0 if part in EXPOSED else ms for part, ms in changes.items()}
