"""Reads a .wandb transaction file back, record by record: a 7-byte header, then LevelDB's log format."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]

_BLOCK, _RECORD_HEADER = 32 * 1024, 7
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def read_records(path: Path) -> Iterator[Record]:
    """Yield the records of a transaction file, in the order in which they were written."""
    content = path.read_bytes()
    assert content[:4] == b":W&B" and content[4:6] in (b"\xe1\xbe", b"\xbe\xe1")
    at, parts = 7, b""
    while at < len(content):
        room = _BLOCK - at % _BLOCK
        if room < _RECORD_HEADER:
            at += room
            continue
        length = int.from_bytes(content[at + 4 : at + 6], "little")
        kind = content[at + 6]
        if kind == 0:  # padding
            at += room
            continue
        at += _RECORD_HEADER
        parts += content[at : at + length]
        at += length
        if kind in (_FULL, _LAST):
            record = Record()
            record.ParseFromString(parts)
            parts = b""
            yield record


def find_transactions(folder: Path) -> Path:
    """Return the one transaction file under a run folder."""
    (path,) = (folder / "wandb").glob("offline-run-*/run-*.wandb")
    return path


def history(records: list[Record]) -> list[dict[str, Any]]:
    """Return the rows of history, nested keys joined by dots."""
    rows = []
    for record in records:
        if record.HasField("history"):
            items = record.history.item
        elif record.HasField("request") and record.request.HasField("partial_history"):
            items = record.request.partial_history.item
        else:
            continue
        rows.append({(".".join(item.nested_key) or item.key): json.loads(item.value_json) for item in items})
    return rows


def summary(records: list[Record]) -> dict[str, Any]:
    """Return the summary as it stood at the end."""
    found: dict[str, Any] = {}
    for record in records:
        if record.HasField("summary"):
            for item in record.summary.update:
                found[".".join(item.nested_key) or item.key] = json.loads(item.value_json)
    return found


def config(records: list[Record]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for record in records:
        updates = record.config.update if record.HasField("config") else ()
        if record.HasField("run"):
            updates = record.run.config.update
        for item in updates:
            found[".".join(item.nested_key) or item.key] = json.loads(item.value_json)
    return found
