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

    The arrays of a first list are kept, and those of the last one. Copies of a graph share most of their objects with
    it: what those hold is taken from there, without a look at them. So objects must not change once they have been
    asked for.
    """

    def __init__(self, **dtypes: npt.DTypeLike) -> None:
        """`dtypes`: of each field's array, by the field's name."""
        self._dtypes = dtypes
        self._first: list[One] = []
        self._place: dict[int, int] = {}  # by an object's identity: where in the first list it is
        self._of_first: dict[str, Array] = {}
        self._last: list[One] = []
        self._of_last: dict[str, Array] = {}

    def of(self, objects: Sequence[One]) -> Mapping[str, Array]:
        """Return each field's array over the objects, by its name. The arrays are not to be changed."""
        if not self._of_last or not _are_same(self._last, objects):
            self._last = list(objects)
            self._of_last = self._found(self._last)
        return self._of_last

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
        self._first = objects
        self._place = {id(one): at for at, one in enumerate(objects)}
        self._of_first = {name: self._read(name, objects) for name in self._dtypes}
        return self._of_first

    def _taken(self, objects: Sequence[One], rows: Places, new: Places) -> dict[str, Array]:
        """Return the columns of the first list's rows, with those of new objects looked at."""
        unknown = [objects[at] for at in new.tolist()]
        found = {name: kept[rows] for name, kept in self._of_first.items()}
        for name, column in found.items():
            column[new] = self._read(name, unknown)
        return found

    def _read(self, name: str, objects: Sequence[One]) -> Array:
        return np.fromiter(map(attrgetter(name), objects), self._dtypes[name], len(objects))


def _are_same(left: Sequence[object], right: Sequence[object]) -> bool:
    return len(left) == len(right) and all(map(is_, left, right))
