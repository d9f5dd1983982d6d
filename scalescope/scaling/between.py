"""One job's plain traces at several world sizes: efficiency, and where the step's growth went, as a study has them.

Traces tell no batch and no throughput: the step is that of the traces' windows, and scaling is weak where a rank
computes as long in both runs, strong where it computes a share of it. That is said.
"""

from collections.abc import Sequence

from scalescope.records.console import counted
from scalescope.records.errors import UserError
from scalescope.scaling.join.explained import Explained
from scalescope.scaling.rank.kernels import KernelTable
from scalescope.scaling.study_answer import ScalingPoint, StudyAnalysis
from scalescope.scaling.verdicts.scaling import Scaling, compute_factor, scaling_of, speedup_of
from scalescope.scaling.verdicts.waterfall import MeanStep, mean_step, waterfall


def compare_world_sizes(bases: Sequence[Explained], here: Explained) -> StudyAnalysis:
    """Return how a job scales from its traces on fewer ranks to those on more.

    Raises UserError where two are of one world size, or one holds nothing that could be compared.
    """
    runs = sorted([*bases, here], key=lambda one: one.analysis.world_size)
    for one in runs:
        _check(one)
    sizes = [one.analysis.world_size for one in runs]
    if len(set(sizes)) < len(sizes):
        raise UserError(
            f"{' and '.join(one.analysis.name for one in runs)} ran on {_sizes(sizes)}: --base "
            "compares world sizes; what a rank lost against a run on as many is told by --against"
        )
    name = f"{runs[-1].analysis.name} and {', '.join(one.analysis.name for one in runs[:-1])}"
    study = StudyAnalysis(name=name, runs=[one.analysis.name for one in runs])
    series = runs[-1].analysis.name
    smallest = runs[0]
    scaling = scaling_of(_sized(smallest), _sized(runs[-1]))
    study.efficiency = [_point(series, scaling, smallest, one) for one in runs]
    for one in runs[1:]:
        fall = waterfall(series, _exact(smallest), _exact(one), same_work=scaling == "weak")
        study.waterfall.append(fall)
        if fall.compute_inflation_ms is None and scaling == "weak":
            study.reasons.append(
                f"{fall.from_world_size} to {fall.to_world_size} ranks: too few kernels match by name and place in the "
                "step to split the compute's growth into inflation and more work"
            )
    as_long = "as long" if scaling == "weak" else "a share of it"
    study.reasons.append(
        f"taken as {scaling} scaling, since a rank computes {as_long} in the larger run; steps are those of the traces"
    )
    return study


def _check(one: Explained) -> None:
    analysis = one.analysis
    if analysis.quality.verdict == "unusable" or not any(one.partitions.values()):
        why = analysis.quality.reasons[0] if analysis.quality.reasons else "its traces hold too little"
        raise UserError(f"{analysis.name} cannot be compared: {why}")
    if analysis.steps_by is None:
        raise UserError(f"{analysis.name} has no steps in its traces, so it has no step's time to compare")


def _sized(one: Explained) -> tuple[int, MeanStep]:
    return one.analysis.world_size, mean_step(list(one.partitions.values()))


def _exact(one: Explained) -> tuple[int, MeanStep, list[KernelTable]]:
    return *_sized(one), list(one.kernels.values())


def _point(series: str, scaling: Scaling, reference: Explained, one: Explained) -> ScalingPoint:
    before, after = _sized(reference), _sized(one)
    speedup = speedup_of(scaling, (before[0], float(before[1].window)), (after[0], float(after[1].window)))
    parallel = one.analysis.efficiency, reference.analysis.efficiency
    return ScalingPoint(
        series=series,
        model=one.analysis.name,
        world_size=after[0],
        scaling=scaling,
        run=one.analysis.name,
        step_ms=float(after[1].window) / 1e6,
        samples_per_s=None,
        tokens_per_s=None,
        speedup=speedup,
        efficiency=speedup * before[0] / after[0],
        compute_factor=compute_factor(scaling, before, after),
        parallel_factor=parallel[0].parallel / parallel[1].parallel if parallel[0] and parallel[1] else None,
    )


def _sizes(sizes: Sequence[int]) -> str:
    """Return on how many ranks runs ran, of which some were as many."""
    if len(set(sizes)) == 1:
        return f"{counted(sizes[0], 'rank')} {'both' if len(sizes) == 2 else 'each'}"
    return f"{', '.join(map(str, sizes[:-1]))} and {counted(sizes[-1], 'rank')}"
