"""A stream of tokens on disk and its held-out part: text by its bytes, or token files. Torch-free.

The held-out part is the stream's tail (or a file of its own), so no training window ever reads into it.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from scalescope.records.errors import UserError
from scalescope.train.settings import DataConfig

Tokens = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]

LLM_C_MAGIC = 20240520  # llm.c's token files begin with 256 int32: magic, version, number of tokens
LLM_C_HEADER_BYTES = 256 * 4
BYTE_VALUES = 256


@dataclass(frozen=True)
class Corpus:
    """Token values in order: what is trained on, and what is held out."""

    training: Tokens
    held_out: Tokens
    source: Path


def corpus_sizes(config: DataConfig) -> tuple[int, int]:
    """Return how many tokens training and validation will have, without reading them.

    Raises UserError where a file is missing, unreadable or holds nothing.
    """
    path = _existing(config)
    if config.kind == "text":
        total = sum(file.stat().st_size for file in text_files(config))
        return _split(total, config.validation_fraction)
    return _token_sizes(config, path)


def read_corpus(config: DataConfig) -> Corpus:
    """Return the tokens. Text is read into memory, token files are mapped. Raises UserError as `corpus_sizes` does."""
    path = _existing(config)
    if config.kind == "text":
        letters = np.frombuffer(b"".join(file.read_bytes() for file in text_files(config)), dtype=np.uint8)
        cut, _ = _split(len(letters), config.validation_fraction)
        return Corpus(letters[:cut], letters[cut:], path)
    stream = _map_tokens(path)
    if config.validation_path is not None:
        return Corpus(stream, _map_tokens(Path(config.validation_path).expanduser()), path)
    cut, _ = _split(len(stream), config.validation_fraction)
    return Corpus(stream[:cut], stream[cut:], path)


def text_files(config: DataConfig) -> list[Path]:
    """Return the text's files in a fixed order. Raises UserError where none is there, or one cannot be read."""
    path = _existing(config)
    files = [path] if path.is_file() else sorted(set(_walk(path, config)))
    if not files:
        raise UserError(
            f"data.path={path} holds no file that matches data.pattern={config.pattern!r}; set data.pattern"
        )
    return files


def _walk(folder: Path, config: DataConfig) -> Iterator[Path]:
    """Yield the files below a folder that match. What is excluded is not listed: it may be all of site-packages."""
    excluded = set(config.exclude)
    for here, folders, _ in os.walk(folder):
        folders[:] = [name for name in folders if name not in excluded]
        for file in Path(here).glob(config.pattern):
            if excluded.isdisjoint(file.relative_to(here).parts) and file.is_file():
                yield file


def _existing(config: DataConfig) -> Path:
    path = Path(str(config.path)).expanduser()
    if not path.exists():
        raise UserError(f"data.path={path}: there is no such file or folder; set data.path, or use data=synthetic")
    if config.kind == "tokens" and not path.is_file():
        raise UserError(f"data.path={path} is a folder; data=tokens reads one .bin file (data=text reads folders)")
    return path


def _split(total: int, held_out_fraction: float) -> tuple[int, int]:
    held_out = int(total * held_out_fraction)
    return total - held_out, held_out


def _token_sizes(config: DataConfig, path: Path) -> tuple[int, int]:
    total = len(_map_tokens(path))
    if config.validation_path is None:
        return _split(total, config.validation_fraction)
    validation = Path(config.validation_path).expanduser()
    if not validation.is_file():
        raise UserError(
            f"data.validation_path={validation}: there is no such file; leave it out to hold out the last "
            f"{config.validation_fraction:.0%} of {path.name}"
        )
    return total, len(_map_tokens(validation))


def _map_tokens(path: Path) -> npt.NDArray[np.uint16]:
    """Map a token file: nanoGPT's bare uint16, or llm.c's with its header."""
    size = path.stat().st_size
    if size < 2:
        raise UserError(f"{path} is empty: no token file")
    if size >= LLM_C_HEADER_BYTES:
        header = np.fromfile(path, dtype="<i4", count=3)
        if header[0] == LLM_C_MAGIC:
            return _map_llm_c(path, size, version=int(header[1]), tokens=int(header[2]))
    if size % 2:
        raise UserError(f"{path} has {size} bytes, an odd number: it is cut off, or no file of uint16 tokens")
    return np.memmap(path, dtype="<u2", mode="r")


def _map_llm_c(path: Path, size: int, version: int, tokens: int) -> npt.NDArray[np.uint16]:
    if version != 1:
        raise UserError(f"{path} is llm.c's format, version {version}; only version 1 (uint16 tokens) is read")
    if size < LLM_C_HEADER_BYTES + 2 * tokens:
        raise UserError(
            f"{path} is cut off: its header says {tokens} tokens, {(size - LLM_C_HEADER_BYTES) // 2} are there"
        )
    return np.memmap(path, dtype="<u2", mode="r", offset=LLM_C_HEADER_BYTES, shape=(tokens,))
