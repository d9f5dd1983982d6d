"""Which decoder a job's images get, and how many processes feed it. Torch-free until it is asked."""

from importlib.util import find_spec

from scalescope.records.errors import UserError

DEVICE_READERS = 4  # processes that only read files for the device's decoder


def has_torchvision() -> bool:
    return find_spec("torchvision") is not None


def choose_decoder(asked: str, device: str) -> str:
    """Return what `auto` comes to: NVIDIA's own decoder through torchvision where both are there, else Pillow.

    `device` is cuda or cpu. Raises UserError for one that is not there.
    """
    if asked == "pillow" or (asked == "auto" and not (device == "cuda" and has_torchvision() and _on_nvidia())):
        return "pillow"
    if not has_torchvision():
        raise UserError(f"data.decoder={asked} needs torchvision, which is not installed here; install the one that "
                        "belongs to your torch, or use data.decoder=pillow")  # fmt: skip
    if asked == "torchvision":
        return asked
    if not (device == "cuda" and _on_nvidia()):
        raise UserError("data.decoder=nvjpeg decodes on an NVIDIA GPU, which is not there; use data.decoder=pillow")
    return "nvjpeg"


def image_workers(asked: int | None, decoder: str, threads: int | None) -> int:
    """Return how many processes load a rank's images: all of its cores but the step loop's, unless the config says.

    Where the device decodes they only read, and a few do.
    """
    if asked is not None:
        return asked
    cores = max(1, (threads or 1) - 1)
    return min(DEVICE_READERS, cores) if decoder == "nvjpeg" else cores


def _on_nvidia() -> bool:
    import torch

    return torch.version.cuda is not None
