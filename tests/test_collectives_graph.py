"""A graph's capture, as torch is told of it: torch.cuda's own parts stand in, since there is no device here."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from scalescope.collectives.measure.graph import capture


class Streams:
    """Which stream is the current one, as torch keeps it."""

    def __init__(self) -> None:
        self.before = SimpleNamespace(wait_stream=None)
        self.current = self.before

    def set(self, stream: SimpleNamespace) -> None:
        self.current = stream

    @contextmanager
    def capturing(self, graph: object, stream: SimpleNamespace, capture_error_mode: str) -> Iterator[None]:
        """torch.cuda.graph: where the capture cannot be ended, it raises before it puts the stream back."""
        self.current = stream
        failed = False
        try:
            yield
        except RuntimeError:
            failed = True
        if failed:
            raise RuntimeError("operation failed due to a previous error during capture")
        self.current = self.before


@pytest.mark.parametrize("fails", [False, True])
def test_after_a_capture_the_stream_is_the_one_before_also_where_it_failed(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    streams = Streams()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: streams.current)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: SimpleNamespace(wait_stream=lambda other: None))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(replay=lambda: None))
    monkeypatch.setattr(torch.cuda, "graph", streams.capturing)
    monkeypatch.setattr(torch.cuda, "set_stream", streams.set)
    followed: list[object] = []
    ran_on: list[object] = []

    def run(count: int) -> None:
        ran_on.append(streams.current)
        if fails:
            raise RuntimeError("operation not permitted when stream is capturing")

    if fails:
        with pytest.raises(RuntimeError, match="during capture"):
            capture(run, 3, torch.device("cuda"), followed.append)
    else:
        capture(run, 3, torch.device("cuda"), followed.append)
    assert followed == [*ran_on, streams.before] and ran_on[0] is not streams.before
    assert streams.current is streams.before
