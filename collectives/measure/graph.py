"""`execution=graph`: operations captured once and launched together, without the host between them."""

from collections.abc import Callable

import torch

from scalescope.collectives.operations.operation import Call, NotAvailable
from scalescope.collectives.transports.rotation import Run

_LAUNCH_S = 4e-3  # a graph this long is long enough; longer operations need fewer of them in one


def captured_count(estimate_s: float, most: int) -> int:
    """Return how many operations one graph should hold: many small ones, few long ones."""
    return max(1, min(most, round(_LAUNCH_S / max(estimate_s, 1e-9))))


def capture(run: Run, count: int, device: torch.device, follow: Callable[[torch.cuda.Stream], None]) -> Call:
    """Return a call that launches `count` operations, as `run` issues them, as one graph.

    `follow` tells the transport which stream to run on. Raises NotAvailable off a GPU, RuntimeError where the operation
    cannot be captured.
    """
    if device.type != "cuda":
        raise NotAvailable("execution=graph captures GPU work, and these ranks run on CPUs")
    before = torch.cuda.current_stream(device)
    stream = torch.cuda.Stream(device)
    stream.wait_stream(before)
    graph = torch.cuda.CUDAGraph()
    try:
        # other threads (the watch, torch's own watchdog) go on using the device during the capture
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            follow(stream)
            run(count)
    finally:
        follow(before)
        # torch leaves the stream of a capture that it cannot end as the current one: what follows would run there,
        # and be timed here
        torch.cuda.set_stream(before)
    return graph.replay
