"""Which MPI library mpi4py loads: the one of the mpirun that started this process, where several are installed."""

import os


def choose_library() -> None:
    """Tell mpi4py's ABI-neutral builds before mpi4py.MPI is imported; what the user has chosen stays.

    Without it they take the library that lies nearest, and under another's mpirun every rank is a world of its own.
    """
    if "OMPI_COMM_WORLD_SIZE" in os.environ:
        os.environ.setdefault("MPI4PY_MPIABI", "openmpi")
    elif "PMI_SIZE" in os.environ:
        os.environ.setdefault("MPI4PY_MPIABI", "mpich")
