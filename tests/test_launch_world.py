"""The world a process is in: found from what launchers really set."""

import pytest

from scalescope.launch.network.rendezvous import first_host
from scalescope.launch.world import World, discover
from scalescope.records.errors import UserError

TORCHRUN = {"TORCHELASTIC_RUN_ID": "1", "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
SRUN = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
}


def test_nobody_made_a_world() -> None:
    assert discover({}) is None


def test_torchrun_beats_slurms_variables_around_it() -> None:
    assert discover({**SRUN, **TORCHRUN}) == World(3, 4, 1, 2, "torchrun")


def test_srun_with_a_task_a_rank_is_a_world() -> None:
    assert discover(SRUN) == World(2, 4, 0, 2, "slurm")


def test_the_body_of_an_sbatch_script_is_no_world() -> None:
    body = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"}
    assert discover(body) is None


def test_one_task_a_node_that_starts_torchrun_is_no_world() -> None:
    assert discover({**SRUN, "SLURM_STEP_NUM_TASKS": "1"}) is None


def test_open_mpis_local_rank_is_read_not_computed() -> None:
    environment = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "0",
                   "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}  # fmt: skip
    assert discover(environment) == World(1, 4, 0, 2, "mpi")


def test_mpich_is_a_world() -> None:
    environment = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
    assert discover(environment) == World(1, 2, 1, 2, "mpi")


@pytest.mark.parametrize("missing", ["RANK", "WORLD_SIZE", "LOCAL_RANK"])
def test_a_half_set_source_names_the_variable_and_the_fix(missing: str) -> None:
    environment = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "h", "MASTER_PORT": "1"}
    del environment[missing]
    with pytest.raises(UserError, match=rf"{missing} is not set.*unset"):
        discover(environment)


def test_ranks_without_an_address_are_refused() -> None:
    with pytest.raises(UserError, match="MASTER_ADDR"):
        discover({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"})


@pytest.mark.parametrize(("key", "value"), [("RANK", "4"), ("RANK", "-1"), ("WORLD_SIZE", "two")])
def test_impossible_ranks_are_refused(key: str, value: str) -> None:
    with pytest.raises(UserError):
        discover({**TORCHRUN, key: value})


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("gpu003", "gpu003"), ("gpu[003-010,12]", "gpu003"), ("a,b", "a"), ("n[1,4-5]x,login", "n1x"), ("n0-1", "n0-1")],
)
def test_the_first_host_of_a_slurm_node_list(nodes: str, first: str) -> None:
    assert first_host(nodes) == first


def test_mpirun_inside_a_slurm_job_is_no_srun() -> None:
    daemons = {**SRUN, "SLURM_STEP_NUM_TASKS": "2", "PMI_RANK": "6", "PMI_SIZE": "8", "MPI_LOCALRANKID": "2"}
    assert discover(daemons) == World(6, 8, 2, None, "mpi")
