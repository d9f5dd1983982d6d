"""What an event's arguments say of the collective, or of the gradient, that it moves, or of what it computes with."""

import math
import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, TypeVar

import msgspec

from scalescope.records.dtypes import PRECISIONS, canonical_dtype, element_bytes
from scalescope.records.operations import FROM_ROOT, MOVE_NO_DATA, TO_ROOT, canonical_operation, is_sparse
from scalescope.scaling.trace.events import Args
from scalescope.scaling.trace.families import NO_COLLECTIVE
from scalescope.scaling.trace.trace import CommunicationArgs, GradientArgs

_NUMBER = re.compile(r"[0-9]{1,18}")
#: Elements, ranks and numbers beyond these are nobody's; a product of shapes may have a thousand digits.
_MOST_ELEMENTS, _MOST_RANKS = 1 << 50, 1 << 24
_LONGEST_WORD = 256  # of an operation, a dtype, a group


def communication_of(args: Args, name: str) -> CommunicationArgs | None:
    """Return what an event's arguments say about a collective; None where they say that it moves no data."""
    described = args.collective if args.collective is not None else name
    if described.lower() in NO_COLLECTIVE:
        return None
    # torch before 2.0 recorded that there is a collective, not which
    operation = None if described == "record_param_comms" else canonical_operation(described)
    in_elements = args.in_elements if args.in_elements >= 0 else args.in_elements_old
    out_elements = args.out_elements if args.out_elements >= 0 else args.out_elements_old
    both_counts = in_elements >= 0 and out_elements >= 0
    dtype = args.dtype
    dims, types = bytes(args.input_dims or args.input_dims_old), bytes(args.input_type)
    if in_elements < 0 and dims:
        in_elements, out_elements = _elements(dims, types)
    if dims and name in _EXCHANGES:
        out_elements, in_elements = _both_elements(dims)
        both_counts = in_elements >= 0 and out_elements >= 0
    if dtype is None and types:
        dtype = _first_dtype(types)
    if operation in MOVE_NO_DATA:
        in_elements, out_elements, dtype = -1, -1, None  # the tensor that it carries says nothing
    rooted = operation in FROM_ROOT or operation in TO_ROOT
    root = args.rank if rooted else -1
    source, destination = args.source, args.destination
    if name.startswith("c10d::") and args.concrete_inputs:
        # torch's own operator: who the data comes from or goes to is an argument of it
        other = _first_integer(bytes(args.concrete_inputs))
        root = other if rooted and root < 0 else root
        destination = other if name == "c10d::send" and destination < 0 else destination
        source = other if name == "c10d::recv_" and source < 0 else source
    return CommunicationArgs(
        operation=_word(operation),
        in_elements=_within(in_elements, _MOST_ELEMENTS),
        out_elements=_within(out_elements, _MOST_ELEMENTS),
        both_counts=both_counts,
        dtype=_word(dtype),
        sparse=is_sparse(described) or is_sparse(name) or None,
        group=_word(args.group),
        group_ranks=args.group_ranks,
        group_description=_word(args.group_description),
        group_size=_within(args.group_size, _MOST_RANKS) or None,
        sequence=_within(args.sequence, _MOST_ELEMENTS),
        root=_within(root, _MOST_RANKS),
        source=_within(source, _MOST_RANKS),
        destination=_within(destination, _MOST_RANKS),
    )


def _within(number: int, most: int) -> int | None:
    """Return a number as the trace gives it; None where it gives none (-1), or one that cannot be."""
    return number if 0 <= number <= most else None


def _word(word: str | None) -> str | None:
    return word[:_LONGEST_WORD] if word is not None else None


Told = TypeVar("Told")
#: A job's shapes recur in each step and on each rank. Longer ones are looked at anew: what is kept stays small.
_LONGEST_KEPT, _MOST_KEPT = 1024, 4096


def _kept(look: Callable[..., Told]) -> Callable[..., Told]:
    """Return a function of arguments' texts that looks at each text once."""
    keep = lru_cache(_MOST_KEPT)(look)

    def told(*texts: bytes) -> Told:
        return keep(*texts) if sum(map(len, texts)) <= _LONGEST_KEPT else look(*texts)

    return told


@_kept
def gradient_of(dims: bytes, types: bytes) -> GradientArgs | None:
    """Return the gradient that an operator of DDP's reducer moves; None where shapes were not recorded."""
    elements, _ = _elements(dims, types) if dims else (-1, -1)
    size = element_bytes(_first_dtype(types) or "") if types else None
    return GradientArgs(elements, size) if 0 < elements <= _MOST_ELEMENTS and size else None


#: Longer numbers may not fit into 64 bits.
_MOST_DIGITS = 18
#: Operators that do most of a model's work, and which of their arguments grows with the batch.
MULTIPLIES = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::linear": 0, "aten::convolution": 0,
              "aten::convolution_backward": 0, "scalescope::linear_gelu": 0,
              "scalescope::product_gelu_gradient": 0}  # fmt: skip


def multiplied_of(dims: bytes, name: str) -> int:
    """Return the elements of what one of those operators multiplies weights with; 0 where shapes were not recorded."""
    elements = _elements_of[MULTIPLIES[name]](dims) if dims else 0
    return elements if 0 < elements <= _MOST_ELEMENTS else 0


def number_of(text: bytes) -> int:
    """Return the number that an argument's text is; -1 where it is none."""
    return int(text) if len(text) <= _MOST_DIGITS and text.isdigit() else -1


def _elements_at(place: int, dims: bytes) -> int:
    """Return the elements of an operator's argument at a place, 0 where the shapes do not say."""
    try:
        return _count(msgspec.json.decode(dims)[place])
    except (msgspec.DecodeError, IndexError, KeyError, TypeError, ValueError, RecursionError):
        return 0


_elements_of = {place: _kept(partial(_elements_at, place)) for place in sorted(set(MULTIPLIES.values()))}


#: Operators that compute, by their library; what makes or turns a tensor without reading it does not.
COMPUTES = re.compile(
    r"(?!(aten::(empty\w*|new_empty\w*|view\w*|reshape|_reshape_alias|narrow|slice|select|as_strided|t|transpose|permute"
    r"|expand\w*|squeeze_?|unsqueeze_?|alias|detach_?|resolve_\w+|set_|resize_|item|_local_scalar_dense)"
    r"|autograd::.*|torch::.*|\w*c10d\w*::.*)$)\w+::"
)


def precision_of(dims: bytes, types: bytes) -> int:
    """Return the dearest floating-point type of an operator's tensors, by its place in PRECISIONS from 1 on; 0: none.

    A scalar takes no time, whatever it is in: Python's are in double precision.
    """
    if not types:
        return 0
    try:
        shapes, named = msgspec.json.decode(dims), msgspec.json.decode(types)
        told = {
            canonical_dtype(one) for shape, one in zip(shapes, named, strict=False) if shape and isinstance(one, str)
        }
    except (msgspec.DecodeError, TypeError, ValueError, RecursionError):
        return 0
    return max((PRECISIONS.index(one) + 1 for one in told & {*PRECISIONS}), default=0)


#: torch's own operators whose ranks send and receive different amounts: outputs, then inputs.
_EXCHANGES = frozenset({"c10d::alltoall_base_", "c10d::alltoall_"})
#: What `Input type` calls a tensor's element type.
_TENSORS = frozenset({"float", "double", "c10::Half", "c10::BFloat16", "int", "long", "long int", "short", "bool",
                      "signed char", "unsigned char"})  # fmt: skip


@_kept
def _elements(dims: bytes, types: bytes) -> tuple[int, int]:
    """Return the elements of an operator's smallest and largest tensor argument, -1 where the shapes do not say.

    An argument is a tensor's shape, or a list of them nested as deep as the operator takes them. A scalar tensor and an
    argument that is no tensor are both written `[]`; the types tell them apart.
    """
    try:
        arguments = msgspec.json.decode(dims)
        named = msgspec.json.decode(types) if types else []
        counts = [count for argument in arguments if (count := _count(argument)) > 0]
    except (msgspec.DecodeError, TypeError, ValueError, RecursionError):
        return -1, -1
    if counts:
        return min(counts), max(counts)
    scalar = any(argument == [] and kind in _TENSORS for argument, kind in zip(arguments, named, strict=False))
    return (1, 1) if scalar else (-1, -1)


@_kept
def _both_elements(dims: bytes) -> tuple[int, int]:
    """Return the elements of an operator's first two arguments, -1 where the shapes do not say; none is 0."""
    try:
        first, second, *_ = msgspec.json.decode(dims)
        return _count(first), _count(second)
    except (msgspec.DecodeError, TypeError, ValueError, RecursionError):
        return -1, -1


def _count(argument: Any) -> int:
    if not argument:
        return 0
    if isinstance(argument[0], list):
        return sum(max(_count(part), 1 if part == [] else 0) for part in argument)
    if not all(isinstance(size, int) for size in argument):
        raise TypeError("a shape is of whole numbers")  # of a word, the product would be that word many times over
    return math.prod(argument)


@_kept
def _first_integer(inputs: bytes) -> int:
    """Return the first whole number among an operator's arguments, which are written as strings; -1 without one.

    Of `c10d::broadcast_` (tensors, group, root, …), `reduce_` (tensors, group, operation, root, …), `gather_` and
    `scatter_` (outputs, inputs, group, root, …) that is the root, of `send` and `recv_` (tensors, group, rank, tag) the
    partner; all of them within the group. What is no scalar is written empty.
    """
    try:
        written = msgspec.json.decode(inputs)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return -1
    found = (
        (one for one in written if isinstance(one, str) and _NUMBER.fullmatch(one)) if isinstance(written, list) else ()
    )
    return int(next(iter(found), -1))


@_kept
def _first_dtype(types: bytes) -> str | None:
    """Return the first of an operator's argument types that is an element type; lists of tensors hold theirs inside."""
    try:
        open_ones = msgspec.json.decode(types)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    open_ones = open_ones[::-1] if isinstance(open_ones, list) else []
    while open_ones:
        one = open_ones.pop()
        if isinstance(one, list):
            open_ones.extend(reversed(one))
        elif isinstance(one, str) and element_bytes(one) is not None:
            return one
    return None
