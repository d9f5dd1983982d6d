"""How often a compiled program runs a collective, and on which element type: read from XLA's own text of it.

XLA is free to drop an operation whose result it knows, to hoist it out of a loop, to join it with another, or to carry
its elements in a wider type. A figure is a collective's only where the program that was timed still holds all of them.
"""

import re
from collections import defaultdict
from typing import NamedTuple

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\{\s*$")
_CALLED = re.compile(r"(?:calls|body|to_apply|condition)=%?([\w.\-]+)|(?:calls|branch_computations)=\{([^}]*)\}")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_ENDED = re.compile(r"-(?:done|update)\(")
_ARRAY = re.compile(r"\b(pred|bf16|[a-z]\d+[a-z0-9]*)\[\d")


class Held(NamedTuple):
    """What a program holds of one operation, on arrays: loops copy their counters, too."""

    runs: int  # while the program runs once
    dtypes: frozenset[str]  # XLA's names of the element types that are moved


def held(text: str, operation: str, trips: int) -> Held:
    """Return how often an operation (by XLA's name, such as "all-reduce") runs in an optimized program.

    `trips` counts the iterations of a loop whose number the text does not tell.
    """
    runs: dict[str, int] = defaultdict(int)  # of each computation's own operations
    dtypes: set[str] = set()
    calls: dict[str, list[tuple[str, int]]] = defaultdict(list)
    wanted = re.compile(rf"= (.*?) {operation}(?:-start)?\(")
    entry = computation = ""
    for line in text.splitlines():
        if (head := _COMPUTATION.match(line)) is not None:
            computation = head[2]
            entry = computation if head[1] else entry
            continue
        if (found := wanted.search(line)) is not None and (arrays := _ARRAY.findall(found[1])):
            runs[computation] += 1
            dtypes.update(arrays[:1])
        if _ENDED.search(line):  # its begin has named what it calls
            continue
        known = _TRIPS.search(line)
        times = (int(known[1]) if known else trips) if " while(" in line else 1
        for one, several in _CALLED.findall(line):
            names = [one] if one else [name.strip().removeprefix("%") for name in several.split(",")]
            calls[computation] += [(name, times) for name in names]

    def total(name: str) -> int:
        return runs[name] + sum(times * total(called) for called, times in calls[name])

    return Held(total(entry), frozenset(dtypes))
