"""Files that people give for traces: what each is, and what to do instead."""

from collections import Counter
from pathlib import Path

import msgspec

from scalescope.records.outputs.sweep_logs import is_log, is_named_as_page

_LOOKED_AT = 1 << 16
#: More files of a folder are not looked at.
_MOST = 500
_RECORD = "record the same steps with torch.profiler (from scalescope import profile_steps)"


class Stranger(msgspec.Struct, frozen=True):
    """A kind of file that is no trace: how one is called and several, and what to do."""

    one: str
    several: str
    advice: str


_ARCHIVE = Stranger("an archive", "archives", "unpack it (unzip or tar -xf), and give the folder that it makes")
_LOG = Stranger("a log of nccl-tests or rccl-tests", "logs of nccl-tests or rccl-tests",
                "compare and fit take it as it is; scalescope import LOG --out FOLDER makes it a sweep")  # fmt: skip
_PAGE = Stranger(
    "a page for a browser", "pages for a browser", "give what it was made of: the traces, or the run folder"
)
#: Folders of anything have such pages beside it: they do not tell what one holds.
_TEXT = Stranger("a page of text", "pages of text", "give what it tells of: the traces, the run folder, or the log")
_WEIGHTS = Stranger("a file of weights, or a checkpoint", "files of weights or checkpoints",
                    "give the folder of traces that was recorded beside them; if none was, " + _RECORD)  # fmt: skip
_BY_ENDING: tuple[tuple[tuple[str, ...], Stranger], ...] = (
    ((".nsys-rep", ".qdrep", ".qdstrm", ".sqlite"),
     Stranger("a report of Nsight Systems", "reports of Nsight Systems",
              "it holds no operators and no steps of torch, and is not read; " + _RECORD)),
    ((".ncu-rep",),
     Stranger("a report of Nsight Compute", "reports of Nsight Compute",
              "it is of single kernels that ran again and again, and tells no step; " + _RECORD)),
    ((".zip", ".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2", ".7z"), _ARCHIVE),
    ((".html", ".htm"), _PAGE),
    ((".pt", ".pth", ".ckpt", ".safetensors", ".bin", ".distcp", ".npz", ".onnx"), _WEIGHTS),
    ((".wandb",),
     Stranger("a record of W&B", "records of W&B",
              "it holds curves, and no traces; give the run folder that it was made beside")),
    ((".pickle", ".pkl"),
     Stranger("a snapshot of memory, or another pickle", "snapshots of memory, or other pickles",
              "pytorch.org/memory_viz shows the memory; for where the time goes " + _RECORD)),
    ((".rpd", ".db", ".pftrace", ".perfetto-trace", ".rocprof"),
     Stranger("a database of rocprofiler, or Perfetto's own format", "databases of rocprofiler, or Perfetto's format",
              "Kineto's JSON is read; " + _RECORD)),
)  # fmt: skip
_EVENTS = Stranger("TensorBoard's curves", "files of TensorBoard's curves",
                   "traces that its profiler plugin shows are *.pt.trace.json: give their folder")  # fmt: skip


def known_file(path: Path) -> Stranger | None:
    """Return what a file is that is no trace, by its name or its first bytes; None where nobody knows."""
    name = path.name.lower()
    if "tfevents" in name:
        return _EVENTS
    for endings, stranger in _BY_ENDING:
        if name.endswith(endings):
            return stranger
    if is_named_as_page(name):
        return _TEXT
    try:
        with path.open("rb") as file:
            head = file.read(_LOOKED_AT)
    except OSError:
        return None
    if head.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html")):
        return _PAGE
    if head.startswith(b"PK\x03\x04"):
        return _ARCHIVE
    return _LOG if is_log(head) else None


def said_of_file(path: Path) -> str | None:
    """Return that a file is no trace but something else, and what to do; None where nobody knows what it is."""
    stranger = known_file(path)
    return f"{path} is no trace but {stranger.one}; {stranger.advice}" if stranger is not None else None


def said_of_folder(path: Path) -> str | None:
    """Return that a folder holds no traces but something else, most of all; None where nobody knows what."""
    found: Counter[Stranger] = Counter()
    first: dict[Stranger, Path] = {}
    files = (file for pattern in ("*", "*/*") for file in sorted(path.glob(pattern)) if file.is_file())
    for file, _ in zip(files, range(_MOST), strict=False):
        if (stranger := known_file(file)) is not None and stranger is not _TEXT:
            found[stranger] += 1
            first.setdefault(stranger, file)
    if not found:
        return None
    stranger, count = found.most_common(1)[0]
    what = stranger.one if count == 1 else f"{count} {stranger.several}"
    named = first[stranger].relative_to(path)
    return f"{path} holds no traces but {what} ({named}{', …' if count > 1 else ''}); {stranger.advice}"
