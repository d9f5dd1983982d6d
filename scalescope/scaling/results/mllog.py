"""MLPerf's MLLOG: lines `:::MLLOG {json}`, of anybody's submission or of ours, and the system's description beside.

A log tells the whole system's throughput (`tracked_stats`), the time from run_start to run_stop and what was reached; a
`systems/*.json` of the same submission tells the accelerators, for figures of one device. Torch-free.
"""

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from msgspec.structs import replace

from scalescope.records.errors import UserError
from scalescope.records.scorecard.row import Conditions, ScorecardRow
from scalescope.scaling.results.found import ImportedResults, decoded, figure, our_model

_MOST_DEVICES = 10_000_000
_RESNET = "resnet50"
#: What a device trains a second: a sample is an image in ResNet-50, and in others a sentence, a volume, a sequence.
_OF_IMAGES, _OF_SAMPLES = ("training_samples", "images/s"), ("device_throughput", "samples/s")
_MARK = ":::MLLOG"
_TOLD = ("submission_benchmark", "submission_org", "submission_platform", "submission_division", "global_batch_size")


def is_mllog(text: str) -> bool:
    return _MARK in text[:1_000_000]


def is_system(text: str) -> bool:
    """Return whether a text is MLPerf's description of a system."""
    return text.lstrip().startswith("{") and '"accelerators_per_node"' in text


def read_mllog(text: str, name: str, system: str | None = None) -> ImportedResults:
    """Return a log's throughput and its time to the target; `system` is the description of what it ran on.

    Raises UserError where the log has neither.
    """
    found = ImportedResults()
    events = list(_events(text, name, found.faults))
    told = {event["key"]: event.get("value") for event in events if event["key"] in _TOLD}
    benchmark = str(told.get("submission_benchmark", "unknown"))
    where = ", ".join(str(told[key]) for key in ("submission_org", "submission_platform") if told.get(key))
    rates = [rate for event in events if (rate := _throughput(event)) is not None]
    reached = [value for event in events
               if event["key"] == "eval_accuracy" and (value := figure(event.get("value"))) is not None]  # fmt: skip
    model, flops = our_model(benchmark)
    conditions = Conditions(model=model, batch=_batch(told.get("global_batch_size"), name, found.faults))
    minutes = _minutes(events)
    if rates:
        found.rows.append(_row("system_throughput", f"{benchmark} on {where}", "samples/s", median(rates), conditions))
        alone = Conditions(model=model, flops_per_sample=flops)
        found.rows += _of_a_device(benchmark, median(rates), system, name, alone)
    if minutes is not None:
        quality = f", to {reached[-1]:.4g}" if reached else ""
        found.rows.append(_row("time_to_target", f"{benchmark} on {where}{quality}", "min", minutes, conditions))
    if not found.rows:
        raise UserError(f"{name} has no throughput (tracked_stats), and no run that begins, ends and succeeds")
    return found


def _events(text: str, name: str, faults: list[str]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(text.splitlines(), 1):
        _, mark, event = line.partition(_MARK)
        if not mark:
            continue
        try:
            read = decoded(event, f"{name}:{number}")
        except UserError as error:
            faults.append(str(error))
            continue
        if isinstance(read, dict) and isinstance(read.get("key"), str):
            yield read


def _throughput(event: Mapping[str, Any]) -> float | None:
    if event["key"] != "tracked_stats" or not isinstance(event.get("value"), Mapping):
        return None
    rate = figure(event["value"].get("throughput"))
    return rate if rate is not None and rate > 0 else None


def _batch(told: object, name: str, faults: list[str]) -> int | None:
    if told is None or (isinstance(told, int) and not isinstance(told, bool) and told > 0):
        return told
    faults.append(f"{name}: global_batch_size is {str(told)[:40]}, which is no number of samples, and left out")
    return None


def _minutes(events: list[dict[str, Any]]) -> float | None:
    """Return from run_start to a run_stop that says success."""
    started = next((figure(event.get("time_ms")) for event in events if event["key"] == "run_start"), None)
    ended = next((event for event in events if event["key"] == "run_stop"), None)
    stopped = figure(ended.get("time_ms")) if ended is not None else None
    if ended is None or started is None or stopped is None or stopped <= started:
        return None
    metadata = ended.get("metadata")
    if not isinstance(metadata, Mapping) or metadata.get("status") != "success":
        return None
    return (stopped - started) / 60e3


def _of_a_device(
    benchmark: str, rate: float, system: str | None, name: str, conditions: Conditions
) -> list[ScorecardRow]:
    """Return the throughput of one accelerator, where the system's description tells their number."""
    if system is None:
        return []
    try:
        read: Any = decoded(system, "it")
        count = int(read["accelerators_per_node"]) * int(read["number_of_nodes"])
        device = str(read["accelerator_model_name"])
    except (UserError, LookupError, TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{name}: its system's description does not tell accelerators and nodes ({error})") from None
    if not 1 <= count <= _MOST_DEVICES:
        raise UserError(f"{name}: its system's description tells {count:.3g} accelerators")
    quantity, unit = _OF_IMAGES if conditions.model == _RESNET else _OF_SAMPLES
    row = _row(quantity, f"{benchmark}, a device of {count}", unit, rate / count, conditions)
    return [_on(row, device, count)]


def _on(row: ScorecardRow, device: str, count: int) -> ScorecardRow:
    return replace(row, device=device, conditions=replace(row.conditions, devices=count))


def _row(quantity: str, what: str, unit: str, value: float, conditions: Conditions) -> ScorecardRow:
    return ScorecardRow("mlperf", quantity, what, unit, value=value, conditions=conditions, source="mlperf")
