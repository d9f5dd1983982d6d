"""The events of a Kineto trace as typed structs, and how a stretch of text becomes a list of them.

Fields that scaling does not need are skipped by the decoder, which is most of the text. Structs are not tracked by the
garbage collector (`gc=False`): a trace holds a million of them.
"""

import re
from decimal import Decimal
from typing import Any

import msgspec

_NOTHING = msgspec.Raw()  # `Raw | None` would refuse everything but null


class Args(msgspec.Struct, gc=False, frozen=True, kw_only=True):
    """The arguments of an event that say what it belongs to. -1: not given."""

    external_id: int = msgspec.field(name="External id", default=-1)
    external_id_old: int = msgspec.field(name="external id", default=-1)  # torch 1.8 wrote it in lower case
    correlation: int = -1
    stream: int = -1
    device: int = -1
    bytes: int = -1
    grid: tuple[int, ...] = ()  # of a kernel: blocks in each dimension
    collective: str | None = msgspec.field(name="Collective name", default=None)
    in_elements: int = msgspec.field(name="In msg nelems", default=-1)
    out_elements: int = msgspec.field(name="Out msg nelems", default=-1)
    in_elements_old: int = msgspec.field(name="In msg size", default=-1)
    out_elements_old: int = msgspec.field(name="Out msg size", default=-1)
    dtype: str | None = None
    group_size: int = msgspec.field(name="Group size", default=-1)
    group: str | None = msgspec.field(name="Process Group Name", default=None)
    group_ranks: str | None = msgspec.field(name="Process Group Ranks", default=None)
    group_description: str | None = msgspec.field(name="Process Group Description", default=None)
    sequence: int = msgspec.field(name="Seq", default=-1)
    autograds: msgspec.Raw = msgspec.field(name="Sequence number", default=_NOTHING)  # what it counts, of operators
    # of a rooted collective this is the root's rank in the group, of any other the caller's own
    rank: int = msgspec.field(name="Rank", default=-1)
    source: int = msgspec.field(name="Src Rank", default=-1)
    destination: int = msgspec.field(name="Dst Rank", default=-1)
    input_dims: msgspec.Raw = msgspec.field(name="Input Dims", default=_NOTHING)
    input_dims_old: msgspec.Raw = msgspec.field(name="Input dims", default=_NOTHING)
    input_type: msgspec.Raw = msgspec.field(name="Input type", default=_NOTHING)
    concrete_inputs: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=_NOTHING)
    name: str | int | None = None  # of a metadata event


NO_ARGS = Args()


class Event(msgspec.Struct, gc=False, kw_only=True):
    """One event. `ts` and `dur` are in µs, as the file has them."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: float = float("nan")
    dur: float = 0.0
    args: Args = NO_ARGS


class ExactEvent(msgspec.Struct, gc=False, kw_only=True):
    """An event whose times need more digits than a float has: µs since 1970 with a fraction of three digits."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: Decimal = Decimal("NaN")
    dur: Decimal = Decimal(0)
    args: Args = NO_ARGS


#: Up to here a float of µs determines the ns: neighbouring floats lie less than 1 ns apart.
EXACT_FLOAT_US = float(1 << 43)

AnyEvent = Event | ExactEvent

# strict=False takes numbers written as strings, which old traces and some re-serialised ones hold
_EVENTS = msgspec.json.Decoder(list[Event], strict=False)
_EXACT_EVENTS = msgspec.json.Decoder(list[ExactEvent], strict=False)

_CONTROL = re.compile(rb"[\x00-\x1f]+")
_NOT_A_NUMBER = re.compile(rb"(?<=[:\[,])\s*-?(nan|inf|infinity)(?=\s*[,}\]])", re.IGNORECASE)
_BAD_ESCAPE = re.compile(rb'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')


def decode_events(text: bytes, exact: bool) -> list[AnyEvent]:
    """Return the events of a JSON array. Raises msgspec.DecodeError where any of them is not as it should be."""
    try:
        events: list[Any] = (_EXACT_EVENTS if exact else _EVENTS).decode(text)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from error
    return events


def decode_event_anyhow(text: bytes, exact: bool) -> AnyEvent | None:
    """Return one event out of text that did not decode: mended where the faults are known ones, else None.

    Known faults: control characters and newlines in names, bytes that are no UTF-8, NaN and infinities, lone
    backslashes; then arguments of an unexpected type, without which the event is still worth having.
    """
    mended = _NOT_A_NUMBER.sub(b"null", _BAD_ESCAPE.sub(rb"\\\\", _CONTROL.sub(b" ", text)))
    mended = mended.decode("utf-8", "replace").encode()
    try:
        return decode_events(b"[" + mended + b"]", exact)[0]
    except (msgspec.DecodeError, IndexError):
        pass
    try:
        plain = msgspec.json.decode(mended)
    except (msgspec.DecodeError, RecursionError):  # brackets within brackets, deeper than anybody reads
        return None
    if not isinstance(plain, dict):
        return None
    event: AnyEvent = ExactEvent() if exact else Event()
    for field in ("ph", "cat", "name", "pid", "tid", "ts", "dur"):
        if field in plain:
            hint = type(event).__annotations__[field]
            try:
                setattr(event, field, msgspec.convert(plain[field], hint, strict=False))
            except msgspec.ValidationError:
                if field in ("ph", "ts", "dur"):
                    return None
    event.args = _convert_args(plain.get("args"))
    return event


def _convert_args(plain: object) -> Args:
    if not isinstance(plain, dict):
        return NO_ARGS
    good: dict[str, object] = {}
    for key, value in plain.items():
        try:
            msgspec.convert({key: value}, Args, strict=False)
        except msgspec.ValidationError:
            continue
        good[key] = value
    return msgspec.convert(good, Args, strict=False)
