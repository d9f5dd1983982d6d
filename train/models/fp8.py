"""The linear layers of a network's blocks, multiplied in fp8 by torchao: forward and both backward products.

Weights stay what they were; each product scales its two tensors by their largest value first (Micikevicius et al. 2022;
torchao's `tensorwise` recipe). Embeddings, norms, attention and the output projection stay in bf16, as others train.
"""

import logging
import warnings
from collections.abc import Iterable
from importlib.util import find_spec
from typing import cast

from torch import nn

PACKAGE = "torchao"
_MULTIPLE = 16  # of both sides of a weight: what the matrix units take


def has_package() -> bool:
    return find_spec(PACKAGE) is not None


def convert_to_fp8(network: nn.Module, *, emulate: bool) -> list[str]:
    """Change the network in place and return the names of the layers that multiply in fp8 now.

    `emulate` rounds to fp8 and multiplies in fp32, on devices without.
    """
    for name in ("torchao", "torch.utils._pytree"):
        logging.getLogger(name).setLevel(logging.ERROR)  # kernels of its that we do not use, and a name to be renamed
    warnings.filterwarnings("ignore", module=r"torchao\.")
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    chosen: list[str] = []
    blocks = cast(Iterable[nn.Module], getattr(network, "blocks", ()))
    inside = {id(module) for block in blocks for module in block.modules()}

    def choose(module: nn.Module, name: str) -> bool:
        if not isinstance(module, nn.Linear) or id(module) not in inside:
            return False
        if module.in_features % _MULTIPLE or module.out_features % _MULTIPLE:
            return False
        chosen.append(name)
        return True

    convert_to_float8_training(network, module_filter_fn=choose, config=Float8LinearConfig(emulate=emulate))
    return chosen
