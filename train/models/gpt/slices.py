"""A GPT in slices over ranks that compute each layer together (Megatron's tensor parallelism, Shoeybi et al. 2019).

Queries, keys and values are sliced by heads and the MLP by its inner units, so that a block exchanges its two outputs
alone: an all-reduce forward behind attention and one behind the MLP, and backward one before each. The embedding, which
is the output projection, too, is sliced by the vocabulary's rows; no rank ever holds all logits. Norms, positions and
the biases behind an all-reduce are whole on every rank, and get the same gradient there.
"""

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def slice_layers(embedding: nn.Module, blocks: nn.ModuleList, projection: nn.Module, mesh: DeviceMesh) -> nn.Parameter:
    """Slice a GPT's layers; blocks' c_attn must lie by head. Return the embedding's weight, which is sliced anew."""
    for block in blocks:
        parallelize_module(
            block,
            mesh,
            {
                "attn.c_attn": ColwiseParallel(),
                "attn.c_proj": RowwiseParallel(),
                "mlp.c_fc": ColwiseParallel(),
                "mlp.c_proj": RowwiseParallel(),
            },
        )
    parallelize_module(embedding, mesh, RowwiseParallel(input_layouts=Replicate()))
    parallelize_module(projection, mesh, ColwiseParallel(output_layouts=Shard(-1), use_local_output=False))
    weight = embedding.weight
    assert isinstance(weight, nn.Parameter)
    return weight
