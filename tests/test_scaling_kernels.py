"""The kernels that take the most time: names people know, calls and time a step as the trace itself has them."""

import gzip
import json
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalescope.scaling.answer_rows import KernelRow
from scalescope.scaling.rank.kernels import CARRIED, kernel_table
from scalescope.scaling.rank.partition import Windows
from scalescope.scaling.trace.intervals import Intervals, Ints, covers, intervals, union
from scalescope.scaling.verdicts.top_kernels import kernel_label
from tests.recorded import explained_of

DATA = Path(__file__).parent / "data"


def launched_in_steps(path: Path, category: str) -> tuple[int, list[dict[str, object]]]:
    """Return a trace's profiled steps and what was launched in them, read plainly."""
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    steps = [event for event in events if event.get("cat") == "user_annotation" and "ProfilerStep" in event["name"]]
    start = min(event["ts"] for event in steps)
    end = max(event["ts"] + event["dur"] for event in steps)
    launches = {event["args"]["correlation"] for event in events
                if event.get("cat") in ("cuda_runtime", "cuda_driver") and start <= event["ts"] < end}  # fmt: skip
    chosen = [event for event in events if event.get("cat") == category and event["args"]["correlation"] in launches]
    return len(steps), chosen


def test_calls_and_time_a_step_are_what_the_trace_holds() -> None:
    (path,) = (DATA / "gpt_ddp_n1").glob("*.gz")
    steps, events = launched_in_steps(path, "kernel")
    calls: Counter[str] = Counter()
    ms: dict[str, float] = defaultdict(float)
    for event in events:
        label = kernel_label(str(event["name"]))
        calls[label] += 1
        ms[label] += event["dur"] / 1e3  # type: ignore[operator]
    rows = [row for row in explained_of("gpt_ddp_n1").analysis.kernels if not row.communication]
    assert len(rows) >= 19
    for row in rows:
        assert row.calls == pytest.approx(calls[row.name] / steps)
        assert row.ms == pytest.approx(ms[row.name] / steps, rel=0.01), "one rank: next to nothing overlaps"


@pytest.mark.parametrize("name", ["gpt_ddp_n2", "cpu_ddp_n2"])
def test_the_shares_are_of_the_mean_ranks_compute_and_the_longest_comes_first(name: str) -> None:
    analysis = explained_of(name).analysis
    assert 0 < len(analysis.kernels) <= 20
    assert [row.ms for row in analysis.kernels] == sorted((row.ms for row in analysis.kernels), reverse=True)
    assert len({row.name for row in analysis.kernels}) == len(analysis.kernels)
    compute = sum(rank.compute_ms / rank.steps for rank in analysis.ranks) / len(analysis.ranks)
    shares = 0.0
    for row in analysis.kernels:
        if row.communication:
            assert row.share_of_compute is None
        else:
            assert row.share_of_compute == pytest.approx(row.ms / compute)
            shares += row.share_of_compute or 0.0
    assert 0.7 < shares <= 1 + 1e-9


def test_collectives_are_marked_and_carry_their_whole_duration() -> None:
    def communication(analysis_of: str) -> KernelRow:
        (row,) = (row for row in explained_of(analysis_of).analysis.kernels if row.communication)
        return row

    totals = []
    for path in sorted((DATA / "gpt_ddp_n2").glob("*.gz")):
        steps, events = launched_in_steps(path, "kernel")
        totals.append(sum(event["dur"] for event in events if "nccl" in str(event["name"])) / 1e3 / steps)  # type: ignore[misc]
    row = communication("gpt_ddp_n2")
    assert row.name == "all_reduce float32"
    assert row.ms == pytest.approx(sum(totals) / len(totals), rel=0.01)
    assert communication("cpu_ddp_n2").calls == 3, "on a CPU the collectives of the threads beside the loop"


def test_a_shell_is_named_with_the_function_that_it_carries() -> None:
    copy = (
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::"
        "{lambda()#3}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul>, 4>(int, float)"
    )
    adam = (
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
        "FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4> >(int)"
    )
    assert kernel_label(copy) == "unrolled_elementwise_kernel<direct_copy_kernel_cuda>"
    assert kernel_label(adam) == "multi_tensor_apply_kernel<FusedAdamMathFunctor>"
    assert kernel_label("void (anonymous namespace)::softmax_warp_forward<float, 9>(float*)") == "softmax_warp_forward"
    assert len(kernel_label("_ZN" + "x" * 5000)) == 200


@st.composite
def steps_of_kernels(draw: st.DrawFn) -> tuple[Intervals, Ints, Windows, dict[str, Intervals]]:
    pairs = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=12)
    spans = sorted((start, start + length) for start, length in draw(pairs))
    names = draw(st.lists(st.integers(0, 3), min_size=len(spans), max_size=len(spans)))
    edges = sorted(draw(st.sets(st.integers(0, 80), min_size=1, max_size=4)))
    beside = {label: union(intervals([(start, start + length) for start, length in draw(pairs)])) for label in "xy"}
    return intervals(spans), np.array(names, np.int64), Windows([*range(len(edges) - 1)], np.array(edges), True), beside


@given(steps_of_kernels())
def test_shares_of_kernels_are_those_of_each_kernel_by_itself(
    made: tuple[Intervals, Ints, Windows, dict[str, Intervals]],
) -> None:
    spans, names, windows, beside = made
    words = ["a", "b", "a", CARRIED]  # two long names may be alike once their middle is cut out
    ns: dict[tuple[str, int], list[int]] = {}
    ran: Counter[tuple[str, int]] = Counter()
    for left, right in pairwise(windows.edges.tolist()):
        count: Counter[int] = Counter()
        keys = set()
        for row, (start, end, name) in enumerate(zip(*spans, names.tolist(), strict=True)):
            if end <= left or start >= right:
                continue
            key = (CARRIED, 0) if start < left else (words[name], count[name])
            count[name] += start >= left
            keys.add(key)
            own = range(max(start, left, *(spans.ends[:row].tolist() or [0])), min(end, right))
            layers = [[True] * len(own), *(covers(one, np.array(own, np.int64)).tolist() for one in beside.values())]
            before = ns.setdefault(key, [0, 0, 0])
            ns[key] = [sum(one) + kept for one, kept in zip(layers, before, strict=True)]
        ran.update(keys)
    table = kernel_table(spans, names, union(spans), windows, words, beside)
    told = {key: [kernel.total_ns] for key, kernel in table.items()}
    assert {key: [*told[key], *meanwhile] for key, meanwhile in table.overlaps()} == ns
    assert list(told) == list(ns) and {key: kernel.steps for key, kernel in table.items()} == ran
    assert {name: kernel.total_ns for name, kernel in table.by_name()} == {
        name: sum(one[0] for (other, _), one in ns.items() if other == name) for name, _ in ns
    }
