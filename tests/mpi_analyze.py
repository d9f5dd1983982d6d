"""Analyses a trace folder on the ranks of an MPI job; rank 0 prints the answer."""

import sys
from pathlib import Path

import msgspec

from scalescope.scaling.analyze import analyze
from scalescope.scaling.ranks.mpi_executor import mpi_workers

with mpi_workers() as executor:
    if executor is not None:
        print(msgspec.json.encode(analyze([Path(sys.argv[1])], executor=executor)[0]).decode())
