"""Which part of an image a sample shows. Torch-free."""

import math
from typing import NamedTuple

import numpy as np

AREA = (0.08, 1.0)  # of the image, as in the standard recipe (Szegedy et al. 2014; torchvision's RandomResizedCrop)
ASPECT = (3 / 4, 4 / 3)
TRIES = 10
CENTRE = 224 / 256  # of the shorter side: what resizing to 256 and cutting out 224 in the middle keeps


class Crop(NamedTuple):
    """A part of an image in its pixels; mirrored left to right where `flip` says so."""

    left: int
    top: int
    width: int
    height: int
    flip: bool = False


def random_crop(width: int, height: int, generator: np.random.Generator) -> Crop:
    """Return a part of random area, aspect ratio and place, mirrored every second time."""
    flip = bool(generator.random() < 0.5)
    low, high = (math.log(ratio) for ratio in ASPECT)
    for _ in range(TRIES):
        area = generator.uniform(*AREA) * width * height
        ratio = math.exp(generator.uniform(low, high))
        wide, tall = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < tall <= height:
            left, top = generator.integers(width - wide + 1), generator.integers(height - tall + 1)
            return Crop(int(left), int(top), wide, tall, flip)
    # an image so long or high that no such part fits: the largest one in its middle
    wide, tall = min(width, round(height * ASPECT[1])), min(height, round(width / ASPECT[0]))
    return Crop((width - wide) // 2, (height - tall) // 2, wide, tall, flip)


def centre_crop(width: int, height: int) -> Crop:
    """Return the part that held-out images are judged by."""
    side = max(1, round(CENTRE * min(width, height)))
    return Crop((width - side) // 2, (height - side) // 2, side, side)
