"""Which MPI library mpi4py loads: the one of the mpirun that started this process, where several are installed."""

import os
import sys
from pathlib import Path

_OPEN_MPI, _MPICH = "libmpi.so.40", "libmpi.so.12"  # MPICH's ABI is Intel MPI's, too


def library_near(open_mpi: bool) -> str | None:
    """Return what to tell mpi4py to load; None where it finds the right one by itself, beside Python."""
    wanted = _OPEN_MPI if open_mpi else _MPICH
    return None if (Path(sys.prefix) / "lib" / wanted).exists() else wanted


def choose_library() -> None:
    """Tell mpi4py's ABI-neutral builds before mpi4py.MPI is imported; what the user has chosen stays.

    Without it they take the library that lies nearest, and under another's mpirun every rank is a world of its own.
    """
    started = "OMPI_COMM_WORLD_SIZE" in os.environ, "PMI_SIZE" in os.environ
    if any(started) and not {"MPI4PY_MPIABI", "MPI4PY_LIBMPI"} & os.environ.keys():
        library = library_near(open_mpi=started[0])
        if library is not None:
            os.environ["MPI4PY_LIBMPI"] = library
