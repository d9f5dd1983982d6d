"""What only a whole study can say: efficiency over rank counts, and where the step's growth went."""

from collections.abc import Sequence
from concurrent.futures import Executor

import msgspec

from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from scalescope.records.rows import JobRow, RunInfo, StepRow, TrainFacts
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.costs.answer import cost_answer
from scalescope.scaling.costs.model import CostModel, NotKnown
from scalescope.scaling.costs.points import Launch, launch_of
from scalescope.scaling.findings.cores import core_share
from scalescope.scaling.findings.tried import compare_tried
from scalescope.scaling.join.explained import Explained
from scalescope.scaling.planned.more_windows import job_called, measured_again
from scalescope.scaling.projection.basis import Basis, MeasuredRun
from scalescope.scaling.projection.noise import repeat_half_ms
from scalescope.scaling.projection.outcomes import projection_of
from scalescope.scaling.projection.outlook import Outlook
from scalescope.scaling.rank.kernels import KernelTable
from scalescope.scaling.run import explain_steps_only
from scalescope.scaling.study_answer import GrownCoreWaits, ScalingPoint, StudyAnalysis, Waterfall
from scalescope.scaling.verdicts.growth import add_measured_growth
from scalescope.scaling.verdicts.insitu import add_in_situ
from scalescope.scaling.verdicts.scaling import Scaling, compute_factor
from scalescope.scaling.verdicts.step_rows.grown_waits import RunRows, grown_core_waits
from scalescope.scaling.verdicts.waterfall import MeanStep, mean_step, waterfall
from scalescope.scaling.windows.explain import explain_windows


class TrainRun(msgspec.Struct, frozen=True):
    """One training run of a study, explained."""

    folder: RunFolder
    info: RunInfo
    facts: TrainFacts
    explained: Explained
    steps: list[StepRow]

    @property
    def world_size(self) -> int:
        return self.explained.analysis.world_size

    @property
    def traced(self) -> bool:
        """Whether its traces say where its steps go."""
        return self.explained.analysis.quality.verdict != "unusable" and any(self.explained.partitions.values())


class Series(msgspec.Struct, frozen=True):
    """Runs of one job at different rank counts, ascending."""

    name: str
    scaling: Scaling
    runs: list[TrainRun]


def explain_study(
    study: RunFolder, jobs: int | None, executor: Executor | None, outlook: Outlook
) -> tuple[StudyAnalysis, list[RunAnalysis]]:
    """Explain all runs of a study and compare them. Runs that failed are named in `reasons`.

    `outlook`: other sweeps than the study's own, and the GPU counts to project to.

    Raises UserError where the folder holds no run that can be read at all.
    """
    answer = StudyAnalysis(name=study.path.name)
    unfinished: list[str] = []
    runs: list[TrainRun] = []
    analyses: list[RunAnalysis] = []
    sweeps: list[Launch] = []
    children = study.read_children()
    if not children:
        raise UserError(f"the study {study.path} holds no runs; start it again, or give a run folder")
    for child in children:
        try:
            info = child.read_info()
        except UserError as error:
            answer.reasons.append(str(error))
            continue
        answer.runs.append(child.path.name)
        if info.kind == "sweep":
            sweeps.extend(_read_sweep(child, answer))
        elif info.kind == "train":
            try:
                run = _explain_child(child, info, answer, jobs, executor)
            except UserError as error:  # a file of it does not decode: that costs the run, not the study
                answer.reasons.append(f"{child.path.name} is left out: {error}")
                continue
            if run is not None:
                runs.append(run)
                analyses.append(run.explained.analysis)
        if info.status not in ("done", "running"):
            answer.reasons.append(_how_it_ended(child.path.name, info, analyses[-1:]))
            unfinished.append(child.path.name)
    answer.unfinished = unfinished
    sweeps.extend(outlook.sweeps)
    for run in runs:
        add_in_situ(run.explained.analysis, run.explained.exchanges, sweeps)
    try:
        answer.tried = compare_tried(study)
    except UserError as error:
        answer.reasons.append(f"what followed advice is not compared: {error}")
    tried = {one.run for one in answer.tried}
    found = _series([run for run in runs if run.folder.path.name not in tried], answer)
    jobs_kept = _kept_jobs(study)
    for series in found:
        _compare(series, answer)
        _add_again(series, jobs_kept, answer)
    _look_ahead(found, sweeps, outlook, answer)
    return answer, analyses


def _how_it_ended(name: str, info: RunInfo, latest: Sequence[RunAnalysis]) -> str:
    """Return how a run ended that was not done; and that what it measured until then counts, where it measured."""
    why = f": {info.message}" if info.message else ""
    text = f"{name} ended as {info.status}{why}"
    steps = next((one.step_times for one in latest if one.name == name and one.throughput is not None), None)
    return f"{text}; its {steps.measured_steps} steady steps until then count all the same" if steps else text


def _look_ahead(found: Sequence[Series], sweeps: Sequence[Launch], outlook: Outlook, answer: StudyAnalysis) -> None:
    """Fit the sweeps' cost model, and project each series; what there is none of is said."""
    try:
        answer.costs = cost_answer(CostModel(sweeps, outlook.topology))
    except NotKnown as reason:
        answer.reasons.append(f"no cost model: {reason}")
    bases = [Basis(series.name, series.scaling, [_known(run) for run in _usable(series)]) for series in found]
    if bases:
        answer.projection = projection_of(bases, sweeps, outlook)


def _usable(series: Series) -> list[TrainRun]:
    return [run for run in series.runs if _measured(run) is not None and run.traced]


def _known(run: TrainRun) -> MeasuredRun:
    """Return what a projection may know of a run."""
    step_ms = _measured(run)
    assert step_ms is not None
    explained = run.explained
    steady = [row.length_ms for row in run.steps if row.phase == "steady" and row.step_ms]
    return MeasuredRun(
        name=run.folder.path.name,
        world_size=run.world_size,
        device=explained.analysis.device,
        on_cpus=explained.analysis.activity == "cpu",
        step_ms=step_ms,
        repeat_half_ms=repeat_half_ms(steady),
        samples_per_rank_step=run.facts.samples_per_rank_step,
        mean=mean_step(list(explained.partitions.values())),
        exchanges=explained.exchanges,
        ranks_per_replica=run.facts.ranks_per_replica,
    )


def _read_sweep(child: RunFolder, answer: StudyAnalysis) -> list[Launch]:
    try:
        return [launch_of(child)]
    except UserError as error:
        answer.reasons.append(str(error))
        return []


def _explain_child(
    child: RunFolder, info: RunInfo, answer: StudyAnalysis, jobs: int | None, executor: Executor | None
) -> TrainRun | None:
    facts = child.read_facts()
    if facts is None:
        answer.reasons.append(f"{child.path.name} has no facts.json: it ended before training began, and is left out")
        return None
    try:
        explained = explain_windows(child, jobs, executor)
    except UserError as error:
        explained = explain_steps_only(child, str(error))
    try:
        steps = child.read_steps()
    except UserError:  # said in its own analysis
        steps = []
    quality = explained.analysis.quality
    if not explained.partitions:
        answer.reasons.extend(quality.reasons)
    elif quality.verdict == "unusable":
        why = quality.reasons[0] if quality.reasons else "they hold too little"
        answer.reasons.append(f"{child.path.name}: its traces are left out of all comparisons: {why}")
    return TrainRun(child, info, facts, explained, steps)


def _series(runs: Sequence[TrainRun], answer: StudyAnalysis) -> list[Series]:
    """Group runs of one job: weak scaling where a rank's batch stays the same, strong where the global one does."""
    jobs: dict[tuple[str, ...], list[TrainRun]] = {}
    for run in runs:
        jobs.setdefault(run.facts.job, []).append(run)
    found = []
    for key, members in jobs.items():
        name = _series_name(key, list(jobs))
        members = _one_a_size(members, answer)
        if len({run.facts.compiled_by_bucket for run in members} - {None}) > 1:
            answer.reasons.append(
                f"{name}: not all its runs are compiled alike, some in one graph (one rank is by default), others "
                "in a graph a gradient bucket; what the cuts cost is part of its growth; "
                "strategy.compile_by_bucket=true cuts all"
            )
        batches = {run.facts.samples_per_rank_step for run in members}
        global_batches = {run.facts.samples_per_rank_step * run.world_size for run in members}
        if len(batches) == 1:
            found.append(Series(name, "weak", members))
        elif len(global_batches) == 1:
            found.append(Series(name, "strong", members))
        else:
            for batch in sorted(batches):
                same = [run for run in members if run.facts.samples_per_rank_step == batch]
                found.append(Series(f"{name}, batch {batch}", "weak", same))
            answer.reasons.append(f"{name}: neither the batch of a rank nor the global one is the same in all its runs")
    return found


def _series_name(key: tuple[str, ...], all_keys: Sequence[tuple[str, ...]]) -> str:
    """Return the model, with only those settings that tell it from another series of the same model."""
    model, *settings = key
    rivals = [other for other in all_keys if other[0] == model]
    differing = [setting for at, setting in enumerate(settings, 1) if len({rival[at] for rival in rivals}) > 1]
    return " ".join([model, *differing])


def _one_a_size(members: Sequence[TrainRun], answer: StudyAnalysis) -> list[TrainRun]:
    """Keep one run a (world size, batch), the latest that has a throughput, ascending by world size."""
    kept: dict[tuple[int, int], TrainRun] = {}
    for run in sorted(
        members, key=lambda run: (run.explained.analysis.throughput is not None, run.info.started_unix_s)
    ):
        key = (run.world_size, run.facts.samples_per_rank_step)
        if key in kept:
            answer.reasons.append(
                f"{run.folder.path.name} stands for {kept[key].folder.path.name} too: same job, same size"
            )
        kept[key] = run
    return [kept[key] for key in sorted(kept)]


def _compare(series: Series, answer: StudyAnalysis) -> None:
    timed = [run for run in series.runs if _measured(run) is not None]
    for run in series.runs:
        if _measured(run) is None:
            answer.reasons.append(f"{run.folder.path.name} has no steady steps, so no throughput to compare")
    if timed:
        answer.efficiency.extend(_points(series, timed))
    traced = [run for run in series.runs if run.traced]
    if len(traced) < 2:
        if len(series.runs) > 1:
            answer.reasons.append(f"{series.name}: no waterfall, since fewer than two of its runs have usable traces")
        return
    smallest = traced[0]
    for run in traced[1:]:
        if run.world_size == smallest.world_size:
            continue
        fall = waterfall(series.name, _exact(smallest), _exact(run), same_work=series.scaling == "weak")
        fall.only_larger_cut = (smallest.facts.compiled_by_bucket, run.facts.compiled_by_bucket) == (False, True)
        add_measured_growth(fall, smallest.explained.analysis, run.explained.analysis)
        if series.scaling == "weak":
            fall.core_waits = _grown_waits(fall, smallest, run)
        answer.waterfall.append(fall)
        if fall.compute_inflation_ms is None and series.scaling == "weak":
            answer.reasons.append(
                f"{series.name}, {fall.from_world_size} to {fall.to_world_size}: too few kernels match by name and "
                "place in the step to split the compute's growth into inflation and more work"
            )


def _kept_jobs(study: RunFolder) -> list[JobRow]:
    """Return the jobs that a study keeps; none where the file is damaged, which costs a word of advice alone."""
    try:
        return study.read_jobs()
    except (OSError, UserError, msgspec.DecodeError):
        return []


def _add_again(series: Series, jobs: Sequence[JobRow], answer: StudyAnalysis) -> None:
    """Add how a series of several counts is measured again in more windows, where its largest run's job is kept."""
    largest = series.runs[-1]
    job, more = job_called(largest.folder.path.name, jobs), largest.explained.analysis.more_windows
    if len(series.runs) > 1 and job is not None and more is not None:
        counts = [run.world_size for run in series.runs]
        answer.again.append(measured_again(series.name, series.scaling, counts, job, more))


def _grown_waits(fall: Waterfall, small: TrainRun, large: TrainRun) -> GrownCoreWaits | None:
    """Return what ranks of the larger run wait longer for cores, and how many share these."""
    waits = grown_core_waits(fall, *(RunRows(run.explained.analysis, run.steps) for run in (small, large)))
    share = core_share(large.info)
    if waits is None or share is None:
        return waits
    return msgspec.structs.replace(waits, ranks=share.ranks, threads=share.threads, cores=share.cores)


def _exact(run: TrainRun) -> tuple[int, MeanStep, list[KernelTable]]:
    explained = run.explained
    return run.world_size, mean_step(list(explained.partitions.values())), list(explained.kernels.values())


def _measured(run: TrainRun) -> float | None:
    times = run.explained.analysis.step_times
    return times.measured_step_ms if times is not None and run.explained.analysis.throughput is not None else None


def _points(series: Series, timed: Sequence[TrainRun]) -> list[ScalingPoint]:
    reference = timed[0]
    base = reference.explained.analysis
    points = []
    for run in timed:
        analysis = run.explained.analysis
        assert analysis.throughput is not None and base.throughput is not None
        step_ms = _measured(run)
        assert step_ms is not None
        speedup = (
            analysis.throughput.samples_per_s * _kept_up(analysis) / (base.throughput.samples_per_s * _kept_up(base))
        )
        points.append(
            ScalingPoint(
                series=series.name,
                model=run.facts.model,
                world_size=run.world_size,
                scaling=series.scaling,
                run=run.folder.path.name,
                step_ms=step_ms,
                samples_per_s=analysis.throughput.samples_per_s * _kept_up(analysis),
                tokens_per_s=(
                    analysis.throughput.tokens_per_s * _kept_up(analysis)
                    if analysis.throughput.tokens_per_s is not None
                    else None
                ),
                speedup=speedup,
                efficiency=speedup * reference.world_size / run.world_size,
                compute_factor=_compute_factor(series.scaling, reference, run),
                parallel_factor=(
                    analysis.efficiency.parallel / base.efficiency.parallel
                    if analysis.efficiency is not None and base.efficiency is not None
                    else None
                ),
                mfu=analysis.throughput.mfu,
            )
        )
    return points


def _kept_up(analysis: RunAnalysis) -> float:
    """Return what all steps of a run did a second over the median one, where loaders made some of them long.

    What else makes steps long now and then, on shared cores, is no property of the job.
    """
    times = analysis.step_times
    if times is None or times.long_steps is None or times.long_steps.cause is None:
        return 1.0
    return times.overall


def _compute_factor(scaling: Scaling, reference: TrainRun, run: TrainRun) -> float | None:
    if not reference.traced or not run.traced:
        return None
    means = [(one.world_size, mean_step(list(one.explained.partitions.values()))) for one in (reference, run)]
    return compute_factor(scaling, means[0], means[1])
