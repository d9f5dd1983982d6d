"""Which files of a folder are traces, of which rank, and which of several of one rank to read."""

import re
from pathlib import Path

import msgspec

from scalescope.records.errors import UserError

#: All ranks in one file, as `scalescope perfetto` writes it.
PERFETTO_BUNDLE = "perfetto.json.gz"
#: `rank<r>.<first step>.pt.trace.json.gz` of a run folder, and plainer names that people use.
_RANK_NAME = re.compile(r"(?:^|[^a-z])rank[_-]?(\d+)(?:[._-](\d+))?\D*\.json(?:\.gz)?$", re.IGNORECASE)
#: torch.profiler's tensorboard_trace_handler: `<worker>.<time>.pt.trace.json[.gz]`.
_WORKER_NAME = re.compile(r"^(.*?)(?:\.(\d+))?\.pt\.trace\.json(?:\.gz)?$")
#: What scalescope itself writes beside traces: no traces of a rank.
_NO_TRACES = frozenset({"run.json", "facts.json", "analysis.json", PERFETTO_BUNDLE})


class Source(msgspec.Struct, frozen=True):
    """A trace file, and the rank its name gives it (None: only its header can tell).

    `prefix`: what stands before the rank in its name, which tells two jobs of one folder apart where nothing else does.
    """

    path: Path
    rank: int | None
    prefix: str = ""

    @property
    def looks_like_a_trace(self) -> bool:
        """Whether its name promises a trace, so that a file that is none is a fault and no stranger."""
        return self.rank is not None or ".pt.trace." in self.path.name


def find_sources(path: Path) -> list[Source]:
    """Return the traces of a folder, one a rank: of several of one rank, the latest that the most ranks have.

    A file stands for itself; a run folder's traces lie in its `traces/`. Raises UserError where there are none.
    """
    if path.is_file():
        _, rank, _, prefix = _parse(path.name)
        return [Source(path, rank, prefix)]
    if not path.is_dir():
        what = "is neither a file nor a folder" if path.exists() else "does not exist"
        raise UserError(f"{path} {what}; give a run folder, a folder of traces, or a trace file")
    files = _trace_files(path / "traces") if (path / "traces").is_dir() else []
    files = files or _trace_files(path)
    if not files:
        raise UserError(
            f"{path} holds no traces (rank<r>.<step>.pt.trace.json.gz or any Kineto .json[.gz]); {_hint(path)}"
        )
    by_worker: dict[str, dict[int, Path]] = {}
    ranks: dict[str, int | None] = {}
    prefixes: dict[str, str] = {}
    for file in files:
        worker, rank, span, prefixes[worker] = _parse(file.name)
        by_worker.setdefault(worker, {})[span] = file
        ranks[worker] = rank
    counts: dict[int, int] = {}
    for spans in by_worker.values():
        for span in spans:
            counts[span] = counts.get(span, 0) + 1
    return [
        Source(spans[max(spans, key=lambda span: (counts[span], span))], ranks[worker], prefixes[worker])
        for worker, spans in sorted(by_worker.items(), key=lambda item: (_order(ranks[item[0]]), item[0]))
    ]


def _order(rank: int | None) -> int:
    return rank if rank is not None else 1 << 60


def _trace_files(folder: Path) -> list[Path]:
    names = sorted(
        entry for entry in folder.iterdir() if entry.name.endswith((".json", ".json.gz")) and entry.is_file()
    )
    return [entry for entry in names if entry.name not in _NO_TRACES]


def _parse(name: str) -> tuple[str, int | None, int, str]:
    """Return what tells one rank's files from another's, the rank if the name has it, the span, and the prefix."""
    if match := _RANK_NAME.search(name):
        prefix = name[: match.start()]
        return f"{prefix}rank{match[1]}", int(match[1]), int(match[2] or 0), prefix
    if match := _WORKER_NAME.match(name):
        return match[1], None, int(match[2] or 0), ""
    return name, None, 0, ""


def _hint(path: Path) -> str:
    below = sorted(
        {file.parent for pattern in ("*/*.json.gz", "*/*.json", "*/traces/*.json.gz") for file in path.glob(pattern)}
    )
    if below:
        return (
            f"did you mean {below[0]}?" if len(below) == 1 else f"it has {len(below)} folders that may, as {below[0]}"
        )
    return "record some with the profiler on (scalescope train does so unless told otherwise)"
