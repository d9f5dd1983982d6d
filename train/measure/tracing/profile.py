"""torch's low-level profiler as our windows and bursts need it: prepared, started and stopped by hand."""

import os
import warnings

import torch
from torch.autograd import profiler as autograd_profiler
from torch.profiler import ProfilerActivity, _KinetoProfile


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
