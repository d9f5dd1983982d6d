"""What stands around a trace's events: the ranks, the devices, the base of its clock."""

import codecs
import re
from typing import Annotated

import msgspec

from scalescope.hardware.boards import Reported, is_generic, name_amd_device
from scalescope.records.steps.garbage import GarbageCollection
from scalescope.records.steps.recording import RecordingBursts, WindowFacts

#: What no header holds is no number to count with: it is left out, and the header is said not to decode.
_Rank = Annotated[int, msgspec.Meta(ge=-1, le=2**24)]
_Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=4 * 10**18)]  # since 1970: up to 2096


class ProcessGroup(msgspec.Struct, frozen=True):
    """One process group as torch describes it. `ranks` are global; empty where the list is not given."""

    pg_name: str | int = ""
    pg_desc: str = ""
    ranks: list[_Rank] = []


class DistributedInfo(msgspec.Struct, frozen=True):
    """The job this trace is one rank of."""

    backend: str = ""
    rank: _Rank = -1
    world_size: _Rank = -1
    pg_config: list[ProcessGroup] = []


class DeviceProperties(msgspec.Struct, frozen=True):
    """One device, as torch's profiler describes it. On ROCm the name may be empty."""

    id: _Rank = -1
    name: str = ""
    memory_bytes: int = msgspec.field(name="totalGlobalMem", default=0)
    compute_units: int = msgspec.field(name="numSms", default=0)
    major: int = msgspec.field(name="computeMajor", default=0)
    minor: int = msgspec.field(name="computeMinor", default=0)

    @property
    def known_name(self) -> str:
        """Its name, or that of the AMD board that it must be by what it is made of; empty where neither is known.

        NVIDIA's devices have names. A capability of 9.0 is that of two of AMD's architectures, and tells nothing.
        """
        if not is_generic(self.name):
            return self.name
        kind = _ARCHITECTURES.get((self.major, self.minor))
        reported = Reported(self.name, None, kind, self.compute_units or None, self.memory_bytes or None)
        return name_amd_device(reported) if reported.compute_units else self.name


#: AMD's, by compute capability: torch says 9.4 of a gfx942.
_ARCHITECTURES = {(9, 4): "gfx942", (9, 5): "gfx950", (11, 0): "gfx1100"}


class OwnMetadata(msgspec.Struct, frozen=True):
    """What our own jobs write into the header: torch before 2.13 tells no host.

    `untraced_step_ms`: steps that ran before the window, where somebody wrote them there (`add_metadata_json`).
    `window`, `bursts`: the steps beside the window, and what recording costs that host, where our own measuring did.
    `collections`: when Python collected its garbage meanwhile.
    """

    host: str = ""
    untraced_step_ms: list[float] = []
    window: WindowFacts | None = None
    bursts: RecordingBursts | None = None
    collections: list[GarbageCollection] = []
    bundle: bool = False  # all ranks in one file, as `scalescope perfetto` writes it


class Header(msgspec.Struct, frozen=True):
    """The fields beside `traceEvents` that scaling reads."""

    distributed: DistributedInfo = msgspec.field(name="distributedInfo", default=DistributedInfo())
    devices: list[DeviceProperties] = msgspec.field(name="deviceProperties", default_factory=list)
    base_ns: _Nanoseconds = msgspec.field(name="baseTimeNanoseconds", default=0)
    host: str = msgspec.field(name="host_name", default="")
    own: OwnMetadata = msgspec.field(name="scalescope", default=OwnMetadata())
    record_shapes: int = 0  # 1 where the shapes of operators' inputs were recorded


_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_DECODER = msgspec.json.Decoder(Header, strict=False)


def read_header(before: bytes, after: bytes) -> tuple[Header, bool]:
    """Return the header out of the text before the event array's key and after its `]`, and whether all of it decoded.

    Where a field does not decode (a name cut short, a value that is no JSON) the others are still found.
    """
    before = before.removeprefix(codecs.BOM_UTF8).rstrip().rstrip(b",").strip() or b"{"
    after = after.strip()
    if after.startswith(b",") and before == b"{":
        after = after[1:]
    if not after.endswith(b"}"):
        after = b"}"  # a truncated trace ends with its events
    try:
        return _DECODER.decode(before + after), True
    except _UNREADABLE:
        pass
    found: list[bytes] = []
    for field in Header.__struct_fields__:
        key = _NAMES[field]
        if (value := _value_of(key, before) or _value_of(key, after)) is None:
            continue
        member = b'"%s":%s' % (key, value)
        try:
            _DECODER.decode(b"{" + member + b"}")
        except _UNREADABLE:
            continue
        found.append(member)
    return _DECODER.decode(b"{" + b",".join(found) + b"}"), False


_NAMES = {field.name: field.encode_name.encode() for field in msgspec.structs.fields(Header)}


def _value_of(key: bytes, text: bytes) -> bytes | None:
    """Return the JSON value behind a key: up to the bracket that closes it, or a number or string."""
    match = re.search(rb'"%s"\s*:\s*' % key, text)
    if match is None:
        return None
    start = match.end()
    if text[start : start + 1] not in (b"{", b"["):
        plain = re.match(rb'"(?:[^"\\]|\\.)*"|[-+0-9.eE]+', text[start:])
        return plain[0] if plain else None
    depth, inside = 0, False
    for sign in re.finditer(rb'\\.|["{}\[\]]', text[start:], re.DOTALL):
        if sign[0] == b'"':
            inside = not inside
        elif not inside and sign[0] in (b"{", b"["):
            depth += 1
        elif not inside and sign[0] in (b"}", b"]"):
            depth -= 1
            if depth == 0:
                return text[start : start + sign.end()]
    return None
