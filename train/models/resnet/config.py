"""ResNet-50 as far as it takes no torch: its keys, its stages, what they cost, and what its layers do not go with."""

from dataclasses import dataclass
from typing import ClassVar

from scalescope.launch.keys import key
from scalescope.train.models.config import ImageModelConfig
from scalescope.train.models.flops import Flops, nothing_twice
from scalescope.train.settings import choose

_PARAMETERS, _CLASSES = 25_557_032, 1000  # torchvision's; a class more is a row of the last layer and its bias
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # width, blocks, stride of the first block


@dataclass
class ResNetConfig(ImageModelConfig):
    """ResNet-50 v1.5 (stride in the 3×3 convolution), parameter names as torchvision's."""

    own_kind: ClassVar[str] = "resnet"
    network: ClassVar[str] = "scalescope.train.models.resnet.network:ResNet50"
    gathers_in_bf16: ClassVar[bool] = False  # batch norms, whose statistics stay fp32

    norm: str = key(added_as="torch")

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("model.norm", self.norm, ("auto", "fused", "torch"))

    @property
    def mlperf_benchmark(self) -> str | None:
        return "resnet" if (self.image_size, self.classes) == (224, _CLASSES) else None

    @property
    def parameters(self) -> int:
        """What 1000 classes make of it; the FLOPs do not depend on it."""
        return _PARAMETERS + (self.classes - _CLASSES) * 2049

    def flops(self, parameters: int, recompute: bool = False) -> Flops:
        """Return 3 × the forward FLOPs of convolutions and classifier: 3 × 8.18 GFLOP an image of 224 pixels."""
        forward = 2 * resnet_multiply_adds(self.image_size, self.classes)
        return nothing_twice(3.0 * forward, f"3 × {forward / 1e9:.2f} GFLOP an image of {self.image_size} pixels")

    def precision_obstacle(self, precision: str) -> str | None:
        if precision != "fp8":
            return None
        return (f"precision=fp8 is for linear layers, and {self.name} is made of convolutions; use "
                "precision=bf16")  # fmt: skip

    def recompute_obstacle(self) -> str | None:
        return "recompute=true: ResNet's batch norms would count every batch twice; use it with GPT models"


def resnet_multiply_adds(image_size: int, classes: int) -> int:
    """Return the multiply-adds of one image's forward pass, layer by layer."""
    side = _halve(image_size)
    total = side**2 * 7**2 * 3 * 64
    side = _halve(side)  # the max pooling
    inputs = 64
    for width, blocks, stride in STAGES:
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
