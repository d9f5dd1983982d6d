"""What the profiler records stays within its limits, and is never more than was asked for."""

import ctypes
import gzip
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.profiler import _KinetoProfile

from scalescope import profile_steps
from scalescope.train.measure.schedule import Window
from scalescope.train.measure.tracing import kineto
from scalescope.train.measure.tracing.bursts import Bursts
from scalescope.train.measure.tracing.kineto import Tracer
from scalescope.train.settings import ProfilerConfig
from tests.trace_json import unpacked
from tests.train_runs import compose

WINDOWS = (Window(2, 4, 8), Window(10, 12, 16))


@pytest.fixture(scope="module")
def train_step() -> Callable[[], None]:
    model = torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(20)))
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(8, 32)

    def run() -> None:
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


def trace_steps(tracer: Tracer, train_step: Callable[[], None], steps: int) -> None:
    """Run steps under the two windows, breaking off after `steps`."""
    for step in range(steps):
        window = next((window for window in WINDOWS if step in window), None)
        if window is not None:
            tracer.before(window, step)
        with tracer.step(window, step):
            train_step()
        if window is not None:
            tracer.after(window, step)


def record(config: ProfilerConfig, train_step: Callable[[], None], folder: Path, steps: int = 18) -> Tracer:
    """Run steps under the two windows, and write what was recorded."""
    tracer = Tracer(config, torch.device("cpu"), 0, {}, lambda: folder)
    trace_steps(tracer, train_step, steps)
    for index in range(tracer.count):
        tracer.export(index, folder / f"{tracer.steps(index)[0]}.json.gz")
    return tracer


def steps_in(trace: Path) -> list[int]:
    events = unpacked(trace)["traceEvents"]
    names = [str(event["name"]) for event in events if event.get("ph") == "X"]
    return sorted(int(name.partition("#")[2]) for name in names if name.startswith("ProfilerStep#"))


@pytest.mark.job
def test_windows_end_early_and_are_left_out_where_their_traces_would_outgrow_the_limit(
    train_step: Callable[[], None], tmp_path: Path
) -> None:
    config = compose("profiler.active=4", "profiler.max_mib=null").profiler
    everything = record(config, train_step, tmp_path / "all")
    assert everything.remarks == []
    assert steps_in(tmp_path / "all" / "4.json.gz") == [4, 5, 6, 7]
    step_mib = (tmp_path / "all" / "4.json.gz").stat().st_size / 4 / 2**20

    limit_mib = 6 * step_mib
    limited = replace(config, max_mib=limit_mib)
    tracer = record(limited, train_step, tmp_path / "limited")
    kept = sorted((tmp_path / "limited").iterdir(), key=lambda path: int(path.name.partition(".")[0]))
    recorded = [steps_in(path) for path in kept]
    assert recorded[0] == list(range(4, 4 + len(recorded[0])))
    assert 1 <= sum(map(len, recorded)) <= 6
    assert sum(path.stat().st_size for path in kept) <= limit_mib * 2**20
    assert tracer.remarks and all("profiler.max_mib" in remark for remark in tracer.remarks)
    assert "of 4 steps" in tracer.remarks[0] or "was left out" in tracer.remarks[0]


def test_where_it_is_left_open_three_steps_of_many_events_are_enough(
    train_step: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten steps of a loop that reads 28,800 values one by one were 50 MiB of traces, which nothing was told of."""
    config = compose().profiler
    assert config.active is None
    record(config, train_step, tmp_path / "few")
    assert steps_in(tmp_path / "few" / "4.json.gz") == [4, 5, 6, 7]
    monkeypatch.setattr(kineto, "_ENOUGH_EVENTS", 1)
    tracer = record(config, train_step, tmp_path / "many")
    assert steps_in(tmp_path / "many" / "4.json.gz") == [4, 5, 6] and tracer.remarks == []


def test_where_not_even_one_step_fits_nothing_is_recorded(train_step: Callable[[], None], tmp_path: Path) -> None:
    config = compose("profiler.max_mib=0.001").profiler
    tracer = record(config, train_step, tmp_path)
    assert tracer.count == 0
    assert [remark.partition(":")[0] for remark in tracer.remarks] == [
        "the Kineto window at step 4 was left out",
        "the Kineto window at step 12 was left out",
    ]


def test_shapes_and_stacks_are_recorded_where_the_config_says_so(
    train_step: Callable[[], None], tmp_path: Path
) -> None:
    plain, rich = compose("profiler.shapes=false").profiler, compose("profiler.stacks=true").profiler
    texts = []
    for name, config in (("plain", plain), ("rich", rich)):
        record(config, train_step, tmp_path / name, steps=8)
        texts.append(gzip.decompress((tmp_path / name / "4.json.gz").read_bytes()).decode())
    assert "Input Dims" not in texts[0] and "python_function" not in texts[0]
    assert "Input Dims" in texts[1] and "python_function" in texts[1]


def test_a_window_is_written_before_anything_else_is_recorded(
    train_step: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kineto has one way to turn device time stamps into times, that of the last recording that ended."""
    happened: list[tuple[str, _KinetoProfile]] = []

    def noted(method: str) -> None:
        original = getattr(_KinetoProfile, method)

        def call(self: _KinetoProfile, *args: object) -> object:
            happened.append((method, self))
            return original(self, *args)

        monkeypatch.setattr(_KinetoProfile, method, call)

    for method in ("start_trace", "stop_trace", "export_chrome_trace"):
        noted(method)
    monkeypatch.setattr("scalescope.train.measure.tracing.bursts._MOST_ROUNDS", 1)
    config = compose("profiler.max_mib=null", "profiler.active=4", "profiler.repeat=2").profiler
    tracer = Tracer(config, torch.device("cpu"), 0, {}, lambda: tmp_path)
    trace_steps(tracer, train_step, 18)
    assert list(tmp_path.iterdir()) == []  # nothing with a name is left where a rank is ended now
    assert Bursts(0, torch.device("cpu")).measure() is not None
    for index in range(tracer.count):
        tracer.export(index, tmp_path / f"{index}.json.gz")
    written = [at for at, (method, _) in enumerate(happened) if method == "export_chrome_trace"]
    assert len(written) == 2 and len(happened) > 8
    assert all(happened[at - 1] == ("stop_trace", happened[at][1]) for at in written)
    assert [steps_in(tmp_path / f"{index}.json.gz") for index in range(2)] == [[4, 5, 6, 7], [12, 13, 14, 15]]


class MallocInfo(ctypes.Structure):
    """glibc's `struct mallinfo2`: sizes in bytes."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


def free_heap_mib() -> float:
    """What malloc holds that nobody uses: room for which a job pays no page faults."""
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = MallocInfo
    return float(mallinfo().fordblks / 2**20)


def _free_heap_around_a_window(folder: str) -> None:
    """Print the free heap before a window and after it, MiB: in a process of its own."""
    model = torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(200)))
    tracer = Tracer(compose().profiler, torch.device("cpu"), 0, {}, lambda: Path(folder))

    def train_step() -> None:
        model(torch.randn(8, 32)).sum().backward()

    trace_steps(tracer, train_step, WINDOWS[0].first)
    before = free_heap_mib()
    trace_steps(tracer, train_step, WINDOWS[0].end + 1)
    print(before, free_heap_mib())


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallinfo2 is glibc's")
@pytest.mark.job
def test_a_window_on_cpus_frees_no_room_in_which_the_job_then_runs_faster(tmp_path: Path) -> None:
    call = f"from tests.test_train_profiling import _free_heap_around_a_window as f; f({str(tmp_path)!r})"
    told = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, timeout=120)
    assert told.returncode == 0, told.stderr
    before, after = map(float, told.stdout.split()[-2:])
    assert after - before < 16  # 97 MiB where a window's records are freed


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="room is made in glibc's heap")
@pytest.mark.parametrize(("warmup", "job"), [(1, "tables"), (2, "tables"), (2, "graph")])
@pytest.mark.job
def test_recorded_steps_on_cpus_take_no_fresh_pages_for_what_records_are_laid_into(
    warmup: int, job: str, tmp_path: Path
) -> None:
    """5,500 page faults a recorded step, and none in others, made steps of 55 ms 140 on a virtual machine.

    So they did after a warm-up of one step, in which no fresh pages were counted; and 27,800 of a graph network made
    steps of 80 ms 120, of which the first recorded one took 600.
    """

    def recorded(room: str) -> tuple[float, float]:
        command = [sys.executable, "-m", "tests.fresh_pages", str(tmp_path / room), room, str(warmup), job]
        told = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert told.returncode == 0, told.stderr
        window, after = ([int(one) for one in line.split()] for line in told.stdout.splitlines()[-2:])
        return statistics.median(window), statistics.median(after)

    (window, after), (window_without, after_without) = recorded("with"), recorded("without")
    assert window < 100 and window_without > 2_000
    assert (
        job == "graph" or after > after_without / 4
    )  # the room goes with the window: it is no gift to the steps after it


def test_the_devices_tracing_library_is_let_go_once_after_the_last_window(
    train_step: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attached, it slows each launch down for as long as the job runs; between windows it would have to come back."""
    let_go: list[int] = []
    done = 0
    monkeypatch.setattr("scalescope.train.measure.tracing.kineto.let_go", lambda _: let_go.append(done))
    monkeypatch.chdir(tmp_path)
    with profile_steps("twice", samples=8, analyze=False, wait=5, warmup=2, active=3, repeat=2) as profile:
        for _ in range(40):
            train_step()
            profile.step()
            done += 1
        assert profile.folder is not None
    recorded = sorted(int(path.name.split(".")[1]) for path in (profile.folder / "traces").iterdir())
    assert len(recorded) == 2 and let_go == [recorded[1] + 2], "with the last of three recorded steps"
