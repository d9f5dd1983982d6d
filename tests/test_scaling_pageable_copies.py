"""Copies out of pageable memory are work of the host's cores: they may be as quick as the window's quickest."""

from pathlib import Path

import pytest

from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.as_run.untraced import given_steps
from scalescope.scaling.replay.graph import Activity, Contention, Graph
from scalescope.scaling.replay.host_cost import with_quicker_copies
from tests.host_traces import HostTrace
from tests.test_scaling_causes_of_hosts import analysed as lockstep_analysed
from tests.test_scaling_causes_of_hosts import in_lockstep

#: What the batch's copy takes in each step, and what the kernels behind it take in all, µs.
COPIES_US, KERNELS_US = (4_000.0, 4_400.0, 2_600.0, 4_000.0, 4_000.0), 100 * 200.0
PAGEABLE, PINNED = "Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pinned -> Device)"


def analysed(folder: Path, name: str, step_ms: float | None = None) -> RunAnalysis:
    def step(trace: HostTrace, number: int) -> None:
        with trace.inside("cpu_op", "aten::copy_"):
            begun = trace.clock
            call = trace.call("MemcpyAsync")
            trace.on_device(name, "gpu_memcpy", max(trace.clock, trace.device_free), COPIES_US[number], call)
            if name == PAGEABLE:
                trace.clock = trace.device_free + 5.0
                trace.events[-2]["dur"] = round(trace.clock - begun, 3)
        for _ in range(100):
            trace.kernel("aten::mm", 200.0)

    if not folder.exists():
        HostTrace(0, 1).steps(len(COPIES_US), step).write(folder)
    given = given_steps([step_ms] if step_ms is not None else [], [folder])
    (found,) = analyze([folder], 1, untraced=given, write=False)
    assert isinstance(found, RunAnalysis)
    return found


def test_a_step_whose_copies_are_as_quick_as_the_windows_quickest_contradicts_no_trace(tmp_path: Path) -> None:
    """44.4 ms were called shorter than the traces allow, and *at most 7.1 ms* told of copies that cost 4.5."""
    quick_ms = (KERNELS_US + min(COPIES_US)) / 1e3
    untold = analysed(tmp_path / "pageable", PAGEABLE).as_run
    assert untold is not None and untold.low_ms is not None and untold.step_ms is not None
    assert untold.low_ms < quick_ms * (1 - 0.02) < untold.step_ms
    told = analysed(tmp_path / "pageable", PAGEABLE, quick_ms)
    assert told.as_run is not None and told.as_run.contradicts is None
    first = told.findings[0]
    assert first.code == "copies" and first.ms == pytest.approx(min(COPIES_US) / 1e3, rel=0.1)


def test_pinned_copies_are_the_links_and_take_what_they_take(tmp_path: Path) -> None:
    untold = analysed(tmp_path / "pinned", PINNED).as_run
    assert untold is not None and untold.low_ms is not None
    assert untold.low_ms > (KERNELS_US + min(COPIES_US)) / 1e3 * (1 - 0.02)


def test_the_same_copy_is_that_of_its_name_and_ordinal_in_each_step() -> None:
    steps = [(0, PAGEABLE), (0, PAGEABLE), (0, PINNED), (1, PAGEABLE), (1, PAGEABLE), (1, PINNED), (-1, PAGEABLE)]
    nodes = [Activity(0, 7, 2, 0.0, step, name) for step, name in steps]
    graph = Graph([0], nodes, [9.0, 5.0, 8.0, 3.0, 7.0, 4.0, 1.0], {}, {0: []}, {0: []}, {0: 0.0}, [], {0: []},
                  {0: []}, {0: 0.0}, {0: []}, [0, 1], Contention())  # fmt: skip
    assert list(with_quicker_copies(graph, 1.0).work_ns) == [3.0, 5.0, 8.0, 3.0, 5.0, 4.0, 1.0]
    assert list(with_quicker_copies(graph, 0.5).work_ns) == [6.0, 5.0, 8.0, 3.0, 6.0, 4.0, 1.0]
    assert with_quicker_copies(graph, 0.0) is graph


def test_what_a_host_copies_first_is_part_of_each_of_many_small_copies(tmp_path: Path) -> None:
    """Of 64 images moved one by one *launch less* was told: the replay began each as soon as it was handed over."""
    staging_us, copy_us, images = 90.0, 17.0, 64

    def step(trace: HostTrace, _number: int) -> None:
        for _ in range(images):
            with trace.inside("cpu_op", "aten::to"):
                call = trace.call("MemcpyAsync", staging_us)
                trace.on_device(PAGEABLE, "gpu_memcpy", max(trace.clock + 1.0, trace.device_free), copy_us, call)
                trace.synchronise()
            trace.python()
        for _ in range(100):
            trace.kernel("aten::mm", 100.0)

    HostTrace(0, 1).steps(len(COPIES_US), step).write(tmp_path / "one_by_one")
    (run,) = analyze([tmp_path / "one_by_one"], 1, write=False)
    assert isinstance(run, RunAnalysis)
    first = run.findings[0]
    assert first.code == "copies" and first.ms is not None
    assert 0.8 * images * (staging_us + copy_us) < 1e3 * first.ms < 1.3 * images * (staging_us + copy_us)


def test_who_waits_in_a_copy_for_another_ranks_late_host_waits_less_without_recording(tmp_path: Path) -> None:
    """That a host waits in its copy for a collective was taken for its own time: 12.4 and 13.1 ms were told of copies
    that cost 6.4 and 6.3, in steps of which recording made 12 to 15.
    """

    def step_ms(name: str, recorded_us: float, copy_us: float = 3_000.0) -> float:
        def work(trace: HostTrace, _: int) -> None:
            if copy_us:
                with trace.inside("cpu_op", "aten::copy_"):
                    begins, started = max(trace.clock + 10.0, trace.device_free), trace.clock
                    call = trace.call("MemcpyAsync", begins + copy_us - 10.0 - started)
                    trace.on_device(PAGEABLE, "gpu_memcpy", begins, copy_us, call)
            for _ in range(200):
                trace.kernel("aten::mm", 10.0)
                trace.python(2.0 + recorded_us * (1.0 if trace.rank else 0.1))

        ranks = in_lockstep(tmp_path / name, work, lambda trace, _: trace.python(), steps=7)
        begun = [one["ts"] for one in ranks[1].events if one["name"].startswith("ProfilerStep")]
        return float((begun[-1] - begun[1]) / (len(begun) - 2) / 1e3)

    step_ms("traced", 12.0)
    untraced, without = step_ms("untraced", 0.0), step_ms("without", 0.0, 0.0)
    found = lockstep_analysed(tmp_path / "traced", untraced).findings
    ms = next((one.ms or 0.0 for one in found if one.code == "copies"), 0.0)
    assert ms == pytest.approx(untraced - without, rel=0.03)
