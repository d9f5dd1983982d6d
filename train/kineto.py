"""Kineto traces of the scheduled windows; outside them nothing of the profiler runs.

The low-level profiler behind torch.profiler.profile is driven directly, so that a step is called by the job's own
number in the trace (`ProfilerStep#57`) and no step outside a window is annotated.
"""

import json
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from isal import igzip
from torch.profiler import ProfilerActivity, _KinetoProfile, record_function

from train.config import ProfilerConfig
from train.schedule import Window


class Tracer:
    """Records this rank's windows, where it is one of `profiler.ranks`, and writes them after the timed steps."""

    def __init__(self, config: ProfilerConfig, device: torch.device, rank: int, metadata: dict[str, Any]) -> None:
        self._config = config
        self._traced = config.ranks is None or rank in config.ranks
        self._on_gpu = device.type == "cuda"
        self._metadata = metadata
        self._open: _KinetoProfile | None = None
        self._done: list[tuple[Window, _KinetoProfile]] = []

    @contextmanager
    def step(self, window: Window | None, step: int) -> Iterator[None]:
        """The context of one step: annotated while its window records, untouched otherwise."""
        if not self._traced or window is None or step < window.active:
            yield
            return
        with record_function(f"ProfilerStep#{step}"):
            yield

    def before(self, window: Window, step: int) -> None:
        """Begin what begins before a step of a window: the profiler's warm-up, or recording."""
        if not self._traced:
            return
        if step == window.first:
            if not self._on_gpu:  # its start and stop lines are noise; on a GPU its warnings are worth them
                os.environ.setdefault("KINETO_LOG_LEVEL", "6")
            # each window has a profiler of its own, so nothing that is still wanted is cleared
            warnings.filterwarnings("ignore", message=".*Profiler clears events at the end of each cycle")
            activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self._on_gpu else [])]
            self._open = _KinetoProfile(
                activities=activities,
                record_shapes=self._config.shapes,
                with_stack=self._config.stacks,
                profile_memory=self._config.memory,
            )
            self._open.prepare_trace()
        if step == window.active:
            assert self._open is not None
            self._open.start_trace()

    def after(self, window: Window, step: int) -> None:
        """End the recording after a window's last step."""
        if self._traced and step == window.end - 1:
            assert self._open is not None
            steps = list(range(window.active, window.end))
            self._open.add_metadata_json("scalescope", json.dumps({**self._metadata, "steps": steps}))
            self._open.stop_trace()
            self._done.append((window, self._open))
            self._open = None

    @property
    def count(self) -> int:
        """How many windows are ready to be written."""
        return len(self._done)

    def first_step(self, index: int) -> int:
        """Return the first recorded step of a window."""
        return self._done[index][0].active

    def export(self, index: int, path: Path) -> None:
        """Write one window's trace, gzipped, whole or not at all. Raises OSError where it does not fit."""
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, raw = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".json")
        os.close(handle)
        packed = Path(f"{raw}.gz")
        try:
            self._done[index][1].export_chrome_trace(raw)
            _check_whole(Path(raw))
            with Path(raw).open("rb") as plain, igzip.open(packed, "wb", compresslevel=2) as file:
                while block := plain.read(1 << 20):
                    file.write(block)
            packed.replace(path)
        finally:
            Path(raw).unlink(missing_ok=True)
            packed.unlink(missing_ok=True)


def _check_whole(path: Path) -> None:
    """Kineto writes through a stream that says nothing of a full disk: a trace that is whole ends with a brace."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 64))
        if not file.read().rstrip().endswith(b"}"):
            raise OSError(f"{path.parent}: the trace was cut off after {size} bytes (is the disk full?)")
