"""Workers on several nodes: an executor over the ranks of an MPI job, for more than one machine's processes can do."""

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from scalescope.records.mpi import choose_library


@contextmanager
def mpi_workers() -> Iterator[Executor | None]:
    """Yield, on MPI rank 0, an executor whose tasks run on all other ranks; None on those, once there is no more to do.

    To be used as

        with mpi_workers() as executor:
            if executor is not None:
                answers = analyze(paths, executor=executor)

    under `mpirun -n N` or `srun --mpi=…`, with the traces on a file system that all nodes see. A world of one rank
    works alone. Raises ImportError where mpi4py is not installed.
    """
    choose_library()
    # imported here: MPI starts with the import, and reading on one machine must not need it
    from mpi4py import MPI
    from mpi4py.futures import MPICommExecutor

    with MPICommExecutor(MPI.COMM_WORLD, root=0) as executor:
        yield executor  # type: ignore[misc]  # it is an Executor in all but its declared bases
