"""The fields of a stretch's events as columns, and how they come of decoded events."""

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from scalescope.scaling.trace.events import AnyEvent
from scalescope.scaling.trace.intervals import Ints
from scalescope.scaling.trace.tables import column_of, times_of

Mask = npt.NDArray[np.bool_]
#: An operator's `Input Dims` and its `Input type`, as they stand in the text; empty where they do not.
Shapes = tuple[bytes, bytes]


class Fields(msgspec.Struct, frozen=True):
    """What the spans ("X") and the metadata ("M") of a stretch say, a row each, in file order; -1: no number is given.

    `phase`, `category`, `name` and `thread_word` are indices into `strings`, the last of which is empty: -1 for none.
    Times are ns.
    """

    count: int  # of the events, of every kind
    strings: list[str]
    phase: Ints
    category: Ints
    name: Ints
    thread: Ints
    thread_word: Ints  # of a thread that has a word for a number
    start: Ints
    end: Ints
    usable: Mask | None  # which rows have a time that can be one; None: all
    external: Ints
    correlation: Ints
    stream: Ints
    device: Ints
    blocks: Ints  # of a kernel's grid; 0 where the trace does not tell
    talks: Mask  # which name a collective in their arguments
    events: Callable[[Ints], Sequence[AnyEvent]]  # those of some rows, decoded
    shapes: Callable[[Ints], Sequence[Shapes]]  # of the arguments of some rows
    autograds: Callable[[Ints], Sequence[bytes]]  # what it counts, as the arguments of some rows have it; b"": nothing
    farthest: int = 0  # of all events' times, in ns from 0, either way: where C read them


def fields_of(all_events: Sequence[AnyEvent]) -> Fields:
    """Return the fields of decoded events."""
    events = [event for event in all_events if event.ph in ("X", "M")]
    strings: dict[str, int] = {}

    def numbers(words: Sequence[str | None]) -> Ints:
        return np.array([-1 if word is None else strings.setdefault(word, len(strings)) for word in words], np.int64)

    args, threads = [event.args for event in events], [event.tid for event in events]
    phase, category = numbers([event.ph for event in events]), numbers([event.cat for event in events])
    name = numbers([event.name for event in events])
    thread_word = numbers([tid if isinstance(tid, str) else None for tid in threads])
    start, end, usable = times_of(events)
    old = column_of([one.external_id_old for one in args])
    return Fields(
        count=len(all_events),
        strings=[*strings, ""],
        phase=phase,
        category=category,
        name=name,
        thread=column_of([0 if isinstance(tid, str) else tid for tid in threads]),
        thread_word=thread_word,
        start=start,
        end=end,
        usable=usable,
        external=externals(column_of([one.external_id for one in args]), old),
        correlation=column_of([one.correlation for one in args]),
        stream=column_of([one.stream for one in args]),
        device=column_of([one.device for one in args]),
        blocks=column_of([math.prod(one.grid) if one.grid else 0 for one in args]),
        talks=np.array([one.collective is not None for one in args], bool),
        events=lambda rows: [events[row] for row in rows.tolist()],
        shapes=lambda rows: [(bytes(args[row].input_dims), bytes(args[row].input_type)) for row in rows.tolist()],
        autograds=lambda rows: [bytes(args[row].autograds) for row in rows.tolist()],
    )


def externals(now: Ints, old: Ints) -> Ints:
    """Return the numbers by which activities name the operators that launched them: torch 1.8 gave them in `old`."""
    return np.where(now < 0, np.maximum(old, -1), now)
