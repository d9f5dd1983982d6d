"""The sbatch scripts on a real Slurm cluster: two nodes, real slurmctld and slurmd."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from records.folder import RunFolder, find_runs
from tests.slurm_cluster import SlurmCluster, missing_programs
from tests.test_front_door import TINY

SCRIPTS = Path(__file__).resolve().parent.parent / "slurm"

pytestmark = pytest.mark.skipif(
    bool(missing_programs()), reason=f"no Slurm cluster can be started here: lacking {', '.join(missing_programs())}"
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with SlurmCluster(tmp_path_factory.mktemp("slurm")) as cluster:
        cluster.environment["PATH"] = f"{Path(sys.executable).parent}:{cluster.environment['PATH']}"
        cluster.environment["RANKS_PER_NODE"] = "2"
        cluster.environment["MASTER_ADDR"] = "127.0.0.1"  # both nodes are this host
        yield cluster


def _only(folder: Path, log: str) -> RunFolder:
    runs = list(find_runs(folder / "runs"))
    assert len(runs) == 1, log
    return runs[0]


def _run(cluster: SlurmCluster, folder: Path, *words: str) -> str:
    job = cluster.submit(*words, cwd=folder)
    state = cluster.wait(job)
    log = (folder / f"slurm-{job}.out").read_text()
    assert state == "COMPLETED", log
    return log


def test_train_runs_torchrun_on_every_node(cluster: SlurmCluster, tmp_path: Path) -> None:
    log = _run(cluster, tmp_path, "--nodes=2", str(SCRIPTS / "train.sbatch"), *TINY)
    info = _only(tmp_path, log).read_info()
    assert (info.status, info.world_size, info.launcher) == ("done", 4, "torchrun")


def test_sweep_runs_a_task_a_rank(cluster: SlurmCluster, tmp_path: Path) -> None:
    words = ["sizes=[8,64KiB]", "budget_s=0.05", "logger=none"]
    log = _run(cluster, tmp_path, "--nodes=2", "--ntasks-per-node=2", str(SCRIPTS / "sweep.sbatch"), *words)
    run = _only(tmp_path, log)
    info = run.read_info()
    assert (info.status, info.world_size, info.launcher) == ("done", 4, "slurm")
    assert {row.group_size for row in run.read_sweep()} == {2, 4}


def test_a_study_in_the_body_of_a_job_starts_its_own_ranks(cluster: SlurmCluster, tmp_path: Path) -> None:
    words = [*TINY, "gpu_counts=[1,2]", "name=study", "sweep.sizes=[8,64KiB]", "sweep.budget_s=0.05"]
    log = _run(cluster, tmp_path, str(SCRIPTS / "study.sbatch"), *words)
    study = RunFolder(tmp_path / "runs" / "study")
    assert study.read_info().status == "done", log
    assert study.report.stat().st_size > 10_000
