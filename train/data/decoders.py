"""From the bytes of a JPEG file to the pixels of a sample, on the host: by Pillow, or by torchvision."""

import io
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from scalescope.train.data.crops import Crop

Pixels = npt.NDArray[np.uint8]
Cut = Callable[[int, int], Crop]  # from an image's width and height to the part of it that is shown

END_OF_IMAGE = b"\xff\xd9"


class UnreadableImage(Exception):
    """What is no whole image; the text says why."""


class PackedJpeg(NamedTuple):
    """An image that the device will decode: baseline or progressive JPEG, grey or RGB."""

    jpeg: bytes
    crop: Crop


def decode_pillow(jpeg: bytes, cut: Cut, side: int) -> Pixels:
    """Return (side, side, 3): the cut, resized with antialiasing. Raises UnreadableImage.

    Where the cut is at least twice as large as the sample, libjpeg leaves out the frequencies that resizing would.
    """
    image = _open(jpeg)
    crop = cut(*image.size)
    box = np.array([crop.left, crop.top, crop.left + crop.width, crop.top + crop.height], dtype=float)
    shrink = min(crop.width, crop.height) // side
    if shrink >= 2:
        width, height = image.size
        image.draft(None, (math.ceil(width / shrink), math.ceil(height / shrink)))
        box *= np.tile(np.divide(image.size, (width, height)), 2)
    try:
        small = image.convert("RGB").resize((side, side), Image.Resampling.BILINEAR, box=tuple(box))
    except (OSError, SyntaxError, ValueError) as error:
        raise UnreadableImage(str(error)) from error
    pixels = np.asarray(small)
    return pixels[:, ::-1] if crop.flip else pixels


def decode_torchvision(jpeg: bytes, cut: Cut, side: int) -> Pixels:
    """The same by torchvision's libjpeg and torch's own resizing."""
    import torch
    from torch.nn.functional import interpolate
    from torchvision.io import ImageReadMode, decode_jpeg

    crop = cut(*_open(jpeg).size)
    try:
        image = decode_jpeg(torch.frombuffer(bytearray(jpeg), dtype=torch.uint8), ImageReadMode.RGB)
    except RuntimeError as error:
        raise UnreadableImage(next(iter(str(error).splitlines()), "")) from error
    part = image[:, crop.top : crop.top + crop.height, crop.left : crop.left + crop.width]
    small = interpolate(part[None], (side, side), mode="bilinear", antialias=True)[0]
    pixels: Pixels = small.permute(1, 2, 0).numpy()
    return pixels[:, ::-1] if crop.flip else pixels


def pack(jpeg: bytes, cut: Cut, side: int) -> PackedJpeg:
    """Return the file as the device's decoder takes it: what is no grey or RGB JPEG is made one first."""
    image = _open(jpeg)
    if (
        image.format == "JPEG" and END_OF_IMAGE not in jpeg[-65_536:]
    ):  # the device would fill up what is missing, and say nothing
        raise UnreadableImage("the file is cut off")
    crop = cut(*image.size)
    if image.format == "JPEG" and image.mode in ("RGB", "L"):
        return PackedJpeg(jpeg, crop)
    again = io.BytesIO()
    try:
        image.convert("RGB").save(again, "JPEG", quality=95)
    except (OSError, SyntaxError, ValueError) as error:
        raise UnreadableImage(str(error)) from error
    return PackedJpeg(again.getvalue(), crop)


def _open(jpeg: bytes) -> Any:
    """Read the header alone."""
    try:
        return Image.open(io.BytesIO(jpeg))
    except UnidentifiedImageError as error:
        raise UnreadableImage("it is no image") from error
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UnreadableImage(str(error)) from error
