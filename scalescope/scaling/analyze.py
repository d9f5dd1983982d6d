"""The entry points of the reading half: traces and run folders in, analysis.json out.

What comes after reading, and what only some answers need, is imported where it is needed: processes that read traces
are forked without it, and while they read there is time to load it (`ranks.processes.load_meanwhile`).
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.join.explained import Explained
from scalescope.scaling.projection.outlook import NO_OUTLOOK, Outlook
from scalescope.scaling.run import explain_traces
from scalescope.scaling.study_answer import Answer, StudyAnalysis, write_answer
from scalescope.scaling.trace.sources import find_sources
from scalescope.scaling.windows.explain import explain_jobs_windows, explain_windows

if TYPE_CHECKING:
    from scalescope.scaling.as_run.untraced_step import Untraced


def analyze_run(run: RunFolder | Path, jobs: int | None = None, executor: Executor | None = None) -> RunAnalysis:
    """Return the analysis of a run folder, a folder of trace files, or a trace file. Nothing is written.

    `jobs`: processes that read traces, one task a rank; None: as many as pay off on this machine. `executor`: a
    concurrent.futures executor to use instead, such as mpi4py.futures.MPIPoolExecutor.

    Raises UserError where there are no traces, or a file is none.
    """
    return explain_windows(run, jobs, executor).analysis


def analyze_alone(path: Path, jobs: int | None = None) -> RunAnalysis:
    """Return a run's whole analysis, its findings priced. Nothing is written. Raises UserError where there are no
    traces.
    """
    return _analyze_alone(path, jobs, None, NO_OUTLOOK, None)


def analyze_against(
    run: Path,
    references: Sequence[Path],
    jobs: int | None = None,
    executor: Executor | None = None,
    outlook: Outlook = NO_OUTLOOK,
) -> RunAnalysis:
    """Return a run's whole analysis, and what each rank lost a step against undisturbed runs. Nothing is written.

    `references`: the same job on as many ranks; of several (one before, one after) the mean counts. Raises UserError
    where one holds no traces, is of another job or batch, or ran on another number of ranks.
    """
    from scalescope.scaling.compare.alone import beside_parts, causes_come, causes_gone, doing_beside
    from scalescope.scaling.compare.kernels.matching import another_size, work_ratio_of
    from scalescope.scaling.compare.lost import compared, lost_time, of_rank_named, with_noise
    from scalescope.scaling.verdicts.reference import (
        beside_reference,
        is_counted,
        is_not_in_reference,
        is_sure,
        tells_where,
    )

    here = explain_windows(run, jobs, executor, for_replay=True)
    good = [explain_windows(path, jobs, executor, for_replay=True) for path in references]
    here.analysis.lost = lost_time(good, here)
    beside = compared(run, references, _jobs_here(jobs, executor))
    here.analysis.lost = with_noise(here.analysis.lost, beside, run, references)
    for path in references:
        # of ranks that share samples out otherwise one's blocks tell nothing of the step's
        told = here.analysis.lost[0].samples is not None
        if not told and (differs := another_size(work_ratio_of(path, run))) is not None:
            raise UserError(f"{here.analysis.name} is not {path.resolve().name}'s job: {differs}; give a run of the "
                            "same job, undisturbed")  # fmt: skip
    found = _completed(run, here, jobs, executor, outlook, None)
    whole = not found.lost[0].reference_lacks  # else a rank whose trace is missing may have the same causes
    untold = not tells_where(found.lost) and any(map(is_sure, found.findings))
    counted = any(map(is_counted, found.findings[:1]))
    shorter = found.lost[0].step_low_ms is not None and found.lost[0].step_low_ms <= 0  # or may be
    if whole and (untold or counted or shorter):
        own = [_completed(path, one, jobs, executor, NO_OUTLOOK, None)
               for path, one in zip(references, good, strict=True)]  # fmt: skip
        if shorter and (gone := causes_gone(found, own, here.kernels, [one.kernels for one in good])):
            found.lost = [msgspec.structs.replace(loss, gone=gone) for loss in found.lost]
    found.lost = [msgspec.structs.replace(loss, recurring=doing_beside(loss.recurring, found)) for loss in found.lost]
    if whole and (untold or counted):
        found.findings = beside_parts(beside_reference(found.findings, [one.findings for one in own]), own)
        if untold and not is_not_in_reference(found.findings[0]):
            come = causes_come(found)
            found.lost = [msgspec.structs.replace(loss, come=come) for loss in found.lost]
    if beside is not None and found.lost[0].step_change_ms is not None:
        new = [one for one in (*found.lost[0].come[:1], *found.findings[:1]) if is_not_in_reference(one)]
        named = [*new[:1], *found.lost[0].gone[:1]]
        found.lost = of_rank_named(found.lost, beside, sorted(named, key=lambda one: -(one.ms or 0.0))[:1])
    return found


def analyze_base(
    path: Path,
    bases: Sequence[Path],
    jobs: int | None = None,
    executor: Executor | None = None,
    outlook: Outlook = NO_OUTLOOK,
) -> list[Answer]:
    """Return how a job scales to a path's traces from those of other world sizes, then the runs' own answers.

    The path's own answer comes first of those. Nothing is written. Raises UserError where one holds no traces or those
    of several jobs, one is another job or does other work a rank, or two are of one world size.
    """
    from scalescope.scaling.between import compare_world_sizes
    from scalescope.scaling.compare.base import refuse_other_work
    from scalescope.scaling.compare.kernels.matching import work_ratio_of

    here, *others = (explain_windows(one, jobs, executor, for_replay=one == path) for one in (path, *bases))
    study = compare_world_sizes(others, here)
    for base, explained in zip(bases, others, strict=True):
        refuse_other_work(explained, here, work_ratio_of(base, path))
    return [
        study,
        _completed(path, here, jobs, executor, outlook, None),
        *(explained.analysis for explained in others),
    ]


def analyze_study(
    study: RunFolder, jobs: int | None = None, executor: Executor | None = None, outlook: Outlook = NO_OUTLOOK
) -> tuple[StudyAnalysis, list[RunAnalysis]]:
    """Return the comparison of a study's runs, and the analysis of each of its training runs. Nothing is written.

    `outlook`: other sweeps than the study's own, and the GPU counts to project to. Raises UserError where the study
    holds no runs.
    """
    from scalescope.scaling.study import explain_study

    return explain_study(study, jobs, executor, outlook)


def analyze(
    paths: Sequence[Path],
    jobs: int | None = None,
    executor: Executor | None = None,
    references: Sequence[Path] = (),
    outlook: Outlook = NO_OUTLOOK,
    untraced: "Mapping[Path, Untraced] | None" = None,
    *,
    write: bool = True,
    plain: list[tuple[Path, Explained]] | None = None,
) -> list[Answer]:
    """Analyse run folders, studies, trace folders and trace files; a study's answer comes before its runs'.

    Writes analysis.json into each run folder and study, unless told not to; plain trace folders and files are left as
    they are. Trace files given one by one are one run together. A sweep has no traces, and no answer. `references` are
    undisturbed runs of the same job: what the one run analysed lost against them is in its answer. `outlook` gives
    other sweeps than a study's own, and GPU counts to project to. `untraced`: the step of a path without a profiler,
    where it is known from elsewhere, that of files at the first one (`scaling.as_run.untraced.given_steps`). How plain
    folders relate is told in their answers (`scaling.beside`); `plain`: not yet, since others come: what was read of
    them is added there. Raises UserError for a path without traces, for references where there is not one run, and for
    a step of what is no run.
    """
    known = untraced or {}
    if known and references:
        raise UserError("--step-ms tells the step of one run, without --against; leave one of the two out")
    if references:
        return [_analyze_against(paths, references, jobs, executor, outlook, write)]
    answers: list[Answer] = []
    files = [path for path in paths if path.is_file()]
    if len(files) > 1:
        sources = [source for file in files for source in find_sources(file)]
        together = explain_traces(sources, files[0].parent.name, jobs, executor, for_replay=True)
        # by one of the files, as of a file alone: what else its folder holds is not asked for
        whole = together.records or together.analysis.quality.verdict == "unusable"
        step = known.get(files[0])
        answers.append(_completed(files[0], together, jobs, executor, outlook, step) if whole else together.analysis)
    read: list[tuple[Path, Explained]] = []
    for path in paths:
        if path in files and len(files) > 1:
            continue
        answers.extend(_analyze_path(path, jobs, executor, outlook, known.get(path), write, read))
    if plain is not None:
        plain += read
    elif len(read) > 1:
        from scalescope.scaling.beside import tell_relations

        tell_relations(read)
    return answers


def _analyze_against(
    paths: Sequence[Path],
    references: Sequence[Path],
    jobs: int | None,
    executor: Executor | None,
    outlook: Outlook,
    write: bool,
) -> RunAnalysis:
    if len(paths) != 1:
        raise UserError("lost time is told of one run against its references; name one run or folder of traces")
    (path,) = paths
    if not (path / "run.json").is_file():
        return analyze_against(path, references, jobs, executor, outlook)
    folder = RunFolder.open(path)
    kind = folder.read_info().kind
    if kind != "train":
        raise UserError(f"{path} is a {kind}, and lost time is told of one training run; name that run's folder")
    if write:
        folder.refuse_read_only()
    analysis = analyze_against(path, references, jobs, executor, outlook)
    if write:
        write_answer(folder.analysis, analysis)
    return analysis


def _analyze_path(
    path: Path,
    jobs: int | None,
    executor: Executor | None,
    outlook: Outlook,
    untraced: "Untraced | None",
    write: bool,
    plain: list[tuple[Path, Explained]],
) -> list[Answer]:
    """Return the answers to a path; a folder of one job's traces is put among the plain ones."""
    if not (path / "run.json").is_file():
        found = explain_jobs_windows(path, jobs, executor, for_replay=True)
        plain += [(path, one) for one in found if len(found) == 1]
        if untraced is not None and len(found) > 1:
            raise UserError(f"--step-ms is of one run, and {path} holds traces of {len(found)}; name one")
        return [_completed(path, explained, jobs, executor, outlook, untraced) for explained in found]
    folder = RunFolder.open(path)
    kind = folder.read_info().kind
    if untraced is not None and kind != "train":
        raise UserError(f"--step-ms is of one training run, and {path} is a {kind}; name a run's folder")
    if kind in ("sweep", "scorecard"):
        return []  # its rows are the answer already
    if write:
        folder.refuse_read_only()
    if kind == "train":
        analysis = _analyze_alone(path, jobs, executor, outlook, untraced)
        if write:
            write_answer(folder.analysis, analysis)
        return [analysis]
    from scalescope.scaling.as_run.of_job import tell_step_of_job
    from scalescope.scaling.findings.computing.nothing import tell_kinds
    from scalescope.scaling.verdicts.step_rows.doubt import judge_steadiness
    from scalescope.scaling.windows.add import add_findings_of_study

    study, runs = analyze_study(folder, jobs, executor, outlook)
    add_findings_of_study(path, runs, outlook.sweeps, _jobs_here(jobs, executor))
    for run in runs:
        tell_step_of_job(run)
        tell_kinds(run)
        judge_steadiness(run)
    if write:
        _write_study(folder, study, runs)
    return [study, *runs]


def _write_study(folder: RunFolder, study: StudyAnalysis, runs: Sequence[RunAnalysis]) -> None:
    by_name = {analysis.name: analysis for analysis in runs}
    for child in folder.read_children():
        if child.path.name in by_name:
            write_answer(child.analysis, by_name[child.path.name])
    write_answer(folder.analysis, study)


def _analyze_alone(
    path: Path, jobs: int | None, executor: Executor | None, outlook: Outlook, untraced: "Untraced | None"
) -> RunAnalysis:
    """Return a run's analysis with the step as run, findings, and its collectives beside the sweeps that were given."""
    return _completed(path, explain_windows(path, jobs, executor, for_replay=True), jobs, executor, outlook, untraced)


def _completed(
    path: Path,
    explained: Explained,
    jobs: int | None,
    executor: Executor | None,
    outlook: Outlook,
    untraced: "Untraced | None",
) -> RunAnalysis:
    if outlook.sweeps:
        from scalescope.scaling.verdicts.insitu import add_in_situ

        add_in_situ(explained.analysis, explained.exchanges, outlook.sweeps)
    if explained.analysis.steps_by is None:
        if untraced is not None:
            explained.analysis.quality.reasons.append("--step-ms is not used: nothing in the traces tells their steps")
        return explained.analysis  # there is no step that anything could cost
    from scalescope.scaling.as_run.of_job import tell_step_of_job
    from scalescope.scaling.findings.computing.nothing import tell_kinds
    from scalescope.scaling.verdicts.step_rows.doubt import judge_steadiness
    from scalescope.scaling.verdicts.step_rows.growing import add_growth_of_traces
    from scalescope.scaling.windows.add import add_findings_of_windows

    add_growth_of_traces(explained.analysis, explained.records)
    add_findings_of_windows(path, explained, outlook.sweeps, _jobs_here(jobs, executor), untraced)
    tell_step_of_job(explained.analysis)
    tell_kinds(explained.analysis)
    judge_steadiness(explained.analysis)
    return explained.analysis


def _jobs_here(jobs: int | None, executor: Executor | None) -> int | None:
    """Return how many processes may be forked for what is not a task of the executor: none under MPI."""
    return jobs if executor is None else 1
