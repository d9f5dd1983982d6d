"""A folder of JPEG files in ImageNet's layout, `class/*.jpg`: which files, and which class each is. Torch-free.

A class's number is its folder's place in the alphabet. What is held out from training lies evenly over the classes, or
is a folder of its own with the same names of classes.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from scalescope.records.errors import UserError
from scalescope.train.settings import DataConfig

SUFFIXES = (".jpg", ".jpeg")


@dataclass(frozen=True)
class Images:
    """Files of one folder with their classes' numbers."""

    root: Path
    files: npt.NDArray[np.bytes_]  # relative to the root; an array, so that loading processes share its pages
    labels: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.files)

    def path(self, index: int) -> Path:
        return self.root / os.fsdecode(self.files[index])


@dataclass(frozen=True)
class ImageFolder:
    """What is trained on, what is held out, and the names of the classes by number."""

    training: Images
    held_out: Images
    classes: list[str]


def read_image_folder(config: DataConfig) -> ImageFolder:
    """List the files; no image is opened. Raises UserError where there is none, or a class has no counterpart."""
    root = _existing(config.path, "data.path")
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    images = _list(root, classes)
    if not len(images):
        loose = sum(1 for _ in _image_names(root))
        found = f"{loose} images, but in no folder of a class" if loose else "no image"
        raise UserError(f"data.path={root} holds {found}; data=image_folder reads CLASS/*.jpg (or .jpeg), as "
                        "ImageNet's train folder has it")  # fmt: skip
    if config.validation_path is None:
        training, held_out = _split(images, config.validation_fraction)
        return ImageFolder(training, held_out, classes)
    other = _existing(config.validation_path, "data.validation_path")
    unknown = sorted({entry.name for entry in os.scandir(other) if entry.is_dir()} - set(classes))
    if unknown:
        raise UserError(f"data.validation_path={other} has the class {unknown[0]}, which data.path={root} has not")
    return ImageFolder(images, _list(other, classes), classes)


def _existing(path: str | None, key: str) -> Path:
    folder = Path(str(path)).expanduser()
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "there is no such folder"
        raise UserError(f"{key}={folder}: {what}; data=image_folder reads a folder of CLASS/*.jpg")
    return folder


def _list(root: Path, classes: list[str]) -> Images:
    """Return the images of these classes in a fixed order."""
    files: list[bytes] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        if not (root / name).is_dir():
            continue  # a held-out folder need not have every class
        names = sorted(_image_names(root / name))
        files += [os.fsencode(f"{name}/{file}") for file in names]
        labels += [label] * len(names)
    return Images(root, np.array(files, dtype=np.bytes_), np.array(labels, dtype=np.int64))


def _image_names(folder: Path) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.lower().endswith(SUFFIXES) and entry.is_file():
                yield entry.name


def _split(images: Images, held_out_fraction: float) -> tuple[Images, Images]:
    """Hold out a fraction of the images, evenly over the list and so over the classes."""
    counts = np.arange(len(images) + 1)
    taken = np.diff(np.floor(counts * held_out_fraction)) > 0
    parts = (Images(images.root, images.files[chosen], images.labels[chosen]) for chosen in (~taken, taken))
    training, held_out = parts
    return training, held_out
