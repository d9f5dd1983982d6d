"""A run folder's files as W&B artifacts: traces as type `profile`, the small files that explain its figures beside."""

import re
import shutil
import sys
from pathlib import Path
from typing import Any, Literal

from isal import igzip

from scalescope.records.folder import RunFolder

_MB = 10**6
_CHUNK = 4 * 2**20
#: Small files of a run folder, which together explain its figures.
_SMALL_FILES = ("run.json", "config.yaml", "facts.json", "steps.jsonl", "sweep.jsonl",
                "scorecard.jsonl", "analysis.json", "report.html")  # fmt: skip


class Files:
    """Puts files into artifacts while they fit under the size limit; the others stay in place, and that is said."""

    def __init__(self, folder: Path, limit_mb: float, expand_traces: bool) -> None:
        self._folder = folder
        self._room_bytes = int(limit_mb * _MB)
        self._expand_traces = expand_traces

    def log(self, run: Any, path: Path) -> None:
        """Log a folder of traces, a run folder's small files, or a file. A disk that is full is said and left."""
        try:
            self._log(run, path)
        except OSError as error:  # the figures are still to come
            print(f"scalescope: W&B gets no copy of {path}: {error}", file=sys.stderr)

    def _log(self, run: Any, path: Path) -> None:
        import wandb

        is_traces = path.is_dir() and path.name == "traces"
        if is_traces:
            files = [file for spans in RunFolder(path.parent).find_traces().values() for file in spans]
        else:
            files = _small_files(path)
        kind, what = ("profile", "traces") if is_traces else ("run-files", "files")
        artifact = wandb.Artifact(f"{_artifact_name(self._folder.name)}-{what}", type=kind)
        left = [str(file) for file in files if not self._add(artifact, file)]
        if left:
            artifact.metadata["left_in_place"] = left
            print(
                f"scalescope: W&B gets no copy of {len(left)} of {len(files)} files, which are larger than "
                f"logger.wandb.artifact_limit_mb leaves room for; they stay in {path}",
                file=sys.stderr,
            )
        artifact.metadata["files"] = len(files) - len(left)
        run.log_artifact(artifact)

    def _add(self, artifact: Any, file: Path) -> bool:
        """Add a file where it fits; return whether it did. W&B copies what may still change, but no trace."""
        policy: Literal["mutable", "immutable"] = "mutable"
        if ".trace.json" in file.name:
            policy = "immutable"
        if self._expand_traces and file.name.endswith(".trace.json.gz"):
            plain = self._expand(file)
            if plain is None:
                return False
            file = plain
        size = file.stat().st_size
        if size > self._room_bytes:
            return False
        self._room_bytes -= size
        artifact.add_file(str(file), name=file.name, policy=policy)
        return True

    def _expand(self, file: Path) -> Path | None:
        """Unpack a trace beside the W&B run; None where it would not fit under the limit."""
        plain = self._folder / "wandb" / "traces" / file.name.removesuffix(".gz")
        plain.parent.mkdir(parents=True, exist_ok=True)
        room = min(self._room_bytes, shutil.disk_usage(plain.parent).free // 2)
        written = 0
        with igzip.open(file, "rb") as packed, plain.open("wb") as out:
            while chunk := packed.read(_CHUNK):
                written += len(chunk)
                if written > room:
                    break
                out.write(chunk)
        if written > room:
            plain.unlink()
            return None
        return plain


def _small_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return [path / name for name in _SMALL_FILES if (path / name).is_file()]


def _artifact_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[:100]
