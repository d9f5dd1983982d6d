"""Ending what a job's loggers began, where rank 0 was killed before it could."""

from collections.abc import Iterable

import yaml

from records.folder import RunFolder
from report.wandb import TARGET, close_unfinished


def end_loggers(folders: Iterable[RunFolder]) -> None:
    """End the W&B runs of jobs whose ranks are gone; there is nothing to do where rank 0 has ended its own."""
    for folder in folders:
        if not folder.config.is_file():
            continue
        config = yaml.safe_load(folder.config.read_text(encoding="utf-8"))
        loggers = config.get("logger") if isinstance(config, dict) else None
        for settings in (loggers or {}).values():
            if isinstance(settings, dict) and settings.get("_target_") == TARGET:
                close_unfinished(folder, settings)
