"""Ending what a job's loggers began, where rank 0 was killed before it could."""

from collections.abc import Iterable
from typing import Any

from scalescope.launch.sinks import kind_of, options_of
from scalescope.records.errors import UserError
from scalescope.records.folder import RunFolder
from scalescope.records.frozen import read_frozen
from scalescope.report.sinks.wandb import close_unfinished


def end_loggers(folders: Iterable[RunFolder]) -> None:
    """End the W&B runs of jobs whose ranks are gone; there is nothing to do where rank 0 has ended its own."""
    for folder in folders:
        try:
            loggers = read_frozen(folder.config).get("logger")
        except UserError:  # said where the job was begun with it
            continue
        for name, settings in loggers.items() if isinstance(loggers, dict) else ():
            if settings_of_wandb := wandb_options(name, settings):
                close_unfinished(folder, settings_of_wandb)


def wandb_options(name: str, node: Any) -> dict[str, Any] | None:
    """Return the settings of a node below a config's `logger` that is W&B's sink; None for another."""
    try:
        return options_of(node) if kind_of(name, node) == "wandb" else None
    except ValueError:  # said where the job opened its sinks
        return None
