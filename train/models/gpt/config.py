"""GPT as far as it takes no torch: its keys, what it costs, and what recomputation saves."""

from dataclasses import dataclass
from typing import ClassVar

from scalescope.launch.bounds import COUNT, check_numbers
from scalescope.launch.keys import key
from scalescope.records.errors import UserError
from scalescope.train.models.config import TextModelConfig
from scalescope.train.models.flops import Flops, nothing_twice
from scalescope.train.settings import choose

#: What a block keeps for its backward pass, in numbers a token and unit of width: the inputs of two norms, of four
#: layers (the last one's four times as wide), query, key and value, and GELU's input (four times). After Korthikanti et
#: al. 2022, without dropout and with attention that keeps no scores.
_BLOCK_KEEPS = 16


@dataclass
class GptConfig(TextModelConfig):
    """A GPT-2-style decoder (Radford et al. 2019), parameter names as GPT-2's."""

    own_kind: ClassVar[str] = "gpt"
    network: ClassVar[str] = "scalescope.train.models.gpt.network:Gpt"
    stage: ClassVar[str] = "scalescope.train.models.gpt.stages:GptStage"

    layers: int = key()
    heads: int = key()
    width: int = key()
    attention: str = key()
    loss_kernel: str = key(added_as="singles")
    gelu: str = key(added_as="torch", auto_goes_on=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("model.attention", self.attention, ("auto", "flash", "cudnn", "efficient", "math"))
        choose("model.gelu", self.gelu, ("auto", "fused", "torch"))
        choose("model.loss_kernel", self.loss_kernel, ("singles", "eights"))
        check_numbers(self, "model.", layers=COUNT, heads=COUNT, width=COUNT)
        if self.width % self.heads:
            raise UserError(f"model.width={self.width} is not a multiple of model.heads={self.heads}")

    @property
    def parameters(self) -> int:
        """Two embeddings (the output projection is tied to one), 12·C² + 13·C a block, and the last norm."""
        block = 12 * self.width**2 + 13 * self.width
        return (self.vocabulary + self.context + 2) * self.width + self.layers * block

    def flops(self, parameters: int, recompute: bool = False) -> Flops:
        """Return 6(N − N_position) + 12·L·H·Q·T FLOPs a token, times T (PaLM, Chowdhery et al. 2022, appendix B).

        N counts the tied embedding once: as the output projection it multiplies, as a look-up it costs nothing.
        Causal attention is not discounted: the half of the scores that the mask throws away counts too.

        Activation checkpointing (`recompute`) runs a block's forward pass once more, up to what its backward pass
        reads: all but the MLP's second layer, so 2·(3 + 1 + 4)·C² + 4·H·Q·T more a token and block, with C = H·Q its
        width. What attention's own backward kernel computes again inside is not counted.
        """
        position = self.context * self.width
        attention = 12 * self.layers * self.width * self.context  # H·Q = width
        per_token = 6 * (parameters - position) + attention
        formula = "6(N - N_position) + 12·L·H·Q·T a token, causal not discounted"
        if not recompute:
            return nothing_twice(float(per_token * self.context), formula)
        again = self.layers * (16 * self.width**2 + 4 * self.width * self.context)
        hardware = float((per_token + again) * self.context)
        return Flops(float(per_token * self.context), formula, hardware,
                     "the model's + L·(16·C² + 4·H·Q·T) a token for blocks computed again")  # fmt: skip

    def slice_obstacle(self, degree: int) -> str | None:
        """Ranks share heads, the MLP's inner units and the vocabulary's rows, each as many."""
        shared = {"model.heads": self.heads, "model.vocabulary": self.vocabulary}
        uneven = next((f"{name}={value}" for name, value in shared.items() if value % degree), None)
        return f"{degree} ranks cannot share {uneven} evenly; choose a divisor" if uneven else None

    def stage_obstacle(self, stages: int) -> str | None:
        """A stage has a block at least."""
        return f"model.layers={self.layers} is too few for {stages} stages" if self.layers < stages else None

    def recompute_saves(self, samples: int) -> float:
        return float(self.layers * samples * self.context * self.width * (_BLOCK_KEEPS - 1))
