"""The same answer, whoever reads the ranks: this process, several of this machine, the ranks of an MPI job."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from scalescope.scaling.analyze import analyze, analyze_run
from scalescope.scaling.answer import RunAnalysis

ROOT = Path(__file__).parent.parent
SET = Path(__file__).parent / "data" / "gpt_ddp_compile_n4"


def test_processes_give_the_answer_that_one_process_gives() -> None:
    assert analyze_run(SET, jobs=2) == analyze_run(SET, jobs=1)


@pytest.mark.job
def test_the_ranks_of_an_mpi_job_give_the_answer_that_one_process_gives() -> None:
    mpirun = Path(sys.executable).parent / "mpirun"
    done = subprocess.run(
        [str(mpirun), "-n", "3", sys.executable, "-m", "tests.mpi_analyze", str(SET)],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert msgspec.json.decode(done.stdout, type=RunAnalysis) == analyze([SET], jobs=1)[0]


def test_reading_never_imports_torch() -> None:
    code = (
        "import sys, scalescope.scaling.analyze; loaded = {name.split('.')[0] for name in sys.modules}; "
        "print(sorted(loaded & {'torch', 'mpi4py'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=200, check=True
    )
    assert done.stdout.strip() == "[]"
