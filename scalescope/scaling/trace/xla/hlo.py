"""The collectives of a module, out of the HloProto that a profile holds: what each moves, and in groups of how many.

A collective that runs asynchronously stands in a computation of its own, and one that XLA runs by a kernel of its own
stands in a fusion: that fusion is the collective.
"""

import math
from collections.abc import Iterator

import msgspec

from scalescope.scaling.trace.xla.profile import HloCollective
from scalescope.scaling.trace.xla.wire import Buffer, fields, packed, text

#: HLO's opcodes, without `-start`. A permute sends to one and receives from another; who, is not in our rows.
OPERATIONS = {
    "all-reduce": "all_reduce", "all-gather": "all_gather", "reduce-scatter": "reduce_scatter",
    "all-to-all": "all_to_all", "ragged-all-to-all": "all_to_all", "collective-permute": "send_recv",
    "collective-broadcast": "broadcast",
}  # fmt: skip
#: xla.PrimitiveType by number.
_DTYPES = {
    1: "bool", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "uint8", 7: "uint16", 8: "uint32", 9: "uint64",
    10: "float16", 11: "float32", 12: "float64", 15: "complex64", 16: "bfloat16", 18: "complex128",
    19: "float8_e5m2", 20: "float8_e4m3fn",
}  # fmt: skip
_MOST_ELEMENTS = 1 << 50
_MOST_MEMBERS = 1 << 24


class _Instruction(msgspec.Struct):
    name: str = ""
    opcode: str = ""
    shape: tuple[int, int] = (-1, -1)  # element type, elements; -1: a tuple
    id: int = -1
    operands: list[int] = []
    called: list[int] = []
    group_size: int | None = None


def operation_of(opcode: str) -> str | None:
    """Return the operation of an opcode, None for one that is no collective."""
    return OPERATIONS.get(opcode.removesuffix("-start"))


def collectives_of(data: Buffer, start: int, end: int) -> Iterator[tuple[str, HloCollective]]:
    """Yield the name of each op in an HloProto that is a collective, with what it moves. Raises ValueError."""
    for proto in fields(data, start, end):
        if proto.number != 1 or proto.start < 0:
            continue
        computations: dict[int, list[_Instruction]] = {}
        for field in fields(data, proto.start, proto.end):
            if field.number == 3 and field.start >= 0:
                number, instructions = _computation(data, field.start, field.end)
                computations[number] = instructions
        inside = {number: next(_described(found), None) for number, found in computations.items()}
        for instructions in computations.values():
            yield from _described(instructions)
            for fusion in instructions:
                if fusion.opcode == "fusion":
                    found = next((held for called in fusion.called if (held := inside.get(called))), None)
                    if found is not None:
                        yield fusion.name, found[1]


def _described(instructions: list[_Instruction]) -> Iterator[tuple[str, HloCollective]]:
    shapes = {one.id: one.shape for one in instructions}
    for one in instructions:
        operation = operation_of(one.opcode)
        if operation is None:
            continue
        operands = [shapes.get(number, (-1, -1)) for number in one.operands]
        kinds = {kind for kind, _ in operands}
        dtype = _DTYPES.get(next(iter(kinds))) if len(kinds) == 1 else None
        elements = sum(count for _, count in operands)
        known = dtype is not None and all(count >= 0 for _, count in operands) and elements <= _MOST_ELEMENTS
        yield one.name, HloCollective(operation, dtype, elements if known else None, one.group_size)


def _computation(data: Buffer, start: int, end: int) -> tuple[int, list[_Instruction]]:
    number, found = -1, []
    for field in fields(data, start, end):
        if field.number == 2 and field.start >= 0:
            found.append(_instruction(data, field.start, field.end))
        elif field.number == 5 and field.start < 0:
            number = field.value
    return number, found


def _instruction(data: Buffer, start: int, end: int) -> _Instruction:
    one = _Instruction()
    for field in fields(data, start, end):
        if field.number == 1:
            one.name = text(data, field)
        elif field.number == 2:
            one.opcode = text(data, field)
        elif field.number == 3 and field.start >= 0:
            one.shape = _shape(data, field.start, field.end)
        elif field.number == 35:
            one.id = field.value
        elif field.number == 36:
            one.operands.extend(packed(data, field))
        elif field.number == 38:
            one.called.extend(packed(data, field))
        elif field.number == 49 and field.start >= 0 and one.group_size is None:
            one.group_size = _members(data, field.start, field.end)
        elif field.number == 87 and field.start >= 0:
            one.group_size = _listed_size(data, field.start, field.end) or one.group_size
    return one


def _members(data: Buffer, start: int, end: int) -> int | None:
    """Return the devices of a ReplicaGroup, which names each; None where it names none."""
    return sum(len(packed(data, ids)) for ids in fields(data, start, end) if ids.number == 1) or None


def _listed_size(data: Buffer, start: int, end: int) -> int | None:
    """Return the devices a group of a CollectiveDeviceList: its first group's, or as it counts them (2 groups of 4)."""
    for field in fields(data, start, end):
        if field.number == 1 and field.start >= 0:
            return _members(data, field.start, field.end)
        if field.number == 2 and field.start >= 0:
            sizes = (one.value for one in fields(data, field.start, field.end) if one.number == 2)
            return next((size for size in sizes if 0 < size <= _MOST_MEMBERS), None)
    return None


def _shape(data: Buffer, start: int, end: int) -> tuple[int, int]:
    kind, dimensions, in_parts = -1, [], False
    for field in fields(data, start, end):
        if field.number == 2 and field.start < 0:
            kind = field.value
        elif field.number == 3:
            dimensions += packed(data, field)
        elif field.number == 4:
            in_parts = True
    if in_parts or any(one < 0 for one in dimensions) or len(dimensions) > 64:
        return -1, -1
    return kind, min(math.prod(dimensions), _MOST_ELEMENTS + 1)
