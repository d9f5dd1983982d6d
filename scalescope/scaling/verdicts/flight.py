"""torch's flight records, which a job that failed leaves: what each rank called last, and where the ranks part.

A record is a pickle. It is read by an unpickler that admits plain containers and scalars alone, so that a record from
a stranger's run folder can run no code.
"""

import io
import math
import pickle
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from scalescope.records.errors import UserError
from scalescope.records.files import refuse_special
from scalescope.records.folder import RunFolder
from scalescope.records.operations import WHOLE_ON_EVERY_RANK, canonical_operation
from scalescope.scaling.answer_rows import LastCollective

#: Ours, what torch's own watchdog writes (`nccl_trace_rank_3`, `comm_lib_trace_rank_3`), and people's own names for it.
_NAME = re.compile(r"^(?:.*[^a-zA-Z])?rank[_-]?(\d+)(?:\.(?:pickle|pkl))?$")


class _Frame(msgspec.Struct):
    name: str
    filename: str
    line: int


class _Entry(msgspec.Struct):
    """One recorded call, as torch names its fields; `state` is scheduled, started or completed."""

    process_group: tuple[str, str]  # its name, its description
    collective_seq_id: int
    profiling_name: str
    state: str
    retired: bool
    is_p2p: bool = False
    p2p_seq_id: int = 0
    input_sizes: list[list[int]] = []
    input_dtypes: list[str] = []
    frames: list[_Frame] = []


class _Group(msgspec.Struct):
    ranks: str = ""  # `[0, 1]`


class _Dump(msgspec.Struct):
    entries: list[_Entry] = []
    pg_config: dict[str, _Group] = {}


class _Call(msgspec.Struct, frozen=True):
    """One rank's collective."""

    operation: str
    elements: int
    dtype: str | None
    ended: bool
    called_from: str | None

    def __str__(self) -> str:
        return f"{self.operation} of {self.elements:,} {self.dtype or 'elements'}"


class _Records(msgspec.Struct, frozen=True):
    """What one rank's record holds."""

    calls: dict[str, dict[int, _Call]]  # collectives, by group and by their number in it
    hanging: list[str]  # sends and receives that did not end, in words


#: By group, by the collective's number in it; by rank.
Calls = Mapping[int, Mapping[str, Mapping[int, _Call]]]


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it wants to load {module}.{name}, and a flight record holds plain data only")

    def persistent_load(self, pid: object) -> NoReturn:
        raise pickle.UnpicklingError("it refers to data elsewhere, and a flight record holds all of its own")


def read_plain(data: bytes) -> Any:
    """Return what a pickle of plain containers and scalars holds. Raises pickle.UnpicklingError for any other."""
    try:
        return _PlainUnpickler(io.BytesIO(data)).load()
    except pickle.UnpicklingError:
        raise
    except Exception as error:  # a damaged pickle raises nearly anything
        raise pickle.UnpicklingError(f"it is damaged: {type(error).__name__}: {error}") from error


def read_flight(folder: RunFolder, world_size: int | None) -> tuple[list[LastCollective], list[str]]:
    """Return the last collective of each rank and group, and in sentences where the ranks part; nothing of a good run.

    A record that cannot be read is a sentence, too.
    """
    return read_records(folder.flight_recorder, world_size) if folder.flight_recorder.is_dir() else ([], [])


def holds_records(folder: Path) -> bool:
    """Tell whether a folder holds flight records, by their names, and no traces that could be meant instead."""
    if not folder.is_dir():
        return False
    names = [path.name for path in folder.iterdir() if path.is_file()]
    traces = any(name.endswith((".json", ".json.gz")) for name in names)
    return not traces and any(_NAME.match(name) for name in names)


def read_records(folder: Path, world_size: int | None = None) -> tuple[list[LastCollective], list[str]]:
    """Return what `read_flight` does, of a folder of anybody's records: a file a rank, named after it.

    `world_size`: None where only the records tell the ranks, by their process groups.
    """
    calls: dict[int, dict[str, dict[int, _Call]]] = {}
    hanging: list[str] = []
    expected = set(range(world_size or 0))
    said: list[str] = []
    for path in sorted(folder.glob("*")):
        match = _NAME.match(path.name)
        if match is None or int(match[1]) in calls:
            continue
        try:
            refuse_special(path)
            dump = msgspec.convert(read_plain(path.read_bytes()), type=_Dump)
        except (UserError, OSError, pickle.UnpicklingError, msgspec.ValidationError, UnicodeError) as error:
            said.append(f"{folder.name}/{path.name} is left out: {error}")  # UnicodeError: a key that is no text
            continue
        records = _records_of(dump)
        calls[int(match[1])] = records.calls
        hanging += [f"rank {int(match[1])}, {one}" for one in records.hanging]
        expected |= {int(rank) for group in dump.pg_config.values() for rank in re.findall(r"\d{1,8}", group.ranks)}
    if not calls:
        return [], said
    missing = sorted(expected - calls.keys())
    if missing:
        said.append(f"no flight record of {_ranks(missing)}: stopped or dead before it could be kept")
    return _last(calls), [*said, *where_they_part(calls), *hanging]


def where_they_part(calls: Calls) -> list[str]:
    """Return a sentence for each group: who has called less than the others, another collective, or what hangs."""
    said = []
    for group in sorted({group for own in calls.values() for group in own}):
        of_group = {rank: own[group] for rank, own in calls.items() if own.get(group)}
        last = {rank: max(own) for rank, own in of_group.items()}
        most = max(last.values())
        behind = [rank for rank in last if last[rank] < most]
        ahead = [rank for rank in last if last[rank] == most]
        if (parting := _first_difference(of_group)) is not None:
            said.append(f"{group}: the ranks called different collectives as number {parting}: " + ", ".join(
                f"rank {rank} {own[parting]}" for rank, own in of_group.items()))  # fmt: skip
        elif behind:
            call = of_group[ahead[0]][most]
            said.append(
                f"{group}: {_ranks(behind)} never called collective number {min(last[r] for r in behind) + 1}; "
                f"{_ranks(ahead)} came to number {most}, {call}{_from(call)}"
            )
        elif hanging := [rank for rank in ahead if not of_group[rank][most].ended]:
            call = of_group[hanging[0]][most]
            said.append(
                f"{group}: every rank recorded called collective number {most}, {call}{_from(call)}; it did not end on "
                f"{_ranks(hanging)}"
            )
    return said


def _records_of(dump: _Dump) -> _Records:
    """Return a rank's collectives by group and number, and its sends and receives that did not end.

    Calls that were handed over together are followed by one entry (`coalesced`) that alone tells whether they ended.
    It has the number of the last collective, whether it stands for collectives or for sends and receives.
    """
    calls: dict[str, dict[int, _Call]] = {}
    transfers: dict[str, list[_Entry]] = {}  # of each group, since its last entry that was neither
    hanging = []
    for entry in dump.entries:
        group, call = _group(entry), _call(entry)
        if entry.is_p2p:
            transfers.setdefault(group, []).append(entry)
            continue
        ahead = transfers.pop(group, [])
        together = [one for one in ahead if call.operation == _TOGETHER and one.p2p_seq_id == entry.p2p_seq_id]
        hanging += _hanging(group, [one for one in ahead if one not in together])
        if together:
            hanging += [] if call.ended else _hanging(group, together)
            continue
        own = calls.setdefault(group, {})
        member = own.get(entry.collective_seq_id) if call.operation == _TOGETHER else None
        own[entry.collective_seq_id] = call if member is None else msgspec.structs.replace(member, ended=call.ended)
    for group, ahead in transfers.items():
        hanging += _hanging(group, ahead)
    return _Records(calls, hanging)


#: What the entry is called that follows calls which were handed over together.
_TOGETHER = "coalesced"


def _group(entry: _Entry) -> str:
    name, description = entry.process_group
    return f"group {name}" + (f" ({description})" if description not in ("", "undefined") else "")


def _call(entry: _Entry) -> _Call:
    return _Call(
        operation=canonical_operation(entry.profiling_name),
        elements=sum(math.prod(size) for size in entry.input_sizes),
        dtype=entry.input_dtypes[0].lower() if entry.input_dtypes else None,
        ended=entry.retired or entry.state == "completed",
        called_from=_caller(entry.frames),
    )


def _hanging(group: str, transfers: Sequence[_Entry]) -> list[str]:
    """Return those of sends and receives that did not end, in words: torch's own name says the way (`send 0->1`)."""
    waiting = [(one.profiling_name.rpartition(":")[2], call) for one in transfers if not (call := _call(one)).ended]
    return [
        f"{group}: {msgspec.structs.replace(call, operation=name)} did not end{_from(call)}" for name, call in waiting
    ]


def _last(calls: Calls) -> list[LastCollective]:
    rows = []
    for rank in sorted(calls):
        for group, own in sorted(calls[rank].items()):
            number = max(own)
            call = own[number]
            rows.append(
                LastCollective(rank=rank, group=group, number=number, operation=call.operation,
                               elements=call.elements, dtype=call.dtype, ended=call.ended, called_from=call.called_from)
            )  # fmt: skip
    return rows


def _first_difference(of_group: Mapping[int, Mapping[int, _Call]]) -> int | None:
    """Return the first number that every rank still remembers at which operations differ, or sizes that must not."""
    shared = set.intersection(*(set(own) for own in of_group.values()))
    for number in sorted(shared):
        operations = {own[number].operation for own in of_group.values()}
        sizes = {own[number].elements for own in of_group.values()}
        even = canonical_operation(next(iter(operations))) in WHOLE_ON_EVERY_RANK
        if len(operations) > 1 or (even and len(sizes) > 1):
            return number
    return None


def _caller(frames: Sequence[_Frame]) -> str | None:
    """Return where in the user's own code a collective was called: the innermost frame outside of torch."""
    for frame in frames:
        if "/torch/" not in frame.filename and frame.filename.endswith(".py"):
            return f"{frame.filename}:{frame.line} ({frame.name})"
    return None


def _from(call: _Call) -> str:
    return f", called from {call.called_from}" if call.called_from else ""


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, sorted(ranks)))}"
