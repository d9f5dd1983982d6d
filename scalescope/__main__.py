"""`python -m scalescope VERB …`: the command line, also as torchrun, srun and mpirun start it."""

import sys

from scalescope.cli.front_door import main

if __name__ == "__main__":
    sys.exit(main())
