"""Which file may be written over: what scalescope wrote there itself, and never what somebody measured.

A path is easily put in the wrong place of a command line, and a trace or a run's rows cannot be made again, nor can
anybody's settings or notes. So a file that is there is written over only where its content says that it is ours.
"""

import os
import re
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from scalescope.records.errors import UserError
from scalescope.records.outputs.sweep_logs import is_log

#: What is to be written, by what tells it from other files.
OutputKind = Literal["page", "json", "markdown", "csv", "bundle"]

#: What a bundle of traces for Perfetto begins with; traces themselves have no such key.
BUNDLE_MARK = b'"scalescope":{"bundle":true}'

_LOOKED_AT = 1 << 16
_GZIP = b"\x1f\x8b"
_OF_TRACES = (b'"traceEvents"', b'"deviceProperties"', b'"distributedInfo"')
_RECORDED = frozenset(
    {"run.json", "config.yaml", "facts.json", "recording.json", "steps.jsonl", "sweep.jsonl", "scorecard.jsonl",
     "tried.jsonl", "jobs.jsonl"}
)  # fmt: skip
_FOLDERS_OF_RUNS = frozenset({"traces", "checkpoints", "flight_recorder", "logs"})
#: What the last line of every answer in Markdown begins with.
MARKDOWN_MARK = "<sub>made by scalescope"
#: That line's seal is of all that stands above it: notes with an answer pasted below, or an answer with notes, have
#: another.
_MARKDOWN_SEAL = re.compile(rb"<!-- ([0-9a-f]{8}) -->$")
_MOST_MARKDOWN = 1 << 26
_PAGE_MARK = "– scalescope</title>".encode()
#: The first keys of each answer as JSON, or of the first of its rows.
_OF_ANSWERS = (
    ("schema", "kind", "name"),  # analyses
    ("schema", "baseline", "other"),  # comparisons
    ("rank", "group", "number"),  # flight records
    ("operation", "bytes", "dtype"),  # a sweep's rows
    ("level", "subject", "says"),  # what the doctor finds
    ("started_unix_s", "environment", "devices"),  # the self-test
    ("device", "operations", "model"),  # fits
    ("folder", "rows", "notes"),  # what was imported
    ("file", "events", "notes"),  # what was packed
    ("model", "points", "backtests"),  # projections
    ("file",),  # where a page is
    ("id", "device", "quantity"),  # claims
    ("row", "quantity", "what"),  # a scorecard's rows
    ("name", "replay", "step_ms"),  # what-ifs
)
_MOST_KEYS = max(map(len, _OF_ANSWERS))
_JSON_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"|[{}\[\]:,]')
_WHAT: dict[OutputKind, str] = {
    "page": "no page of scalescope's",
    "json": "no answer that scalescope wrote as JSON",
    "markdown": "no answer that scalescope wrote as Markdown",
    "csv": "no table of a sweep",
    "bundle": "nothing that scalescope packed",
}


def refuse_to_lose(target: Path, kind: OutputKind, named: str, hint: str, inputs: Iterable[Path] = ()) -> None:
    """Raise UserError where writing a file would lose one that is none of the kind.

    `named`: what the user wrote; `hint`: what to do instead; `inputs`: what the same call reads.
    """
    if target.is_dir():
        raise UserError(f"{named}: that is a folder, and no FILE to write; {hint}")
    if (what := what_is_lost(target, kind, inputs)) is not None:
        raise UserError(f"{named}: that is {what}, and would be overwritten; {hint}")


def what_is_lost(target: Path, kind: OutputKind, inputs: Iterable[Path] = ()) -> str | None:
    """Return what of somebody's would be lost if a file were written; None where nothing would be."""
    if not os.path.exists(target):  # noqa: PTH110 - pathlib's raises where a parent is closed
        return None
    if target.is_dir():
        return "a folder"
    if not target.is_file():
        return "a device or a pipe"
    if any(one.is_file() and one.samefile(target) for one in inputs):
        return "what is to be read"
    if _is_recorded(target):
        return "a file of a recorded run"
    return _other_than(kind, target)


def _is_recorded(target: Path) -> bool:
    """Tell whether a file is one that a job wrote into its run folder, and that nothing makes anew."""
    full = target.resolve()
    if full.name in _RECORDED and (full.parent / "run.json").is_file():
        return True
    within = [folder for folder in full.parents if folder.name in _FOLDERS_OF_RUNS]
    return any((folder.parent / "run.json").is_file() for folder in within) and not _is_bundle(_head(full))


def _other_than(kind: OutputKind, target: Path) -> str | None:
    """Return what a file is if it is not of a kind."""
    head = _head(target)
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text:
        return None
    if _is_bundle(head):
        return None if kind == "bundle" else "traces, packed for Perfetto"
    is_page = text.startswith(b"<") and text[:15].lower().startswith((b"<!doctype html", b"<html"))
    if is_page:  # it may hold a trace's words
        if kind != "page":
            return "a page"
        return None if _PAGE_MARK in text else _WHAT[kind]
    if head.startswith(_GZIP) or any(mark in head for mark in _OF_TRACES):
        return "a trace"
    if is_log(head):
        return "a log of a sweep"
    fits = {
        "page": False,
        "json": is_answer(text),
        "markdown": _is_sealed(target),
        "csv": text.startswith(b"operation,"),
        "bundle": False,
    }[kind]
    return None if fits else _WHAT[kind]


def is_answer(text: bytes) -> bool:
    """Tell by its first keys whether JSON, or its first bytes, is an answer that a verb writes; one of no rows is."""
    if text.split() in ([b"[]"], [b"{}"]):
        return True
    return _first_keys(text.decode(errors="replace")) in _OF_ANSWERS


def _first_keys(text: str) -> tuple[str, ...]:
    """Return the first keys of an object, or of the first of a list's; all of its keys, where those are fewer.

    None of them where the object goes on behind what is looked at, with fewer keys than that takes.
    """
    keys: list[str] = []
    depth = 1 if text.startswith("[") else 0
    within, last = 0, ""
    for token in _JSON_TOKEN.finditer(text):
        if token[0] in "{[":
            within += 1
        elif token[0] in "}]":
            within -= 1
            if within == depth:
                return tuple(keys)
        elif token[0] == ":" and within == depth + 1:
            keys.append(last)
            if len(keys) == _MOST_KEYS:
                return tuple(keys)
        last = token[1] or ""
    return ()


def sealed(text: str, by: str) -> str:
    """Return an answer in Markdown with its last line: who made it, and the seal by which it is known as that.

    `by`: scalescope's version, with a space before it; or "".
    """
    return f"{text}{MARKDOWN_MARK}{by}</sub> <!-- {_seal(text.encode())} -->\n"


def _is_sealed(target: Path) -> bool:
    """Tell whether a file is an answer in Markdown as it was written, but for its ends of lines."""
    if target.stat().st_size > _MOST_MARKDOWN:
        return False
    above, line, last = target.read_bytes().replace(b"\r\n", b"\n").rstrip().rpartition(b"\n")
    seal = _MARKDOWN_SEAL.search(last)
    return last.startswith(MARKDOWN_MARK.encode()) and seal is not None and seal[1].decode() == _seal(above + line)


def _seal(text: bytes) -> str:
    return f"{zlib.crc32(text):08x}"


def _head(target: Path) -> bytes:
    with target.open("rb") as file:
        return file.read(_LOOKED_AT)


def _is_bundle(head: bytes) -> bool:
    if not head.startswith(_GZIP):
        return False
    try:
        text = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(head, _LOOKED_AT)
    except zlib.error:
        return False
    return BUNDLE_MARK in text
