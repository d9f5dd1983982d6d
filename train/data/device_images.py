"""What the device does to images: decoding packed files, cutting and resizing them all at once, normalising.

Resizing is two matrix products an image, which matrix units do for nothing: rows of weights times pixels. The weights
are those of a triangle as wide as the sample's pixel is on the image (bilinear with antialiasing, as Pillow and
torchvision resize); mirroring is the same weights from right to left.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from scalescope.train.data.crops import Crop

MEAN = (0.485, 0.456, 0.406)  # of ImageNet's training images, red, green, blue, over 255
DEVIATION = (0.229, 0.224, 0.225)

_LARGEST = 3  # a cut with sides above so many samples' is averaged down first, so that no image swells the whole batch
_GRAIN = 64  # pixels: the staging area grows by whole ones, so that it seldom does


def normalise(pixels: Tensor) -> Tensor:
    """Return (B, 3, S, S) float32 in channels_last of pixels (B, S, S, 3), any type, 0 to 255."""
    scale = torch.tensor([1 / (255 * deviation) for deviation in DEVIATION], device=pixels.device)
    shift = torch.tensor([-mean / deviation for mean, deviation in zip(MEAN, DEVIATION, strict=True)],
                         device=pixels.device)  # fmt: skip
    return torch.addcmul(shift, pixels.float(), scale).permute(0, 3, 1, 2)


class Resizer:
    """Cuts and resizes images of any sizes into one batch, reusing its staging area."""

    def __init__(self, side: int, device: torch.device) -> None:
        self._side = side
        self._device = device
        # halves hold 0 to 255 exactly, and CPUs multiply them slowly
        self._dtype = torch.float16 if device.type == "cuda" else torch.float32
        self._stage = torch.zeros(0, 0, 3, 0, dtype=self._dtype, device=device)  # (B, H, 3, W)

    def __call__(self, images: list[Tensor], crops: list[Crop]) -> Tensor:
        """Return (B, S, S, 3) of images (3, H, W) uint8 on the device, 0 to 255."""
        parts = [self._part(image, crop) for image, crop in zip(images, crops, strict=True)]
        heights, widths = [part.shape[1] for part in parts], [part.shape[2] for part in parts]
        stage = self._room(len(parts), max(heights), max(widths))
        for place, part in zip(stage, parts, strict=True):  # beyond a part lies what its weights leave out
            place[: part.shape[1], :, : part.shape[2]].copy_(part.transpose(0, 1))
        down = self._weights(heights, stage.shape[1], [False] * len(parts))  # (B, S, H)
        across = self._weights(widths, stage.shape[3], [crop.flip for crop in crops])  # (B, S, W)
        rows = torch.bmm(down, stage.flatten(2))  # (B, S, 3·W)
        pixels = torch.bmm(rows.view(len(parts), -1, stage.shape[3]), across.transpose(1, 2))  # (B, S·3, S)
        return pixels.view(len(parts), self._side, 3, self._side).transpose(2, 3).contiguous()

    def _part(self, image: Tensor, crop: Crop) -> Tensor:
        part = image[:, crop.top : crop.top + crop.height, crop.left : crop.left + crop.width]
        factors = tuple(max(1, size // (2 * self._side)) if size > _LARGEST * self._side else 1
                        for size in part.shape[1:])  # fmt: skip
        return part if factors == (1, 1) else F.avg_pool2d(part.to(self._dtype), factors)

    def _room(self, images: int, height: int, width: int) -> Tensor:
        """Return (B, H, 3, W), large enough and finite everywhere: weights of zero keep no infinity away."""
        have = self._stage.shape
        if images > have[0] or height > have[1] or width > have[3]:
            need = (max(images, have[0]), _rounded_up(max(height, have[1])), 3, _rounded_up(max(width, have[3])))
            self._stage = torch.zeros(need, dtype=self._dtype, device=self._device)
        return self._stage[:images]

    def _weights(self, sizes: list[int], extent: int, flips: list[bool]) -> Tensor:
        """Return (B, S, extent): how much each pixel of a side counts for each of the sample's."""
        # one transfer that nothing waits for
        lengths = torch.tensor([sizes, flips], dtype=torch.float32)
        lengths = lengths.pin_memory() if self._device.type == "cuda" else lengths
        length, flip = lengths.to(self._device, non_blocking=True)[:, :, None, None]  # (B, 1, 1) each
        step = length / self._side
        pixels = torch.arange(self._side, device=self._device)[None, :, None]  # (1, S, 1)
        centre = (torch.where(flip > 0, self._side - 1 - pixels, pixels) + 0.5) * step
        pixel = torch.arange(extent, device=self._device) + 0.5
        near = (1 - (pixel - centre).abs() / step.clamp(min=1)).clamp(min=0) * (pixel < length)
        return (near / near.sum(dim=2, keepdim=True)).to(self._dtype)


def _rounded_up(size: int) -> int:
    return -(-size // _GRAIN) * _GRAIN
