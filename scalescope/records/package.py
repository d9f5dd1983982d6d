"""Where this package lies, and how a process of its own is started: from here, whatever the current folder holds."""

import os
import site
from collections.abc import Mapping
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
