"""Loaders' workers that a run noted at work are named as who has the cores, and no other processes."""

import shutil
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from scalescope.hardware.detect import describe
from scalescope.records.folder import RunFolder
from scalescope.records.rows import StepRow
from scalescope.records.steps.recording import RecordedWindow, RecordingFacts
from scalescope.records.steps.worker_times import ChildTime, WorkerTime
from scalescope.report.compare.sentences import verdict_sentences
from scalescope.report.text.cures.words import cure_elsewhere
from scalescope.report.text.findings import because
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import AsMeasured
from scalescope.scaling.compare.answer import Comparison
from scalescope.scaling.compare.difference import difference
from scalescope.scaling.compare.measurement import Identity, Measurement, Repeat
from scalescope.scaling.compare.read import read_side
from scalescope.scaling.finding.figures import CORES_BY_TURNS, LOADER_WORKERS, WORKERS_CORES
from scalescope.scaling.finding.finding import EvidenceRow, Finding, Remedy
from scalescope.scaling.finding.kinds import do_workers_rest, is_of_resting_workers
from scalescope.scaling.findings.derived import keep
from scalescope.scaling.findings.of_rows.core_waits import is_wait_for_cores
from scalescope.scaling.findings.of_rows.own_workers import within_their_workers
from scalescope.train.script.config import script_config
from scalescope.train.script.exchange import Lap, Message
from scalescope.train.script.membership import Membership
from scalescope.train.script.run_recorder import RunRecorder
from tests.test_compare_alike import DATA
from tests.test_core_waits import BESIDE_OTHERS, BY_ITSELF, STALL, rows, told

BY_TURNS = Finding(
    code="host_starved", ms=72.3, low_ms=72.3, high_ms=180.0, fraction=0.4, backed="replay", at_least=True,
    evidence=(EvidenceRow(kind="figure", name=CORES_BY_TURNS, ms=56.5, calls=26.7, value=1.63),),
    remedy=Remedy(cure="free_cores"),
)  # fmt: skip
STILL = Finding(
    code="host_starved", rank=1, ms=5.4, low_ms=0.0, high_ms=7.6, fraction=0.036, backed="replay",
    evidence=(EvidenceRow(kind="figure", name="interruptions", ms=5.7, others_ms=3.1, calls=2.0, share=0.25),),
    remedy=Remedy(cure="free_cores"),
)  # fmt: skip


def _with_workers(steps: list[StepRow], findings: list[Finding], cores: float, waiting: float) -> RunAnalysis:
    run = told(steps, [])
    run.worker_times = [WorkerTime(rank=rank, processes=1, cores=cores, waiting=waiting) for rank in (0, 1)]
    keep(run, [*run.findings, *findings])
    return run


def test_workers_that_have_the_cores_are_named_with_how_much_of_them() -> None:
    """*The job's other threads (gloo's) take turns with them, and other processes may*, and *quiet the machine*, of a
    run that had noted 0.47 of a core for its loaders' workers, and 0.09 of one that was not slow.
    """
    run = _with_workers(rows(BESIDE_OTHERS), [], 0.24, 0.23)
    headline = run_verdict(run).headline
    assert "waits for cores cost 62.5 ms (" in headline and "other processes" not in headline
    used = "of which the loaders' workers use 0.48 (2 threads compute on 2 cores beside them)"
    assert used in headline and used in because(run.findings[0])
    assert run_verdict(run).advice.startswith("make the batches of the loaders' workers cheaper, or give the ranks")
    assert run.findings[0].remedy is not None
    assert "fewer workers where they are several; cores for them" in cure_elsewhere(run.findings[0].remedy)
    keep(run, again := list(run.findings))
    assert run.findings == again
    some = because(_with_workers(rows(BESIDE_OTHERS), [], 0.12, 0.1).findings[0])
    assert "which the loaders' workers (0.24 of one), other processes or own threads have" in some
    resting = because(_with_workers(rows(BESIDE_OTHERS), [], 0.04, 0.02).findings[0])
    assert "which other processes, loaders' workers or own threads have" in resting


def test_a_child_that_is_no_worker_is_named_by_its_command_and_resting_workers_have_no_cores() -> None:
    """*Of which the loaders' workers use 0.41*, *make the batches of the loaders' workers cheaper*, and *the loader's
    workers rest: they use 0.41 of 2 cores*, in one answer, of a busy program that rank 0 had started.
    """
    run = _with_workers(rows(BESIDE_OTHERS), [], 0.04, 0.02)
    run.child_times = [ChildTime(rank=0, name="sh", cores=0.1), ChildTime(rank=0, name="ffmpeg", cores=0.41)]
    for _ in range(2):
        keep(run, list(run.findings))
        headline = run_verdict(run).headline
        assert (
            "of which ffmpeg, a child process of rank 0 that is no loader's worker, uses 0.41 beside the 2" in headline
        )
        assert "batches" not in run_verdict(run).advice
    still = Finding(
        code="host_starved", ms=60.0, low_ms=10.0, high_ms=90.0, fraction=0.3, backed="replay",
        evidence=(replace(STILL.evidence[0], share=None), EvidenceRow(kind="figure", name=LOADER_WORKERS, ms=10.8)),
        remedy=Remedy(cure="cheaper_workers", backend="gloo"),
    )  # fmt: skip
    run.step_times = None
    (found,) = within_their_workers([still], run)
    assert found.remedy is not None and found.remedy.cure == "free_cores"
    keep(run, [still])
    assert "perhaps those of" in because(still) and "perhaps those of" not in because(run.findings[0])
    assert "ffmpeg, a child process of rank 0 that is no loader's worker, uses 0.41 of a core, and other" in because(
        run.findings[0]
    )
    resting = Finding(
        code="data_loading", ms=5.4, low_ms=2.4, high_ms=7.9, fraction=0.05, backed="replay",
        evidence=(EvidenceRow(kind="figure", name=WORKERS_CORES, value=0.24), EvidenceRow(kind="figure", name="ranks",
                  value=2.0)), remedy=Remedy(cure="hand_over_less"),
    )  # fmt: skip
    both = _with_workers(rows(BESIDE_OTHERS), [resting], 0.12, 0.1)  # a third of what the ranks wait for
    assert not any(one.remedy is not None and one.remedy.cure == "cheaper_workers" for one in both.findings)
    assert all(row.name != WORKERS_CORES for row in both.findings[0].evidence)


LOADS = Finding(
    code="data_loading", ms=9.8, low_ms=3.4, high_ms=16.2, fraction=0.06, backed="replay",
    evidence=(
        EvidenceRow(kind="annotation", name="enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", ms=4.4),
        EvidenceRow(kind="figure", name=LOADER_WORKERS, ms=4.4),
        *(EvidenceRow(kind="figure", name=name, value=2.0) for name in ("ranks", "threads", "cores")),
    ),
    remedy=Remedy(cure="load_faster"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("waits", "cores", "rests"),
    [
        (BESIDE_OTHERS, 0.24, False),  # 0.48 of the 0.69 that two ranks wait for
        (BESIDE_OTHERS, 0.15, True),  # another process has the rest
        (BESIDE_OTHERS, 0.05, True),
        (BY_ITSELF, 0.24, True),  # 10 ms of a step, which the ranks' own threads make them wait
        (BY_ITSELF, 0.06, True),
        (BY_ITSELF, 0.5, False),
    ],
)
def test_workers_that_have_most_of_what_ranks_wait_for_do_not_rest(
    waits: list[list[float]], cores: float, rests: bool
) -> None:
    """*Other processes, loaders' workers or own threads have* the cores, *quiet the machine* and *the loader's workers
    rest: they use 0.65 of 2 cores* were told at once of a job alone on its machine, whose ranks waited for 0.70 of a
    core: batches that were kept made its step of 273 ms 86 to 102 ms shorter.
    """
    run = told(rows(waits), [])
    run.cores_full = True
    run.worker_times = [WorkerTime(rank=rank, processes=2, cores=cores, waiting=0.05) for rank in (0, 1)]
    keep(run, [*run.findings, LOADS])
    for _ in range(2):
        loading = next(one for one in run.findings if one.code == "data_loading")
        starved = [one for one in run.findings if one.code == "host_starved"]
        assert ("the loader's workers rest: " in because(loading)) == rests == is_of_resting_workers(loading)
        assert loading.remedy is not None and loading.remedy.lacks_cores != rests
        assert (loading.remedy.cure == "hand_over_less") == rests
        assert bool(starved) == (waits == BESIDE_OTHERS)
        assert all((one.remedy is not None and one.remedy.cure == "free_cores") == rests for one in starved)
        if starved and not rests:
            assert "of which the loaders' workers use 0.48" in run_verdict(run).headline
            assert run_verdict(run).advice.startswith("make the batches of the loaders' workers cheaper")
        keep(run, list(run.findings))


@pytest.mark.parametrize(("ms", "cores", "all_steps"), [(50.0, 0.24, True), (62.7, 0.24, True), (90.0, 0.24, False),
                                                        (50.0, None, False)])  # fmt: skip
def test_one_job_is_told_by_the_waits_of_all_steps_whatever_its_profiled_ones_show(
    ms: float, cores: float | None, all_steps: bool
) -> None:
    """*Starved hosts cost 92.4 ms (10.1 ms to 119.4 ms)* was said of one run, *waits for cores cost 94.9 ms (43.0 ms to
    100.2 ms)* of the next one of the same job: by what its profiled steps happened to hold.
    """
    still = Finding(
        code="host_starved", ms=ms, low_ms=5.0, high_ms=ms + 20, fraction=ms / 181, backed="replay",
        evidence=(EvidenceRow(kind="figure", name="interruptions", ms=15.8),
                  EvidenceRow(kind="figure", name=LOADER_WORKERS, ms=3.5)), remedy=Remedy(cure="cheaper_workers"),
    )  # fmt: skip
    run = told(rows(BESIDE_OTHERS), [])
    assert run.step_times is not None and run.step_times.core_waits is not None
    assert run.step_times.core_waits.ms == pytest.approx(62.7, abs=0.5), "that all steps tell"
    run.worker_times = [] if cores is None else [
        WorkerTime(rank=rank, processes=1, cores=cores, waiting=0.1) for rank in (0, 1)]  # fmt: skip
    keep(run, [*run.findings, still])
    (first,) = (one for one in run.findings if one.code == "host_starved")
    assert is_wait_for_cores(first) == all_steps
    assert first.remedy is not None and first.remedy.cure == "cheaper_workers"


@pytest.mark.parametrize(
    ("used", "waited", "rests"),
    [(0.65, 0.70, False), (0.66, 0.0, True), (0.67, 0.0, False), (0.34, 0.70, True), (0.36, 0.70, False),
     (0.19, 0.31, True), (0.21, 0.31, False), (0.5, 0.29, True)],
)  # fmt: skip
def test_workers_rest_by_what_they_use_beside_what_ranks_wait_for(used: float, waited: float, rests: bool) -> None:
    assert do_workers_rest(used, 2, waited) == rests


def test_what_operators_take_longer_is_no_more_than_ranks_wait_for_cores_where_loops_are_all_that_computes() -> None:
    """*At least 62.3 ms of the 180.0 ms step* stood beside waits for a core of 44.8 and 41.5 ms a rank."""
    run = told(rows(BESIDE_OTHERS), [BY_TURNS])
    (first,) = run.findings
    assert first.ms is not None and first.ms < 63 and not first.at_least
    team = told(rows(BESIDE_OTHERS), [])  # threads beside the loops wait, too, for which no row tells it
    assert team.step_times is not None and team.step_times.core_waits is not None
    team.step_times.core_waits = replace(team.step_times.core_waits, threads=4, cores=4)
    keep(team, [BY_TURNS])
    assert team.findings == [one for one in team.findings if one.at_least] and team.findings[0].ms == BY_TURNS.ms


def test_a_rank_that_the_jobs_own_threads_interrupt_is_no_starved_host() -> None:
    """*Rank 1, a starved host: 5.4 ms (0.00 to 7.6), within noise* was the third finding, and the last sentence, of two
    ranks that wait for a core for 10% of a step, both of them, with nobody else on the machine.
    """
    own = told(rows(BY_ITSELF), [STALL, STILL])
    assert [one.code for one in own.findings] == ["host_stall"]
    dear = replace(STILL, ms=60.0, low_ms=40.0, high_ms=80.0)  # what no thread of the job's makes
    assert "host_starved" in {one.code for one in told(rows(BY_ITSELF), [dear]).findings}


def test_what_noise_may_have_made_of_a_rank_is_listed_and_not_said_once_more() -> None:
    doubtful = Finding(code="slower_compute", rank=1, ms=9.0, low_ms=0.0, high_ms=12.0, fraction=0.08, backed="replay",
                       remedy=Remedy(cure="look_at_device"))  # fmt: skip
    run = told(rows(BY_ITSELF), [STALL, doubtful])
    assert doubtful.code in {one.code for one in run.findings}
    assert not [note for note in run_verdict(run).notes if "or nothing" in note]


ON_CPU = Identity(world_size=2, activity="cpu", device=None, model="unet", samples_by_rank=(4, 4))


def _side(name: str, step_ms: float, waits_ms: float, cores: float | None) -> Measurement:
    lengths = [step_ms + (at % 5) - 2.0 for at in range(40)]
    repeat = Repeat(name=name, path=DATA / name, identity=ON_CPU, steady_ms=lengths, run_delay_ms=waits_ms,
                    free_ms=[ms - waits_ms for ms in lengths], worker_cores=cores)  # fmt: skip
    return Measurement(name=name, repeats=[repeat])


def test_a_comparison_names_the_workers_that_have_the_cores_on_one_side() -> None:
    """*Whose cores they had is not told: run both again with the cores to themselves* was said of such two runs."""
    calm = _side("calm", 133.0, 10.3, 0.09)
    for cores, by_workers in ((0.47, True), (0.12, False), (None, False)):
        found = difference(calm, _side("slow", 177.0, 53.0, cores))
        assert found is not None and found.noise.by_workers == by_workers
        assert found.noise.other_worker_cores == cores
        answer = Comparison(
            baseline="calm", other="slow", verdict="same", basis="untraced", noise=found.noise,
            change_ms=found.change_ms, low_ms=-20.0, high_ms=70.0, baseline_ms=133.0, other_ms=177.0,
        )  # fmt: skip
        first = verdict_sentences(answer)[0]
        whose = "of which the loaders' workers use 0.47 there, and 0.09 in “calm”." if by_workers else "threads have."
        assert first.startswith(
            "In “slow” ranks wait, in the mean, 42.7 ms more of a step for a core, "
        ) and first.endswith(whose)


def test_a_comparison_with_batches_that_are_kept_names_the_workers_that_there_are_no_more() -> None:
    """*Wait 186.7 ms less for a core, which other processes … have*, of a run whose workers were gone."""
    kept, slow = _side("kept", 133.0, 10.3, 0.0), _side("slow", 277.0, 153.0, 1.1)
    for sides in ((slow, kept), (kept, slow)):
        found = difference(*sides)
        assert found is not None and found.noise.by_workers
        answer = Comparison(
            baseline=sides[0].name, other=sides[1].name, verdict="same", basis="untraced", noise=found.noise,
            change_ms=found.change_ms, low_ms=-190.0, high_ms=190.0, baseline_ms=found.baseline_ms,
            other_ms=found.other_ms, as_measured=AsMeasured(
                low_ms=found.change_ms - 20, high_ms=found.change_ms + 20,
                free_ms=-1.0, free_low_ms=-50.0, free_high_ms=50.0),
        )  # fmt: skip
        told = verdict_sentences(answer)
        there, here = ("none", "1.10") if sides[1] is kept else ("1.10", "none")
        assert f"of which the loaders' workers use {there} there, and {here} in “{sides[0].name}”." in told[0]
        assert not any("Run both again" in one for one in told)


def test_the_cores_that_workers_used_are_read_with_a_run(tmp_path: Path) -> None:
    run = RunFolder(shutil.copytree(DATA / "runs_v0.1" / "train", tmp_path / "run"))
    assert read_side([run.path])[0].first.worker_cores is None
    workers = [WorkerTime(rank=rank, processes=1, cores=0.2) for rank in (0, 1)]
    run.write_recording(RecordingFacts(bursts=[], windows=[], workers=workers))
    assert read_side([run.path])[0].first.worker_cores == 0.4
    run.write_recording(RecordingFacts(no_workers=True))  # by a later attempt at the same run
    assert read_side([run.path])[0].first.worker_cores == 0.4


def test_only_a_run_that_is_known_to_have_no_workers_has_workers_on_no_core(tmp_path: Path) -> None:
    """An empty list was taken for none, which versions that never looked wrote as well, and runs that could not."""
    for none, cores in ((False, None), (True, 0.0)):
        run = RunFolder(shutil.copytree(DATA / "runs_v0.1" / "train", tmp_path / f"{none}"))
        run.write_recording(RecordingFacts(no_workers=none))
        assert read_side([run.path])[0].first.worker_cores == cores
    run.write_recording(RecordingFacts())
    assert read_side([run.path])[0].first.worker_cores is None, "one of two attempts did not look"


@pytest.mark.parametrize(("knowing", "none"), [((0, 1), True), ((0,), False)])
def test_a_job_has_no_workers_where_each_of_its_ranks_says_so(
    knowing: tuple[int, ...], none: bool, tmp_path: Path
) -> None:
    config, text = script_config("kept", {"runs": tmp_path, "name": "kept", "logger": "none"})
    membership = Membership(0, 2, "torchrun", "gloo", torch.device("cpu"), torch.distributed.HashStore())
    recorder = RunRecorder(config, text, membership, describe(0, membership.device), lambda _: "steady", lambda _: None)
    for rank in (0, 1):
        laps, window = [Lap(step, 100.0, 1.0) for step in range(3)], RecordedWindow(steps=[1], planned=1)
        recorder.take([Message(rank, laps, windows=[window], no_workers=rank in knowing, ended=True)])
    recorder.end("done", None)
    recording = RunFolder(tmp_path / "kept").read_recording()
    assert recording is not None and (recording.workers, recording.no_workers) == ([], none)
