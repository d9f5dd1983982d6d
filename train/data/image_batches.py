"""A rank's batches of an image folder by step, on the host: decoded, or packed for the device's decoder.

Sample number g of a job is a pure function of the seed, as windows.py has it for tokens: a permutation of each
epoch's own orders the images, and each g has a cut of its own. So ranks share no image of an epoch, loading processes
need no state, and a resumed job goes on where it stopped.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from scalescope.records.errors import UserError
from scalescope.train.data.crops import Crop, centre_crop, random_crop
from scalescope.train.data.decoders import (
    Cut,
    PackedJpeg,
    Pixels,
    UnreadableImage,
    decode_pillow,
    decode_torchvision,
    pack,
)
from scalescope.train.data.images import Images
from scalescope.train.data.samples import Share

T = TypeVar("T")

_CUTS = 1  # a stream of random numbers beside the permutation's


@dataclass
class HostImages:
    """Decoded samples: (B, S, S, 3) uint8 and their classes (B,)."""

    pixels: Tensor
    labels: Tensor
    skipped: list[str] = field(default_factory=list)  # unreadable files, each with its reason

    def pin_memory(self) -> "HostImages":
        self.pixels, self.labels = self.pixels.pin_memory(), self.labels.pin_memory()
        return self


@dataclass
class PackedImages:
    """Files as they lie on disk, end to end, with the part of each that is shown."""

    jpegs: Tensor  # uint8, all files of the batch
    sizes: list[int]  # bytes of each
    crops: list[Crop]
    labels: Tensor
    skipped: list[str] = field(default_factory=list)

    def pin_memory(self) -> "PackedImages":
        self.labels = self.labels.pin_memory()
        return self  # the decoder reads the files on the host


@dataclass
class Refusal:
    """Why there is no batch, as a loading process hands it over."""

    reason: str


class Order:
    """Which image sample number g is: each epoch goes through all of them, in an order of its own."""

    def __init__(self, images: int, seed: int) -> None:
        self._images = images
        self._seed = seed
        self._epoch = -1
        self._order: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def index(self, sample: int) -> int:
        epoch, place = divmod(sample, self._images)
        if epoch != self._epoch:
            self._order = np.random.default_rng((self._seed, epoch)).permutation(self._images)
            self._epoch = epoch
        return int(self._order[place])

    def cut(self, sample: int) -> Cut:
        """Return what cuts this sample out of its image."""
        generator = np.random.default_rng((self._seed, _CUTS, sample))
        return lambda width, height: random_crop(width, height, generator)


class ImageBatches(Dataset[HostImages | PackedImages | Refusal]):
    """A rank's training batches by step. What cannot be read is stood in for by the next image, or refused."""

    def __init__(self, images: Images, side: int, share: Share, seed: int, decoder: str, skip: bool) -> None:
        self._images = images
        self._side = side
        self._share = share
        self._order = Order(len(images), seed)
        self._decoder = decoder
        self._skip = skip

    def __getitem__(self, step: int) -> HostImages | PackedImages | Refusal:
        wanted = [(self._order.index(number), self._order.cut(number)) for number in self._share.numbers(step)]
        try:
            if self._decoder == "nvjpeg":
                return _join_packed(*read_samples(self._images, wanted, partial(pack, side=self._side), self._skip))
            return _join_pixels(*read_samples(self._images, wanted, self._decode, self._skip))
        except UserError as error:  # a loading process would wrap it in its traceback
            return Refusal(str(error))

    def _decode(self, jpeg: bytes, cut: Cut) -> Pixels:
        decode = decode_torchvision if self._decoder == "torchvision" else decode_pillow
        return decode(jpeg, cut, self._side)


class HeldOutImages:
    """A rank's part of the held-out images, the middle of each; decoded once.

    They lie evenly over the held-out list, and are the same ones for every rank count that divides them.
    """

    def __init__(self, images: Images, side: int, share: Share, samples: int, skip: bool) -> None:
        everyone = np.linspace(0, len(images) - 1, min(samples, len(images))).astype(int).tolist()
        each = len(everyone) // share.ranks
        own = everyone[share.rank * each : (share.rank + 1) * each]
        wanted = [(index, centre_crop) for index in own]
        self._batches = []
        for first in range(0, each, share.samples):
            part = wanted[first : first + share.samples]
            self._batches.append(_join_pixels(*read_samples(images, part, partial(decode_pillow, side=side), skip)))

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: int) -> HostImages:
        return self._batches[index]


def read_samples(
    images: Images, wanted: Sequence[tuple[int, Cut]], decode: Callable[[bytes, Cut], T], skip: bool
) -> tuple[list[T], Tensor, list[str]]:
    """Return a sample for each wanted index and cut, their labels, and what was skipped.

    The image after an unreadable one stands in for it. Raises UserError where none can be read, or `skip` is false.
    """
    samples: list[T] = []
    labels: list[int] = []
    skipped: list[str] = []
    for first, cut in wanted:
        for index in (*range(first, len(images)), *range(first)):
            path = images.path(index)
            try:
                samples.append(decode(path.read_bytes(), cut))
            except (UnreadableImage, OSError) as error:
                skipped.append(f"{path} cannot be read ({error})")
                if not skip:
                    raise UserError(f"{skipped[-1]}; remove it, or set data.corrupt=skip") from error
                continue
            labels.append(int(images.labels[index]))
            break
        else:
            raise UserError(f"no image under {images.root} can be read; the first: {skipped[0]}")
    return samples, torch.tensor(labels), skipped


def _join_pixels(samples: list[Pixels], labels: Tensor, skipped: list[str]) -> HostImages:
    return HostImages(torch.from_numpy(np.stack(samples)), labels, skipped)


def _join_packed(samples: list[PackedJpeg], labels: Tensor, skipped: list[str]) -> PackedImages:
    files = bytearray().join(sample.jpeg for sample in samples)
    sizes = [len(sample.jpeg) for sample in samples]
    crops = [sample.crop for sample in samples]
    return PackedImages(torch.frombuffer(files, dtype=torch.uint8), sizes, crops, labels, skipped)
