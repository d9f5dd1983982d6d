"""SuperBench's results-summary.jsonl: a line a node, keys `bench[:note]/metric[:rank]`, values numbers. Torch-free.

`gemm-flops` is in GFLOP/s, `mem-bw` and copies in GB/s, `kernel-launch` in ms, `nccl-bw` and `rccl-bw` in µs and GB/s;
model benchmarks in steps of ms and samples a second of one GPU.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean, stdev

from scalescope.records.errors import UserError
from scalescope.records.operations import OPERATION_FACTS
from scalescope.records.rows import SweepRow
from scalescope.records.scorecard.row import Conditions, ScorecardRow
from scalescope.records.statistics import student_95
from scalescope.scaling.results.found import ImportedResults, decoded, figure, our_model
from scalescope.scaling.sweeps.names import operation_of

_KEY = re.compile(r"^(?P<bench>[\w.-]+)(?::(?P<note>[^/]+))?/(?P<metric>.+?)(?::(?P<rank>\d+))?$")
_COLLECTIVE = re.compile(r"^(?P<operation>[a-z_]+?)_(?P<bytes>\d{1,18})_(?P<figure>time|algbw|busbw)$")
_GEMM = re.compile(r"^(?P<precision>fp32|tf32|bf16|fp16|fp8(?:_e4m3|_e5m2)?)(?P<units>_tc|_xdlops)?(?:_flops)?$", re.I)
_TRAINED = re.compile(r"^(?P<model>[\w.-]+)/throughput_train_(?P<precision>float32|float16|fp8\w*)$")
_COPY_WAYS = (
    (re.compile(r"h2d|htod|cpu_to_gpu", re.I), "host to device"),
    (re.compile(r"d2h|dtoh|gpu\d*_to_cpu", re.I), "device to host"),
)
_DTYPES = {"float32": "fp32", "float16": "fp16"}
_MOST_RANKS = 4096
_HALF_DIGIT = 0.005001  # GB/s: bandwidths are printed with two decimals

_Series = tuple[str, str, str]  # benchmark, note, operation


@dataclass(frozen=True)
class _Metric:
    """One metric of one benchmark on one node, of all its ranks."""

    bench: str
    note: str | None
    name: str
    values: tuple[float, ...]

    @property
    def what(self) -> str:
        return f"{self.bench}{f':{self.note}' if self.note else ''}/{self.name}"


def is_superbench(text: str) -> bool:
    """Return whether a text begins as such a file does: an object a line, with a node and slashed keys."""
    first = text.lstrip().partition("\n")[0]
    return first.startswith("{") and '"node"' in first and "/" in first


def read_superbench(text: str, name: str) -> ImportedResults:
    """Return the rows of all nodes. Raises UserError where no line is one of theirs."""
    found = ImportedResults()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            read = decoded(line, f"{name}:{number}")
        except UserError as error:
            found.faults.append(str(error))
            continue
        if isinstance(read, dict):
            _add_node(found, read)
    if not found.rows and not found.sweep:
        raise UserError(f"{name} holds no result of SuperBench that a scorecard or a sweep has: gemm-flops, mem-bw, "
                        "gpu-copy-bw, kernel-launch, nccl-bw, rccl-bw, resnet_models, gpt_models")  # fmt: skip
    return found


def _add_node(found: ImportedResults, read: Mapping[str, object]) -> None:
    node = str(read.get("node", "")) or None
    metrics = list(_metrics(read))
    found.rows += [row for metric in metrics if (row := _row(metric, node)) is not None]
    found.sweep += _collectives(metrics, node, found.faults)


def _metrics(read: Mapping[str, object]) -> Iterator[_Metric]:
    """Yield each metric with the values of its ranks; return codes and what is no number are left out."""
    ranks: dict[tuple[str, str | None, str], list[float]] = {}
    for key, value in read.items():
        match = _KEY.match(key)
        number = figure(value)
        if match is not None and number is not None and match["metric"] != "return_code":
            ranks.setdefault((match["bench"], match["note"], match["metric"]), []).append(number)
    for (bench, note, metric), values in ranks.items():
        yield _Metric(bench, note, metric, tuple(values))


def _row(metric: _Metric, node: str | None) -> ScorecardRow | None:
    """Return a metric as a row; None of what no row has."""
    if metric.bench == "gemm-flops" and (match := _GEMM.match(metric.name)):
        precision = "fp8" if match["precision"].lower().startswith("fp8") else match["precision"].lower()
        dense = match["units"] is not None or precision == "fp32"  # without matrix units it is the vector rate
        if not dense:
            return None
        return _made("matmul", "matmul", metric, "TFLOP/s", 1e-3, node, Conditions(precision=precision))
    if metric.bench == "kernel-launch" and metric.name in ("wall_overhead", "wall_time"):
        return _made("launch", "launch_latency", metric, "µs", 1e3, node)
    if metric.bench == "mem-bw" and metric.name.lower().startswith("d2d"):
        return _made("memory", "memory_bandwidth", metric, "TB/s", 1e-3, node)
    if metric.bench in ("mem-bw", "gpu-copy-bw", "gpu-sm-copy-bw", "gpu-dma-copy-bw"):
        way = next((way for pattern, way in _COPY_WAYS if pattern.search(metric.name)), None)
        return _made("host_copy", "host_copy", metric, "GB/s", 1.0, node, way=way) if way is not None else None
    return _trained(metric, node)


def _trained(metric: _Metric, node: str | None) -> ScorecardRow | None:
    kinds = (("resnet_models", "resnet", "training_samples", "images/s"),
             ("gpt_models", "gpt", "training_sequences", "sequences/s"))  # fmt: skip
    match = _TRAINED.match(metric.name)
    for bench, row, quantity, unit in kinds:
        if metric.bench == bench and match is not None:
            model, flops = our_model(match["model"])
            precision = _DTYPES.get(match["precision"], "fp8")
            conditions = Conditions(precision=precision, model=model, flops_per_sample=flops)
            return _made(row, quantity, metric, unit, 1.0, node, conditions)
    return None


def _made(
    row: str, quantity: str, metric: _Metric, unit: str, scale: float, node: str | None,
    conditions: Conditions = Conditions(), way: str | None = None,  # noqa: B008 - it is frozen
) -> ScorecardRow:  # fmt: skip
    values = [value * scale for value in metric.values]
    mean = fmean(values)
    half = student_95(len(values) - 1) * stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    what = f"{way}, {metric.what}" if way is not None else metric.what
    if len(values) > 1:
        what += f", mean of {len(values)}"
    return ScorecardRow(row, quantity, what, unit, value=mean, low=mean - half, high=mean + half, conditions=conditions,
                        superbench=metric.what, source="superbench", node=node)  # fmt: skip


def _collectives(metrics: list[_Metric], node: str | None, faults: list[str]) -> list[SweepRow]:
    """Return the points of nccl-bw and rccl-bw; the group's size follows from busbw over algbw at the largest size."""
    points: dict[_Series, dict[int, dict[str, float]]] = {}
    for metric in metrics:
        match = _COLLECTIVE.match(metric.name)
        operation = operation_of(match["operation"]) if match is not None else None
        if metric.bench in ("nccl-bw", "rccl-bw") and match is not None and operation is not None:
            series = points.setdefault((metric.bench, metric.note or "", operation), {})
            series.setdefault(int(match["bytes"]), {})[match["figure"]] = fmean(metric.values)
    rows: list[SweepRow] = []
    fitting = {key: _sizes_that_fit(key[2], series) for key, series in points.items()}
    for (bench, note, operation), series in points.items():
        size = _group_size((bench, note, operation), fitting)
        if size is None:
            what = f"{bench}{f':{note}' if note else ''}/{operation}"
            faults.append(f"{what}{f' on {node}' if node else ''} is left out: its bandwidths do not tell how many "
                          "ranks took part")  # fmt: skip
            continue
        rows += [
            SweepRow(
                operation, count, "float32", size, "measured", transport="direct", time_us=figures["time"],
                alg_gb_s=figures.get("algbw"), bus_gb_s=figures.get("busbw"), ranks=list(range(size)),
                backend=bench.partition("-")[0], source=f"SuperBench {bench}{f' on {node}' if node else ''}",
            )
            for count, figures in sorted(series.items()) if figures.get("time", 0) > 0
        ]  # fmt: skip
    return rows


def _sizes_that_fit(operation: str, series: Mapping[int, Mapping[str, float]]) -> list[int]:
    """Return which group sizes make the bus bandwidth of the algorithm bandwidth, both as rounded, at the largest size.

    A broadcast's are the same for every size.
    """
    facts = OPERATION_FACTS.get(operation)
    largest = series[max(series)]
    algorithm, bus = largest.get("algbw", 0.0), largest.get("busbw", 0.0)
    if facts is None or algorithm <= _HALF_DIGIT or bus <= _HALF_DIGIT:
        return []
    low, high = (bus - _HALF_DIGIT) / (algorithm + _HALF_DIGIT), (bus + _HALF_DIGIT) / (algorithm - _HALF_DIGIT)
    return [n for n in range(2, _MOST_RANKS) if low <= (facts.bus_factor(n) or 0.0) <= high]


def _group_size(key: _Series, fitting: Mapping[_Series, list[int]]) -> int | None:
    """Return the only size that fits; of several the one that the node's other operations have, where they tell it."""
    own = fitting[key]
    if len(own) == 1:
        return own[0]
    beside = {theirs: sizes[0] for theirs, sizes in fitting.items() if theirs[0] == key[0] and len(sizes) == 1}
    told = {size for theirs, size in beside.items() if theirs[1] == key[1]} or set(beside.values())
    return next(iter(told)) if len(told) == 1 and told <= set(own) else None
