"""Which sinks a config may name: a closed list, so that nothing is imported because a folder says so."""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast

from scalescope.records.folder import RunFolder
from scalescope.records.sink import PackageMissing, Sink, Sinks

#: A key below `logger` → the class that it is, loaded when a job wants it.
SINKS = {
    "wandb": "scalescope.report.sinks.wandb:WandbSink",
    "prometheus": "scalescope.report.sinks.prometheus:PrometheusSink",
    "tensorboard": "scalescope.report.sinks.tensorboard:TensorBoardSink",
    "mllog": "scalescope.report.sinks.mllog:MllogSink",
}

#: What version 0.1 wrote as `_target_` into a run folder's config, which stays resumable.
_FORMER_TARGETS = {"report.wandb.WandbSink": "wandb", "report.tensorboard.TensorBoardSink": "tensorboard"}


def open_sinks(nodes: Mapping[str, Any], folder: RunFolder) -> Sinks:
    """Make the sinks below a config's `logger`. One that cannot be made is reported and left out."""
    info = folder.read_info()
    sinks: list[Sink] = []
    for name, node in nodes.items():
        try:
            module, _, kind = SINKS[kind_of(name, node)].partition(":")
            make = cast(type[Any], getattr(import_module(module), kind))
            sinks.append(make(**options_of(node), dir=str(folder.path), group=info.study or info.name,
                              job_type=info.kind, run_name=info.name))  # fmt: skip
        except (ImportError, TypeError, ValueError) as error:
            if isinstance(error, PackageMissing) and info.study and info.kind != "study":
                continue  # the study says so before its first job
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            print(f"scalescope: logger {name} is left out: {reason}", file=sys.stderr)
    return Sinks(sinks)


def kind_of(name: str, node: object) -> str:
    """Return which of SINKS a node below `logger` is. Raises ValueError where it is none."""
    if not isinstance(node, Mapping):
        raise ValueError(f"it holds {node!r}, not a sink's settings")
    target = node.get("_target_")
    kind = name if target is None else _FORMER_TARGETS.get(str(target))
    if kind not in SINKS:
        raise ValueError(f"there is no sink {target or name}; there are {', '.join(SINKS)}")
    return kind


def options_of(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node's settings without what only says which sink it is."""
    return {key: value for key, value in node.items() if key != "_target_"}
