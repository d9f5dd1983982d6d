"""torch.compile: when it is used, and how."""

import logging
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import cast

import torch
import torch._dynamo
from torch import nn

from scalescope.train.kernels.devices import triton_takes


def can_compile(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether compiling pays and can be done: on GPUs, wherever the machine allows it.

    Triton has to be there for this device and what it multiplies in (`dtype`), with a C compiler for what it builds.
    """
    if device.type != "cuda" or not triton_takes(device, dtype):
        return False
    return any(shutil.which(name) for name in ("cc", "gcc", "clang"))


def compile_module(module: nn.Module) -> nn.Module:
    """Return the module compiled whole; shapes are fixed, so nothing is recompiled for another batch size."""
    hush_dynamo()
    compiled = torch.compile(module, dynamic=False)
    assert isinstance(compiled, nn.Module)
    return compiled


def compile_apart(modules: Sequence[nn.Module], backend: str = "inductor") -> None:
    """Have each module run as a graph of its own.

    To Dynamo, modules of one class are one function, of which it makes `recompile_limit` graphs (8) and runs the rest
    as written: of ResNet-50's 16 blocks half were. So there is room for all of them, and for as many again.
    """
    hush_dynamo()
    limits = torch._dynamo.config
    limits.recompile_limit = max(limits.recompile_limit, 2 * len(modules))
    for module in modules:
        module.compile(dynamic=False, backend=backend)


def uncompiled() -> AbstractContextManager[object]:
    """The context in which what was compiled runs as it was written, so that nothing is compiled again for it."""
    return cast(AbstractContextManager[object], torch.compiler.set_stance("force_eager"))


def hush_dynamo() -> None:
    """Silence the word that DDP's own annotation is left out of the compiled graph, which changes nothing."""
    for name in ("ctx_manager", "torch"):
        logging.getLogger(f"torch._dynamo.variables.{name}").setLevel(logging.ERROR)
