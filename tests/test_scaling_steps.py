"""Steps of jobs that did not call the profiler's step(): what else recurs tells them, where anything does."""

from pathlib import Path
from typing import Any

import pytest

from scalescope.report.shares import iterations_table, shares_table
from scalescope.report.verdict.run import run_verdict
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.rank.step_sources.iterations import kind_of_iteration
from scalescope.scaling.run import explain_traces
from scalescope.scaling.trace.sources import Source
from tests.host_traces import HostTrace, Step, forward, optimise, plain_step
from tests.trace_json import packed, unpacked

DATA = Path(__file__).parent / "data"
Json = dict[str, Any]


@pytest.fixture(scope="module")
def recorded() -> Json:
    """A rank of a GPT under DDP, of three profiled steps."""
    trace: Json = unpacked(DATA / "gpt_ddp_n2" / "rank0.json.gz")
    return trace


def without(trace: Json, *names: str) -> Json:
    """Return a trace without the events whose names begin so."""
    return trace | {"traceEvents": [one for one in trace["traceEvents"] if not str(one.get("name")).startswith(names)]}


@pytest.fixture(scope="module")
def by_profiler() -> RunAnalysis:
    """What the profiler's own steps tell of the same rank."""
    return explain_traces([Source(DATA / "gpt_ddp_n2" / "rank0.json.gz", 0)], "job", jobs=1).analysis


def analyse(trace: Json, folder: Path) -> RunAnalysis:
    path = folder / "rank0.json.gz"
    path.write_bytes(packed(trace))
    return explain_traces([Source(path, 0)], "job", jobs=1).analysis


ANNOTATED = ("ProfilerStep", "Optimizer", "DistributedDataParallel", "enumerate", "scalescope", "forward")


@pytest.mark.parametrize(
    ("gone", "told_by", "like"),
    [
        (ANNOTATED[:1], "optimizer", (1, 2)),  # its first step has ended before anything told that it began
        (ANNOTATED[:2], "annotation", (0, 1)),  # DDP's forward pass; the last one's step has no end
        (ANNOTATED, "period", (1, 2)),  # cut behind the optimiser's kernels
    ],
)
def test_steps_are_found_without_the_profilers_own(
    gone: tuple[str, ...], told_by: str, like: tuple[int, int], recorded: Json, by_profiler: RunAnalysis, tmp_path: Path
) -> None:
    steps = by_profiler.steps
    found = analyse(without(recorded, *gone), tmp_path)
    assert found.steps_by == told_by
    assert len(found.steps) == 2
    for step, number in zip(found.steps, like, strict=True):
        assert step.window_ms == pytest.approx(steps[number].window_ms, rel=0.001)
        assert step.compute_ms == pytest.approx(steps[number].compute_ms, rel=0.001)
    assert any("without ProfilerStep" in reason for reason in found.quality.reasons)


def one_step(trace: Json) -> Json:
    """Return what a trace's second step launched: one pass through a network of twelve equal layers, and back."""
    events = trace["traceEvents"]
    (step,) = [one for one in events if (one.get("name"), one.get("cat")) == ("ProfilerStep#4", "user_annotation")]
    start, end = step["ts"], step["ts"] + step["dur"]
    hosts = [one for one in events if one.get("cat") not in ("kernel", "gpu_memcpy", "gpu_memset")
             and start <= one.get("ts", -1) <= end]  # fmt: skip
    launched = {one["args"]["correlation"] for one in hosts if "correlation" in one.get("args", {})}
    device = [one for one in events if one.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
              and one["args"]["correlation"] in launched]  # fmt: skip
    return trace | {"traceEvents": hosts + device}


def test_without_steps_the_first_sentence_says_what_most_was_lost_to(recorded: Json, tmp_path: Path) -> None:
    """Two calls of generate(), 86% of them launching, were told *6.6% is compute* alone."""
    found = analyse(without(one_step(recorded), *ANNOTATED), tmp_path)
    (rank,) = found.ranks
    rank.compute_ms, rank.idle_launch_ms = 0.1 * rank.window_ms, 0.8 * rank.window_ms
    headline = run_verdict(found).headline
    assert "80.0% is idle (host late), while" in headline and "kernels are launched" in headline
    assert headline.endswith("and 10.0% is compute.")


def test_layers_are_no_steps(recorded: Json, tmp_path: Path) -> None:
    alone = without(one_step(recorded), *ANNOTATED)
    found = analyse(alone, tmp_path)
    assert found.steps_by is None and not found.findings
    assert any(reason.startswith("no steps in the traces") for reason in found.quality.reasons)
    verdict = run_verdict(found)
    assert "no steps in the trace" in verdict.headline and " step is" not in verdict.text
    assert verdict.advice.endswith("call the profiler's step() after each iteration, or each call of generate().")
    table = shares_table(found)
    (row,) = table.rows
    shares = [cell for column, cell in zip(table.columns, row, strict=True) if column.key.endswith("_ms")][1:9]
    assert sum(share for share in shares if isinstance(share, float)) == pytest.approx(1)


def test_what_has_no_steps_gets_no_findings_of_a_step(recorded: Json, tmp_path: Path) -> None:
    analyse(without(one_step(recorded), *ANNOTATED), tmp_path)  # writes the file
    (answer,) = analyze([tmp_path], jobs=1)
    assert isinstance(answer, RunAnalysis)
    assert answer.findings == [] and answer.replay is None and answer.unpriced is None


def serve(trace: HostTrace, name: str, kernel_us: float, layers: int = 6) -> None:
    """One iteration of a server: layers, and a sampler behind them."""
    with trace.inside("user_annotation", name):
        trace.kernel("aten::embedding", 5.0, "vectorized_gather_kernel")
        for _ in range(layers):
            trace.kernel("aten::addmm", kernel_us)
            trace.kernel("vllm::unified_attention", kernel_us / 2, "kernel_unified_attention_2d")
        trace.kernel("aten::argmax", 3.0, "reduce_kernel")
    trace.idle(10.0)


@pytest.mark.parametrize(
    ("prefill", "decode"),
    [
        ("execute_context_1(888_788544)_generation_0(0)", "execute_context_0(0)_generation_4(4)"),
        ("execute_15_context_15(sq15sk15sqsq1sqsk1)_generation_0(sq0sk0sqsq0sqsk0)",
         "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk5sqsq32sqsk5)"),
        ("step[EXTEND bs=15 toks=15360]", "step[DECODE bs=32]"),
    ],
)  # fmt: skip
def test_a_servers_iterations_are_steps_of_two_kinds(prefill: str, decode: str, tmp_path: Path) -> None:
    trace = HostTrace()
    for name, us in ((prefill, 400.0), (decode, 30.0), (decode, 30.0), (decode, 30.0), (prefill, 400.0)):
        serve(trace, name, us)
    found = analyse(trace.json(), tmp_path)
    assert found.steps_by == "iteration"
    assert [step.kind for step in found.steps] == ["prefill", "decode", "decode", "decode", "prefill"]
    rows = {row[0]: row for row in iterations_table(found).rows}
    assert rows["prefill"][1] == 2 and rows["decode"][1] == 3
    assert rows["prefill"][3] == pytest.approx((6 * 600 + 8) / 1e3, rel=1e-3)
    assert rows["decode"][3] == pytest.approx((6 * 45 + 8) / 1e3, rel=1e-3)


def test_an_iteration_of_both_kinds_is_mixed() -> None:
    assert kind_of_iteration("execute_8192_context_9(sq8155sk8430)_generation_37(sq37sk34489)") == "mixed"
    assert kind_of_iteration("step[MIXED bs=2]") == "mixed"
    assert kind_of_iteration("executed") is None


def replay(trace: HostTrace, names: list[str], us: float) -> None:
    """Launch a graph of kernels."""
    start = trace.clock
    number = trace.call("GraphLaunch", 8.0)
    begin = max(start + 5.0, trace.device_free)
    for name in names:
        trace.event("kernel", name, begin, begin + us, 7, 0, correlation=number, stream=7, device=0)
        begin += us + 1.0
    trace.device_free = begin
    trace.python()


def test_graphs_that_are_replayed_in_turn_are_steps(tmp_path: Path) -> None:
    """Two graphs a step: forward and backward, and the optimiser."""
    trace = HostTrace()
    for _ in range(5):
        replay(trace, ["embedding", *["gemm", "relu"] * 6, "softmax"], 20.0)
        replay(trace, ["adam_kernel"] * 3, 10.0)
    found = analyse(trace.json(), tmp_path)
    assert found.steps_by == "graph"
    assert len(found.steps) == 5
    assert found.steps[1].compute_ms == pytest.approx((14 * 20 + 3 * 10) / 1e3)


def test_an_annotation_of_the_users_own_is_a_step(tmp_path: Path) -> None:
    trace = HostTrace()
    for number in range(4):
        with trace.inside("user_annotation", f"train step {number}"):
            for layer in range(6):
                with trace.inside("user_annotation", f"layer {layer}"):
                    trace.kernel("aten::addmm", 50.0)
            trace.kernel("aten::nll_loss", 5.0, "nll_loss_kernel")
        trace.idle(20.0)
    found = analyse(trace.json(), tmp_path)
    assert found.steps_by == "annotation"
    assert [round(step.compute_ms, 3) for step in found.steps] == [0.305] * 4


def generate(trace: HostTrace, tokens: int, layers: int = 12) -> None:
    """One call that generates text: the prompt is read in products of another kind, then a token at a time."""
    trace.kernel("aten::cumsum", 3.0, "scan_kernel")
    for token in range(tokens):
        trace.kernel("aten::embedding", 5.0, "vectorized_gather_kernel")
        for _ in range(layers):
            trace.kernel("aten::addmm", 20.0 if token else 200.0, "gemv" if token else "gemm")
            trace.kernel("aten::add", 5.0, "add_kernel")
        trace.kernel("aten::argmax", 3.0, "reduce_kernel")
        trace.idle(20.0)


def test_two_calls_that_generate_text_are_two_steps(tmp_path: Path) -> None:
    """Two calls of generate() in a plain profile() had no step, and so no finding; they launch the same twice."""
    trace = HostTrace()
    generate(trace, 6)
    generate(trace, 6)
    found = analyse(trace.json(), tmp_path)
    assert found.steps_by == "period"
    assert [round(step.compute_ms, 3) for step in found.steps] == [
        round((12 * 205 + 5 * 12 * 25 + 6 * 8 + 3) / 1e3, 3)
    ] * 2


def test_what_differs_between_two_runs_is_no_repetition(tmp_path: Path) -> None:
    """Of 166 kernels of a pass one runs in the second alone: which of them are a step's, nothing tells."""
    trace = HostTrace()
    for number in range(2):
        trace.kernel("aten::embedding", 5.0, "vectorized_gather_kernel")
        for _ in range(80):
            trace.kernel("aten::addmm", 20.0, "gemm")
            trace.kernel("aten::relu", 5.0, "relu_kernel")
        if number:
            trace.kernel("aten::relu", 5.0, "relu_kernel")
        trace.kernel("aten::nll_loss", 5.0, "nll_loss_kernel")
    assert analyse(trace.json(), tmp_path).steps_by is None


def test_one_call_that_generates_text_has_a_step_a_token(tmp_path: Path) -> None:
    trace = HostTrace()
    generate(trace, 9)
    found = analyse(trace.json(), tmp_path)
    assert found.steps_by == "token"
    assert [round(step.compute_ms, 3) for step in found.steps] == [round((12 * 25 + 8) / 1e3, 3)] * 8
    assert any("by the tokens that are chosen, without ProfilerStep" in reason for reason in found.quality.reasons)


def test_a_search_among_few_values_is_no_token(tmp_path: Path) -> None:
    """A codebook's stages choose as well, each after a product or two: all of them are one step's."""
    trace = HostTrace()
    for _ in range(12):
        trace.kernel("aten::addmm", 20.0, "gemm")
        trace.kernel("aten::argmax", 3.0, "reduce_kernel")
    trace.kernel("aten::nll_loss", 5.0, "nll_loss_kernel")
    assert analyse(trace.json(), tmp_path).steps_by is None


def tokens_of(kernels: list[list[str]], folder: Path) -> RunAnalysis:
    """What is told of a call that generates text, whose tokens take these kernels, in 20 µs each."""
    trace = HostTrace()
    for names in kernels:
        for name in names:
            trace.kernel("aten::addmm", 20.0, name)
        trace.kernel("aten::argmax", 3.0, "reduce_kernel")
    return analyse(trace.json(), folder)


@pytest.mark.parametrize(
    ("kernels", "steps"),
    [
        ([["gemm"] * 8, *([f"gemv{at % 2}" for at in range(8)] for _ in range(3))], 3),
        ([["gemm"] * 8, *([f"gemv{at % 2}" for at in range(8)] for _ in range(2))], 0),
        ([["gemm"] * 8, *([f"gemv{at % 2}" for at in range(6)] for _ in range(5))], 0),
        ([["gemm"] * 60, *(["gemv"] * (60 + token % 2) for token in range(8))], 8),
        ([["gemm"] * (10 + 2 * token) for token in range(8)], 0),
        ([[f"gemm{token}"] * 10 for token in range(8)], 0),
        ([*[["prompt"] * 30, *[["gemv"] * 10] * 4] * 2, ["prompt"] * 31, *[["gemv"] * 10] * 5], 15),
    ],
    ids=["three tokens", "too few tokens", "too few kernels", "some of a kernel more", "each of more kernels",
         "each of other kernels",
         "other prompts between"],
)  # fmt: skip
def test_tokens_are_steps_where_most_are_alike(kernels: list[list[str]], steps: int, tmp_path: Path) -> None:
    found = tokens_of(kernels, tmp_path)
    assert (found.steps_by == "token", len(found.steps) if found.steps_by == "token" else 0) == (steps > 0, steps)


def without_profiler_steps(folder: Path, step: Step, count: int = 8) -> RunAnalysis:
    trace = HostTrace(0, 1).steps(count, step)
    trace.events = [one for one in trace.events if not str(one.get("name")).startswith("ProfilerStep")]
    path = trace.write(folder)
    return explain_traces([Source(path, 0)], "job", jobs=1).analysis


def test_a_step_that_validates_makes_no_one_step_of_the_others(tmp_path: Path) -> None:
    """Eleven steps of 0.4 s, one of which took 5 s, were told as one *of the 6,673 ms step*."""

    def step(trace: HostTrace, number: int) -> None:
        plain_step(trace, 10.0)
        if number == 3:
            for _ in range(30):
                forward(trace, 10.0)

    told = without_profiler_steps(tmp_path, step)
    assert told.steps_by == "optimizer" and told.ranks[0].steps == 7
    windows = sorted(one.window_ms for one in told.steps)
    assert windows[-1] > 5 * windows[-2]


def update(trace: HostTrace, *nodes: str) -> None:
    """Train one model of several: its forward pass, a backward pass of these nodes, and its optimizer's step."""
    forward(trace, 10.0, layers=len(nodes))
    with trace.backward():
        for node in nodes:
            trace.node(node, 20.0)
    optimise(trace)


CRITIC, GENERATOR = ("ConvolutionBackward0",) * 8, ("ConvolutionBackward0",) * 4 + ("AddmmBackward0",) * 4


def test_models_that_are_updated_in_turn_make_one_step_a_round(tmp_path: Path) -> None:
    """Of a GAN whose loader took 12 of 24 ms *in 7 of 15 profiled steps the host loads data for 15.8 ms longer*."""

    def gan(trace: HostTrace, _number: int) -> None:
        trace.idle(900.0)
        update(trace, *CRITIC)
        update(trace, *GENERATOR)

    def gan_that_loads(trace: HostTrace, number: int) -> None:
        update(trace, *GENERATOR)
        with trace.inside("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
            trace.idle(100.0)
        update(trace, *CRITIC)
        if number == 3:  # it validates
            forward(trace, 10.0)

    for name, step in (("gan", gan), ("loads", gan_that_loads)):
        told = without_profiler_steps(tmp_path / name, step)
        windows = sorted(one.window_ms for one in told.steps[:-1])  # whose end no trace shows
        assert (told.steps_by, told.ranks[0].steps) == ("optimizer", 7), name
        assert windows[0] == pytest.approx(windows[-2], rel=0.01), name


def test_updates_that_each_begin_with_a_batch_or_differ_otherwise_are_steps_of_their_own(tmp_path: Path) -> None:
    def two_tasks(trace: HostTrace, number: int) -> None:
        with trace.inside("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
            trace.idle(100.0)
        update(trace, *(GENERATOR if number % 2 else CRITIC))

    def now_and_then(trace: HostTrace, number: int) -> None:
        update(trace, *(GENERATOR if number in (2, 3, 6) else CRITIC))

    for name, step in (("tasks", two_tasks), ("seldom", now_and_then)):
        told = without_profiler_steps(tmp_path / name, step)
        assert (told.steps_by, told.ranks[0].steps) == ("optimizer", 7), name


def test_optimizers_that_step_together_or_in_the_backward_pass_make_one_step(tmp_path: Path) -> None:
    def two(trace: HostTrace, _number: int) -> None:
        plain_step(trace, 10.0)
        optimise(trace)

    def each_layer(trace: HostTrace, _number: int) -> None:
        forward(trace, 10.0)
        with trace.backward():
            for _ in range(6):
                trace.node("AddmmBackward0", 1.0)
                optimise(trace)

    for name, step in (("two", two), ("each_layer", each_layer)):
        told = without_profiler_steps(tmp_path / name, step)
        assert (told.steps_by, told.ranks[0].steps) == ("optimizer", 7), name
