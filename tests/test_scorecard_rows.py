"""A scorecard measures real rows, at small sizes on two cores too, and shows them with their verdicts."""

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest
import torch
from torch.nn.attention import SDPBackend

from scalescope.cli import sweep, train
from scalescope.cli.front_door import main
from scalescope.hardware.claims.catalog import own_catalog
from scalescope.launch.compose import compose_job, freeze, typed
from scalescope.launch.freeze import Plan
from scalescope.records.errors import RunError, Stopped, UserError
from scalescope.records.folder import RunFolder
from scalescope.records.scorecard.row import Conditions, ScorecardRow
from scalescope.report.html import write_report
from scalescope.report.report_data import read_report_data
from scalescope.report.scorecard import judged_rows
from scalescope.report.sinks.wandb_study import study_tables
from scalescope.scorecard.config import ScorecardConfig, register
from scalescope.scorecard.machine import MachineUnderTest
from scalescope.scorecard.rows.attention import AttentionShape, both_passes, by_torch
from scalescope.scorecard.run import measure_scorecard
from scalescope.scorecard.table import ROWS
from tests.answer_schemas import FOLDER
from tests.worlds import run_world

QUICK = ["budget_s=0.001", "launch.device=cpu", "launch.ranks=2", "launch.threads_per_rank=1", "logger=none"]


def start_forked(plan: Plan) -> RunFolder:
    """Run a planned job's real ranks, forked from a process that has loaded torch."""
    folder = plan.make_folder()
    done = run_world(plan.devices.ranks, ["scalescope", plan.verb.name, "--frozen", str(folder.config)])
    if done.returncode:
        raise RunError(done.stderr.strip().splitlines()[-1])
    return folder


def measured(folder: Path, *overrides: str) -> RunFolder:
    register()
    config = compose_job("scorecard", [*QUICK, *overrides])
    verbs = {"train": train.verb(), "sweep": sweep.verb()}
    return measure_scorecard(
        typed(config, ScorecardConfig), folder, freeze(config), verbs, start_forked, lambda _: None
    )


JOBS = ["all_reduce", "resnet", "gpt"]


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    alone = [name for name in ROWS if name not in JOBS]
    return measured(tmp_path_factory.mktemp("runs") / "card", f"rows=[{','.join(alone)}]")


@pytest.fixture(scope="module")
def jobs_card(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return measured(tmp_path_factory.mktemp("runs") / "card", f"rows=[{','.join(JOBS)}]")


@pytest.fixture(scope="module")
def rows(card: RunFolder) -> list[ScorecardRow]:
    return card.read_scorecard()


def of(rows: list[ScorecardRow], row: str, *, status: str = "measured") -> list[ScorecardRow]:
    return [one for one in rows if one.row == row and one.status == status]


def test_every_row_is_measured_or_says_why_not(card: RunFolder, rows: list[ScorecardRow]) -> None:
    assert {row.row for row in rows} == set(ROWS) - set(JOBS)
    assert all(row.value and row.value > 0 and row.unit for row in rows if row.status == "measured")
    assert all(row.reason for row in rows if row.status != "measured")
    assert not [row for row in rows if row.status == "failed"]
    assert {row.row for row in rows if row.status == "measured"} == set(ROWS) - {*JOBS, "host_copy"}  # no GPU here
    assert all(row.low is not None and row.high is not None and row.value is not None
               and row.low <= row.value <= row.high for row in of(rows, "matmul") + of(rows, "memory"))  # fmt: skip
    info = card.read_info()
    assert (info.kind, info.status) == ("scorecard", "done") and info.environment and info.devices


def test_a_matrix_products_best_size_counts_and_the_models_shapes_stand_beside(rows: list[ScorecardRow]) -> None:
    squares = [row for row in of(rows, "matmul") if "³" in row.what]
    assert {row.conditions.precision for row in squares} == {"fp32", "bf16", "fp16"}
    assert sum("gpt_tiny" in row.what for row in of(rows, "matmul")) == 4
    assert {row.reason for row in of(rows, "matmul", status="not_available")} == {
        "tf32 is for GPUs", "a CPU multiplies no fp8"}  # fmt: skip


def test_attentions_flops_are_those_of_its_formula() -> None:
    shape = AttentionShape(batch=2, heads=4, tokens=128, width=64)
    products = 2 * (2 * 2 * 4 * 128 * 128 * 64)  # QKᵀ and PV, each 2·T·T·D a head and sequence
    assert shape.flops(backward=False) == products / 2  # under the causal mask
    assert shape.flops(backward=True) == 2.5 * products / 2


def test_attention_is_measured_with_each_kernel_that_is_there(rows: list[ScorecardRow]) -> None:
    there = {row.what.split(",")[0] for row in of(rows, "attention")}
    assert {"torch math forward", "torch math backward"} <= there
    absent = {row.what: row.reason for row in of(rows, "attention", status="not_available")}
    assert absent["FlashAttention 3 forward fp8"] == "a CPU multiplies no fp8"


@pytest.mark.job
def test_the_all_reduce_is_the_sweeps(jobs_card: RunFolder) -> None:
    swept = {row.bytes: row for row in RunFolder(jobs_card.path / "all_reduce").read_sweep()}
    rows = jobs_card.read_scorecard()
    small, large = of(rows, "all_reduce")
    assert (small.quantity, small.value) == ("all_reduce_latency", swept[8].time_us)
    assert (large.quantity, large.value) == ("all_reduce_busbw", swept[65536].bus_gb_s)
    assert large.conditions.devices == 2


@pytest.mark.job
def test_the_two_jobs_are_trained(jobs_card: RunFolder) -> None:
    rows = jobs_card.read_scorecard()
    for name, quantity in (("resnet", "training_samples"), ("gpt", "training_tokens")):
        trained = {row.quantity: row for row in of(rows, name)}
        rate, flops = trained[quantity], trained["training_flops"]
        assert rate.value and flops.value and rate.conditions.flops_per_sample
        assert flops.value == pytest.approx(rate.value * rate.conditions.flops_per_sample / 1e12)
        assert any("compiling" in (row.reason or "") for row in of(rows, name, status="not_available"))


def test_decoding_is_the_memorys_speed_over_the_weights_and_refuses_what_does_not_fit(rows: list[ScorecardRow]) -> None:
    copy = next(row for row in of(rows, "memory") if row.what.startswith("copy"))
    one = next(row for row in of(rows, "decode") if row.conditions.bits_per_weight == 16)
    cache_gb = 2 * 32 * 8 * 128 * 2 * 1024 / 1e9
    assert copy.value and one.value == pytest.approx(copy.value * 1e3 / (16.06 + cache_gb), rel=1e-3)
    refused = [row for row in of(rows, "decode", status="not_available") if "405b" in row.what]
    assert len(refused) == 3 and "810.5 GB of weights and cache, above" in (refused[0].reason or "")


def test_a_row_names_the_superbench_benchmark_that_it_corresponds_to(rows: list[ScorecardRow]) -> None:
    told = {row.row: row.superbench for row in rows}
    assert told["matmul"] == "gemm-flops" and told["launch"] == "kernel-launch/wall_overhead"


def test_measured_rows_fit_the_schema_of_the_answers(rows: list[ScorecardRow]) -> None:
    jsonschema.validate(msgspec.to_builtins(rows), json.loads((FOLDER / "scorecard.schema.json").read_text()))


def test_report_and_wandb_show_the_same_table(card: RunFolder, rows: list[ScorecardRow]) -> None:
    page = write_report(card).read_text(encoding="utf-8")
    assert "What others say, and what it is worth" in page and "figures measured" in page and "1,580 TFLOP/s" in page
    assert "budget_s: 0.001" in page, "the config stands under the environment"
    table = study_tables(read_report_data(card))["scorecard"]
    assert len(table.rows) == len(rows)


def test_a_damaged_scorecard_is_said_and_the_page_is_there(card: RunFolder, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "card", "scorecard", "")
    folder.scorecard.write_text('{"row": "decode", "quantity": "decode", "what": "", "unit": "", "conditions": '
                                '{"devices": 0}}\n')  # fmt: skip
    assert "the scorecard is left out" in write_report(folder).read_text(encoding="utf-8")


def test_a_measured_figure_is_held_against_the_data_sheet_and_the_record() -> None:
    def verdict(value: float, quantity: str = "matmul", **conditions: object) -> str | None:
        row = ScorecardRow("one", quantity, "one", "", value=value, device="NVIDIA H200",
                           conditions=msgspec.structs.replace(Conditions(precision="bf16"), **conditions))  # fmt: skip
        judged = judged_rows([row], own_catalog())[0][1]
        return judged.verdict if judged is not None else None

    assert [verdict(value) for value in (300, 790, 900, 1000)] == [
        "far_below",
        "plausible",
        "implausible",
        "impossible",
    ]
    assert verdict(4.3, "memory_bandwidth") == "plausible" and verdict(5.0, "memory_bandwidth") == "impossible"
    assert verdict(2, "launch_latency") is None


def test_what_fails_costs_its_own_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep that cannot start is a failed row; the launch's time is there nevertheless."""
    register()
    config = compose_job("scorecard", [*QUICK, "rows=[launch,all_reduce]"])

    def refuse(plan: Plan) -> RunFolder:
        raise RunError("rank 1 ended with exit code 9")

    folder = measure_scorecard(typed(config, ScorecardConfig), tmp_path / "card", freeze(config),
                               {"sweep": sweep.verb()}, refuse, lambda _: None)  # fmt: skip
    found = {row.row: row for row in folder.read_scorecard()}
    assert found["launch"].status == "measured"
    assert (found["all_reduce"].status, found["all_reduce"].reason) == ("failed", "rank 1 ended with exit code 9")


@pytest.mark.parametrize("wrong", ["rows=[matmull]", "sizes=huge", "budget_s=-1", "claims=/no/such.yaml", "rwos=[]"])
def test_a_setting_that_cannot_be_is_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scorecard", "rows=[]", wrong]) == 2
    assert wrong.split("=")[0] in capsys.readouterr().err or "/no/such.yaml" in wrong


def test_an_interval_ends_at_the_fastest() -> None:
    machine = MachineUnderTest(torch.device("cpu"), False, 0.0, 1, lambda *_: RunFolder(Path()), lambda *_: None)
    value, low, high = machine.rate([1.0, 3.0], 6.0)
    assert (value, high) == (3.0, 6.0) and low < value


def test_a_claims_file_of_a_folder_that_is_gone_is_left_out(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="such"):
        measured(tmp_path / "card", "rows=[]", "sizes=such")


def machine_of_cpu() -> MachineUnderTest:
    return MachineUnderTest(torch.device("cpu"), False, 0.0, 1, lambda *_: RunFolder(Path()), compose_job)


def test_a_backward_pass_that_fails_leaves_the_forward_pass_as_it_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch.autograd, "grad", out_of_memory)
    shape = AttentionShape(batch=1, heads=1, tokens=16, width=16)
    rows = list(both_passes(machine_of_cpu(), shape, "torch math", by_torch(SDPBackend.MATH)))
    assert [(row.what.split(",")[0].split()[2], row.status) for row in rows] == [
        ("forward", "measured"), ("backward", "not_available")]  # fmt: skip


def test_a_precision_that_fails_costs_its_own_row(monkeypatch: pytest.MonkeyPatch) -> None:
    multiply = torch.matmul

    def no_bf16(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        if left.dtype == torch.bfloat16:
            raise RuntimeError("bf16 is not to be had")
        return multiply(left, right)

    monkeypatch.setattr(torch, "matmul", no_bf16)
    register()
    rows = list(ROWS["matmul"].measure(machine_of_cpu()))
    assert {row.conditions.precision for row in rows if row.status == "measured"} == {"fp32", "fp16"}
    failed = [row for row in rows if row.status == "failed"]
    assert len(failed) == 5 and {row.reason for row in failed} == {"bf16 is not to be had"}


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [(ZeroDivisionError("division by zero"), "failed", "ZeroDivisionError: division by zero"),
     (KeyboardInterrupt(), "interrupted", "stopped"), (Stopped("by its user"), "interrupted", "stopped")],
)  # fmt: skip
def test_an_error_is_no_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: str, says: str
) -> None:
    register()
    config = compose_job("scorecard", [*QUICK, "rows=[launch]"])

    def fail(_: MachineUnderTest) -> None:
        raise error

    monkeypatch.setattr("scalescope.scorecard.rows.launch.measure", fail)
    with pytest.raises(type(error)):
        measure_scorecard(typed(config, ScorecardConfig), tmp_path / "card", freeze(config), {}, start_forked,
                          lambda _: None)  # fmt: skip
    info = RunFolder(tmp_path / "card").read_info()
    assert info.status == status and says in (info.message or "")
