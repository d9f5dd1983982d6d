"""The fields of many objects as arrays, which most of a graph's copies have in common."""

from collections.abc import Mapping, Sequence
from itertools import count, repeat
from operator import attrgetter
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

One = TypeVar("One")
Array = npt.NDArray[Any]
#: Of objects that are others than those before, so many may be looked at one by one.
_FEW = 0.1
#: So many objects are compared at once.
_STRETCH = 256


class NodeColumns(Generic[One]):
    """Fields of objects, such as a graph's activities, as an array each.

    The arrays of the first list of all are kept, those of a list that others have much in common with, and those of the
    last one. Copies of a graph share most of their objects with it: what those hold is taken from there, without a look
    at them. So objects must not change once they have been asked for.
    """

    def __init__(self, **dtypes: npt.DTypeLike) -> None:
        """`dtypes`: of each field's array, by the field's name."""
        self._dtypes = dtypes
        self._origin: list[One] | None = None
        self._of_origin: dict[str, Array] = {}
        self._first: list[One] = []
        self._place: dict[int, int] | None = None  # by an object's identity: where in the first list it is
        self._of_first: dict[str, Array] = {}
        self._last: list[One] = []
        self._of_last: dict[str, Array] = {}

    def of(self, objects: list[One]) -> Mapping[str, Array]:
        """Return each field's array over the objects, by its name. The arrays are not to be changed."""
        # lists are equal at once where they hold the same objects
        if not self._of_last or self._last != objects:
            self._last = list(objects)
            self._of_last = self._of_origin if self._origin == self._last else self._found(self._last)
            if self._origin is None:
                self._origin, self._of_origin = self._last, self._of_last
        return self._of_last

    def keep(self, objects: list[One], columns: Mapping[str, Array]) -> None:
        """Take over the columns of objects that are made of them: nobody need read those."""
        self._last = list(objects)
        self._of_last = {name: columns[name] for name in self._dtypes}
        self._be_first(self._last, self._of_last)

    def _found(self, objects: list[One]) -> dict[str, Array]:
        known = len(self._first)
        if self._first and len(objects) >= known:  # the same, with some in others' places, and more behind them
            others = self._others(objects)
            if len(others) <= _FEW * known:
                new = [*others, *range(known, len(objects))]
                return self._read_over(
                    {name: _longer(one, len(objects)) for name, one in self._of_first.items()}, objects, new
                )
        rows = np.fromiter(map(self._places().get, map(id, objects), repeat(-1)), np.int64, len(objects))
        unknown = np.flatnonzero(rows < 0)
        if self._first and 2 * unknown.size <= rows.size:
            return self._read_over({name: one[rows] for name, one in self._of_first.items()}, objects, unknown.tolist())
        self._be_first(objects, {name: self._read(name, objects) for name in self._dtypes})
        return self._of_first

    def _be_first(self, objects: list[One], columns: dict[str, Array]) -> None:
        self._first, self._of_first, self._place = objects, columns, None

    def _places(self) -> dict[int, int]:
        if self._place is None:  # few lists are asked for it
            self._place = dict(zip(map(id, self._first), range(len(self._first)), strict=True))
        return self._place

    def _others(self, objects: list[One]) -> list[int]:
        """Return where objects are others than the first list's; stretches that are the same are passed over."""
        found: list[int] = []
        for begin in range(0, len(self._first), _STRETCH):
            here, first = objects[begin : begin + _STRETCH], self._first[begin : begin + _STRETCH]
            if here != first:
                found += (at for at, one, other in zip(count(begin), here, first) if one is not other)
        return found

    def _read_over(self, columns: dict[str, Array], objects: Sequence[One], rows: Sequence[int]) -> dict[str, Array]:
        """Return columns with those rows read from the objects."""
        new = [objects[at] for at in rows]
        for name, column in columns.items():
            column[rows] = self._read(name, new)
        return columns

    def _read(self, name: str, objects: Sequence[One]) -> Array:
        return np.fromiter(map(attrgetter(name), objects), self._dtypes[name], len(objects))


def _longer(column: Array, count: int) -> Array:
    """Return a copy of a column that is so long, with anything behind its own values."""
    found = np.empty(count, column.dtype)
    found[: column.size] = column
    return found
