"""Our rooms in somebody else's process, under names that nobody else has.

`records`, `train`, `report` … are common names. Where scalescope is the program that does not matter: nothing of the
user's is on the path. `profile_steps` runs inside the user's program, beside a `train.py` or a `report/` of their own.
There the rooms are loaded as `scalescope.records`, `scalescope.train`, … from where this file lies, whatever sys.path
and sys.modules hold, and what they import of each other is led to the same copies. So each side gets its own.
"""

import builtins
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

HOUSE = Path(__file__).resolve().parent.parent
ROOMS = frozenset({"records", "hardware", "launch", "collectives", "train", "scaling", "report", "verbs"})
_OURS = "scalescope"


def keep_apart() -> None:
    """From now on, `import scalescope.<room>` loads a copy of the room that is apart from the top-level name."""
    if not any(isinstance(finder, _RoomFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _RoomFinder())


class _RoomFinder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top, _, rest = fullname.partition(".")
        room = rest.partition(".")[0]
        if top != _OURS or room not in ROOMS:
            return None
        spec = PathFinder.find_spec(fullname, [str(HOUSE)] if room == rest else path)
        if spec is not None and spec.origin is not None:
            spec.loader = _RoomLoader(fullname, spec.origin)
        return spec


class _RoomLoader(SourceFileLoader):
    """Loads a module as ever, but for one thing: the `import` statements in it see `_import`."""

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = vars(builtins) | {"__import__": _import}
        super().exec_module(module)


def _import(
    name: str,
    globals: Mapping[str, Any] | None = None,
    locals: Mapping[str, Any] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    room = name.partition(".")[0]
    if level or room not in ROOMS:
        return builtins.__import__(name, globals, locals, fromlist or (), level)
    module = builtins.__import__(f"{_OURS}.{name}", globals, locals, fromlist or (), 0)
    return module if fromlist else sys.modules[f"{_OURS}.{room}"]
