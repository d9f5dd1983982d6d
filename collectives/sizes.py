"""Message sizes as users write them: `8B..8GiB x2`, `1MiB..64MiB +1MiB`, `4KiB, 1MB`, or a list. Torch-free."""

import math
import re
from collections.abc import Iterable

from scalescope.records.errors import UserError

UNITS = {
    "B": 1,
    "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3,
    "kB": 1000, "MB": 1000**2, "GB": 1000**3,
}  # fmt: skip
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)$")
_NO_MEMORY = 2**60
_MOST_SIZES = 10_000
_RANGE = re.compile(r"(.+?)\s*\.\.\s*(.+?)\s+([x*+])\s*(.+)$")
_GRAMMAR = 'write "8B..4GiB x2" (times 2), "1MiB..8MiB +1MiB" (plus 1 MiB), or a list such as [4KiB,1MB]'


def parse_sizes(text: object) -> list[int]:
    """Return the sizes in bytes, ascending, each once. Raises UserError for what is no size."""
    if isinstance(text, Iterable) and not isinstance(text, str):
        parts = [part for item in text for part in _parse_item(item)]
    else:
        parts = [size for item in str(text).split(",") for size in _parse_item(item)]
    if not parts:
        raise UserError(f"sizes={text}: no size at all; {_GRAMMAR}")
    return sorted(set(parts))


def parse_size(text: object) -> int:
    """Return one size in bytes: `8`, `8B`, `1.5MiB`, `2GB`. Raises UserError for anything else."""
    match = _SIZE.match(str(text).strip())
    unit = match[2] or "B" if match else ""
    if not match or unit not in UNITS:
        near = [name for name in UNITS if name[0].lower() == unit[:1].lower()]
        hint = f"did you mean {' or '.join(near)}?" if near else _GRAMMAR
        raise UserError(f"sizes: {str(text).strip()!r} is no size; {hint}")
    size = float(match[1]) * UNITS[unit]
    if size >= _NO_MEMORY:
        raise UserError(f"sizes: {str(text).strip()[:40]!r} is more than any memory holds; {_GRAMMAR}")
    if size < 1 or size != int(size):
        raise UserError(f"sizes: {str(text).strip()!r} is {size:g} bytes; a size is a whole number of bytes above 0")
    return int(size)


def format_size(size: int) -> str:
    """Return a size in the largest binary unit that divides it: 1048576 → 1MiB."""
    for unit in ("GiB", "MiB", "KiB"):
        if size and size % UNITS[unit] == 0:
            return f"{size // UNITS[unit]}{unit}"
    return f"{size}B"


def _parse_item(item: object) -> list[int]:
    text = str(item).strip()
    if ".." not in text:
        return [parse_size(text)]
    match = _RANGE.match(text)
    if not match:
        raise UserError(f"sizes: {text!r} has no step; {_GRAMMAR}")
    first, last = parse_size(match[1]), parse_size(match[2])
    if first > last:
        raise UserError(f"sizes: {text!r} runs downwards; put the smaller size first")
    return _steps(text, first, last, match[3], match[4])


def _steps(text: str, first: int, last: int, sign: str, step: str) -> list[int]:
    if sign == "+":
        distance = parse_size(step)
        _refuse_too_many(text, (last - first) / distance)
        return list(range(first, last + 1, distance))
    try:
        factor = float(step)
    except ValueError:
        raise UserError(f"sizes: {text!r}: the factor {step!r} is no number; {_GRAMMAR}") from None
    if not 1 < factor < math.inf:
        raise UserError(f"sizes: {text!r}: the factor must be above 1, and finite")
    _refuse_too_many(text, math.log(last / first) / math.log(factor))
    sizes = []
    size = float(first)
    while size <= last:
        sizes.append(int(size))
        size *= factor
    return sizes


def _refuse_too_many(text: str, count: float) -> None:
    if count > _MOST_SIZES:
        raise UserError(
            f"sizes: {text!r} is about {count:.0f} sizes, and a sweep takes {_MOST_SIZES}; take longer steps"
        )
