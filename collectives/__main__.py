"""`mpirun -n 4 python -m collectives backend=mpi`: a sweep inside a world that somebody else made.

The keys are those of `scalescope sweep`, and `backend=` is short for launch.backend. MPI moves host buffers; what the
ranks tell each other between measurements goes by gloo.
"""

import sys
from collections.abc import Sequence

from collectives import config
from launch.run import run_in_world
from launch.verb import Verb
from launch.world import discover
from records.errors import UserError


def main(words: Sequence[str]) -> int:
    """Be one rank of a sweep, and return its exit code."""
    config.register()
    verb = Verb("sweep", "sweep", config.SweepConfig, "collectives.sweep:run", "collectives.checks:check")
    try:
        world = discover()
        if world is None:
            raise UserError("python -m collectives is one rank of a sweep: start it with mpirun, srun or torchrun, or "
                            "use `scalescope sweep`, which starts its own ranks")  # fmt: skip
        return int(run_in_world(verb, overrides(words), world))
    except UserError as error:
        print(f"scalescope: {error}", file=sys.stderr)
        return int(error.exit_code)


def overrides(words: Sequence[str]) -> list[str]:
    """Return the config overrides that the words stand for."""
    full = []
    for word in words:
        if word == "backend=mpi":
            full += ["path=mpi", "launch.backend=gloo", "launch.device=cpu"]
        else:
            full.append(f"launch.{word}" if word.startswith("backend=") else word)
    return full


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
