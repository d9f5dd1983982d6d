"""W&B sinks with the product's own defaults, and traces for them to log."""

import gzip
import json
from pathlib import Path
from typing import Any

import yaml

from scalescope.records.folder import RunFolder

ROOT = Path(__file__).parent.parent


def options(**changes: Any) -> dict[str, Any]:
    """Return conf/logger/wandb.yaml's own arguments."""
    node: dict[str, Any] = yaml.safe_load((ROOT / "conf/logger/wandb.yaml").read_text())["wandb"]
    return {**node, "system_metrics": False, **changes}


def write_traces(folder: RunFolder, sizes: dict[int, int]) -> None:
    folder.traces.mkdir()
    for rank, size in sizes.items():
        events = {"traceEvents": [{"name": "x" * size, "ph": "X", "ts": 1, "dur": 1}]}
        with gzip.open(folder.trace_of(rank, 10), "wt") as out:
            json.dump(events, out)
