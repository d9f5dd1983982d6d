"""Where the time went: every nanosecond of every rank's steps, held against a separately written account."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scalescope.scaling.answer_rows import PARTS
from scalescope.scaling.join.explained import Explained
from scalescope.scaling.run import explain_traces
from scalescope.scaling.trace.sources import find_sources
from tests import oracle, synthetic
from tests.recorded import explained_of

DATA = Path(__file__).parent / "data"
DEVICE_SETS = ["gpt_ddp_n1", "gpt_ddp_n2", "gpt_ddp_compile_n4", "resnet50_ddp_n4"]
CPU_SETS = ["cpu_ddp_n2", "cpu_fsdp2_n2"]


def explain(folder: Path) -> Explained:
    return explain_traces(find_sources(folder), folder.name, jobs=1)


def assert_equals_oracle(explained: Explained, expected: dict[int, dict[int, dict[str, int]]]) -> None:
    assert explained.partitions.keys() == expected.keys()
    for rank, steps in explained.partitions.items():
        numbers = [one.step for one in explained.analysis.steps if one.rank == rank]
        assert numbers == list(expected[rank])
        for part, should in zip(steps, expected[rank].values(), strict=True):
            assert dict(zip(oracle.PARTS, part.parts, strict=True)) | {"window": part.window} == should


@pytest.mark.parametrize("name", DEVICE_SETS)
def test_every_part_of_a_gpu_trace_equals_the_slow_account_of_it_to_the_nanosecond(name: str) -> None:
    assert_equals_oracle(explained_of(name), oracle.account_of(DATA / name))


@pytest.mark.parametrize("name", CPU_SETS)
def test_every_part_of_a_cpu_trace_equals_the_slow_account_of_it_to_the_nanosecond(name: str) -> None:
    explained = explained_of(name)
    assert explained.analysis.activity == "cpu"
    traces = {source.rank: oracle.load(source.path) for source in find_sources(DATA / name) if source.rank is not None}
    assert_equals_oracle(explained, oracle.cpu_partitions(traces))


@pytest.mark.parametrize("name", DEVICE_SETS + CPU_SETS)
def test_the_parts_of_every_rank_and_step_add_up_to_its_window_in_integer_nanoseconds(name: str) -> None:
    explained = explained_of(name)
    for steps in explained.partitions.values():
        for part in steps:
            assert sum(part.parts) == part.window
            assert min(part.parts) >= 0
    for rank in explained.analysis.ranks:
        assert sum(rank.part_ms(part) for part in PARTS) == pytest.approx(rank.window_ms, abs=1e-9)


@pytest.mark.parametrize("name", DEVICE_SETS + CPU_SETS)
def test_the_shares_of_the_single_kernels_add_up_to_the_compute(name: str) -> None:
    explained = explained_of(name)
    for rank, table in explained.kernels.items():
        assert table.total_ns == sum(part.compute for part in explained.partitions[rank])


def test_all_idle_time_of_the_h200_traces_lies_between_activities_that_were_enqueued_already() -> None:
    for rank in explained_of("gpt_ddp_n2").analysis.ranks:
        assert rank.idle_launch_ms == 0 and rank.idle_data_ms == 0 and rank.idle_queued_ms > 4


def test_what_was_launched_before_the_window_has_its_own_figure() -> None:
    (rank,) = explained_of("gpt_ddp_n1").analysis.ranks
    assert rank.before_window_ms == pytest.approx(50.32, abs=0.01)


def test_sleeping_before_the_step_shows_as_the_host_being_late_and_the_other_rank_waiting() -> None:
    """The CPU job's rank 1 sleeps 10 ms a step; loading data takes both 2 ms."""
    explained = explained_of("cpu_ddp_n2")
    early, late = explained.analysis.ranks
    assert late.idle_launch_ms - early.idle_launch_ms >= 3 * 9
    assert early.exposed_wait_ms > 3 * 5 and late.exposed_wait_ms < 1
    assert 3 * 2 <= early.idle_data_ms < 3 * 3


def test_one_ranks_trace_alone_leaves_its_communication_unsplit_and_says_why(tmp_path: Path) -> None:
    one = tmp_path / "rank1.json.gz"
    one.write_bytes((DATA / "gpt_ddp_n2" / "rank1.json.gz").read_bytes())
    alone = explain(one).analysis
    both = explained_of("gpt_ddp_n2").analysis
    (rank,), together = alone.ranks, both.ranks[1]
    assert rank.exposed_transfer_ms == rank.exposed_wait_ms == 0
    assert rank.exposed_unsplit_ms == pytest.approx(together.exposed_transfer_ms + together.exposed_wait_ms)
    assert alone.quality.missing_ranks == [0] and alone.quality.verdict == "degraded"
    assert any("no trace of rank 0" in reason for reason in alone.quality.reasons)
    assert all(one.transfer_us is None and not one.wait_us for one in alone.collectives)


def test_a_batch_copied_ahead_on_a_stream_of_its_own_does_not_begin_the_step(tmp_path: Path) -> None:
    """The host runs a step ahead: what it launches in a step computes while the next one is being launched."""
    step = 4_000_000
    activities = []
    for number in range(3):
        launched, computes = 1_000_000 + number * step + 1_000, 1_000_000 + (number + 1) * step
        copy = synthetic.Activity(
            "Memcpy HtoD", "gpu_memcpy", launched + 5_000, launched + 90_000, 30, launched, 101, {}
        )
        kernel = synthetic.Activity("gemm", "kernel", computes, computes + step - 70_000, 7, launched + 9_000, 101, {})
        activities += [copy, kernel]
    # launched before the profiler began: no runtime record, and on the device before the window's first kernel
    job = synthetic.Job(world_size=1, groups=[], steps=3, collectives=0, kernels=0, seed=0)
    trace = synthetic.trace_of(0, job, activities, step)
    early = next(e for e in trace["traceEvents"] if e["cat"] == "kernel") | {
        "ts": 2_000,
        "dur": 2_500,
        "name": "earlier",
    }
    trace["traceEvents"].append(early | {"args": {"correlation": 99_999, "stream": 7}})
    explained = explain(synthetic.write({0: trace}, tmp_path))
    windows = [one.window_ms for one in explained.analysis.steps]
    assert windows == [4.0, 4.0, 3.93]
    assert explained.analysis.quality.verdict == "good"
    assert explained.analysis.ranks[0].before_window_ms == 2.5
    assert_equals_oracle(explained, oracle.device_partitions({0: oracle.load(tmp_path / "rank0.json.gz")}, 1))


jobs = st.builds(
    synthetic.Job,
    world_size=st.just(4),
    groups=st.sampled_from(
        [
            [(0, 1, 2, 3)],
            [(0, 1), (2, 3)],
            [(0, 1, 2, 3), (0, 2), (1, 3)],
            [(0, 1, 2, 3), (0, 1, 2, 3)],  # two communicators over the same ranks: overlapping collectives
        ]
    ),
    steps=st.integers(1, 3),
    collectives=st.integers(1, 4),
    kernels=st.integers(1, 6),
    seed=st.integers(0, 1 << 32),
    sequence=st.booleans(),
    cut=st.dictionaries(st.integers(0, 3), st.integers(1, 2), max_size=3),
    drop=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 8)), max_size=1),
    operations=st.sampled_from(
        [
            ("allreduce",),
            ("_allgather_base", "_reduce_scatter_base"),
            ("allreduce", "broadcast", "reduce"),
            ("alltoall",),
        ]
    ),
)


#: One rank's broadcast alone could be, by order, another's that its root had not begun yet.
AGAINST_ITS_ROOT = synthetic.Job(
    world_size=4, groups=[(0, 1), (2, 3)], steps=1, collectives=4, kernels=6, seed=7379098, cut={0: 2}, drop=[(1, 2)],
    operations=("allreduce", "broadcast", "reduce"),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(job=jobs)
@example(job=AGAINST_ITS_ROOT)
def test_made_up_jobs_with_several_groups_and_missing_members_come_out_as_they_were_made(job: synthetic.Job) -> None:
    traces = synthetic.make(job)
    with tempfile.TemporaryDirectory() as folder:
        explained = explain(synthetic.write(traces, Path(folder)))
        read_back = {rank: oracle.load(Path(folder) / f"rank{rank}.json.gz") for rank in traces}
    for steps in explained.partitions.values():
        assert all(sum(part.parts) == part.window for part in steps)
    assert_equals_oracle(explained, oracle.device_partitions(read_back, job.world_size))
