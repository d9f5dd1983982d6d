"""Opening a W&B run for a run folder: who it is, what it is tagged with, and what W&B is not to collect."""

import os
import secrets
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from scalescope.records.files import write_atomic
from scalescope.records.folder import RunFolder
from scalescope.records.rows import RunInfo
from scalescope.report.redaction.pseudonyms import Pseudonyms
from scalescope.report.redaction.report_data import redacted_info

_CHOSEN_DATA_DIR = os.environ.get("WANDB_DATA_DIR")
_FULL_BYTES = 64 * 1024  # two blocks of W&B's file
_TAG_LETTERS = 64  # W&B refuses longer ones


@dataclass(frozen=True)
class RunDestination:
    """Where a run goes, and what it is called there."""

    mode: str
    project: str
    entity: str | None
    name: str
    group: str | None
    job_type: str | None
    tags: Sequence[str]


def open_run(
    folder: Path,
    place: RunDestination,
    config: dict[str, Any],
    *,
    system_metrics: bool,
    init_timeout_s: float,
    finish_timeout_s: float,
    known: Pseudonyms | None = None,
) -> Any:
    """Return a live wandb.Run with the frozen config, tagged by what run.json says of the job.

    `known`: the pseudonyms under which it is told. Raises OSError where the disk is full, and whatever W&B raises.
    """
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # read when wandb is imported
    if _CHOSEN_DATA_DIR is None:  # what W&B stages stays with the run, also when the folder travels
        os.environ["WANDB_DATA_DIR"] = str((folder / "wandb" / "data").absolute())
    folder.mkdir(parents=True, exist_ok=True)
    own = folder / "wandb"
    if is_full(own if own.is_dir() else folder):  # W&B's own logging would say so thirty times
        raise OSError(f"the disk of {own} is full")
    import wandb

    info = RunFolder(folder).read_info() if (folder / "run.json").is_file() else None
    if info is not None and known is not None:
        info = redacted_info(info, known)
    run = wandb.init(
        mode=place.mode,  # type: ignore[arg-type]  # checked by the sink
        project=place.project,
        entity=place.entity,
        dir=str(folder),
        id=_identity(folder),
        resume="allow" if place.mode == "online" else None,
        name=place.name,
        group=place.group,
        job_type=place.job_type,
        tags=_tags(place.tags, config, info),
        config={**config, **_facts_of(info)},
        settings=_settings(system_metrics, init_timeout_s, finish_timeout_s),
    )
    run.define_metric("train/step", hidden=True)
    run.define_metric("train/wall_s", hidden=True)
    run.define_metric("train/*", step_metric="train/step")
    run.define_metric("live/*", step_metric="train/step")
    run.define_metric("wall/*", step_metric="train/wall_s")
    run.define_metric("sweep/bytes", hidden=True)
    return run


def _settings(system_metrics: bool, init_timeout_s: float, finish_timeout_s: float) -> Any:
    """Return wandb.Settings: nothing printed, and nothing collected but the device's figures, where they are wanted."""
    import wandb

    return wandb.Settings(
        console="off",
        disable_code=True,
        disable_git=True,
        disable_job_creation=True,
        finish_timeout=finish_timeout_s,
        init_timeout=init_timeout_s,
        quiet=True,
        reinit="create_new",  # in a script of the user's there may be a run of their own
        save_code=False,
        show_info=False,
        silent=True,
        x_disable_machine_info=True,
        x_disable_meta=True,
        x_disable_stats=not system_metrics,
        x_save_requirements=False,
    )


def drop_own_logs(place: Path) -> None:
    """Remove what W&B wrote for its own debugging beside a run that is closed: it names folders and the host."""
    for log in (*(place / "logs").glob("debug*.log"), *place.parent.glob("debug*.log")):
        log.unlink(missing_ok=True)


def is_full(place: Path) -> bool:
    """Tell whether W&B's file can no longer grow here."""
    return shutil.disk_usage(place).free < _FULL_BYTES


def _identity(folder: Path) -> str:
    """Return the run's W&B id: kept beside it, so that a requeued job goes on in the same W&B run."""
    kept = folder / "wandb" / "id"
    if kept.is_file():
        return kept.read_text(encoding="utf-8").strip()
    new = secrets.token_hex(4)
    write_atomic(kept, new)
    return new


def _tags(chosen: Iterable[str], config: dict[str, Any], info: RunInfo | None) -> list[str]:
    """Return the user's tags, then model, strategy, rank count, device and backend, as far as they are known."""
    found: list[str] = [*chosen]
    for group, key in (("model", "name"), ("strategy", "kind"), ("precision", "kind")):
        node = config.get(group)
        if isinstance(node, dict) and node.get(key):
            found.append(str(node[key]))
    if info is not None:
        found += [f"{info.world_size} ranks"] if info.world_size else []
        found += sorted({device.name for device in info.devices})
        found += [info.backend] if info.backend else []
    return [tag[:_TAG_LETTERS] for tag in dict.fromkeys(found)]


def _facts_of(info: RunInfo | None) -> dict[str, Any]:
    """Return what run.json knows of the machine, under one key beside the frozen config."""
    if info is None:
        return {}
    kept = ("name", "kind", "study", "world_size", "backend", "launcher", "config_hash", "hosts", "environment",
            "ceilings", "devices")  # fmt: skip
    known = msgspec.to_builtins(info)
    return {"scalescope": {key: known[key] for key in kept if known.get(key) not in (None, [])}}
