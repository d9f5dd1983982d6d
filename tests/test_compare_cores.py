"""Runs beside other processes: what was waited for cores is no change of the job, and is in the bounds."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import msgspec
import numpy as np
import pytest
import torch

from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from scalescope.report.compare.markdown import summary
from scalescope.report.compare.noise import noise_sentence
from scalescope.report.compare.sentences import further, headline, verdict_sentences
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze_against
from scalescope.scaling.compare.alike.same_work import same_work
from scalescope.scaling.compare.answer import Comparison
from scalescope.scaling.compare.compare import compare, compare_paths
from scalescope.scaling.compare.measurement import Identity, Measurement, Repeat
from scalescope.train.measure.clock import CpuClock, RunDelay
from tests.gloo_traces import GlooJob

RUN = Path(__file__).parent / "data" / "runs_v0.1" / "train"
ON_CPU = Identity(world_size=2, activity="cpu", device=None, model="gpt_tiny", samples_by_rank=(8, 8))

Row = dict[str, object]


def rewritten(folder: Path, change: Callable[[Row], Row]) -> Path:
    """Return a copy of a run, its rows changed."""
    run = Path(shutil.copytree(RUN, folder))
    rows = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
    (run / "steps.jsonl").write_text("".join(json.dumps(change(row)) + "\n" for row in rows))
    return run


def beside_others(share: float, *, told: bool = True) -> Callable[[Row], Row]:
    """Return what makes each rank's steps longer by a share of them, in which another process had its core."""

    def change(row: Row) -> Row:
        assert isinstance(row["step_ms"], list)
        waited = [share * ms for ms in row["step_ms"]]
        longer = [ms + more for ms, more in zip(row["step_ms"], waited, strict=True)]
        return row | {"step_ms": longer} | ({"run_delay_ms": waited} if told else {})

    return change


def test_a_run_beside_others_is_not_called_slower_where_its_ranks_tell_that_they_had_no_cores(tmp_path: Path) -> None:
    calm = rewritten(tmp_path / "calm", beside_others(0.0))
    busy = rewritten(tmp_path / "busy", beside_others(0.8))
    silent = rewritten(tmp_path / "silent", beside_others(0.8, told=False))
    found = compare_paths([calm], [busy])
    assert found.verdict == "same" and found.low_ms is not None and found.low_ms < 0
    assert found.noise is not None and found.noise.baseline_run_delay_ms == 0
    waits = " ms more of a step for a core, which other processes or the job's own threads have."
    assert headline(found).endswith(waits) and "a core" not in further(found), "the cause is said first, and once"
    assert "for a core" not in further(compare_paths([calm], [silent]))
    slowest = median(max(row.step_ms) for row in RunFolder(calm).read_steps() if row.phase == "steady")
    assert found.noise.other_run_delay_ms == pytest.approx(0.8 * slowest, rel=0.2)
    assert "for a core" not in noise_sentence(found), "it is said once"
    assert not any("to themselves" in note for note in found.notes)
    unknown = compare_paths([calm], [silent])
    assert any("had their cores to themselves" in note for note in unknown.notes)
    assert unknown.cores_untold and not found.cores_untold
    assert "which nothing tells" not in " ".join(verdict_sentences(unknown))  # within noise it is in any case
    longer = compare_paths([calm], [rewritten(tmp_path / "longer", beside_others(3.0, told=False))])
    assert longer.verdict == "slower" and "ms (or other processes had its cores meanwhile, which nothing tells)" in (
        headline(longer)
    )
    assert "- Nothing tells whether the ranks had their cores to themselves" in summary(unknown)


def test_what_is_beyond_noise_in_a_step_as_long_may_be_other_processes_too(tmp_path: Path) -> None:
    """*Beyond noise: attention −6.3 ms* was said of two windows of one job, beside others' work."""
    found = compare_paths([tracing(tmp_path / "a", 40.0, 1.0)], [tracing(tmp_path / "b", 37.0, 4.0)])
    assert found.verdict == "same" and found.cores_untold and any(not one.within_noise for one in found.parts)
    assert headline(found).startswith(
        "In “b”, unless other processes had its cores, a step has 3.0 ms more loss and softmax"
    )


def test_against_a_reference_it_is_said_too(tmp_path: Path) -> None:
    """All that --against said of traces of one job, one beside other processes, was that the step had grown."""
    calm = tracing(tmp_path / "calm", 40.0, 1.0)
    busy = tracing(tmp_path / "busy", 80.0, 1.0)
    told = run_verdict(analyze_against(busy, [calm]))
    assert " (or other processes had its cores meanwhile, which nothing tells): " in told.headline


@pytest.mark.parametrize(
    ("matmul_ms", "softmax_ms", "attention_ms", "told"),
    [
        (80.0, 1.0, 0.0, ""),  # not so far apart, and of the same operators
        (100.0, 1.0, 0.0, "Nothing tells whether these are of one job: "),
        (40.0, 1.0, 40.0, "Nothing tells whether these are of one job (33% of their compute has no counterpart): "),
    ],
)
def test_what_may_be_two_jobs_says_so_before_one_is_called_slower(
    tmp_path: Path, matmul_ms: float, softmax_ms: float, attention_ms: float, told: str
) -> None:
    """*121.9% slower* was said first of traces of two jobs, whose kernels have names in common."""
    there = tracing(tmp_path / "there", 40.0, 1.0)
    here = tracing(tmp_path / "here", matmul_ms, softmax_ms, attention_ms)
    found = compare_paths([there], [here])
    assert found.verdict == "slower" and found.job_untold and headline(found).startswith(f"{told}“here” is ")
    named = msgspec.structs.replace(found, job_untold=False)
    assert headline(named).startswith("“here” is ")


def tracing(folder: Path, matmul_ms: float, softmax_ms: float, attention_ms: float = 0.0) -> Path:
    """Return the traces of two ranks on CPUs whose steps are as even as can be."""
    job = GlooJob()
    for number in range(2, 9):
        job.step(number)
        job.compute(matmul_ms, calls=2)
        job.compute(softmax_ms, calls=1, name="aten::softmax")
        if attention_ms:
            job.compute(attention_ms, calls=1, name="aten::scaled_dot_product_attention")
        job.all_reduce(1.0)
    return job.write(folder)


def side(dice: np.random.Generator, repeats: int, own_ms: float) -> Measurement:
    """Return repeats of a job beside others: each waits for cores for long or short, and tells most of it."""
    runs = []
    for _ in range(repeats):
        waited = dice.uniform(0, 14)
        told = waited * dice.uniform(0.85, 1.15)
        ms = own_ms * (1 + 0.05 * dice.standard_normal()) + waited + 0.5 * dice.standard_normal(20)
        runs.append(
            Repeat(name="run", path=Path("/nowhere"), identity=ON_CPU, steady_ms=ms.tolist(), run_delay_ms=told)
        )
    return Measurement(name="a side", repeats=runs)


def compared(dice: np.random.Generator, repeats: int, other_ms: float) -> Comparison:
    other = side(dice, repeats, other_ms)
    moved = [msgspec.structs.replace(one, path=Path("/elsewhere")) for one in other.repeats]
    return compare([side(dice, repeats, 14.0)], [Measurement(name="other", repeats=moved)])


@pytest.mark.parametrize("repeats", [1, 2, 5])
def test_of_one_job_beside_others_at_most_one_pair_of_ten_is_called_different(repeats: int) -> None:
    dice = np.random.default_rng(repeats)
    assert sum(compared(dice, repeats, 14.0).verdict != "same" for _ in range(50)) <= 5


def test_cores_whose_neighbours_are_at_work_are_slower_though_nobody_waits() -> None:
    """Three runs by themselves, then three beside others: 28 ms became 32 without what was waited for."""

    def runs(own_ms: Sequence[float], waited_ms: float) -> Measurement:
        repeats = [Repeat(name=f"{ms}", path=Path(f"{ms}"), identity=ON_CPU, steady_ms=[ms + waited_ms] * 30,
                          free_ms=[ms] * 30, run_delay_ms=waited_ms) for ms in own_ms]  # fmt: skip
        return Measurement(name="runs", repeats=repeats)

    calm = runs((27.7, 27.1, 28.0), 0.3)
    assert compare([calm], [runs((32.8, 31.8, 30.9), 13.0)]).verdict == "same"
    assert compare([calm], [runs((32.8, 31.8, 30.9), 0.3)]).verdict == "slower", "nobody was beside them"
    beside = [runs(own, 13.0) for own in ((27.7, 27.1, 28.0), (32.8, 31.8, 30.9))]
    narrow, wide = compare(beside[:1], beside[1:]), compare([calm], beside[1:])
    assert narrow.low_ms is not None and wide.low_ms is not None and narrow.low_ms > wide.low_ms, "both were"


def test_a_job_that_is_twice_as_slow_is_called_slower_beside_others_too() -> None:
    dice = np.random.default_rng(9)
    assert sum(compared(dice, 5, 42.0).verdict == "slower" for _ in range(20)) >= 18


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("ms", [-1e9, 1e9])
def test_no_rank_waits_for_longer_than_its_step(ms: float, tmp_path: Path) -> None:
    damaged = rewritten(tmp_path / "damaged", lambda row: row | {"run_delay_ms": [ms, ms]})
    answer = compare_paths([RUN], [damaged])
    assert answer.low_ms is not None and answer.high_ms is not None and answer.baseline_ms is not None
    assert -3 * answer.baseline_ms < answer.low_ms < answer.high_ms < 3 * answer.baseline_ms


@pytest.mark.skipif(not Path("/proc/thread-self/schedstat").exists(), reason="the kernel tells no run delay")
def test_the_clock_tells_how_long_another_process_had_the_ranks_core() -> None:
    (core, *_) = allowed = os.sched_getaffinity(0)
    spin = f"import os\nos.sched_setaffinity(0, {{{core}}})\nprint(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", spin], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None and other.stdout.readline()
            os.sched_setaffinity(0, {core})
            clock, begin = CpuClock(), time.perf_counter()
            while time.perf_counter() < begin + 0.2:
                if time.perf_counter() >= begin + 0.1:
                    clock.arrive()
            clock.lap(torch.zeros(()))
        finally:
            os.sched_setaffinity(0, allowed)
            other.kill()
    lap = clock.read()
    assert 0.2 * lap.step_ms < lap.run_delay_ms < lap.step_ms
    assert 0.2 * lap.own_ms < lap.own_run_delay_ms < min(lap.own_ms, 0.9 * lap.run_delay_ms)
    assert lap.on_cpu_ms + lap.run_delay_ms == pytest.approx(lap.step_ms, rel=0.15)  # it never sleeps


@pytest.mark.skipif(not Path("/proc/thread-self/schedstat").exists(), reason="the kernel tells no run delay")
def test_the_clock_tells_a_sleep_from_a_loop_of_python() -> None:
    clock = CpuClock()
    for work in (time.sleep, _count):
        clock.restart()
        work(0.05)
        clock.lap(torch.zeros(()))
    slept, counted = clock.read(), clock.read()
    assert slept.on_cpu_ms < 10.0 < 50.0 <= slept.step_ms
    assert counted.on_cpu_ms + counted.run_delay_ms == pytest.approx(counted.step_ms, rel=0.15)


def _count(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        sum(range(100))


def test_where_the_kernel_tells_no_run_delay_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scalescope.train.measure.clock._SCHEDSTAT", Path("/nowhere/schedstat"))
    assert np.isnan(RunDelay().ms())


def test_a_kernel_that_accounts_for_no_turns_tells_no_run_delay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (told := tmp_path / "schedstat").write_text("0 0 0\n")
    monkeypatch.setattr("scalescope.train.measure.clock._SCHEDSTAT", told)
    assert np.isnan(RunDelay().ms())
    told.write_text("5000000 2500000 3\n")
    assert RunDelay().ms() == 2.5


def test_the_file_is_closed_with_its_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (told := tmp_path / "schedstat").write_text("1 2 3\n")
    monkeypatch.setattr("scalescope.train.measure.clock._SCHEDSTAT", told)
    delay = RunDelay()
    file = delay._file
    del delay
    assert file is not None and file.closed


@pytest.mark.skipif(not Path("/proc/thread-self/schedstat").exists(), reason="the kernel tells no run delay")
def test_a_clock_outlives_the_thread_that_made_it() -> None:
    clocks: list[CpuClock] = []
    (maker := threading.Thread(target=lambda: clocks.append(CpuClock()))).start()
    maker.join()
    thread = Path("/proc/self/task") / str(maker.native_id)
    while thread.exists():
        time.sleep(0.001)
    (clock,) = clocks
    clock.lap(torch.zeros(()))
    lap = clock.read()
    assert np.isnan(lap.run_delay_ms) and np.isnan(lap.on_cpu_ms)


@pytest.mark.parametrize("ms", [0.0, -5.0])
def test_steps_that_took_no_time_are_refused(ms: float, tmp_path: Path) -> None:
    broken = rewritten(tmp_path / "broken", lambda row: row | {"step_ms": [ms, 9.0]})
    with pytest.raises(UserError, match="which no step does"):
        compare_paths([RUN], [broken])


def test_a_run_that_has_not_ended_and_traces_that_are_cut_are_said(tmp_path: Path) -> None:
    half = rewritten(tmp_path / "half", beside_others(0.0))
    told = (half / "run.json").read_text().replace('"status": "done"', '"status": "running"')
    (half / "run.json").write_text(told)
    trace = half / "traces" / "rank1.11.pt.trace.json.gz"
    trace.write_bytes(trace.read_bytes()[:1000])
    notes = compare_paths([RUN], [half]).notes
    assert any("half has not come to its end (it is running): its 9 steady steps" in note for note in notes)
    assert any("half has traces that cannot be used (of 2 ranks' traces only 1 are whole" in note for note in notes)


def test_one_model_eager_and_compiled_is_one_job_though_no_kernel_is_in_both() -> None:
    eager, compiled = (
        Repeat(name=name, path=Path(name), steady_ms=[10.0] * 20,
               identity=msgspec.structs.replace(ON_CPU, names={name: 1.0}, kinds={kind: 1.0}))
        for name, kind in (("aten::linear", "matmul"), ("Torch-Compiled Region", "other"))
    )  # fmt: skip
    assert same_work(eager, compiled).rate == 1.0
    strangers = [msgspec.structs.replace(one, identity=msgspec.structs.replace(one.identity, model=None))
                 for one in (eager, compiled)]  # fmt: skip
    assert same_work(*strangers).reason == "another_job"


def test_a_folder_beside_itself_is_said_to_be_one_and_given_twice_is_no_repeat(tmp_path: Path) -> None:
    calm = rewritten(tmp_path / "calm", beside_others(0.0))
    assert "are the same measurement, given twice" in headline(compare_paths([calm], [calm]))
    again = rewritten(tmp_path / "again", beside_others(0.01))
    twice = compare_paths([calm, tmp_path / "." / "calm"], [again, again])
    assert twice.noise is not None and (twice.noise.baseline, twice.noise.other) == (1, 1)
    assert any("given twice is no repeat" in note for note in twice.notes)
