"""The sbatch scripts on a real Slurm cluster: two nodes, real slurmctld and slurmd."""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scalescope.records.folder import RunFolder, find_runs
from tests.faults import FAULTS
from tests.slurm_cluster import ACCOUNTING, SlurmCluster, missing_programs
from tests.test_front_door import SCALESCOPE, TINY

SCRIPTS = Path(__file__).resolve().parent.parent / "slurm"

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),  # a job has as long as it needs: a busy machine is no fault
    pytest.mark.skipif(
        bool(missing_programs()),
        reason=f"no Slurm cluster can be started here: lacking {', '.join(missing_programs())}",
    ),
]


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


def _run(cluster: SlurmCluster, folder: Path, *argv: str) -> str:
    job = cluster.submit(*argv, cwd=folder)
    state = cluster.wait(job)
    log = (folder / f"slurm-{job}.out").read_text()
    assert state == "COMPLETED", log
    return log


def test_train_runs_torchrun_on_every_node(cluster: SlurmCluster, tmp_path: Path) -> None:
    log = _run(cluster, tmp_path, "--nodes=2", str(SCRIPTS / "train.sbatch"), *TINY)
    info = _only(tmp_path, log).read_info()
    assert (info.status, info.world_size, info.launcher) == ("done", 4, "torchrun")


def test_sweep_runs_a_task_a_rank(cluster: SlurmCluster, tmp_path: Path) -> None:
    argv = ["sizes=[8,64KiB]", "budget_s=0.05", "logger=none"]
    log = _run(cluster, tmp_path, "--nodes=2", "--ntasks-per-node=2", str(SCRIPTS / "sweep.sbatch"), *argv)
    run = _only(tmp_path, log)
    info = run.read_info()
    assert (info.status, info.world_size, info.launcher) == ("done", 4, "slurm")
    assert {row.group_size for row in run.read_sweep()} == {2, 4}


def test_a_study_in_the_body_of_a_job_starts_its_own_ranks(cluster: SlurmCluster, tmp_path: Path) -> None:
    argv = [*TINY, "gpu_counts=[1,2]", "name=study", "sweep.sizes=[8,64KiB]", "sweep.budget_s=0.05"]
    log = _run(cluster, tmp_path, str(SCRIPTS / "study.sbatch"), *argv)
    study = RunFolder(tmp_path / "runs" / "study")
    assert study.read_info().status == "done", log
    assert study.report.stat().st_size > 10_000


def test_the_scripts_of_a_checkout_find_its_scalescope_from_any_folder(
    cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no scalescope in PATH, and no .venv where the job is handed in."""
    checkout, elsewhere = tmp_path / "checkout", tmp_path / "elsewhere"
    shutil.copytree(SCRIPTS, checkout / "slurm")
    elsewhere.mkdir()
    (checkout / ".venv").symlink_to(Path(sys.executable).parent.parent)
    monkeypatch.setitem(cluster.environment, "PATH", cluster.environment["PATH"].partition(":")[2])
    log = _run(cluster, elsewhere, str(checkout / "slurm" / "analyze.sbatch"), "--help")
    assert "usage: scalescope finish" in log


def test_a_signalled_job_is_requeued_and_ends_with_the_losses_of_an_undisturbed_one(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    argv = [
        *(word for word in TINY if not word.startswith(("steps=", "data="))),
        "steps=700",
        "data=python_stdlib",
    ]
    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    _run(cluster, undisturbed, str(SCRIPTS / "train.sbatch"), *argv)

    job = cluster.submit(str(SCRIPTS / "train.sbatch"), *argv, cwd=tmp_path)
    folder = RunFolder(tmp_path / "runs" / f"slurm-{job}")
    cluster.wait_until(lambda: len(folder.read_steps()) > 0)
    cluster.signal(job, "USR1")
    cluster.wait_until(lambda: cluster.state(job) == "PENDING")
    assert folder.read_info().status == "preempted"
    cluster.start_now(job)
    state = cluster.wait(job)
    log = (tmp_path / f"slurm-{job}.out").read_text()
    assert state == "COMPLETED" and folder.read_info().status == "done", log
    rows, expected = folder.read_steps(), _only(undisturbed, log).read_steps()
    assert {row.attempt for row in rows} == {0, 1}
    assert [row.loss for row in rows] == [row.loss for row in expected]
    assert [run.path.name for run in find_runs(tmp_path / "runs")] == [f"slurm-{job}"]


def _submit(cluster: SlurmCluster, folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    command = [SCALESCOPE, "submit", *argv]
    return subprocess.run(
        command, cwd=folder, env=cluster.environment, capture_output=True, text=True, timeout=500, check=False
    )


def test_a_study_over_nodes_is_submitted_followed_and_reported(cluster: SlurmCluster, tmp_path: Path) -> None:
    argv = [*TINY, "gpu_counts=[1,2,4]", "name=over nodes", "sweep.sizes=[8,64KiB]", "sweep.budget_s=0.05"]
    done = _submit(cluster, tmp_path, "study", *argv, "--ranks-per-node=2", "--wait")
    logs = "".join(path.read_text() for path in tmp_path.glob("slurm-*.out"))
    assert done.returncode == 0, done.stderr + logs
    study = RunFolder(tmp_path / "runs" / "over nodes")
    assert study.read_info().status == "done", logs
    worlds = {run.path.name: run.read_info().world_size for run in study.read_children()}
    assert worlds == {"gpt_tiny-ddp-n1": 1, "gpt_tiny-ddp-n2": 2, "gpt_tiny-ddp-n4": 4, "sweep": 4}
    assert "weak scaling efficiency" in done.stdout
    assert study.report.is_file()


def test_a_grid_is_an_array_with_a_run_folder_a_task(cluster: SlurmCluster, tmp_path: Path) -> None:
    argv = [*(word for word in TINY if not word.startswith("steps=")), "steps=8,9", "seed=3,4"]
    done = _submit(cluster, tmp_path, "train", *argv, "--ranks-per-node=1", "--at-once=2", "--wait")
    logs = "".join(path.read_text() for path in tmp_path.glob("slurm-*.out"))
    assert done.returncode == 0, done.stdout + done.stderr + logs
    assert "an array of 4" in done.stdout and done.stdout.count(": completed") == 4, done.stdout
    runs = list(find_runs(tmp_path / "runs"))
    assert [run.read_info().status for run in runs] == ["done"] * 4
    configs = [run.config.read_text() for run in runs]
    assert {(text.count("steps: 9"), text.count("seed: 4")) for text in configs} == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_hydras_submitit_launcher_runs_a_multirun_as_jobs(cluster: SlurmCluster, tmp_path: Path) -> None:
    argv = ["-m", "hydra/launcher=submitit_slurm", "hydra.launcher.partition=cpu", "hydra.launcher.timeout_min=5",
             *TINY, "seed=1,2", "launch.ranks=1"]  # fmt: skip
    done = subprocess.run([SCALESCOPE, "train", *argv], cwd=tmp_path, env=cluster.environment, capture_output=True,
                          text=True, timeout=500, check=False)  # fmt: skip
    logs = "".join(path.read_text() for path in tmp_path.rglob("*_log.err"))
    assert done.returncode == 0, done.stdout + done.stderr + logs
    infos = [run.read_info() for run in find_runs(tmp_path / "runs")]
    assert [(info.status, info.launcher) for info in infos] == [("done", "torchrun")] * 2
    assert all("SLURM_JOB_ID" in str(info.environment) for info in infos), "they ran on the cluster"


@pytest.mark.skipif(
    bool(missing_programs(ACCOUNTING)),
    reason=f"no accounts can be kept here: lacking {', '.join(missing_programs(ACCOUNTING))}",
)
def test_a_bad_account_is_one_clear_line(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    with SlurmCluster(tmp_path_factory.mktemp("accounts"), account="lab") as cluster:
        refused = _submit(cluster, tmp_path, "study", "gpu_counts=[1,2]", "name=s", "--account=nobody")
        assert refused.returncode == 2, refused.stdout
        (line,) = refused.stderr.strip().splitlines()
        assert "Slurm refuses" in line and "Invalid account" in line and "give --account=ACCOUNT" in line
        assert "sacctmgr show associations" in line
        assert list(tmp_path.iterdir()) == [tmp_path / "runs"] and not list((tmp_path / "runs").iterdir())
        taken = _submit(cluster, tmp_path, "train", *TINY, "--account=lab", "--ranks-per-node=1")
        assert taken.returncode == 0, taken.stderr


def test_a_dry_run_shows_the_calls_and_submits_nothing(cluster: SlurmCluster, tmp_path: Path) -> None:
    done = _submit(cluster, tmp_path, "study", "gpu_counts=[1,2]", "--ranks-per-node=2", "--dry-run", "--account=me")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("sbatch --parsable") == 4 and done.stdout.count("--account=me") == 4
    assert len(done.stdout.splitlines()) == 8
    whole = _submit(cluster, tmp_path, "study", "gpu_counts=[1,2]", "--ranks-per-node=2", "--dry-run", "--scripts")
    assert whole.stdout.count("#!/bin/bash") == 3  # train, sweep, analyze: each once
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["train", "--partition=nowhere"], "--partition=PARTITION"),
        (["train", "--ranks-per-node=64"], "lower --gpus-per-node, --ranks-per-node"),
        (["train", "--nodes=9", "--ranks-per-node=1"], "lower --gpus-per-node, --ranks-per-node"),
        (["study", "modle=gpt_tiny"], "did you mean model"),
        (["study", "gpu_counts=[3]", "--ranks-per-node=2"], "do not spread evenly"),
    ],
)
def test_an_impossible_request_is_one_clear_line(
    argv: list[str], says: str, cluster: SlurmCluster, tmp_path: Path
) -> None:
    done = _submit(cluster, tmp_path, *argv)
    assert done.returncode == 2, done.stdout + done.stderr
    assert len(done.stderr.strip().splitlines()) == 1 and says in done.stderr


ENDLESS = [*(word for word in TINY if not word.startswith(("steps=", "data="))), "steps=100000", "data=python_stdlib"]


def test_a_job_that_nears_its_time_limit_is_requeued_and_goes_on(cluster: SlurmCluster, tmp_path: Path) -> None:
    """Slurm itself sends the signal, some time in the minute before the limit: perhaps while the ranks still load."""
    fault = FAULTS["time_limit"]
    job = cluster.submit("--time=1", "--signal=USR1@50", str(SCRIPTS / "train.sbatch"), *ENDLESS, cwd=tmp_path)
    folder, log = RunFolder(tmp_path / "runs" / f"slurm-{job}"), tmp_path / f"slurm-{job}.out"
    cluster.wait_until(lambda: cluster.state(job) == "RUNNING")
    since = time.monotonic()
    cluster.wait_until(lambda: cluster.state(job) == "PENDING", fault.within_s + 60)
    assert time.monotonic() - since < fault.within_s
    assert folder.read_info().status == "preempted" and fault.says in log.read_text(), log.read_text()
    assert f"Exited with exit code {fault.exit_code}" in log.read_text()
    before = folder.read_steps()
    cluster.start_now(job)
    cluster.wait_until(lambda: len(folder.read_steps()) > len(before) + 8)
    cluster.cancel(job)
    rows = folder.read_steps()
    assert [row.step for row in rows] == list(range(len(rows))) and rows[: len(before)] == before
    attempts = [row.attempt for row in rows]
    assert attempts[: len(before)] == [0] * len(before) and attempts[len(before)] == 1
    assert attempts == sorted(attempts), "on a busy machine the second start may near the limit, too"


def test_a_job_that_loses_a_node_ends_and_keeps_its_rows(tmp_path_factory: pytest.TempPathFactory) -> None:
    """All that the node runs dies at once, its slurmd too; on a cluster of its own, which is lame from then on."""
    fault = FAULTS["slurmd_gone"]
    with SlurmCluster(tmp_path_factory.mktemp("lame")) as cluster:
        cluster.environment["PATH"] = f"{Path(sys.executable).parent}:{cluster.environment['PATH']}"
        cluster.environment |= {"RANKS_PER_NODE": "1", "MASTER_ADDR": "127.0.0.1"}
        work = cluster.folder / "work"
        work.mkdir()
        job = cluster.submit(
            "--no-requeue", "--nodes=2", "--ntasks-per-node=1", str(SCRIPTS / "train_srun.sbatch"), *ENDLESS, cwd=work
        )
        folder = RunFolder(work / "runs" / f"slurm-{job}")
        cluster.wait_until(lambda: len(folder.read_steps()) > 8)
        since = time.monotonic()
        cluster.lose_node("n1")
        cluster.wait_until(lambda: cluster.state(job) not in ("RUNNING", "COMPLETING"), fault.within_s + 60)
        log = (work / f"slurm-{job}.out").read_text()
        assert time.monotonic() - since < fault.within_s, log
        info = folder.read_info()
        assert info.status == "failed" and fault.says in (info.message or ""), log
        assert cluster.exit_code(job) == fault.exit_code or cluster.state(job) == "NODE_FAIL", log
        steps = [row.step for row in folder.read_steps()]
        assert len(steps) > 8 and steps == list(range(len(steps)))
