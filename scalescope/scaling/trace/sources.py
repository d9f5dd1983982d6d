"""Which files of a folder are traces, of which rank, and which of several of one rank to read."""

import gzip
import re
import zlib
from collections import Counter
from pathlib import Path

import msgspec

from scalescope.records.errors import UserError
from scalescope.scaling.trace.strangers.known import said_of_folder
from scalescope.scaling.trace.xla.read import XPLANE, devices_of, is_profile

#: All ranks in one file, as `scalescope perfetto` writes it.
PERFETTO_BUNDLE = "perfetto.json.gz"
#: `rank<r>.<first step>.pt.trace.json.gz` of a run folder, and plainer names that people use.
_RANK_NAME = re.compile(r"(?:^|[^a-z])rank[_-]?(\d+)(?:[._-](\d+))?\D*\.json(?:\.gz)?$", re.IGNORECASE)
#: torch.profiler's tensorboard_trace_handler: `<worker>.<time>.pt.trace.json[.gz]`.
_WORKER_NAME = re.compile(r"^(.*?)(?:\.(\d+))?\.pt\.trace\.json(?:\.gz)?$")
#: A rank has no more.
_MOST_DIGITS = 8
#: The rank in a header, and how much of a file holds it.
_TOLD_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}\[\]]*"rank"\s*:\s*(\d{1,8})')
_HEADER_BYTES = 1 << 18
#: What scalescope itself writes beside traces: no traces of a rank.
_NO_TRACES = frozenset(
    {"run.json", "facts.json", "recording.json", "analysis.json", "timeline.json.gz", PERFETTO_BUNDLE}
)


#: What a trace begins with, in so many bytes: the keys of its header, or its first event's.
_HEAD_BYTES = 1 << 16
_OF_TRACES = (b"traceEvents", b"schemaVersion", b"deviceProperties", b'"ph"')
_MOST_FOLDERS = 4
#: So many folders are named to choose from.
_MOST_NAMED = 3


class Source(msgspec.Struct, frozen=True):
    """A trace file, and the rank its name gives it (None: only its header can tell).

    `prefix`: what stands before the rank in its name, which tells two jobs of one folder apart where nothing else does.
    """

    path: Path
    rank: int | None
    prefix: str = ""
    device: int | None = None  # of a file with several devices, each a rank: which of them

    @property
    def looks_like_a_trace(self) -> bool:
        """Whether its name promises a trace, so that a file that is none is a fault and no stranger."""
        return self.rank is not None or ".pt.trace." in self.path.name or self.path.name.endswith(XPLANE)


class _Worker(msgspec.Struct):
    """The files of one rank, or of what may be one, by their span: the first step, or the time they were written."""

    rank: int | None
    prefix: str
    spans: dict[int, Path] = {}
    device: int | None = None

    def source(self, span: int) -> Source:
        return Source(self.spans[span], self.rank, self.prefix, self.device)


def find_sources(path: Path) -> list[Source]:
    """Return the traces of a folder, one a rank: of several of one rank, the latest that the most ranks have.

    A file stands for itself; a run folder's traces lie in its `traces/`. Raises UserError where there are none.
    """
    workers = _workers(path)
    counts = Counter(span for worker in workers for span in worker.spans)
    return [worker.source(max(worker.spans, key=lambda span: (counts[span], span))) for worker in workers]


def find_windows(path: Path) -> list[list[Source]]:
    """Return the traces of a folder window by window, in order of time, each with the same ranks; see `find_sources`.

    Files belong to one window by their span, which our own jobs name by its first step; where torch's own names give
    every rank another time, by their order, if all ranks have as many. Windows that lack a rank of the latest whole
    one are left out. Raises UserError where there are no traces.
    """
    workers = _workers(path)
    counts = Counter(span for worker in workers for span in worker.spans)
    most = max(counts.values())
    if most == len(workers):
        shared = sorted(span for span, count in counts.items() if count == most)
        return [[one.source(span) for one in workers] for span in shared]
    lengths = {len(worker.spans) for worker in workers}
    if most > 1 or len(lengths) > 1:
        return [find_sources(path)]
    in_order = [sorted(worker.spans) for worker in workers]
    return [
        [one.source(spans[at]) for one, spans in zip(workers, in_order, strict=True)] for at in range(lengths.pop())
    ]


def _workers(path: Path) -> list[_Worker]:
    """Return the ranks of a folder with their files, by rank. Raises UserError where there are no traces."""
    if path.is_file():
        if is_profile(path):
            return _of_devices(path)
        _, rank, span, prefix = _parse(path.name)
        return [_Worker(rank, prefix, {span: path})]
    if not path.is_dir():
        what = "is neither a file nor a folder" if path.exists() else "does not exist"
        raise UserError(f"{path} {what}; give a run folder, a folder of traces, or a trace file")
    files = _trace_files(path / "traces") if (path / "traces").is_dir() else []
    files = files or _trace_files(path) or _of_profiler(path)
    below = _folders_below(path) if all(_is_a_stranger(file) for file in files) else []
    if files and below:
        names = ", ".join(str(folder) for folder in below[:_MOST_FOLDERS])
        more = f", and {len(below) - _MOST_FOLDERS} more" if len(below) > _MOST_FOLDERS else ""
        raise UserError(f"{path} holds no traces itself ({files[0].name} is none): name one of {names}{more}")
    if (
        all(_is_a_stranger(file) for file in files)
        and not _holds_runs(path)
        and not _may_lie_below(path)
        and (said := said_of_folder(path)) is not None
    ):
        raise UserError(said)
    if not files:
        raise UserError(
            f"{path} holds no traces (rank<r>.<step>.pt.trace.json.gz, any Kineto .json[.gz], or jax.profiler's "
            f"*{XPLANE}); {_hint(path)}"
        )
    found: dict[tuple[str, int], _Worker] = {}  # by what tells one rank's files from another's, and device
    for file in files:
        if is_profile(file):
            found |= {(file.name, -1 if one.device is None else one.device): one for one in _of_devices(file)}
            continue
        worker, rank, span, prefix = _parse(file.name)
        found.setdefault((worker, -1), _Worker(rank, prefix)).spans[span] = file
    for key, one in list(found.items()):
        if one.rank is None and one.device is None and len(one.spans) > 1:
            found |= _by_told_rank(*key, found.pop(key))
    return [found[key] for key in sorted(found, key=lambda key: (_order(found[key].rank), key))]


def _by_told_rank(name: str, device: int, worker: _Worker) -> dict[tuple[str, int], _Worker]:
    """Return a worker as those of several ranks, where its files say so: processes may all have been given one name."""
    found: dict[tuple[str, int], _Worker] = {}
    for span, file in worker.spans.items():
        rank = _told_rank(file)
        told = name if rank is None else f"{name} {rank:08}"
        found.setdefault((told, device), _Worker(None, worker.prefix)).spans[span] = file
    return found if len(found) > 1 else {(name, device): worker}


def _told_rank(path: Path) -> int | None:
    """Return the rank in a trace's header, where that stands before its events, as Kineto writes it."""
    try:
        with gzip.open(path) if path.name.endswith(".gz") else path.open("rb") as file:
            match = _TOLD_RANK.search(file.read(_HEADER_BYTES))
    except (OSError, EOFError, zlib.error):
        return None  # the reader says what is wrong with it
    return int(match[1]) if match else None


def _is_a_stranger(file: Path) -> bool:
    """Tell whether a file is no trace: by its name it may be one, and its first bytes are not a trace's."""
    _, rank, _, _ = _parse(file.name)
    if Source(file, rank).looks_like_a_trace:
        return False
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as opened:
            head = opened.read(_HEAD_BYTES)
    except (OSError, EOFError, zlib.error):
        return False  # what cannot be read says why itself
    return not any(key in head for key in _OF_TRACES)


def _holds_runs(path: Path) -> bool:
    """Tell whether a folder is a run of ours, or holds some: what else lies in it is ours, too."""
    return (path / "run.json").is_file() or any(path.glob("*/run.json"))


def _may_lie_below(path: Path) -> bool:
    """Tell whether a folder right below holds what may be traces."""
    found = (file for pattern in ("*/*.json.gz", "*/*.json", f"*/*{XPLANE}") for file in path.glob(pattern))
    return bool(_folders_below(path)) or any(not _is_a_stranger(file) for file in found)


def _folders_below(path: Path) -> list[Path]:
    """Return the folders right below a path, or their `traces`, whose files are traces by name."""
    found = {
        file.parent.parent if file.parent.name == "traces" else file.parent
        for pattern in ("*/*.json.gz", "*/*.json", "*/traces/*.json.gz")
        for file in path.glob(pattern)
        if Source(file, _parse(file.name)[1]).looks_like_a_trace and file.parent != path / "traces"
    }
    return sorted(found)


def _order(rank: int | None) -> int:
    return rank if rank is not None else 1 << 60


def _trace_files(folder: Path) -> list[Path]:
    names = sorted(
        entry for entry in folder.iterdir() if entry.name.endswith((".json", ".json.gz", XPLANE)) and entry.is_file()
    )
    # jax.profiler writes the same twice, the JSON without the modules
    told = {entry.name.removesuffix(XPLANE) for entry in names if entry.name.endswith(XPLANE)}
    again = {f"{name}.trace.json{gz}" for name in told for gz in ("", ".gz")}
    return [entry for entry in names if entry.name not in _NO_TRACES and entry.name not in again]


def _of_profiler(folder: Path) -> list[Path]:
    """Return the files of the latest session below the folder that jax.profiler was given."""
    sessions = folder / "plugins" / "profile"
    folders = sorted(entry for entry in sessions.iterdir() if entry.is_dir()) if sessions.is_dir() else []
    return next((files for entry in reversed(folders) if (files := _trace_files(entry))), [])


def _of_devices(path: Path) -> list[_Worker]:
    """Return a profile's devices as ranks, whose numbers are told inside it. One that cannot be read says why then."""
    try:
        devices = devices_of(path)
    except UserError:
        devices = []
    return [_Worker(None, "", {0: path}, device) for device in devices] or [_Worker(None, "", {0: path})]


def _parse(name: str) -> tuple[str, int | None, int, str]:
    """Return what tells one rank's files from another's, the rank if the name has it, the span, and the prefix."""
    match = _RANK_NAME.search(name)
    if match and len(match[1]) <= _MOST_DIGITS:  # else a date, or a hash of decimal digits
        prefix = name[: match.start()]
        return f"{prefix}rank{match[1]}", int(match[1]), int(match[2] or 0), prefix
    if match := _WORKER_NAME.match(name):
        return match[1], None, int(match[2] or 0), ""
    return name, None, 0, ""


def _others_below(path: Path) -> list[Path]:
    """Return the folders right below a path that are runs, or hold what may be traces under other names."""
    found = {
        file.parent
        for pattern in ("*/*.json.gz", "*/*.json")
        for file in path.glob(pattern)
        if file.name == "run.json" or (file.name not in _NO_TRACES and not _is_a_stranger(file))
    }
    return sorted(found)


def _hint(path: Path) -> str:
    below = _folders_below(path) or _others_below(path)  # by their names, else what may hold any
    *names, last = map(str, below[:_MOST_NAMED]) if below else ("",)
    if len(below) > _MOST_NAMED:
        return f"name one of the {len(below)} folders in it that do, as {', '.join(names)} or {last}"
    if below:
        return f"did you mean {', '.join(names)} or {last}?" if names else f"did you mean {last}?"
    return "record some with the profiler on (scalescope train does so unless told otherwise)"
