"""Images are read once an epoch, by one rank each, cut and resized by the standard recipe; bad ones are named."""

import io
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from scalescope.records.errors import UserError
from scalescope.train.checks import check
from scalescope.train.data.crops import Crop, centre_crop, random_crop
from scalescope.train.data.decoder_choice import choose_decoder, image_workers
from scalescope.train.data.decoders import UnreadableImage, decode_pillow, pack
from scalescope.train.data.device_images import Resizer, normalise
from scalescope.train.data.image_batches import HeldOutImages, HostImages, ImageBatches, PackedImages, Refusal
from scalescope.train.data.image_loader import DeviceBatches
from scalescope.train.data.images import read_image_folder
from scalescope.train.data.samples import Share
from scalescope.train.settings import DataConfig
from tests.train_runs import compose, train_in_world

CPU = torch.device("cpu")
SIDE = 16


def picture(width: int, height: int, seed: int = 0) -> Image.Image:
    """Something smooth with colours, so that resizing it means something."""
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def jpeg(image: Image.Image) -> bytes:
    packed = io.BytesIO()
    image.save(packed, "JPEG", quality=95)
    return packed.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes of twenty images of different sizes, each with a grey of its own, so that it is known again."""
    root = tmp_path_factory.mktemp("images")
    for number in range(60):
        path = root / "abc"[number % 3] / f"{number:02}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(jpeg(Image.new("RGB", (40 + number, 100 - number), (4 * number,) * 3)))
    return root


def data(path: Path, **changes: Any) -> DataConfig:
    values: dict[str, Any] = {"kind": "image_folder", "path": str(path), "validation_path": None, "pattern": "*",
                                 "exclude": [], "validation_fraction": 0.1, "validation_samples": 4, "workers": 0,
                                 "decoder": "pillow", "corrupt": "skip"}  # fmt: skip
    return DataConfig(**{**values, **changes})


def batches(path: Path, share: Share, skip: bool = True, decoder: str = "pillow") -> ImageBatches:
    return ImageBatches(read_image_folder(data(path)).training, SIDE, share, 7, decoder, skip)


def read(path: Path, ranks: int, steps: range, samples: int) -> torch.Tensor:
    """Return (ranks, steps, samples, S, S, 3)."""
    found = []
    for rank in range(ranks):
        own = batches(path, Share(rank, ranks, samples))
        parts = [own[step] for step in steps]
        found.append(torch.stack([part.pixels for part in parts if isinstance(part, HostImages)]))
    return torch.stack(found)


def greys(pixels: torch.Tensor) -> list[int]:
    """Which images these are, by their grey."""
    return [round(float(sample.float().mean()) / 4) for sample in pixels.reshape(-1, SIDE, SIDE, 3)]


def test_an_epoch_shows_every_image_once_to_one_rank_each(folder: Path) -> None:
    images = read_image_folder(data(folder))
    assert (len(images.training), len(images.held_out)) == (54, 6)
    seen = Counter(greys(read(folder, ranks=3, steps=range(9), samples=2)))
    assert len(seen) == 54 and set(seen.values()) == {1}
    other = greys(read(folder, ranks=3, steps=range(9, 18), samples=2))
    assert Counter(other) == seen and other != greys(read(folder, ranks=3, steps=range(9), samples=2))


def test_a_global_batch_of_images_is_the_same_however_many_ranks_share_it(folder: Path) -> None:
    alone = read(folder, ranks=1, steps=range(3, 4), samples=6)
    assert torch.equal(alone.flatten(0, 2), read(folder, ranks=3, steps=range(3, 4), samples=2).flatten(0, 2))


def test_classes_are_numbered_by_name_and_labels_belong_to_their_images(folder: Path) -> None:
    assert read_image_folder(data(folder)).classes == ["a", "b", "c"]
    batch = batches(folder, Share(0, 1, 12))[0]
    assert isinstance(batch, HostImages)
    assert batch.labels.tolist() == [grey % 3 for grey in greys(batch.pixels)]


def test_what_is_held_out_is_never_trained_on_and_the_same_for_all_rank_counts(folder: Path) -> None:
    held_out = read_image_folder(data(folder)).held_out

    def shown(ranks: int) -> list[int]:
        parts = [HeldOutImages(held_out, SIDE, Share(rank, ranks, 2), 6, skip=True) for rank in range(ranks)]
        return [grey for part in parts for index in range(len(part)) for grey in greys(part[index].pixels)]

    assert shown(1) == shown(3)
    assert set(shown(1)).isdisjoint(greys(read(folder, ranks=1, steps=range(9), samples=6)))
    own = read_image_folder(data(folder, validation_path=str(folder)))
    assert (len(own.training), len(own.held_out)) == (60, 60)


def test_cuts_are_those_of_the_standard_recipe() -> None:
    generator = np.random.default_rng(0)
    cuts = [random_crop(500, 375, generator) for _ in range(3000)]
    assert all(c.left >= 0 and c.left + c.width <= 500 and c.top >= 0 and c.top + c.height <= 375 for c in cuts)
    areas = np.array([c.width * c.height / (500 * 375) for c in cuts])
    ratios = np.array([c.width / c.height for c in cuts])
    assert areas.min() > 0.07 and areas.mean() == pytest.approx(0.44, abs=0.02)  # 0.54, but the largest seldom fit
    assert ratios.min() > 0.74 and ratios.max() < 1.35
    assert np.mean([c.flip for c in cuts]) == pytest.approx(0.5, abs=0.05)
    assert random_crop(1000, 10, generator)[:4] == (493, 0, 13, 10)  # nothing fits: the middle
    assert centre_crop(500, 375) == Crop(86, 23, 328, 328)


CROPS = [Crop(0, 0, 90, 70), Crop(10, 20, 31, 23, flip=True), Crop(3, 5, 9, 11), Crop(40, 2, 50, 68, flip=True)]


def test_all_images_resized_at_once_are_what_pillow_makes_of_each() -> None:
    side = 32  # no cut is so large that it would be averaged down first
    images = [picture(90, 70, seed) for seed in range(len(CROPS))]
    tensors = [torch.from_numpy(np.array(image)).permute(2, 0, 1) for image in images]
    ours = Resizer(side, CPU)(tensors, CROPS)
    for image, crop, own in zip(images, CROPS, ours, strict=True):
        box = (crop.left, crop.top, crop.left + crop.width, crop.top + crop.height)
        cut = image.crop(box)  # the weights see the cut alone
        theirs = np.asarray(cut.resize((side, side), Image.Resampling.BILINEAR))
        theirs = theirs[:, ::-1] if crop.flip else theirs
        assert np.abs(own.numpy() - theirs).max() <= 1.0  # Pillow rounds


def test_a_huge_image_stays_itself_and_leaves_the_others_alone() -> None:
    small, huge = picture(40, 30), picture(900, 700)
    crops = [Crop(0, 0, 40, 30), Crop(0, 0, 900, 700)]
    tensors = [torch.from_numpy(np.array(image)).permute(2, 0, 1) for image in (small, huge)]
    resizer = Resizer(SIDE, CPU)
    both = resizer(tensors, crops)
    assert torch.allclose(both[0], Resizer(SIDE, CPU)(tensors[:1], crops[:1])[0], atol=1e-3)
    theirs = torch.from_numpy(np.array(huge.resize((SIDE, SIDE), Image.Resampling.BILINEAR))).float()
    assert float((both[1] - theirs).abs().mean()) < 4.0
    assert torch.allclose(resizer(tensors[::-1], crops[::-1])[1], both[0])  # the staging area is used again


def test_pixels_come_normalised_and_in_the_layout_that_convolutions_read() -> None:
    pixels = torch.full((2, SIDE, SIDE, 3), 255, dtype=torch.uint8)
    images = normalise(pixels)
    assert images.shape == (2, 3, SIDE, SIDE) and images.dtype == torch.float32
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert images[0, :, 0, 0].tolist() == pytest.approx([(1 - 0.485) / 0.229, (1 - 0.456) / 0.224, (1 - 0.406) / 0.225])


def test_shrinking_while_decoding_changes_little() -> None:
    large = picture(400, 300)
    whole = np.asarray(large.resize((SIDE, SIDE), Image.Resampling.BILINEAR)).astype(int)
    ours = decode_pillow(jpeg(large), lambda width, height: Crop(0, 0, width, height), SIDE)
    assert np.abs(ours - whole).mean() < 4.0


def spoiled(folder: Path, to: Path) -> Path:
    """The folder with one file of garbage, one cut off and one that is a PNG under another name."""
    for path in folder.glob("*/*.jpg"):
        (to / path.parent.name).mkdir(parents=True, exist_ok=True)
        (to / path.parent.name / path.name).write_bytes(path.read_bytes())
    (to / "a" / "00.jpg").write_bytes(b"no image")
    (to / "b" / "04.jpg").write_bytes((to / "b" / "04.jpg").read_bytes()[:400])
    picture(50, 50).save(to / "c" / "08.jpg", "PNG")
    return to


@pytest.mark.parametrize("decoder", ["pillow", "nvjpeg"])  # the latter packs here, and decodes on a GPU
def test_an_image_that_cannot_be_read_is_named_and_stood_in_for_or_refused(
    folder: Path, tmp_path: Path, decoder: str
) -> None:
    root = spoiled(folder, tmp_path)
    batch = batches(root, Share(0, 1, 54), decoder=decoder)[0]
    assert isinstance(batch, HostImages | PackedImages)
    assert len(batch.labels) == 54
    assert sorted(line.split(" cannot be read")[0] for line in batch.skipped) == [
        f"{root}/a/00.jpg",
        f"{root}/b/04.jpg",
    ]
    refused = batches(root, Share(0, 1, 54), skip=False, decoder=decoder)[0]
    assert isinstance(refused, Refusal) and "remove it, or set data.corrupt=skip" in refused.reason


def test_files_for_the_devices_decoder_are_left_as_they_are_or_made_jpegs() -> None:
    plain = jpeg(picture(40, 30))
    assert pack(plain, centre_crop, SIDE) == (plain, centre_crop(40, 30))
    printed = jpeg(picture(40, 30).convert("CMYK"))
    again = Image.open(io.BytesIO(pack(printed, centre_crop, SIDE).jpeg))
    assert (again.format, again.mode, again.size) == ("JPEG", "RGB", (40, 30))
    with pytest.raises(UnreadableImage, match="cut off"):
        pack(plain[:-20], centre_crop, SIDE)


def on(path: Path, *overrides: str) -> None:
    check(compose("model=resnet50_64px", "data=image_folder", f"data.path={path}", "launch.device=cpu", *overrides), 2)


def test_what_cannot_work_with_images_is_said_before_anything_starts(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "loose").mkdir()
    (tmp_path / "loose" / "0.jpg").write_bytes(jpeg(picture(20, 20)))
    for path, overrides, message in (
        (tmp_path / "no", (), "there is no such folder"),
        (tmp_path / "empty", (), "holds no image"),
        (tmp_path / "loose", (), "1 images, but in no folder of a class"),
        (folder / "a" / "00.jpg", (), "is a file"),
        (folder, ("model.classes=2",), "has 3 classes, and resnet50_64px knows 2; set model.classes=3"),
        (folder, ("model.batch_size=100",), "a step reads 200"),
        (folder, ("data.validation_fraction=0.02",), "ranks need at least one each"),
        (folder, ("data.decoder=nvjpeg",), "data.decoder=pillow"),
        (folder, (f"data.validation_path={folder.parent}",), "which data.path"),
    ):
        with pytest.raises(UserError, match=message):
            on(path, *overrides)
    on(folder, "data.validation_fraction=0.1")


def test_loading_gets_the_cores_that_the_step_loop_leaves() -> None:
    assert [image_workers(None, "pillow", threads) for threads in (16, 2, 1, None)] == [15, 1, 1, 1]
    assert image_workers(None, "nvjpeg", 16) == 4
    assert image_workers(0, "pillow", 16) == 0
    assert choose_decoder("auto", "cpu") == "pillow"


@pytest.mark.job
def test_a_resnet_learns_from_a_folder_and_says_what_it_skipped(folder: Path, tmp_path: Path) -> None:
    root = spoiled(folder, tmp_path / "jpegs")
    run, done = train_in_world(
        tmp_path, "images", 2, "model=resnet50_64px", "model.image_size=32", "model.batch_size=4", "model.classes=3",
        "data=image_folder", f"data.path={root}", "data.validation_fraction=0.1", "data.validation_samples=4",
        "data.workers=1", "steps=9", "warmup_steps=1", "profiler.warmup=0", "profiler.active=1",
    )  # fmt: skip
    assert run.read_info().status == "done", done.stderr
    assert len(run.read_steps()) == 9 and len(run.find_traces()) == 2
    assert [row.step for row in run.read_steps() if row.validation_loss is not None] == [0, 8]
    assert f"{root}/a/00.jpg cannot be read (it is no image); the next one stands in for it" in done.stderr


@pytest.mark.skipif(not torch.cuda.is_available(), reason="decodes on an NVIDIA GPU")
def test_the_devices_decoder_gives_what_pillow_gives(folder: Path) -> None:
    pytest.importorskip("torchvision")
    share, device = Share(0, 1, 12), torch.device("cuda")
    host, packed = batches(folder, share)[0], batches(folder, share, decoder="nvjpeg")[0]
    assert isinstance(host, HostImages) and isinstance(packed, PackedImages)
    make = DeviceBatches(SIDE, device)
    (ours, labels), (theirs, expected) = make(packed), make(host)
    assert torch.equal(labels, expected)
    assert float((ours - theirs).abs().max()) < 0.1  # of about ±2
