"""What can go wrong around a job, how a test makes it happen, and what then holds: the source of docs/reliability.md.

The tests take exit codes, limits and words from here, so the table says what they assert. `python tests/faults.py`
writes it anew.
"""

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reliability.md"
_MARKS = ("<!-- faults: written by tests/faults.py -->\n", "<!-- end of faults -->\n")


@dataclass(frozen=True)
class Fault:
    """One fault, and what holds when it happens."""

    what: str
    made_by: str  # how, from outside the process
    exit_code: int  # of the command that the user gave
    within_s: float  # from the fault to that command's end, on two busy cores
    says: str  # part of run.json's message or of the command's own words
    keeps: str
    proven_by: str  # file::test
    tried: bool = True  # False: written, and not run yet for want of the device


_TRAINING = "tests/test_faults.py::test_"
_INSIDE = "tests/test_faults_in_process.py::test_"
_GPUS = "tests/test_faults_on_gpus.py::test_"

FAULTS = {
    "killed_before_init": Fault(
        "a rank is killed before it has joined", "SIGKILL while it loads torch", 3, 15, "rank 1 was ended by SIGKILL",
        "run.json with the reason", _TRAINING + "a_rank_killed_before_it_joins",
    ),
    "stopped_before_init": Fault(
        "a rank is stopped before it has joined", "SIGSTOP while it loads torch, `launch.init_limit_s=8`", 3, 45,
        "rank 1 never joined", "run.json with the reason, the stacks of the others",
        _TRAINING + "a_rank_stopped_before_it_joins",
    ),
    "killed_in_step": Fault(
        "a rank is killed in mid-step", "SIGKILL", 3, 15, "rank 1 (process",
        "every step's row until then, the others' flight records", _TRAINING + "a_rank_killed_in_mid_step",
    ),
    "killed_in_collective": Fault(
        "a rank is killed in a collective", "SIGKILL during all-reduces of 64 MiB in a sweep", 3, 15, "rank 1 (process",
        "every finished point's row; `resume=true` goes on", _TRAINING + "a_rank_killed_in_a_collective",
    ),
    "terminated_in_collective": Fault(
        "a sweep is asked to end", "SIGTERM, as `kill`, `scancel` or a launcher sends it", 3, 15,
        "was asked to end by SIGTERM", "every finished point's row; `resume=true` goes on",
        _TRAINING + "a_sweep_that_is_asked_to_end_in_a_collective",
    ),
    "stopped_in_step": Fault(
        "a rank is stopped in mid-step", "SIGSTOP, `launch.step_limit_s=3`", 3, 25, "is stopped, last heard from",
        "every step's row until then, the others' stacks and flight records",
        _TRAINING + "a_rank_stopped_in_mid_step_is_named",
    ),
    "rank0_stopped": Fault(
        "rank 0 is stopped, and it serves the store", "SIGSTOP under mpirun, `launch.step_limit_s=3`", 3, 40,
        "rank 0, or the launcher that serves it, is stopped", "every step's row until then",
        _TRAINING + "a_stopped_rank_0_that_serves_the_store",
    ),
    "stopped_in_collective": Fault(
        "a rank is stopped in a collective", "SIGSTOP in a sweep, `hang_limit_s=2`", 3, 30,
        "is stopped, last heard from", "every finished point's row, a `failed` one with the reason",
        "tests/test_collectives_faults.py::test_killed_stopped_interrupted_and_out_of_disk_a_sweep_keeps_its_rows_"
        "and_finishes",
    ),
    "stopped_outside_group": Fault(
        "a rank is stopped while a group without it is at work", "SIGSTOP in a sweep over 2 of 3 ranks, "
        "`hang_limit_s=2`", 3, 45, "is stopped, last heard from", "every finished point's row",
        _TRAINING + "a_rank_stopped_outside_the_group_at_work_is_named",
    ),
    "launcher_killed": Fault(
        "the launcher is killed", "SIGKILL to `scalescope train`", -9, 20, "the job's store at",
        "every step's row until then; no rank stays behind", _TRAINING + "ranks_whose_launcher_is_killed_end",
    ),
    "restarted": Fault(
        "a rank is killed, with `launch.max_restarts=1`", "SIGKILL after a checkpoint", 0, 90, "",
        "one run folder, every step's row once, the losses of an undisturbed job",
        _TRAINING + "a_killed_rank_is_started_again_and_goes_on_from_the_checkpoint",
    ),
    "preempted": Fault(
        "preemption", "SIGUSR1, at any moment, also while the ranks still load", 75, 60, "state is saved",
        "every step's row, and a checkpoint to go on from",
        _TRAINING + "a_request_to_stop_is_obeyed_whenever_it_comes",
    ),
    "disk_full": Fault(
        "the disk is full", "another writer fills a small tmpfs", 3, 40, "No space left",
        "the rows that fitted, whole", _TRAINING + "a_full_disk_ends_a_job_with_whole_rows",
    ),
    "port_taken": Fault(
        "the port where ranks meet is taken", "another process listens on MASTER_PORT, under mpirun", 2, 40,
        "is taken by another process", "nothing was started", _TRAINING + "a_port_that_is_taken",
    ),
    "wandb_unreachable": Fault(
        "W&B is unreachable", "its address answers nobody, `logger.wandb.mode=online`", 0, 120, "", "everything",
        _TRAINING + "an_unreachable_wandb_stops_nothing",
    ),
    "time_limit": Fault(
        "Slurm's time limit nears", "`--time=1`, `--signal=USR1@50`; Slurm sends it", 75, 90, "state is saved",
        "every step's row and a checkpoint; requeued, the job goes on in the same run folder",
        "tests/test_slurm.py::test_a_job_that_nears_its_time_limit_is_requeued_and_goes_on",
    ),
    "slurmd_gone": Fault(
        "a node of a Slurm job is lost", "SIGKILL to its slurmd and all that it runs", 3, 60, "has died",
        "every step's row until then", "tests/test_slurm.py::test_a_job_that_loses_a_node_ends_and_keeps_its_rows",
    ),
    "segfault": Fault(
        "a rank crashes", "SIGSEGV in mid-step", 3, 25, "rank 1 (process", "every step's row until then",
        _INSIDE + "a_rank_that_crashes_is_named_with_its_signal",
    ),
    "abort": Fault(
        "a rank aborts", "SIGABRT in mid-step, as a failed assertion of a library", 3, 25, "rank 1 (process",
        "every step's row until then", _INSIDE + "a_rank_that_crashes_is_named_with_its_signal",
    ),
    "interrupted": Fault(
        "Ctrl-C", "SIGINT, at any moment, also while the ranks still load", 3, 40, "scalescope: ",
        "every step's row until then; no rank stays behind", _INSIDE + "ctrl_c_ends_a_job_whenever_it_comes",
    ),
    "async_exception": Fault(
        "an exception comes into a rank's main thread from another", "PyThreadState_SetAsyncExc", 3, 30,
        "MemoryError", "every step's row until then",
        _INSIDE + "an_exception_raised_into_a_ranks_main_thread_from_another_ends_the_job",
    ),
    "thread_exception": Fault(
        "a thread of the user's fails", "an exception in it", 0, 120, "", "everything",
        _INSIDE + "a_thread_of_the_users_that_fails_costs_no_step",
    ),
    "handler_exception": Fault(
        "a signal's handler fails", "an exception in a handler of SIGUSR2", 3, 30, "in a handler",
        "every step's row until then", _INSIDE + "an_exception_in_a_signal_handler_ends_the_job",
    ),
    "communicator_aborts": Fault(
        "a communicator aborts", "torch's own abort, on rank 1 alone", 3, 45, "rank 1", "every step's row until then",
        _INSIDE + "a_communicator_that_aborts_under_a_rank_ends_the_job",
    ),
    "host_vanishes": Fault(
        "the host with rank 0 and the store vanishes from the network", "its link goes down, `launch.step_limit_s=3`",
        3, 60, "", "every step's row until then; the ranks on both sides end",
        _INSIDE + "a_host_that_vanishes_from_the_network_ends_the_job_on_both_sides",
    ),
    "shm_full": Fault(
        "/dev/shm is full", "64 kB of it, and loading processes that hand on images", 3, 90, "/dev/shm",
        "run.json with the reason", _INSIDE + "a_full_dev_shm_ends_a_job_with_loading_processes_in_one_line",
    ),
    "descriptors": Fault(
        "a rank runs out of file descriptors", "all are taken, and a checkpoint is due", 3, 60, "",
        "every step's row until then", _INSIDE + "out_of_file_descriptors_is_one_line",
    ),
    "study_between_jobs": Fault(
        "a study is told to end between two jobs", "SIGTERM, SIGINT or SIGUSR1", 3, 60, "stopped",
        "what ran", _INSIDE + "a_study_that_is_told_to_end_between_two_jobs_ends",
    ),
    "gpu_error": Fault(
        "a kernel reads an illegal address", "an index beyond a tensor, on one GPU of two", 3, 60, "rank 1",
        "every step's row until then", _GPUS + "an_illegal_address_on_one_gpu_ends_the_job", tried=False,
    ),
    "gpu_sleeps": Fault(
        "a GPU sleeps", "a kernel that does not end, `launch.step_limit_s=5`", 3, 90, "rank 1",
        "every step's row until then", _GPUS + "a_gpu_that_sleeps_is_a_hang_that_names_its_rank", tried=False,
    ),
    "nccl_aborts": Fault(
        "NCCL's communicator aborts", "torch's own abort, on rank 1 alone", 3, 60, "rank 1",
        "every step's row until then", _GPUS + "a_nccl_communicator_that_aborts_ends_the_job", tried=False,
    ),
}  # fmt: skip


def table() -> str:
    """Return the page's table."""
    lines = ["| what happens | made by | exit code | within | it says | it keeps |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {fault.what} | {fault.made_by} | {fault.exit_code} | {fault.within_s:g} s | "
        f"{f'“… {fault.says} …”' if fault.says else ''} | {fault.keeps} |"
        for fault in FAULTS.values()
    ]
    return "\n".join(lines) + "\n"


def page_with_table(page: str) -> str:
    """Return the page with its table as it is now."""
    begin, end = _MARKS
    return re.sub(f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: begin + table() + end, page, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(page_with_table(PAGE.read_text()))
