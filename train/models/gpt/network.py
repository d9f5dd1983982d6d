"""GPT-2 (Radford et al. 2019), with GPT-2's parameter names, so that its weights load.

Shapes on the lines: B samples, T tokens a sample, C width of the residual stream, H heads, D = C/H, V vocabulary.
The linear layers keep torch's (out, in) layout; GPT-2's published checkpoints hold (in, out) for the four of a block,
which `from_gpt2` turns.
"""

import math
from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from scalescope.train.kernels.cross_entropy import can_fuse, linear_cross_entropy
from scalescope.train.kernels.mlp import fuses_gelu, mlp
from scalescope.train.models.gpt.attention import choose_attention, chosen_attention
from scalescope.train.models.gpt.config import GptConfig
from scalescope.train.models.gpt.slices import slice_layers
from scalescope.train.models.network import Network

_GELU_LINEAR = 2 * math.sqrt(2 / math.pi)
_GELU_CUBIC = _GELU_LINEAR * 0.044715
_TURNED = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")


class Attention(nn.Module):
    """Causal self-attention over all heads at once; torch chooses the kernel (flash where the device has it)."""

    #: c_attn's rows lie head by head (query, key, value of each), not all queries first: a slice then has whole heads.
    by_head = False

    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.c_attn = nn.Linear(config.width, 3 * config.width)
        self.c_proj = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape  # (B, T, C)
        every = self.c_attn(x)  # (B, T, 3C); of a slice, H and C are its own below
        if self.by_head:
            parts = every.view(batch, tokens, -1, 3, width // self.heads).unbind(3)  # (B, T, H, D) each
        else:
            parts = [part.view(batch, tokens, self.heads, width // self.heads) for part in every.split(width, dim=2)]
        query, key, value = (part.transpose(1, 2) for part in parts)  # (B, H, T, D)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)  # (B, H, T, D)
        return self.c_proj(mixed.transpose(1, 2).flatten(2))  # (B, T, C)

    @torch.no_grad()
    def order_by_head(self) -> None:
        """Turn c_attn's rows round to lie head by head, which computes the same."""
        for parameter in self.c_attn.parameters():
            by_kind = parameter.view(3, self.heads, -1, *parameter.shape[1:])
            parameter.copy_(by_kind.transpose(0, 1).flatten(0, 2).clone())
        self.by_head = True


class Mlp(nn.Module):
    """Two linear layers with GPT-2's tanh form of GELU between them."""

    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.c_fc = nn.Linear(config.width, 4 * config.width)
        self.c_proj = nn.Linear(4 * config.width, config.width)
        self.gelu = config.gelu

    def forward(self, x: Tensor) -> Tensor:
        if fuses_gelu(self.gelu, x, self.c_fc, self.c_proj):
            return mlp(x, self.c_fc, self.c_proj)
        return self.c_proj(_gelu(self.c_fc(x)))  # (B, T, 4C) between


class Block(nn.Module):
    """Attention, then the MLP, each normed before and added to the residual stream."""

    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.width)
        self.attn = Attention(config)
        self.ln_2 = nn.LayerNorm(config.width)
        self.mlp = Mlp(config)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(Network):
    """The language model. The output projection is the token embedding itself (weight tying)."""

    fuses_loss = True  # on GPUs: without autograd's passes over the logits, which needs them whole

    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        self.loss_by_eights = config.loss_kernel == "eights"
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(config.vocabulary, config.width),
                "wpe": nn.Embedding(config.context, config.width),
                "h": nn.ModuleList(Block(config) for _ in range(config.layers)),
                "ln_f": nn.LayerNorm(config.width),
            }
        )
        self.lm_head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.lm_head.weight = cast(nn.Embedding, self.transformer["wte"]).weight
        self._initialise(config.layers)

    @property
    def blocks(self) -> nn.ModuleList:
        blocks = self.transformer["h"]
        assert isinstance(blocks, nn.ModuleList)
        return blocks

    @classmethod
    def prepare(cls, config: GptConfig, device: torch.device) -> None:
        choose_attention(config.attention, device)

    @classmethod
    def synthetic_sample(cls, config: GptConfig, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return tokens (T,), and what follows each."""
        row = torch.randint(config.vocabulary, (config.context + 1,), device=generator.device, generator=generator)
        return row[:-1], row[1:]

    @classmethod
    def attention_kernel(cls, config: GptConfig, device: torch.device, dtype: torch.dtype) -> str | None:
        return chosen_attention(config, device, dtype)

    def slice_layers(self, mesh: DeviceMesh) -> None:
        for block in self.blocks:
            cast(Block, block).attn.order_by_head()
        self.lm_head.weight = slice_layers(self.transformer["wte"], self.blocks, self.lm_head, mesh)
        self.fuses_loss = False

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> Tensor:
        """Return the logits (B, T, V); with targets (B, T) the mean cross entropy in nats over all positions."""
        return self.predict(self.run_blocks(self.embed(tokens)), targets)

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the residual stream (B, T, C) that tokens (B, T) begin with."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)  # (T,)
        x: Tensor = self.transformer["wte"](tokens) + self.transformer["wpe"](positions)  # (B, T, C)
        # autocast alone would carry the residual stream in fp32, twice the bytes of every add
        return x.to(torch.bfloat16) if _autocast_dtype(x.device) == torch.bfloat16 else x

    def run_blocks(self, x: Tensor) -> Tensor:
        """Return the residual stream (B, T, C) behind this network's blocks."""
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute and self.training else block(x)
        return x

    def predict(self, x: Tensor, targets: Tensor | None = None) -> Tensor:
        """Return the logits (B, T, V) of the residual stream behind the last block; with targets the mean loss."""
        x = self.transformer["ln_f"](x)
        dtype = _autocast_dtype(x.device)
        if targets is not None and self.fuses_loss and can_fuse(x.device, dtype or x.dtype):
            return self._fused_loss(x, targets)
        logits = self.lm_head(x)  # (B, T, V)
        if targets is None:
            return logits
        # autocast reads and writes bf16 logits with fp32 sums, as nanoGPT's figures are measured; without it (bf16
        # parameters, FSDP2) the loss itself would be rounded to bf16, so there it is computed in fp32
        if dtype is None:
            logits = logits.float()
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))

    def _fused_loss(self, x: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss without autograd's passes over the logits; validation, too, then keeps them but once."""
        weight = self.lm_head.weight
        rows = x.reshape(-1, x.shape[-1]).to(torch.bfloat16)  # (B·T, C)
        return linear_cross_entropy(rows, weight.to(torch.bfloat16), targets.reshape(-1), self.loss_by_eights)

    def _initialise(self, layers: int) -> None:
        """GPT-2's: normal(0.02), the layers that write to the residual stream scaled down by √(2·layers)."""
        for name, parameter in self.named_parameters():
            if name.endswith("c_proj.weight"):
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers))
            elif parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)


def _gelu(x: Tensor) -> Tensor:
    """GELU's tanh form. Compiled, ½(1 + tanh u) is written as the same sigmoid(2u), which costs one exponential."""
    if not torch.compiler.is_compiling():
        return F.gelu(x, approximate="tanh")
    wide = x.float()
    twice = wide * (_GELU_LINEAR + _GELU_CUBIC * wide * wide)
    return (wide * torch.sigmoid(twice)).to(x.dtype)


def _autocast_dtype(device: torch.device) -> torch.dtype | None:
    return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None


def from_gpt2(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a GPT-2 checkpoint's weights in this model's layout: the four linear layers of a block are turned."""
    kept = {name: tensor for name, tensor in state.items() if not name.endswith((".attn.bias", ".attn.masked_bias"))}
    return {name: tensor.t().contiguous() if name.endswith(_TURNED) else tensor for name, tensor in kept.items()}
