"""`scalescope slurm-scripts DIR`: the batch scripts, to be edited where there is no checkout."""

from pathlib import Path

from scalescope.cli.outputs import VerbParser
from scalescope.launch.slurm.submit import copy_scripts


def run(argv: list[str]) -> int:
    """Copy the scripts and say how one is handed in. Raises UserError where one would be overwritten."""
    parser = VerbParser(
        prog="scalescope slurm-scripts",
        description="Copy the batch scripts of slurm/ into a folder, to edit the lines that a site needs (account, "
        "partition, GPUs, modules, container) and hand them to sbatch.",
    )
    parser.add_argument("folder", metavar="DIR", type=Path)
    folder = parser.read(argv).folder
    for copy in copy_scripts(folder):
        print(copy)
    print(f"edit their #SBATCH lines, then: sbatch {folder / 'study.sbatch'} model=gpt_small gpu_counts=[1,2,4]")
    return 0
