"""Under the partition stands what the compute is, and what the columns mean; words fit the device and the job."""

import io
import re
from pathlib import Path
from typing import Literal

import pytest
from msgspec.structs import replace as replaced
from rich.console import Console

from scalescope.report.drawing.parts import BY_KEY
from scalescope.report.panels.compute_lines import compute_lines, legend_lines
from scalescope.report.terminal.run import print_run
from scalescope.report.text.cures.table import CURES
from scalescope.report.text.cures.words import cure_elsewhere, cure_text
from scalescope.report.verdict.run import run_verdict
from scalescope.report.views import partition_table
from scalescope.scaling.analyze import analyze
from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.answer_rows import KindRow
from scalescope.scaling.finding.codes import Cure
from scalescope.scaling.finding.finding import Remedy
from scalescope.scaling.findings.derived import keep
from scalescope.scaling.findings.measured import measured_findings
from scalescope.scaling.run import explain_traces
from scalescope.scaling.trace.sources import find_sources
from scalescope.scaling.verdicts.stragglers import Late
from tests.report_samples import run_answer

DATA = Path(__file__).parent / "data"


def shown(name: str) -> str:
    out = io.StringIO()
    answer = explain_traces(find_sources(DATA / name), name, jobs=1).analysis
    print_run(answer, Console(file=out, width=200, color_system=None, highlight=False))
    return out.getvalue()


def test_the_terminal_shows_what_the_compute_is() -> None:
    text = shown("gather_ce_n2")
    assert "96% matmul, 1.4 ms a step in 8 calls: nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT" in text
    assert "exposed transfer = data moves between ranks" in text and "exposed wait =" not in text


def test_at_most_three_lines_of_each() -> None:
    run = run_answer("r", 4)
    run.kinds = [
        KindRow(kind=kind, calls=10, ms=ms, share_of_compute=ms / 10, beside_communication_ms=0.0)
        for kind, ms in (("attention", 1.0), ("matmul", 5.0), ("optimiser", 2.0), ("other", 2.0))
    ]
    assert 1 <= len(compute_lines(run)) <= 3
    assert len(legend_lines(run, partition_table(run))) == 3
    assert compute_lines(run)[0].startswith("50% matmul, 5.0 ms a step in 10 calls")
    run.kinds = []
    assert compute_lines(run) == []


def test_what_says_nothing_is_left_out() -> None:
    """One device has no parallel efficiency, and nobody's traces have a throughput."""
    text = shown("gpt_ddp_n1")
    assert "Parallel efficiency" not in text and "throughput" not in text


@pytest.mark.parametrize("cure", list(CURES))
def test_advice_for_cpus_names_nothing_that_they_lack(cure: Cure) -> None:
    remedy = Remedy(cure=cure, on_cpu=True)
    if cure in ("keep_memory", "drop_synchronisation", "launch_without_waiting", "pin_memory"):
        return  # of a device's allocator and queue: no finding on CPUs has these
    text = f"{cure_text(remedy)} {cure_elsewhere(remedy)}"
    of_gpus = ("nvidia-smi", "rocm-smi", "pin_memory", "pinned", "CUDA", "clocks, power", "NCCL")
    assert not any(word in text for word in of_gpus)


@pytest.mark.parametrize("cure", ["look_at_links", "fewer_channels"])
def test_advice_names_settings_of_the_library_that_moves_the_data(cure: Cure) -> None:
    def text(backend: str | None) -> str:
        remedy = Remedy(cure=cure, backend=backend)
        return f"{cure_text(remedy)} {cure_elsewhere(remedy)}"

    assert "NCCL_" in text("nccl") and "NCCL_" in text(None)
    assert "NCCL_" not in text("gloo") and "init_process_group('nccl')" in text("gloo")


def test_traces_say_which_library_moves_the_data() -> None:
    found = {name: analyze([DATA / name])[0] for name in ("gpt_ddp_n2", "cpu_ddp_n2")}
    assert {name: one.backend for name, one in found.items() if isinstance(one, RunAnalysis)} == {
        "gpt_ddp_n2": "nccl",
        "cpu_ddp_n2": "gloo",
    }


def test_advice_for_jax_names_nothing_of_torch() -> None:
    for cure in CURES:
        remedy = Remedy(cure=cure, jax=True)
        assert not re.search(
            r"torch|DataLoader|DistributedData|register_comm_hook|\.cpu\(\)", cure_elsewhere(remedy)
        ), cure
    (answer,) = analyze([DATA / "jax_h200x2"])
    assert isinstance(answer, RunAnalysis) and answer.framework == "jax"
    remedies = [one.remedy for one in answer.findings if one.remedy is not None]
    assert remedies and all(remedy.jax for remedy in remedies)


@pytest.mark.parametrize("trains", [True, False])
def test_what_helps_against_a_part_names_nothing_of_torch_where_jax_was_traced(trains: bool) -> None:
    texts = [part.remedy_for("gpu", trains=trains, framework="jax") for part in BY_KEY.values()]
    assert not [text for text in texts if re.search(r"torch|loader workers|pinned|non_blocking|fused optimisers", text)]
    assert trains or not [text for text in texts[1:] if "gradient" in text]


def test_the_first_advice_of_a_page_is_in_the_words_of_who_was_traced() -> None:
    (answer,) = analyze([DATA / "jax_h200x2"])
    assert isinstance(answer, RunAnalysis)
    answer.findings = []  # so that what is left to say is of the largest part
    words = {framework: run_verdict(replaced(answer, framework=framework)).advice for framework in ("torch", "jax")}
    assert words["jax"] in {f"{part.remedy_jax or part.remedy}." for part in BY_KEY.values()}
    assert words["jax"] != words["torch"]


def test_advice_for_inference_names_no_optimiser() -> None:
    cures: tuple[Cure, ...] = ("compile", "faster_kernels")
    texts = [cure_elsewhere(Remedy(cure=cure, inference=True)) for cure in cures]
    assert not any("optimiser" in text for text in texts)
    parts = [part.remedy_for("gpu", trains=False) for part in BY_KEY.values() if part.key != "compute"]
    assert not any("optimiser" in text or "gradient" in text for text in parts)


def test_a_remedy_says_for_which_job_it_is() -> None:
    run = run_answer("r", 2)
    late = Late(rank=1, code="slower_compute", lost_ms=(1.0, 1.1), excess_ms=1.0, part="compute")
    kinds: tuple[tuple[Literal["gpu", "cpu"], bool], ...] = (("gpu", True), ("cpu", True), ("gpu", False))
    for activity, trains in kinds:
        run.activity, run.trains = activity, trains
        keep(run, measured_findings([late], 50.0))
        remedy = run.findings[0].remedy
        assert remedy is not None
        assert (remedy.on_cpu, remedy.inference) == (activity == "cpu", not trains)


def test_a_job_that_trains_is_told_from_one_that_does_not() -> None:
    trains = {
        name: explain_traces(find_sources(DATA / name), name, jobs=1).analysis.trains
        for name in ("gather_ce_n2", "cpu_ddp_n2", "resnet50_ddp_n4")
    }
    assert trains == {"gather_ce_n2": False, "cpu_ddp_n2": True, "resnet50_ddp_n4": True}
