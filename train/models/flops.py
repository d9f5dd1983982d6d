"""How much arithmetic a sample costs by the model's own definition: pure counting, torch-free.

A multiply-add is two FLOPs; a backward pass costs twice its forward pass. What is computed again counts for the
hardware's utilisation alone, not for the model's.
"""

from typing import NamedTuple

from scalescope.train.config import GptConfig, ResNetConfig

RESNET_STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # width, blocks, stride of the first block


class Flops(NamedTuple):
    """FLOPs of one training sample, forward and backward, with the formula that gave them."""

    per_sample: float
    formula: str
    hardware_per_sample: float  # with activations that are computed again
    hardware_formula: str


def gpt_flops(config: GptConfig, parameters: int, recompute: bool = False) -> Flops:
    """Return 6(N − N_position) + 12·L·H·Q·T FLOPs a token, times T (PaLM, Chowdhery et al. 2022, appendix B).

    N counts the tied embedding once: as the output projection it multiplies, as a look-up it costs nothing.
    Causal attention is not discounted: the half of the scores that the mask throws away counts too.

    Activation checkpointing (`recompute`) runs a block's forward pass once more, up to what its backward pass reads:
    all but the MLP's second layer, so 2·(3 + 1 + 4)·C² + 4·H·Q·T more a token and block, with C = H·Q its width. What
    attention's own backward kernel computes again inside is not counted.
    """
    position = config.context * config.width
    attention = 12 * config.layers * config.width * config.context  # H·Q = width
    per_token = 6 * (parameters - position) + attention
    formula = "6(N - N_position) + 12·L·H·Q·T a token, causal not discounted"
    if not recompute:
        return _nothing_twice(float(per_token * config.context), formula)
    again = config.layers * (16 * config.width**2 + 4 * config.width * config.context)
    hardware = float((per_token + again) * config.context)
    return Flops(float(per_token * config.context), formula, hardware,
                 "the model's + L·(16·C² + 4·H·Q·T) a token for blocks computed again")  # fmt: skip


def resnet_flops(config: ResNetConfig) -> Flops:
    """Return 3 × the forward FLOPs of the convolutions and the classifier: 3 × 8.18 GFLOP an image of 224 pixels."""
    forward = 2 * resnet_multiply_adds(config.image_size, config.classes)
    return _nothing_twice(3.0 * forward, f"3 × {forward / 1e9:.2f} GFLOP an image of {config.image_size} pixels")


def _nothing_twice(per_sample: float, formula: str) -> Flops:
    return Flops(per_sample, formula, per_sample, "the model's: nothing is computed again")


def resnet_multiply_adds(image_size: int, classes: int) -> int:
    """Return the multiply-adds of one image's forward pass, layer by layer."""
    side = _halve(image_size)
    total = side**2 * 7**2 * 3 * 64
    side = _halve(side)  # the max pooling
    inputs = 64
    for width, blocks, stride in RESNET_STAGES:
        for index in range(blocks):
            outputs = 4 * width
            total += side**2 * inputs * width  # 1×1
            if index == 0:
                side = _halve(side) if stride == 2 else side
                total += side**2 * inputs * outputs  # the shortcut's 1×1
            total += side**2 * 3**2 * width * width  # 3×3
            total += side**2 * width * outputs  # 1×1
            inputs = outputs
    return total + inputs * classes


def _halve(side: int) -> int:
    """The side after a layer of stride 2 whose padding keeps the border: rounded up."""
    return (side + 1) // 2
