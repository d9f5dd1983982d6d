"""Brings images to the device ahead of the steps that read them.

Loading processes read and decode (or, for the device's decoder, only read). On a GPU a thread beside the step loop
takes what they made to the device, on a stream of its own: the step loop finds its batch there, or waits for it inside
the annotation that the analysis reads as loading data.
"""

import errno
import queue
import sys
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.profiler import record_function
from torch.utils.data import DataLoader

from scalescope.launch.scratch import share_scratch
from scalescope.records.errors import RunError, UserError
from scalescope.train.data.device_images import Resizer, normalise
from scalescope.train.data.image_batches import HostImages, ImageBatches, PackedImages, Refusal
from scalescope.train.data.samples import ANNOTATION, Batch

_AHEAD = 2  # batches on the device beside the one at work
_PREFETCH = 2  # batches that each loading process makes ahead


_ROOM = (
    "/dev/shm may be too small for its batches: lower data.workers or model.batch_size, or give the container a larger "
    "--shm-size"
)


def begun(loader: DataLoader[Any]) -> Iterator[Any]:
    """Start a loader's processes, and return its batches. Raises RunError where this host lets no more be started."""
    try:
        return iter(loader)
    except OSError as error:  # their locks lie in /dev/shm, too
        room = f"; {_ROOM}" if error.errno == errno.ENOSPC else ""
        raise RunError(f"loading processes could not be started ({error.strerror}){room}") from error


class HostBatches(Iterator[HostImages | PackedImages]):
    """The batches of these steps, in order, from so many processes; 0 = made where they are asked for."""

    def __init__(self, batches: ImageBatches, steps: range, workers: int, pin: bool) -> None:
        if workers:
            share_scratch()
        self._batches = begun(
            DataLoader(
                batches,
                batch_size=None,
                sampler=steps,
                num_workers=workers,
                pin_memory=pin,
                prefetch_factor=_PREFETCH if workers else None,
            )
        )

    def __next__(self) -> HostImages | PackedImages:
        """Raises UserError for an image that may not be skipped, RunError for a process that died."""
        try:
            batch = next(self._batches)
        except RuntimeError as error:
            raise RunError(f"a loading process ended ({error}); {_ROOM}") from error
        if isinstance(batch, Refusal):
            raise UserError(batch.reason)
        for problem in batch.skipped:
            print(f"scalescope: {problem}; the next one stands in for it", file=sys.stderr, flush=True)
        assert isinstance(batch, HostImages | PackedImages)
        return batch


class DeviceBatches:
    """Makes a batch on the device of one on the host."""

    def __init__(self, side: int, device: torch.device) -> None:
        self._device = device
        self._resize = Resizer(side, device)

    def __call__(self, batch: HostImages | PackedImages) -> Batch:
        """Return images (B, 3, S, S) float32, channels_last, and labels (B,)."""
        labels = batch.labels.to(self._device, non_blocking=True)
        if isinstance(batch, HostImages):
            return normalise(batch.pixels.to(self._device, non_blocking=True)), labels
        return normalise(self._resize(self._decode(batch), batch.crops)), labels

    def _decode(self, batch: PackedImages) -> list[Tensor]:
        from torchvision.io import ImageReadMode, decode_jpeg

        files = list(batch.jpegs.split(batch.sizes))
        # torchvision decodes on a stream of its own, which does not wait for this one: into memory that what is still
        # under way here may be reading
        torch.cuda.current_stream(self._device).synchronize()
        try:
            images: list[Tensor] = decode_jpeg(files, ImageReadMode.RGB, device=self._device)
        except RuntimeError as error:
            reason = next(iter(str(error).splitlines()), "")
            raise RunError(f"nvJPEG does not decode a batch ({reason}); use data.decoder=pillow, which names the "
                           "file") from error  # fmt: skip
        return images


class HostImageLoader:
    """On a CPU a batch is made where it is asked for; loading processes still run ahead."""

    def __init__(self, batches: HostBatches, make: DeviceBatches) -> None:
        self._batches = batches
        self._make = make

    def next(self) -> Batch:
        with record_function(ANNOTATION):
            return self._make(next(self._batches))


class DeviceImageLoader:
    """On a GPU a thread makes batches ahead, on a stream of its own."""

    def __init__(self, batches: HostBatches, make: DeviceBatches, device: torch.device) -> None:
        self._batches = batches
        self._make = make
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._ready: queue.Queue[tuple[Batch, torch.cuda.Event] | Exception] = queue.Queue(_AHEAD)
        threading.Thread(target=self._run, name="images", daemon=True).start()

    def next(self) -> Batch:
        """Return this step's images and labels. Raises what the thread failed with, or StopIteration at the end."""
        with record_function(ANNOTATION):
            ready = self._ready.get()
            if isinstance(ready, Exception):
                raise ready
            batch, made = ready
            compute = torch.cuda.current_stream(self._device)
            compute.wait_event(made)
            for tensor in batch:
                tensor.record_stream(compute)
            return batch

    def _run(self) -> None:
        torch.cuda.set_device(self._device)
        try:
            with torch.cuda.stream(self._stream):
                for host in self._batches:
                    batch = self._make(host)
                    made = torch.cuda.Event()
                    made.record(self._stream)
                    self._hand_over((batch, made))
            self._hand_over(StopIteration())
        except Exception as error:  # noqa: BLE001 - whatever it is, the step loop raises it
            self._hand_over(error)

    def _hand_over(self, ready: "tuple[Batch, torch.cuda.Event] | Exception") -> None:
        """Wait for room, but no longer than there is a step loop to make it."""
        while threading.main_thread().is_alive():
            try:
                return self._ready.put(ready, timeout=1.0)
            except queue.Full:
                continue
        return None
