"""torch's low-level profiler as our windows and bursts need it: prepared, started and stopped by hand."""

import gc
import os
import warnings

import torch
from torch.autograd import profiler as autograd_profiler
from torch.profiler import ProfilerActivity, _KinetoProfile

_LETS_GO = "TEARDOWN_CUPTI"


def prepared_profile(
    device: torch.device, *, shapes: bool = False, stacks: bool = False, memory: bool = False
) -> _KinetoProfile:
    """Return a profiler of the host, and of the device where there is one, that is ready to start."""
    on_gpu = device.type == "cuda"
    if not on_gpu:  # its start and stop lines are noise; on a GPU its warnings are worth them
        os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    # each window has a profiler of its own, so nothing that is still wanted is cleared
    warnings.filterwarnings("ignore", message=".*Profiler clears events at the end of each cycle")
    profile = (_KinetoProfile if on_gpu else _HostProfile)(
        activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])],
        record_shapes=shapes,
        with_stack=stacks,
        profile_memory=memory,
    )
    profile.prepare_trace()
    return profile


def let_go(device: torch.device) -> None:
    """Let the device's tracing library go, after the last recording of a process that runs on. Takes 11 ms.

    Kineto leaves CUPTI attached, which each launch goes through from then on: host-bound steps on an H200 took 21 to 26
    ms after a window for 14 to 20 before it, and 14 to 20 again once it was let go. Kineto does so at the end of a
    recording where TEARDOWN_CUPTI is set, and a later recording attaches again. Who has set it has decided otherwise;
    so has torch where it compiles to CUDA graphs, after which attaching again may crash: a process that holds such a
    graph is left as it is. Raises RuntimeError as Kineto and CUPTI do.
    """
    if device.type != "cuda" or torch.version.hip is not None or _LETS_GO in os.environ:
        return
    if any(isinstance(one, torch.cuda.CUDAGraph) for one in gc.get_objects()):
        return
    profile = prepared_profile(device)
    os.environ[_LETS_GO] = "1"
    try:
        profile.start_trace()
        torch.zeros(1, device=device)
        torch.cuda.synchronize(device)
        profile.stop_trace()
    finally:
        os.environ.pop(_LETS_GO, None)


class _HostProfile(_KinetoProfile):
    """A profiler of the host alone.

    torch's own asks torch._inductor whether there are CUDA graphs, whose import takes a rank 2 s; without a device
    there are none.
    """

    def prepare_trace(self) -> None:
        self.has_cudagraphs = False
        self.profiler = autograd_profiler.profile(
            use_cpu=True,
            use_device=None,
            record_shapes=self.record_shapes,
            with_stack=self.with_stack,
            profile_memory=self.profile_memory,
            use_kineto=True,
        )
        self.profiler._prepare_trace()
