"""ResNet's first convolution, 7×7 with stride 2 on 3 channels, as a 4×4 one without stride on 12.

The matrix units want channels by the eight, and there are three: the convolution runs at a twentieth of its speed.
Folding each 2×2 block of pixels into the channels gives twelve, filled up to sixteen with zeros, and the 7×7 filter,
filled up to 8×8, falls apart the same way. The sums are the same ones (MLPerf's ResNet does it so, since 2019); the
parameter keeps its shape (64, 3, 7, 7), and autograd finds its gradient through the refolding.

Shapes: B images, S their side, even.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

_CHANNELS = 16  # 12, filled up


def folded_convolution(images: Tensor, weight: Tensor) -> Tensor:
    """Return conv2d(images, weight, stride=2, padding=3): (B, 3, S, S), (64, 3, 7, 7) -> (B, 64, S/2, S/2)."""
    batch, colours, height, width = images.shape
    blocks = images.view(batch, colours, height // 2, 2, width // 2, 2)
    pixels = blocks.permute(0, 3, 5, 1, 2, 4).reshape(batch, 4 * colours, height // 2, width // 2)
    # two blocks ahead, one behind: the 7×7 filter begins three pixels before its centre, with a zero before that
    pixels = F.pad(pixels, (2, 1, 2, 1, 0, _CHANNELS - 4 * colours)).contiguous(memory_format=torch.channels_last)
    filters = F.pad(weight, (1, 0, 1, 0)).view(len(weight), colours, 4, 2, 4, 2)
    filters = filters.permute(0, 3, 5, 1, 2, 4).reshape(len(weight), 4 * colours, 4, 4)
    filters = F.pad(filters, (0, 0, 0, 0, 0, _CHANNELS - 4 * colours))
    return F.conv2d(pixels, filters.contiguous(memory_format=torch.channels_last))
