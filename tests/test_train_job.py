"""Real training jobs on gloo ranks, from the command line to the run folder."""

import os
import signal
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from scalescope.records.folder import RunFolder
from scalescope.records.rows import StepRow
from scalescope.scaling.as_run.recording import ON_CPUS, terms_for
from scalescope.scaling.as_run.untraced import untraced_of_run, untraced_of_traces
from scalescope.scaling.replay.load import read_records
from scalescope.scaling.run import explain_run
from scalescope.scaling.trace.header import Header, OwnMetadata
from tests.made_once import made_once
from tests.trace_json import unpacked
from tests.train_runs import SMALL_GPT, ranks_of, start, start_in_world, train_in_world, wait_for, wait_for_rows

STEPS = 24
SHORT = (
    *SMALL_GPT,
    "data=python_stdlib",
    "global_batch_size=8",
    f"steps={STEPS}",
    "warmup_steps=3",
    "optimizer.learning_rate=3e-3",
)


@dataclass
class Run:
    folder: RunFolder
    said: str

    @property
    def rows(self) -> list[StepRow]:
        return self.folder.read_steps()


def finished(factory: pytest.TempPathFactory, name: str, ranks: int, *overrides: str) -> Run:
    def make(runs: Path) -> None:
        folder, done = train_in_world(runs, name, ranks, *overrides)
        assert folder.steps.is_file(), done.stderr
        assert folder.read_info().status == "done", done.stderr
        (runs / "said.txt").write_text(done.stdout)

    runs = made_once(factory, f"trained_{name}", make)
    return Run(RunFolder(runs / name), (runs / "said.txt").read_text())


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return finished(tmp_path_factory, "alone", 1, *SHORT, "profiler=none")


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two ranks, small buckets, two windows with steps before, between and after them."""
    window = ("profiler.wait=6", "profiler.warmup=1", "profiler.active=2", "profiler.repeat=2")
    return finished(tmp_path_factory, "together", 2, *SHORT, "strategy.bucket_mib=0.1", *window)


def losses(run: Run) -> list[float | None]:
    return [row.loss for row in run.rows]


def held_out(run: Run) -> list[float]:
    return [row.validation_loss for row in run.rows if row.validation_loss is not None]


@pytest.mark.job
def test_two_ranks_learn_what_one_does_on_the_same_samples(alone: Run, together: Run) -> None:
    assert losses(together) == pytest.approx(losses(alone), rel=1e-4)
    assert held_out(together) == pytest.approx(held_out(alone), rel=1e-4)


def test_it_learns_real_text_that_it_was_not_trained_on(alone: Run) -> None:
    assert [row.step for row in alone.rows if row.validation_loss is not None] == [0, STEPS - 1]
    first, last = held_out(alone)
    assert first > 5.3  # nats: about ln 256, an untrained model's
    assert last < first - 1.0


def test_every_step_has_one_row_with_every_ranks_time(together: Run) -> None:
    rows = together.rows
    assert [row.step for row in rows] == list(range(STEPS))
    for row in rows:
        assert len(row.step_ms) == 2 and min(row.step_ms) > 0
        assert 0 < row.length_ms <= max(row.step_ms)
        assert row.samples_per_s == pytest.approx(8 / row.length_ms * 1e3)
        assert row.tokens_per_s == pytest.approx(row.samples_per_s * 64)
        assert row.mfu is None  # no data sheet for this device
        assert row.mfu_of_measured is not None and row.mfu_of_measured > 0
        assert row.memory_peak_bytes is not None and row.memory_peak_bytes > 10**8
    took = max(sum(row.step_ms[rank] for row in rows) for rank in range(2))
    assert sum(row.length_ms for row in rows) == pytest.approx(took)


def test_steady_rows_lie_outside_the_windows(together: Run) -> None:
    phases = "".join(row.phase[0] for row in together.rows)
    assert phases == "www" + "sss" + "ppp" + "ssssss" + "ppp" + "ssssss"
    assert "inside the Kineto window" in together.said


def test_windows_are_named_by_their_first_step_and_keep_beside_each_other(together: Run) -> None:
    names = sorted(path.name for path in together.folder.traces.iterdir())
    assert names == [f"rank{rank}.{step}.pt.trace.json.gz" for rank in (0, 1) for step in (16, 7)]
    assert together.folder.find_traces().keys() == {0, 1}


def own_header(trace: dict[str, Any]) -> OwnMetadata:
    return msgspec.convert({"scalescope": trace["scalescope"]}, Header).own


def read_trace(path: Path) -> dict[str, Any]:
    return cast(dict[str, Any], unpacked(path))


def test_a_trace_holds_its_steps_by_the_jobs_numbers_and_says_whose_it_is(together: Run) -> None:
    trace = read_trace(together.folder.trace_of(1, 16))
    events = [event for event in trace["traceEvents"] if isinstance(event, dict)]
    steps = [e["name"] for e in events if str(e.get("name")).startswith("ProfilerStep#") and e.get("ph") == "X"]
    assert steps == ["ProfilerStep#16", "ProfilerStep#17"]
    assert sum(event.get("name") == "scalescope:data" for event in events) == 2
    header = trace["scalescope"]
    assert (header["model"], header["strategy"], header["world_size"], header["rank"]) == ("gpt_tiny", "ddp", 2, 1)
    assert header["steps"] == [16, 17]
    assert header["config_hash"] == together.folder.read_info().config_hash
    assert header["torch"] and header["scalescope"] and header["host"]
    assert trace["distributedInfo"]["world_size"] == 2


def test_a_trace_alone_tells_the_steps_beside_its_window_and_what_recording_costs_its_host(together: Run) -> None:
    facts = together.folder.read_recording()
    assert facts is not None and [one.steps for one in facts.windows] == [[7, 8], [16, 17]]
    assert [one.rank for one in facts.bursts] == [0, 1]
    for one in facts.bursts:
        assert one.bare is None and one.shapes is not None, "nothing stays attached to a CPU"
        assert one.plain.operator_ns < one.recorded.operator_ns < one.shapes.operator_ns
    first, second = facts.windows
    lengths = {row.step: row.length_ms for row in together.rows}
    assert first.first and not second.first
    assert first.after is not None and second.before is not None and first.after.count == second.before.count == 6
    assert second.before.median_ms == pytest.approx(statistics.median(lengths[step] for step in range(9, 15)))
    assert second.after is not None and second.after.median_ms == pytest.approx(
        statistics.median(lengths[step] for step in range(18, 24))
    )
    header = own_header(read_trace(together.folder.trace_of(1, 16)))
    assert header.window == second and header.bursts == facts.bursts[1]


def test_a_run_folder_and_its_traces_alone_tell_the_same_untraced_step(together: Run) -> None:
    records = read_records(together.folder.path)
    alone, with_rows = untraced_of_traces(records), untraced_of_run(together.folder.path, [16, 17])
    assert alone is not None and with_rows is not None
    assert (alone.source, with_rows.source) == ("metadata", "steps")
    assert alone.step_ms == with_rows.step_ms
    terms = terms_for(records)
    assert terms.source == "bursts in the job itself" and terms.call_ns == 0
    assert ON_CPUS.operator_ns / 4 < terms.operator_ns < 4 * ON_CPUS.operator_ns


def test_a_window_shows_the_job_alone(together: Run) -> None:
    """Buckets of two steps travel in it, and no message of the profiler's own bookkeeping."""
    events = read_trace(together.folder.trace_of(0, 7))["traceEvents"]
    names = [str(event.get("name")) for event in events if isinstance(event, dict)]
    reduced, gathered = names.count("gloo:all_reduce"), sum("all_gather" in name for name in names)
    assert reduced >= 4 and reduced % 2 == 0
    assert gathered == 0


@pytest.mark.job
def test_torch_tb_profilers_own_loader_reads_the_traces(together: Run) -> None:
    from torch_tb_profiler.io import Cache  # which loads pandas
    from torch_tb_profiler.profiler import RunLoader

    run = RunLoader("together", str(together.folder.traces), Cache()).load()
    assert {(profile.worker, str(profile.span)) for profile in run.profiles.values()} >= {
        (f"rank{rank}", span) for rank in (0, 1) for span in ("1", "2")
    }


def test_the_facts_of_a_job_are_written_once(together: Run, alone: Run) -> None:
    facts = together.folder.read_facts()
    assert facts is not None
    assert (facts.model, facts.strategy, facts.precision) == ("gpt_tiny", "ddp", "fp32")
    assert (facts.samples_per_rank_step, facts.tokens_per_sample) == (4, 64)
    assert facts.parameters == 256 * 64 + 64 * 64 + 2 * (12 * 64 * 64 + 13 * 64) + 2 * 64
    assert not alone.folder.traces.exists()


@pytest.mark.job
def test_ranks_that_train_each_for_itself_add_up_what_each_of_them_does(tmp_path: Path) -> None:
    folder, done = train_in_world(tmp_path, "apart", 2, *SHORT, "strategy=local")
    assert done.returncode == 0, done.stderr
    rows, facts = folder.read_steps(), folder.read_facts()
    assert facts is not None
    batch = facts.samples_per_rank_step
    for row in rows:
        assert row.samples_per_s == pytest.approx(sum(batch / ms * 1e3 for ms in row.step_ms))
    steady = [row for row in rows if row.phase == "steady"]
    times = explain_run(folder.path).analysis.step_times
    assert times is not None and times.measured_step_ms == statistics.median(row.length_ms for row in steady)
    assert all(min(row.step_ms) < row.length_ms < max(row.step_ms) for row in steady)


def test_a_loss_that_is_not_finite_ends_the_job_with_advice_and_keeps_the_steps(tmp_path: Path) -> None:
    folder, done = train_in_world(tmp_path, "nan", 2, *SHORT, "profiler=none", "optimizer.learning_rate=1e30",
                                  "optimizer.gradient_clip=null")  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert "the loss is nan at step" in done.stderr
    assert "optimizer.learning_rate" in done.stderr
    assert folder.read_info().status == "failed"
    assert folder.read_steps()[0].loss is not None


def test_a_trace_that_cannot_be_written_is_said_and_costs_no_step(tmp_path: Path) -> None:
    """A file lies where the traces' folder should be: to the export, that is a full disk."""
    job = start_in_world(tmp_path, "full", 1, *SHORT)
    folder = RunFolder(tmp_path / "full")
    wait_for(folder.config)
    folder.traces.touch()
    _, said = job.communicate(timeout=200)
    assert job.returncode == 3, said
    assert "1 trace(s) could not be written" in said and "steps.jsonl is whole" in said
    assert folder.read_info().status == "failed"
    assert [row.step for row in folder.read_steps()] == list(range(STEPS))


@pytest.mark.job
def test_a_rank_that_dies_ends_the_job_and_keeps_its_steps(tmp_path: Path) -> None:
    """And what a window had recorded by then is written by the rank that lives."""
    early = ("profiler.wait=2", "profiler.warmup=0", "profiler.active=1")
    job = start(tmp_path, "killed", 2, *SHORT, "steps=2000", *early)
    folder = RunFolder(tmp_path / "killed")
    wait_for_rows(folder.steps, 4)
    victim = ranks_of(job)[1]
    os.kill(victim, signal.SIGKILL)
    _, said = job.communicate(timeout=100)
    assert job.returncode == 3, said
    assert str(folder.path) in said
    assert folder.read_info().status == "failed"
    steps = [row.step for row in folder.read_steps()]
    assert len(steps) >= 4 and steps == list(range(len(steps)))
    assert folder.find_traces().keys() == {0}
