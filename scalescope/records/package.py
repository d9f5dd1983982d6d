"""Where this package lies, and how a process of its own is started: from here, whatever the current folder holds.

Its C files are compiled by setuptools when it is installed, where that can be done: nothing is compiled while
scalescope runs, and no library is loaded but one that lies beside the module that asks for it.
"""

import ctypes
import os
import site
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

PACKAGE = Path(__file__).parents[
    1
]  # unresolved: its links to train, collectives, launch, conf and slurm are part of it
CONF = PACKAGE / "conf"
SBATCH_SCRIPTS = PACKAGE / "slurm"

#: How a Python of ours runs the command line. -P: somebody's torch.py in the current folder is not the library.
COMMAND = ("-P", "-m", "scalescope")


def importable(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which a new Python finds this package, where it is not installed too."""
    parent = str(PACKAGE.parent)
    if parent in {*site.getsitepackages(), site.getusersitepackages()}:
        return dict(environment)
    paths = [parent, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    return {**environment, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


def find_library(name: str) -> Path | None:
    """Return the compiled library of a name in pyproject.toml, such as `scalescope.scaling.replay.engine._events`.

    None where the installation had no compiler, or there was no installation.
    """
    spec = find_spec(name)  # finds it under whichever suffix this Python gave it, and loads nothing
    return Path(spec.origin) if spec is not None and spec.origin is not None else None


def load_library(file: Path | None) -> ctypes.CDLL | None:
    """Return the loaded library; None where there is none, or this machine cannot load it."""
    try:
        return ctypes.CDLL(str(file)) if file is not None else None
    except OSError:  # built for another machine
        return None
