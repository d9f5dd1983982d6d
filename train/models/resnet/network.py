"""ResNet-50 v1.5 (He et al. 2015, with the stride in the 3×3 convolution), parameter names as torchvision's.

Shapes on the lines: B images, C channels, S the side of the feature map.
"""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from scalescope.train.kernels.max_pool import max_pool
from scalescope.train.kernels.norm import fuses_norms, norm_relu, norm_relu_twice
from scalescope.train.models.network import Network
from scalescope.train.models.resnet.config import STAGES, ResNetConfig
from scalescope.train.models.resnet.stem import folded_convolution

EXPANSION = 4


class Bottleneck(nn.Module):
    """1×1 to the narrow width, 3×3 there, 1×1 back out, added to the shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * EXPANSION
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)  # (B, 4·width, S/stride, S/stride)
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)  # (B, width, S, S)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)  # (B, width, S/stride, S/stride)
        return F.relu(self.bn3(self.conv3(y)) + shortcut, inplace=True)


class FusedBottleneck(Bottleneck):
    """The same, with each norm, its ReLU and the sum in one; takes and returns one tensor twice, for its two readers.

    Its norms are not called: parameters and statistics are theirs, so that a checkpoint of either form is the other's.
    """

    has_next = True  # else one reader is left, the classifier
    norms = "fused"  # or auto

    def forward(self, x: Tensor, again: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        # not training, with the running statistics, no reduction over the batch is needed
        if not self.training or not fuses_norms(self.norms, x):
            y = super().forward(x)
            return y, y
        y = norm_relu(self.bn1, self.conv1(x))  # (B, width, S, S)
        y = self.conv3(norm_relu(self.bn2, self.conv2(y)))  # (B, 4·width, S/stride, S/stride)
        shortcut = again
        shortcut_norm: nn.BatchNorm2d | None = None
        if self.downsample is not None:
            shortcut, shortcut_norm = self.downsample[0](again), cast(nn.BatchNorm2d, self.downsample[1])
        if self.has_next:
            return norm_relu_twice(self.bn3, y, shortcut, shortcut_norm)
        y = norm_relu(self.bn3, y, shortcut, shortcut_norm)
        return y, y


class ResNet50(Network):
    """The classifier; channels_last, since tensor cores and oneDNN read that layout without a transpose."""

    def __init__(self, config: ResNetConfig) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        inputs = 64
        self.norms = config.norm
        kind = Bottleneck if self.norms == "torch" else FusedBottleneck
        for number, (width, blocks, stride) in enumerate(STAGES, 1):
            stage = nn.Sequential()
            for index in range(blocks):
                stage.append(kind(inputs, width, stride if index == 0 else 1))
                inputs = width * EXPANSION
            setattr(self, f"layer{number}", stage)
        for block in self.blocks:
            if isinstance(block, FusedBottleneck):
                block.norms, block.has_next = self.norms, block is not self.blocks[-1]
        self.fc = nn.Linear(inputs, config.classes)
        self._initialise()
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload] # torch's stub lacks it

    @property
    def blocks(self) -> list[nn.Module]:
        return [block for number in range(1, len(STAGES) + 1) for block in getattr(self, f"layer{number}")]

    @classmethod
    def synthetic_sample(cls, config: ResNetConfig, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return an image (3, S, S) of noise, and a class for it."""
        device, side = generator.device, config.image_size
        image = torch.randn(3, side, side, device=device, generator=generator)
        return image, torch.randint(config.classes, (), device=device, generator=generator)

    def forward(self, images: Tensor, labels: Tensor | None = None) -> Tensor:
        """Return the logits (B, classes) of images (B, 3, S, S); with labels (B,) the mean cross entropy in nats."""
        x = self._stem(images)
        if self.training and fuses_norms(self.norms, x):
            x = max_pool(norm_relu(self.bn1, x))  # (B, 64, S/4, S/4)
        else:
            x = max_pool(F.relu(self.bn1(x), inplace=True))
        if self.norms == "torch":
            for block in self.blocks:
                x = block(x)  # … (B, 2048, S/32, S/32)
        else:
            again = x
            for block in self.blocks:
                x, again = block(x, again)
        logits = self.fc(x.mean(dim=(2, 3)))
        if labels is None:
            return logits
        return F.cross_entropy(logits.to(torch.promote_types(logits.dtype, torch.float32)), labels)

    def _stem(self, images: Tensor) -> Tensor:
        """Return the first convolution's output (B, 64, S/2, S/2)."""
        if images.is_cuda and images.shape[2] % 2 == 0 and images.shape[3] % 2 == 0:
            return folded_convolution(images, self.conv1.weight)
        return self.conv1(images)

    def _initialise(self) -> None:
        """torchvision's; besides, each block starts as its shortcut (Goyal et al. 2017), which steadies large rates."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, Bottleneck):
                nn.init.zeros_(module.bn3.weight)
