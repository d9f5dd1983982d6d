"""FSDP2's all-gathers over symmetric windows, in a process group that is told one of NCCL's CTA policies.

NCCL gathers on copy engines (policy zero, from 2.28 on) where what it writes to is a symmetric window. FSDP2 gathers in
place, so that the one buffer it gathers into is all that has to be one: it comes from torch's pool of symmetric memory,
and is made a window of the group where it is used first. `set_allocate_memory_from_process_group_for_comm` does not
do it: what the group allocates is registered with its communicator, but as no window.
"""

from collections.abc import Sequence
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import _symmetric_memory as symmetric_memory
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather

from scalescope.records.errors import UserError

#: From here on NCCL has copy engines behind its zero-CTA policy.
_NCCL_SINCE = (2, 28)


def group_with_policy(policy: str, device: torch.device) -> dist.ProcessGroup:
    """Return a group of all ranks whose communicator is told a CTA policy. All ranks call.

    Raises UserError where torch, NCCL or the backend do not offer it.
    """
    if (obstacle := policy_obstacle(policy, dist.get_backend())) is not None:
        raise UserError(f"strategy.cta_policy={policy}: {obstacle}; leave it out")
    options = dist.ProcessGroupNCCL.Options()
    options.config.cta_policy = _policy_number(policy)  # type: ignore[attr-defined] # torch's stub lacks it
    group = cast(dist.ProcessGroup, dist.new_group(backend="nccl", pg_options=options, group_desc="mesh_fsdp"))
    dist.barrier(group=group, device_ids=[device.index])  # only a communicator that there is has windows
    return group


def policy_obstacle(policy: str, backend: str) -> str | None:
    """Return why no group can be told a CTA policy here, None where one can."""
    if backend != "nccl":
        return f"it is told to NCCL, and this job talks through {backend}"
    if _policy_number(policy) is None:
        return f"torch {torch.__version__} tells its process groups no CTA policy (2.11 does)"
    if not hasattr(FSDPModule, "set_custom_all_gather") or not hasattr(symmetric_memory, "get_mem_pool"):
        return f"FSDP2 of torch {torch.__version__} does not gather into symmetric memory (2.11's does)"
    version = torch.cuda.nccl.version()
    if tuple(version[:2]) < _NCCL_SINCE:
        return f"it needs NCCL 2.28, and this is {'.'.join(map(str, version))}"
    return None


def gather_symmetrically(modules: Sequence[FSDPModule], group: dist.ProcessGroup) -> None:
    """Let the modules, wrapped on a mesh of this group, gather into symmetric windows of it."""
    symmetric_memory.set_backend("NCCL")
    gather = SymmetricAllGather()
    for module in modules:
        module.set_custom_all_gather(gather)


class SymmetricAllGather(AllGather):
    """An all-gather whose buffer is a symmetric window: the same piece of the pool on every rank, as all ranks allocate
    the same in the same order."""

    def allocate(self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        with torch.cuda.use_mem_pool(symmetric_memory.get_mem_pool(device)):
            return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> dist.Work | None:
        symmetric_memory.rendezvous(output_tensor, group.group_name)  # of a piece that is a window already, a look-up
        return dist.all_gather_into_tensor(output_tensor, input_tensor, group=group, async_op=async_op)


def _policy_number(policy: str) -> int | None:
    """Return what torch calls a policy, None where its process groups have none."""
    nccl = getattr(dist, "ProcessGroupNCCL", None)
    number: int | None = getattr(nccl, f"NCCL_CTA_POLICY_{policy.upper()}", None)
    return number
