"""By how much longer ranks of a study wait for a core on more ranks: named where all steps tell it, and not else."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import pytest

from scalescope.records.folder import RunFolder
from scalescope.records.rows import Device
from scalescope.report.verdict.study import study_verdicts
from scalescope.report.views import grew_within_noise
from scalescope.scaling.analyze import analyze_study
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.finding.finding import Finding, Remedy
from scalescope.scaling.findings.derived import keep
from scalescope.scaling.study_answer import GrownCoreWaits, StudyAnalysis, Waterfall
from tests.report_samples import LAUNCHING, RUNS, grown_study, run_answer
from tests.test_scaling_study import add_run

Waits = Callable[[int], float]


def spread(ms: float, by: float) -> Waits:
    """Return waits of `ms` in the mean step that differ by `by`, as chance has them."""
    noise = np.random.default_rng(5).normal(0.0, by, 20).tolist()
    return lambda step: max(0.0, ms + noise[step])


def wait_for_cores(folder: RunFolder, waits: Waits | None) -> None:
    """Let a run's rows tell what each rank waits for a core, or nothing; profiled steps wait for far longer."""
    rows = folder.read_steps()
    folder.steps.unlink()
    with folder.step_writer() as writer:
        for row in rows:
            told = None if waits is None else waits(row.step) + (30.0 if row.phase == "profile" else 0.0)
            writer.append(msgspec.structs.replace(row, run_delay_ms=[] if told is None else [told] * len(row.step_ms)))
    info = folder.read_info()
    info.devices = [Device(rank, "vm", "cpu", "EPYC", threads=1, cores="0-1") for rank in range(info.world_size or 0)]
    folder.write_info(info)


def study_of(path: Path, one: Waits | None, two: Waits | None, traces: str = "cpu_ddp_n2") -> Waterfall:
    """Return the growth of a step from 49 ms on one rank to 89 ms on two."""
    study = RunFolder.create(path / "study", "study", "verb: study")
    for ranks, step_ms, waits in ((1, 49.0, one), (2, 89.0, two)):
        wait_for_cores(add_run(study.path, f"gpt-{ranks}", traces, ranks, step_ms), waits)
    (fall,) = analyze_study(study)[0].waterfall
    return fall


def test_waits_for_cores_that_grow_with_the_ranks_are_told_of_all_steps_that_no_window_records(tmp_path: Path) -> None:
    waits = study_of(tmp_path, spread(0.5, 0.2), spread(20.0, 3.0)).core_waits
    assert waits is not None and waits.ms == pytest.approx(19.5, abs=1.0), "nothing of the 30 ms of profiled steps"
    half = waits.high_ms - waits.ms
    assert 0 < half < 4.0 and waits.ms - waits.low_ms == pytest.approx(half)
    assert waits.to_ms - waits.from_ms == pytest.approx(waits.ms)
    assert (waits.from_steps, waits.to_steps) == (13, 13)
    assert (waits.ranks, waits.threads, waits.cores) == (2, 2, 2)


@pytest.mark.parametrize(
    ("one", "two", "traces"),
    [
        (None, spread(20.0, 3.0), "cpu_ddp_n2"),  # rows of one run, or of both, do not tell
        (None, None, "cpu_ddp_n2"),
        (spread(9.0, 20.0), spread(20.0, 20.0), "cpu_ddp_n2"),  # within what steps differ by
        (spread(0.5, 0.2), spread(6.0, 0.5), "cpu_ddp_n2"),  # a seventh of the 40 ms
        (spread(20.0, 3.0), spread(0.5, 0.2), "cpu_ddp_n2"),  # ranks waited on the smaller count
        (spread(0.5, 0.2), spread(20.0, 3.0), "gpt_ddp_n2"),  # hosts may wait while their devices compute
    ],
)
def test_waits_that_are_untold_or_noise_or_little_of_the_growth_or_of_hosts_alone_are_no_cause(
    tmp_path: Path, one: Waits | None, two: Waits | None, traces: str
) -> None:
    assert study_of(tmp_path, one, two, traces).core_waits is None


def test_seven_steady_steps_tell_it_and_four_do_not(tmp_path: Path) -> None:
    """Of a job of sixteen long steps seven are neither warm-up nor profiled: *its cause cannot be told* was said."""
    for count, told in ((7, True), (4, False)):
        study = RunFolder.create(tmp_path / str(count) / "study", "study", "verb: study")
        for ranks, step_ms, ms in ((1, 49.0, 0.5), (2, 89.0, 20.0)):
            run = add_run(study.path, f"gpt-{ranks}", "cpu_ddp_n2", ranks, step_ms)
            wait_for_cores(run, spread(ms, 1.0))
            rows = run.read_steps()
            steady = [row.step for row in rows if row.phase == "steady"][:count]
            run.steps.unlink()
            with run.step_writer() as writer:
                for row in (row for row in rows if row.phase != "steady" or row.step in steady):
                    writer.append(row)
        (fall,) = analyze_study(study)[0].waterfall
        assert (fall.core_waits is not None) == told


WAITS = GrownCoreWaits(ms=45.0, low_ms=40.0, high_ms=50.0, from_ms=0.5, to_ms=45.5, from_steps=7, to_steps=7, ranks=2,
                       threads=2, cores=2)  # fmt: skip


def grown(waits: GrownCoreWaits | None, noise_ms: float, *findings: Finding) -> tuple[StudyAnalysis, list[RunAnalysis]]:
    """Return a study whose step grew by 75 ms as measured and by 76 ms in the traces, with its runs."""
    study = grown_study(52.7)
    study.waterfall[0].noise_ms, study.waterfall[0].core_waits = noise_ms, waits
    study.efficiency[-1].efficiency = 0.52
    runs = [
        msgspec.structs.replace(run_answer(name, n), activity="cpu") for name, n in zip(RUNS, (1, 2, 4), strict=True)
    ]
    for run, step in ((runs[0], 80.0), (runs[-1], 155.0)):
        assert run.step_times is not None
        times = {"measured_step_ms": step, "measured_low_ms": step - 9, "measured_high_ms": step + 9}
        run.step_times = msgspec.structs.replace(run.step_times, **times)
    keep(runs[-1], list(findings))
    return study, runs


ABOUT = "By all steps' own rows about 45.0 ms (40.0 ms to 50.0 ms) of the 75 ms by which the measured step grew"
SHARED = "2 ranks, their other threads and whatever else runs share 2 cores"


def test_a_loss_that_noise_hides_in_the_traces_has_the_cause_that_all_steps_tell() -> None:
    """*Its cause cannot be told: the profiled steps grew by no more than noise* was all that was said."""
    study, runs = grown(WAITS, 100.0)
    assert grew_within_noise(study.waterfall[0])
    verdict = study_verdicts(study, runs)[0]
    assert verdict.headline.endswith(f"efficiency. {ABOUT} are waits for a core. Here {SHARED}.")
    assert "cannot be told" not in verdict.headline
    (told, *_) = verdict.sentences
    assert "So they do not tell what it went to" in told, "the traces themselves still tell nothing"
    assert told.endswith("0.50 ms on 1 rank, 45.5 ms on 4. The traces have such waits within their other parts.")
    assert verdict.advice.startswith("have more cores than ranks, ") and "up to 50.0 ms a step. To tell what else" in (
        verdict.advice
    )


def test_without_such_waits_nothing_changes() -> None:
    study, runs = grown(None, 100.0)
    verdict = study_verdicts(study, runs)[0]
    assert "its cause cannot be told" in verdict.headline and verdict.advice.startswith("measure in more windows")
    assert "core" not in verdict.headline + verdict.advice + verdict.sentences[0]


def test_what_the_traces_tell_comes_behind_it_and_is_no_sum_with_it() -> None:
    verdict = study_verdicts(*grown(WAITS, 20.0))[0]
    first, _, traced = verdict.headline.partition(". In the traces ")
    assert ABOUT in first and traced == f"69% of the step's growth is slower compute. Here {SHARED}."
    assert "; beyond that, and perhaps in part the same, more cores or memory bandwidth a rank" in verdict.advice


def test_a_finding_that_is_sure_to_bring_more_comes_before_the_waits() -> None:
    loading = msgspec.structs.replace(LAUNCHING, code="data_loading", rank=1, ms=60.0, low_ms=55.0, high_ms=65.0,
                                      at_most=False, backed="replay", remedy=Remedy(cure="load_ahead"))  # fmt: skip
    advice = study_verdicts(*grown(WAITS, 20.0, loading))[0].advice
    assert "60.0 ms" in advice and advice.index("60.0 ms") < advice.index("; beside that, have more cores than ranks")


def test_a_growth_that_may_be_nothing_is_called_so_beside_waits_that_are_sure() -> None:
    study, runs = grown(WAITS, 100.0)
    assert runs[-1].step_times is not None
    runs[-1].step_times = msgspec.structs.replace(runs[-1].step_times, measured_low_ms=60.0)
    headline = study_verdicts(study, runs)[0].headline
    assert ". Within noise the loss may be nothing, though by all steps' own rows ranks wait 45.0 ms (" in headline
    assert "75 ms" not in headline, "no share of what may be nothing"


def test_an_unsteady_machine_is_to_be_measured_again_first() -> None:
    study, runs = grown(WAITS, 100.0)
    study.waterfall[0].unsteady = True
    verdict = study_verdicts(study, runs)[0]
    assert "the machine was unsteady. " in verdict.headline and ABOUT in verdict.headline
    assert verdict.advice.startswith("measure again on a quiet machine, or in more windows")
    assert "If ranks wait for cores on a quiet machine, too: have more cores than ranks" in verdict.advice


Share = tuple[int, int, int]


@pytest.mark.parametrize(
    ("share", "who", "what"),
    [
        ((2, 8, 2), ". Here 2 ranks compute with 8 threads on 2 cores.", "OMP_NUM_THREADS=1 for each rank"),
        (
            (2, 2, 8),
            ". Here 2 ranks, their other threads and whatever else runs share 8 cores.",
            "give the ranks cores that",
        ),
        (None, ". Other processes, or the job's own other threads, have it.", "give the ranks cores that"),
    ],
)
def test_who_shares_the_cores_is_said_as_far_as_it_is_known(share: Share | None, who: str, what: str) -> None:
    ranks, threads, cores = share or (None, None, None)
    waits = msgspec.structs.replace(WAITS, ranks=ranks, threads=threads, cores=cores)
    verdict = study_verdicts(*grown(waits, 100.0))[0]
    assert verdict.headline.endswith(f"are waits for a core{who}") and what in verdict.advice


Cores = Literal["free_cores", "core_for_thread", "more_cores_for_rank"]


@pytest.mark.parametrize(
    ("cure", "first"),
    [("free_cores", "have more cores"), ("core_for_thread", "measure in"), ("more_cores_for_rank", "measure in")],
)
def test_advice_that_knows_who_has_the_cores_is_kept(cure: Cores, first: str) -> None:
    own = Finding(code="host_starved", ms=45.0, low_ms=40.0, high_ms=50.0, fraction=0.3, backed="measured",
                  remedy=Remedy(cure=cure))  # fmt: skip
    advice = study_verdicts(*grown(WAITS, 100.0, own))[0].advice
    assert advice.startswith(first) and ("give the thread beside the" in advice) == (cure == "core_for_thread")
    assert ("let that rank run on more cores" in advice) == (cure == "more_cores_for_rank")
    assert "give the ranks cores that nothing else uses" not in advice, "the same is not advised twice"
