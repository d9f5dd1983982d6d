"""SuperBench's and MLPerf's results become rows of ours, and our own MLLOG passes MLPerf's checker."""

import gzip
import json
import logging
import os
from pathlib import Path

import msgspec
import pytest
import yaml

from scalescope.cli.front_door import main
from scalescope.launch.compose import compose_job, typed
from scalescope.launch.sinks import open_sinks
from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from scalescope.records.frozen import read_frozen
from scalescope.records.rows import StepRow
from scalescope.records.scorecard.row import ScorecardRow
from scalescope.report.html import write_report
from scalescope.scaling.results.importing import import_results
from scalescope.scaling.results.mllog import read_mllog
from scalescope.scaling.results.superbench import read_superbench
from scalescope.train.config import TrainConfig, register
from tests.report_samples import step_rows, write_run
from tests.worlds import run_world

ROOT = Path(__file__).resolve().parent.parent
RECORDED = ROOT / "benchmarks/results/2026-11-22_4xH200_A/study.resnet50-ddp-n1.steps.jsonl.gz"
MODELS = ("resnet50_64px", "resnet50")

#: Of the form of results-summary.jsonl, with figures of our own: two nodes, of which the second has a failed benchmark.
NODE = {
    "gemm-flops/FP16_TC:0": 700000.0, "gemm-flops/FP16_TC:1": 702000.0, "gemm-flops/bf16_xdlops_flops:0": 650000.0,
    "gemm-flops/FP32:0": 51000.0, "gemm-flops/FP16:0": 120000.0, "gemm-flops/return_code": 0,
    "mem-bw/H2D_Mem_BW:0": 55.0, "mem-bw:pinned/D2D_Mem_BW:0": 2600.0, "kernel-launch/wall_overhead:0": 0.0062,
    "resnet_models/pytorch-resnet50/throughput_train_float16": 2900.0, "bert_models/pytorch-bert-base/steptime": 80.0,
    "gpu-copy-bw:perf/cpu_to_gpu0_by_gpu0_using_sm_under_numa0_bw:0": 50.0,
    "rccl-bw:default/allreduce_8_time:0": 24.0, "rccl-bw:default/allreduce_8_algbw:0": 0.0,
    "rccl-bw:default/allreduce_8_busbw:0": 0.0, "rccl-bw:default/allreduce_1048576_time:0": 40.0,
    "rccl-bw:default/allreduce_1048576_algbw:0": 26.21, "rccl-bw:default/allreduce_1048576_busbw:0": 45.87,
}  # fmt: skip
SUPERBENCH = "\n".join(json.dumps({"node": node, **NODE}) for node in ("one", "two")) + '\n{"node": "three", "cut'
SYSTEM = json.dumps({"accelerators_per_node": "8", "number_of_nodes": "2", "accelerator_model_name": "NVIDIA H200"})


def line(key: str, value: object = None, time_ms: int = 0, **metadata: object) -> str:
    return ":::MLLOG " + json.dumps({"namespace": "", "time_ms": time_ms, "event_type": "POINT_IN_TIME", "key": key,
                                     "value": value, "metadata": {"file": "x", "lineno": 1, **metadata}})  # fmt: skip


MLLOG = "\n".join([
    "epoch 1 of 2", line("submission_benchmark", "resnet"), line("submission_org", "somebody"),
    line("submission_platform", "2xSystem"), line("global_batch_size", 6400), line("run_start", time_ms=60_000),
    "0: " + line("tracked_stats", {"throughput": 90_000.0}, step=1), line("tracked_stats", {"throughput": 112_000.0}),
    line("tracked_stats", {"throughput": 112_400.0}), line("eval_accuracy", 0.759, epoch_num=2),
    line("run_stop", time_ms=360_000, status="success"), ':::MLLOG {"key": "cut',
])  # fmt: skip


def by_quantity(rows: list[ScorecardRow]) -> dict[str, ScorecardRow]:
    return {row.quantity: row for row in rows}


def test_superbenchs_metrics_become_rows_in_our_units() -> None:
    found = read_superbench(SUPERBENCH, "results-summary.jsonl")
    rows = {row.superbench: row for row in found.rows if row.node == "one"}
    tensor = rows["gemm-flops/FP16_TC"]
    assert (tensor.value, tensor.unit, tensor.conditions.precision) == (701.0, "TFLOP/s", "fp16")
    assert tensor.low is not None and tensor.low < 701 and "mean of 2" in tensor.what
    assert rows["gemm-flops/bf16_xdlops_flops"].conditions.precision == "bf16"
    assert rows["kernel-launch/wall_overhead"].value == pytest.approx(6.2)
    assert rows["mem-bw:pinned/D2D_Mem_BW"].value == pytest.approx(2.6)
    assert rows["resnet_models/pytorch-resnet50/throughput_train_float16"].conditions.model == "resnet50"
    assert any("host to device" in row.what and row.value == 50 for row in rows.values())
    assert "gemm-flops/FP16" not in rows, "the vector units' rate is no matrix product's"
    assert {row.node for row in found.rows} == {"one", "two"} and len(found.faults) == 1


def test_superbenchs_collectives_become_a_sweep_whose_group_follows_from_its_bandwidths() -> None:
    swept = [row for row in read_superbench(SUPERBENCH, "r").sweep if row.source.endswith("one")]
    assert [(row.operation, row.bytes, row.group_size, row.time_us) for row in swept] == [
        ("all_reduce", 8, 8, 24.0), ("all_reduce", 1048576, 8, 40.0)]  # fmt: skip
    assert swept[1].bus_gb_s == 45.87 and swept[1].backend == "rccl"


def swept_sizes(node: dict[str, float]) -> tuple[dict[str, int], list[str]]:
    found = read_superbench(json.dumps({"node": "one", "kernel-launch/wall_overhead:0": 0.006, **node}), "r")
    return {row.operation: row.group_size for row in found.sweep}, found.faults


def test_a_broadcast_has_the_ranks_of_the_nodes_all_reduce_or_none() -> None:
    broadcast = {"nccl-bw/broadcast_1048576_time:0": 40.0, "nccl-bw/broadcast_1048576_algbw:0": 26.21,
                 "nccl-bw/broadcast_1048576_busbw:0": 26.21}  # fmt: skip
    all_reduce = {"nccl-bw/allreduce_1048576_time:0": 40.0, "nccl-bw/allreduce_1048576_algbw:0": 26.21,
                  "nccl-bw/allreduce_1048576_busbw:0": 45.87}  # fmt: skip
    assert swept_sizes({**broadcast, **all_reduce}) == ({"broadcast": 8, "all_reduce": 8}, [])
    sizes, faults = swept_sizes(broadcast)
    assert not sizes and "nccl-bw/broadcast on one is left out" in faults[0]
    coarse = {key: 0.02 if "bw:" in key else value for key, value in all_reduce.items()}
    assert not swept_sizes(coarse)[0], "0.02 GB/s fit many sizes within their rounding"


@pytest.mark.parametrize("digits", [400, 5000])
def test_a_huge_integer_costs_its_line(digits: int) -> None:
    huge = "9" * digits
    lines = [*MLLOG.splitlines()[:-1], ':::MLLOG {"key": "eval_accuracy", "value": ' + huge + "}"]
    found = read_mllog("\n".join(lines), "log")
    assert found.faults == ["log:12 is left out: it holds an integer of more than 64 bits"]
    assert {"system_throughput", "time_to_target"} == set(by_quantity(found.rows))
    nodes = SUPERBENCH.splitlines()[0] + '\n{"node": "two", "gemm-flops/FP16_TC:0": ' + huge + "}"
    assert read_superbench(nodes, "r").faults == ["r:2 is left out: it holds an integer of more than 64 bits"]
    with pytest.raises(UserError, match="does not tell accelerators"):
        read_mllog(MLLOG, "log", SYSTEM.replace('"8"', huge))


def test_a_batch_of_nothing_is_left_out_and_said() -> None:
    found = read_mllog(MLLOG.replace("6400", "0"), "log")
    assert by_quantity(found.rows)["system_throughput"].conditions.batch is None
    assert "log: global_batch_size is 0, which is no number of samples, and left out" in found.faults


def test_only_resnets_samples_are_images() -> None:
    rows = by_quantity(read_mllog(MLLOG.replace('"resnet"', '"llama2_70b_lora"'), "log", SYSTEM).rows)
    assert "training_samples" not in rows and rows["device_throughput"].unit == "samples/s"
    assert rows["device_throughput"].value == 7000


def test_two_systems_are_refused_for_a_log_does_not_name_its_own(tmp_path: Path) -> None:
    for name, text in (("log", MLLOG), ("one.json", SYSTEM), ("two.json", SYSTEM.replace("H200", "H100"))):
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match="describe 2 systems"):
        import_results([tmp_path / name for name in ("log", "one.json", "two.json")], tmp_path / "out")


@pytest.mark.parametrize(("name", "text"), [("a, b]: ${oc.env:HOME}", MLLOG), ("x: {y", SUPERBENCH)])
def test_any_files_name_reads_back_from_the_config(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    folder, _ = import_results([tmp_path / name], tmp_path / "out")
    assert read_frozen(folder.config) == {"logs": [name.replace("${", "$ {")]}


def test_a_pipe_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "log")
    assert main(["import", str(tmp_path / "log"), "--out", str(tmp_path / "out")]) == 2
    assert "no file but a pipe" in capsys.readouterr().err


def test_an_mllog_tells_throughput_and_time_to_the_target() -> None:
    found = read_mllog(MLLOG, "result_0.txt", SYSTEM)
    rows = by_quantity(found.rows)
    assert rows["system_throughput"].value == 112_000 and "somebody, 2xSystem" in rows["system_throughput"].what
    assert rows["time_to_target"].value == 5.0 and "to 0.759" in rows["time_to_target"].what
    device = rows["training_samples"]
    assert (device.value, device.device, device.conditions.model) == (7000.0, "NVIDIA H200", "resnet50")
    assert found.faults == ["result_0.txt:12 is cut or no JSON, and left out"]
    aborted = read_mllog(MLLOG.replace('"success"', '"aborted"'), "r")
    assert set(by_quantity(aborted.rows)) == {"system_throughput"}


def test_both_import_as_a_scorecard_with_verdicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in (("sb.jsonl", SUPERBENCH), ("log.txt", MLLOG), ("system.json", SYSTEM)):
        (tmp_path / name).write_text(text)
    names = [str(tmp_path / name) for name in ("sb.jsonl", "log.txt", "system.json")]
    assert main(["import", *names, "--out", str(tmp_path / "out")]) == 0
    folder = RunFolder.open(tmp_path / "out")
    assert len(RunFolder.open(tmp_path / "out" / "sweep").read_sweep()) == 4
    page = write_report(folder).read_text(encoding="utf-8")
    assert "90% of 7,749" in page, "what MLPerf measured on this device stands beside the best published"
    assert "rows" in capsys.readouterr().out


@pytest.mark.parametrize("text", ['{"node": "one", "ib-loopback/IB_write_8:0": 1.0}', line("submission_org", "nobody")])
def test_what_holds_no_result_is_refused_and_nothing_is_written(tmp_path: Path, text: str) -> None:
    (tmp_path / "log").write_text(text)
    with pytest.raises(UserError, match="log"):
        import_results([tmp_path / "log"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def compliant(path: Path) -> bool:
    """Return whether MLPerf's own checker passes a log by the rules of Training 4.0.0."""
    mlp_compliance = pytest.importorskip("mlperf_logging.compliance_checker.mlp_compliance")
    logging.disable(logging.NOTSET)
    checker = mlp_compliance.make_checker("training", "4.0.0", quiet=False, werror=True)
    return bool(checker.check_file(str(path), "training_4.0.0/common.yaml"))


def test_the_mllog_of_a_recorded_resnet_run_passes_mlperfs_checker(tmp_path: Path) -> None:
    """The steps of ResNet-50 on one H200, as its job handed them to its loggers."""
    pytest.importorskip("mlperf_logging")
    folder = write_run(tmp_path / "resnet", 1)
    facts = folder.read_facts()
    assert facts is not None
    register()
    config = typed(compose_job("train", ["model=resnet50"]), TrainConfig)
    folder.write_facts(msgspec.structs.replace(facts, model="resnet50", mlperf_benchmark=config.model.mlperf_benchmark))
    recorded = gzip.decompress(RECORDED.read_bytes()).splitlines()
    sinks = open_sinks(yaml.safe_load((ROOT / "conf/logger/mllog.yaml").read_text()), folder)
    sinks.start({"seed": 1337}, "resnet")
    for row in recorded:
        sinks.log(msgspec.json.decode(row, type=StepRow))
    sinks.close("done")
    log = folder.path / "mllog" / "result_0.txt"
    assert compliant(log)
    rows = by_quantity(read_mllog(log.read_text(), log.name).rows)
    assert rows["system_throughput"].value == pytest.approx(7541, rel=0.02)
    broken = log.with_name("broken.txt")
    broken.write_text("\n".join(one for one in log.read_text().splitlines() if "eval_accuracy" not in one))
    assert not compliant(broken)


def test_only_resnet_as_mlperf_trains_it_is_their_benchmark() -> None:
    register()
    small, full = (typed(compose_job("train", [f"model={name}"]), TrainConfig).model for name in MODELS)
    assert (small.mlperf_benchmark, full.mlperf_benchmark) == (None, "resnet")


@pytest.mark.job
def test_the_mllog_of_a_short_resnet_run_passes_mlperfs_checker(tmp_path: Path) -> None:
    pytest.importorskip("mlperf_logging")
    ran = run_world(1, [
        "scalescope", "train", f"runs={tmp_path}", "name=one", "model=resnet50", "model.batch_size=1", "steps=3",
        "warmup_steps=1", "precision=fp32", "profiler=none", "logger=mllog", "launch.device=cpu", "strategy=local",
        "launch.threads_per_rank=1",
    ])  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    log = tmp_path / "one" / "mllog" / "result_0.txt"
    assert compliant(log)
    rows = by_quantity(read_mllog(log.read_text(), log.name).rows)
    steps = RunFolder(tmp_path / "one").read_steps()
    assert rows["system_throughput"].value in {row.samples_per_s for row in steps}
    assert "resnet on unnamed, 1x" in rows["system_throughput"].what and str(ROOT) not in log.read_text()


def test_a_models_log_that_is_no_benchmark_of_theirs_says_so(tmp_path: Path) -> None:
    pytest.importorskip("mlperf_logging")
    folder = write_run(tmp_path / "gpt-n2", 2)
    node = yaml.safe_load((ROOT / "conf/logger/mllog.yaml").read_text())
    sinks = open_sinks(node, folder)
    sinks.start({"seed": 1}, "gpt-n2")
    for row in step_rows(2):
        sinks.log(row)
    sinks.close("done")
    text = (folder.path / "mllog" / "result_0.txt").read_text()
    facts = folder.read_facts()
    assert facts is not None and f'"submission_benchmark", "value": "{facts.model}"' in text
    assert '"submission_status", "value": "research"' in text and '"of": "held-out data"' in text


def test_without_the_package_the_logger_is_left_out_and_says_how_to_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "mlperf_logging.mllog.mllog", None)
    open_sinks({"mllog": {"organisation": "one", "platform": None}}, write_run(tmp_path / "one", 1))
    assert "logger mllog is left out: mlperf-logging is not installed; pip install" in capsys.readouterr().err
