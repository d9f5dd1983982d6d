"""The fields of many objects as arrays, which most of a graph's copies have in common."""

from collections.abc import Mapping, Sequence
from itertools import repeat
from operator import attrgetter, is_
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

One = TypeVar("One")
Array = npt.NDArray[Any]
Places = npt.NDArray[np.int64]
#: Of objects that are others than those before, so many may be looked at one by one.
_FEW = 0.1


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
        self._place: dict[int, int] = {}  # by an object's identity: where in the first list it is
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
        count = len(self._first)
        if self._first and len(objects) >= count:  # the same, with some in others' places, and more behind them
            others = np.flatnonzero(~np.fromiter(map(is_, objects, self._first), bool, count))
            if others.size <= _FEW * count:
                rows = np.append(np.arange(count), np.zeros(len(objects) - count, np.int64))
                return self._taken(objects, rows, np.append(others, np.arange(count, len(objects))))
        rows = np.fromiter(map(self._place.get, map(id, objects), repeat(-1)), np.int64, len(objects))
        unknown = np.flatnonzero(rows < 0)
        if self._first and 2 * unknown.size <= rows.size:
            return self._taken(objects, rows, unknown)
        self._be_first(objects, {name: self._read(name, objects) for name in self._dtypes})
        return self._of_first

    def _be_first(self, objects: list[One], columns: dict[str, Array]) -> None:
        self._first, self._of_first = objects, columns
        self._place = dict(zip(map(id, objects), range(len(objects)), strict=True))

    def _taken(self, objects: Sequence[One], rows: Places, new: Places) -> dict[str, Array]:
        """Return the columns of the first list's rows, with those of new objects looked at."""
        unknown = [objects[at] for at in new.tolist()]
        found = {name: kept[rows] for name, kept in self._of_first.items()}
        for name, column in found.items():
            column[new] = self._read(name, unknown)
        return found

    def _read(self, name: str, objects: Sequence[One]) -> Array:
        return np.fromiter(map(attrgetter(name), objects), self._dtypes[name], len(objects))
