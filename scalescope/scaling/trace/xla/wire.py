"""The protobuf wire format: fields of a message as they lie in a file, without a schema and without copies.

XSpace, XPlane and HloProto are messages of a dozen fields whose numbers never change, so reading them needs no protobuf
package, no generated code, and neither JAX nor TensorFlow on the machine that reads. What is not asked for is stepped
over by its length.
"""

import mmap
from collections.abc import Iterator
from typing import NamedTuple

#: What a varint may hold, and how many bytes it may take.
_LONGEST_VARINT = 10

Buffer = bytes | mmap.mmap


class Field(NamedTuple):
    """One field of a message: a number of a varint or of fixed width, or the span of what lies in it."""

    number: int
    value: int
    start: int  # of a string, bytes or message; -1 of a number
    end: int


_make = tuple.__new__  # what a NamedTuple's own call comes to, without the call


class CutOff(ValueError):
    """The bytes end before the message does."""


class NoMessage(ValueError):
    """The bytes are no protobuf message."""


def fields(data: Buffer, start: int, end: int) -> Iterator[Field]:
    """Yield the fields of the message in `data[start:end]`.

    Raises CutOff where a field reaches beyond the end, NoMessage for a wire type that there is not.
    """
    at = start
    while at < end:
        # most numbers are of one byte, and a call for each is half of the time
        key = data[at]
        at += 1
        if key > 127:
            key, at = _varint(data, at - 1, end)
        number, wire = key >> 3, key & 7
        if number == 0:
            raise NoMessage("a field of number 0")
        if wire == 0 or wire == 2:
            if at >= end:
                raise CutOff("a number without its end")
            value = data[at]
            at += 1
            if value > 127:
                value, at = _varint(data, at - 1, end)
            if wire == 0:
                yield _make(Field, (number, value, -1, -1))
                continue
            size, value = value, 0
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            value = int.from_bytes(data[at : min(at + size, end)], "little")
        else:
            raise NoMessage(f"a field of wire type {wire}")
        if size > end - at:
            raise CutOff(f"a field of {size:,} bytes where {end - at:,} are left")
        yield _make(Field, (number, value, at, at + size) if wire == 2 else (number, value, -1, -1))
        at += size


def _varint(data: Buffer, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift >= 7 * _LONGEST_VARINT:
            raise NoMessage("a number of more than 64 bits")
    raise CutOff("a number without its end")


def signed(value: int) -> int:
    """Return an int64 out of the 64 bits that stand for it."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def packed(data: Buffer, field: Field) -> list[int]:
    """Return a repeated number, packed as it is written today, or one of those that are written one by one."""
    if field.start < 0:
        return [signed(field.value)]
    found, at = [], field.start
    while at < field.end:
        value, at = _varint(data, at, field.end)
        found.append(signed(value))
    return found


def text(data: Buffer, field: Field, longest: int = 4096) -> str:
    """Return a string field; of one that nobody writes so long, the begin."""
    if field.start < 0:
        return ""
    return data[field.start : min(field.end, field.start + longest)].decode("utf-8", "replace")
