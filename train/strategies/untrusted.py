"""Reading a checkpoint runs nothing of it: a run folder may come from a stranger.

torch writes checkpoints with pickle, which loads whatever class a file names and calls it. So the metadata of a DCP
checkpoint is read by an unpickler that admits the classes which DCP writes, by their exact names, and everything else
by torch's own `weights_only`, which admits tensors, plain containers and what a strategy names besides.
"""

import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import EnumMeta
from typing import IO, Any, cast

import torch
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta

_METADATA = "torch.distributed.checkpoint.metadata"
_ADMITTED = {
    *((_METADATA, name) for name in ("Metadata", "MetadataIndex", "TensorStorageMetadata", "BytesStorageMetadata",
                                     "ChunkStorageMetadata", "TensorProperties", "StorageMeta",
                                     "_MEM_FORMAT_ENCODING")),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch.serialization", "_get_layout"),  # torch.strided by its name
    ("torch", "Size"),
    ("pathlib", "PosixPath"),  # where it was saved
    ("pathlib._local", "PosixPath"),  # its name from Python 3.13 on
}  # fmt: skip
_REFUSED = "it is damaged, or holds something other than weights, which was not loaded"
_FORCE, _FORCE_NOT = "TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"


def enum_member(owner: object, name: object) -> object:
    """Return an enumeration's member. Raises pickle.UnpicklingError for anything else.

    It stands in for `getattr`, by which Python 3.11.0 to 3.11.3 pickle such members, and which reaches everything.
    """
    if isinstance(owner, EnumMeta) and isinstance(name, str) and name in owner.__members__:
        return owner.__members__[name]
    raise pickle.UnpicklingError(f"it asks for {name!r} of {owner!r}, which is no enumeration's member")


_GETATTR = "builtins.getattr"


class _MetadataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if f"{module}.{name}" == _GETATTR:
            return enum_member
        if (module, name) in _ADMITTED or (module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"its metadata wants to load {module}.{name}, which no checkpoint holds")


class CheckpointReader(FileSystemReader):
    """DCP's own reader of a folder, but for the metadata's pickle."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Return what lies where in the folder. Raises ValueError where it is no such thing."""
        with self.fs.create_stream(self._get_metadata_path(kwargs.get("rank")), "rb") as file:
            metadata = _unpickled(cast(IO[bytes], file))
        if metadata.storage_meta is None:
            metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata


def _unpickled(file: IO[bytes]) -> Metadata:
    try:
        metadata = _MetadataUnpickler(file).load()
    except pickle.UnpicklingError as error:
        raise ValueError(str(error)) from error
    except OSError:
        raise
    except Exception as error:  # a damaged pickle raises nearly anything
        raise ValueError(f"its metadata is damaged: {type(error).__name__}: {error}") from error
    if not isinstance(metadata, Metadata):
        raise ValueError(f"its metadata is a {type(metadata).__name__}")
    return metadata


def reason_of(error: BaseException) -> str:
    """Return why a part of a checkpoint was not read; torch's own words for a refusal tell how to have it loaded."""
    return _REFUSED if isinstance(error, pickle.UnpicklingError) else str(error)


@contextmanager
def only_weights(classes: Sequence[type] = ()) -> Iterator[None]:
    """While it is open, torch.load admits tensors, plain containers and these classes, whatever its caller asks for.

    Raises ValueError where a file holds anything else.
    """
    before = {name: os.environ.pop(name, None) for name in (_FORCE, _FORCE_NOT)}
    os.environ[_FORCE] = "1"
    try:
        admitted: list[Callable[..., object] | tuple[Callable[..., object], str]] = [*classes, (enum_member, _GETATTR)]
        with torch.serialization.safe_globals(admitted):
            yield
    except pickle.UnpicklingError as error:
        raise ValueError(_REFUSED) from error
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
