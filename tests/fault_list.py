"""The faults themselves, in the order of the page's table; see tests/faults.py for what the columns mean."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One fault, and what holds when it happens."""

    what: str
    made_by: str  # how, from outside the process
    exit_code: int | str  # of the command that the user gave
    within_s: float  # from the fault to that command's end, on two busy cores
    says: str  # part of run.json's message or of the command's own words
    keeps: str
    proven_by: str  # file::test
    tried: bool = True  # False: written, and not run yet for want of the device


_TRAINING = "tests/test_faults_training.py::test_"
_SWEEP = "tests/test_faults_sweep.py::test_"
_JOINING = "tests/test_faults_joining.py::test_"
_MPI = "tests/test_faults_mpi.py::test_"
_SURROUNDINGS = "tests/test_faults_surroundings.py::test_"
_INSIDE = "tests/test_faults_in_process.py::test_"
_RESOURCES = "tests/test_faults_resources.py::test_"
_GPUS = "tests/test_faults_on_gpus.py::test_"
_WANDB = "tests/test_report_wandb_faults.py::test_"
_RESUME = "tests/test_train_resume.py::test_"
_UNTRUSTED = "tests/test_train_untrusted.py::test_"
_FRONT = "tests/test_front_door.py::test_"

FAULTS: dict[str, Fault] = {
    "killed_before_init": Fault(
        "a rank is killed before it has joined", "SIGKILL while it loads torch", 3, 15, "rank 1 was ended by SIGKILL",
        "run.json with the reason", _JOINING + "a_rank_killed_before_it_joins",
    ),
    "stopped_before_init": Fault(
        "a rank is stopped before it has joined", "SIGSTOP while it loads torch, `launch.init_limit_s=8`", 3, 45,
        "rank 1 never joined", "run.json with the reason, the stacks of the others",
        _JOINING + "a_rank_stopped_before_it_joins",
    ),
    "killed_in_step": Fault(
        "a rank is killed in mid-step", "SIGKILL", 3, 15, "rank 1 (process",
        "every step's row until then, the others' flight records", _TRAINING + "a_rank_killed_in_mid_step",
    ),
    "killed_in_collective": Fault(
        "a rank is killed in a collective", "SIGKILL during all-reduces of 64 MiB in a sweep", 3, 15, "rank 1 (process",
        "every finished point's row; `resume=true` goes on", _SWEEP + "a_rank_killed_in_a_collective",
    ),
    "terminated_in_collective": Fault(
        "a sweep is asked to end", "SIGTERM, as `kill`, `scancel` or a launcher sends it", 3, 15,
        "was asked to end by SIGTERM", "every finished point's row; `resume=true` goes on",
        _SWEEP + "a_sweep_that_is_asked_to_end_in_a_collective",
    ),
    "stopped_in_step": Fault(
        "a rank is stopped in mid-step", "SIGSTOP, `launch.step_limit_s=3`", 3, 25, "is stopped, last heard from",
        "every step's row until then, the others' stacks and flight records",
        _TRAINING + "a_rank_stopped_in_mid_step_is_named",
    ),
    "rank0_stopped": Fault(
        "rank 0 is stopped, and it serves the store", "SIGSTOP under mpirun, `launch.step_limit_s=3`", 3, 40,
        "rank 0, or the launcher that serves it, is stopped", "every step's row until then",
        _MPI + "a_stopped_rank_0_that_serves_the_store",
    ),
    "stopped_at_end_mpi": Fault(
        "a rank is stopped when all is done", "SIGSTOP under mpirun as its Python ends, `launch.step_limit_s=3`", 9, 60,
        "", "everything; nothing in /dev/shm",
        _MPI + "a_rank_stopped_at_its_end_is_ended_and_nothing_is_left",
    ),
    "stopped_at_end": Fault(
        "a rank is stopped when all is done, started by scalescope", "SIGSTOP as its Python ends, "
        "`launch.step_limit_s=3`", 3, 60, "was ended by SIGKILL when all was done", "everything",
        _TRAINING + "a_rank_stopped_at_its_end_is_ended",
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
        _SWEEP + "a_rank_stopped_outside_the_group_at_work_is_named",
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
        "the rows that fitted, whole", _SURROUNDINGS + "a_full_disk_ends_a_job_with_whole_rows",
    ),
    "port_taken": Fault(
        "the port where ranks meet is taken", "another process listens on MASTER_PORT, under mpirun", 2, 40,
        "is taken by another process", "nothing was started", _MPI + "a_port_that_is_taken",
    ),
    "wandb_unreachable": Fault(
        "W&B is unreachable", "its address answers nobody, `logger.wandb.mode=online`", 0, 120, "", "everything",
        _SURROUNDINGS + "an_unreachable_wandb_stops_nothing",
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
        "Ctrl-C", "SIGINT, at any moment: while it composes, between the starts of two ranks, while they load and "
        "join, in training", 3, 40, "scalescope: ",
        "every step's row until then; no rank stays behind",
        "tests/test_faults_ctrl_c.py::test_ctrl_c_while_ranks_load_ends_the_job_as_interrupted",
    ),
    "interrupted_twice": Fault(
        "Ctrl-C again, while ranks do not come to their end", "SIGINT, and SIGINT 0.3 s later; the ranks are stopped",
        3, 15,
        "stopped by SIGINT", "every step's row until then; no rank stays behind",
        "tests/test_faults_ctrl_c.py::test_a_second_ctrl_c_ends_ranks_at_once",
    ),
    "async_exception": Fault(
        "an exception comes into a rank's main thread from another", "PyThreadState_SetAsyncExc", 3, 30,
        "ZeroDivisionError", "every step's row until then",
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
    "host_vanishes": Fault(
        "the host with rank 0 and the store vanishes from the network", "its link goes down, `launch.step_limit_s=3`",
        3, 60, "", "every step's row until then; the ranks on both sides end",
        _INSIDE + "a_host_that_vanishes_from_the_network_ends_the_job_on_both_sides",
    ),
    "shm_full": Fault(
        "/dev/shm is full", "64 kB of it, and loading processes that hand on images", 3, 90, "/dev/shm",
        "run.json with the reason", _RESOURCES + "a_full_dev_shm_ends_a_job_with_loading_processes_in_one_line",
    ),
    "descriptors": Fault(
        "a rank runs out of file descriptors", "its limit falls below what it has open; checkpoints are due", 0, 120,
        "could not be written", "every step's row",
        _RESOURCES + "a_rank_without_file_descriptors_trains_on_and_says_what_could_not_be_written",
    ),
    "study_between_jobs": Fault(
        "a study is told to end between two jobs", "SIGTERM", 3, 60, "stopped",
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
    "rank0_stopped_early": Fault(
        "rank 0 is stopped before there is a run folder", "SIGSTOP under torchrun, `launch.init_limit_s=8`", 1, 40,
        "rank 0 never joined", "nothing was started", _JOINING + "a_rank_0_stopped_before_there_is_a_folder_is_named",
    ),
    "rank0_killed": Fault(
        "rank 0 is killed with the store it serves", "SIGKILL; ranks that no launcher looks after", 3, 60, "has died",
        "every step's row until then", _TRAINING + "a_rank_0_that_is_killed_with_the_store_it_serves_is_named",
    ),
    "death_and_sigterm": Fault(
        "a rank is killed, and the launcher ends the others at once", "SIGKILL, then SIGTERM to the other rank", 3, 15,
        "rank 1 (process", "every finished point's row",
        _SWEEP + "a_launchers_sigterm_that_follows_a_death_does_not_hide_it",
    ),
    "interrupted_in_mpi": Fault(
        "a rank is interrupted while MPI brings the ranks together", "SIGINT under mpirun", 3, 100, "interrupted",
        "nothing was started",
        _MPI + "a_rank_that_is_interrupted_while_mpi_brings_the_ranks_together_ends",
    ),
    "ends_before_mpi": Fault(
        "a rank ends before it comes to MPI", "`os._exit(3)` as its Python begins", 3, 100, "in _mpi_master",
        "nothing was started", _MPI + "ranks_do_not_wait_for_one_that_ends_before_it_comes_to_mpi",
    ),
    "torchrun_restarts": Fault(
        "a rank is killed under `torchrun --max-restarts=1`", "SIGKILL after a checkpoint", 0, 100, "",
        "one run folder, every step's row once", _TRAINING + "torchruns_own_restart_goes_on_in_the_same_folder",
    ),
    "launcher_ended_early": Fault(
        "the launcher is asked to end before it has ranks", "SIGTERM", 3, 60, "stopped by SIGTERM",
        "run.json with the reason", _JOINING + "a_launcher_that_is_ended_before_it_has_ranks_says_so_in_run_json",
    ),
    "launcher_killed_early": Fault(
        "the launcher is killed while the ranks load", "SIGKILL", -9, 120, "the launcher died while rank",
        "run.json with the reason; no rank stays behind",
        _JOINING + "ranks_whose_launcher_is_killed_while_they_load_end",
    ),
    "terminal_closed": Fault(
        "the terminal of a job under nohup closes", "SIGHUP to its process group", 0, 100, "", "everything",
        _SURROUNDINGS + "a_job_that_nohup_keeps_outlives_its_terminal",
    ),
    "console_gone": Fault(
        "the reader of a job's words goes away", "its end of the pipe closes, as `head -1` does", 0, 120, "",
        "everything",
        _FRONT + "a_job_whose_console_goes_away_runs_to_its_end",
    ),
    "own_code_hangs": Fault(
        "a rank hangs in its own code", "its data set waits for ever, `launch.step_limit_s=3`", 3, 90,
        "rank 1 did not arrive: at loading the batch", "every step's row until ranks last exchanged theirs; its stack",
        _TRAINING + "a_rank_that_hangs_in_its_own_code_is_told_from_those_that_wait_for_it",
    ),
    "lock_held": Fault(
        "a rank hangs with Python's lock held", "a call into C that does not return", -9, 30, "has run no Python for",
        "run.json with the reason, its stacks",
        "tests/test_launch_process_watchdog.py::"
        "test_a_rank_that_hangs_with_pythons_lock_is_ended_and_its_stacks_are_kept",
    ),
    "stopped_beside_lock_held": Fault(
        "a rank is stopped, and no rank that waits for it runs Python",
        "SIGSTOP under torchrun, beside calls into C that do not return; a limit of 2 s", 1, 20, "is stopped; rank",
        "run.json with the reason, the others' stacks; no rank stays behind",
        "tests/test_launch_stopped_beside_silent.py::"
        "test_a_stopped_rank_is_named_and_ended_where_no_other_rank_runs_python",
    ),
    "out_of_memory": Fault(
        "one rank has no memory for a size of a sweep", "its allocator refuses", 0, 60,
        "do not fit into every rank's memory", "a row for the size, and all others",
        "tests/test_collectives_faults.py::test_a_size_that_one_rank_has_no_memory_for_is_a_row_and_the_sweep_goes_on",
    ),
    "killed_while_saving": Fault(
        "a job is killed while it saves", "SIGKILL to all ranks", -9, 100, "",
        "the checkpoint before; the losses of an undisturbed job",
        _RESUME + "a_job_that_is_killed_while_it_saves_goes_on_from_the_checkpoint_before_bit_for_bit",
    ),
    "checkpoint_corrupt": Fault(
        "a checkpoint is corrupt", "its files are cut short", 3, 200, "remove it to go on from step 20",
        "everything", _RESUME + "a_corrupt_checkpoint_is_named_with_the_way_out",
    ),
    "checkpoint_unwritable": Fault(
        "a checkpoint cannot be written", "a file in its folder's place", 0, 200, "could not be written",
        "every step's row", _RESUME + "a_checkpoint_that_cannot_be_written_costs_no_step",
    ),
    "checkpoint_hostile": Fault(
        "a checkpoint holds a command", "a pickle in its metadata, its settings, or DeepSpeed's file", 3, 200,
        "cannot be read", "the command does not run",
        _UNTRUSTED + "a_checkpoint_whose_metadata_names_a_command_is_refused",
    ),
    "config_hostile": Fault(
        "a run folder's config names a command as its logger", "`_target_: os.system`", 0, 200, "there is no sink",
        "everything; the command does not run",
        _UNTRUSTED + "a_config_that_names_another_sink_runs_nothing_and_the_job_goes_on",
    ),
    "config_damaged": Fault(
        "a run folder's config is no frozen config", "aliases that multiply, `${oc.env:…}`, tags, brackets", 2, 10,
        "the frozen config is not what freezing wrote", "everything",
        "tests/test_frozen_config.py::test_what_freezing_does_not_write_is_refused_in_one_line",
    ),
    "store_poisoned": Fault(
        "a neighbour writes a pickle into the store", "the key that torchrun's other rendezvous reads",
        "none, the job goes on", 8, "", "everything; the command does not run",
        "tests/test_launch_loopback.py::test_a_pickle_that_a_neighbour_writes_into_the_store_runs_nothing",
    ),
    "two_at_once": Fault(
        "two jobs go on with the same run at once", "two commands with `resume=true`, started together", 2, 90,
        "another job is writing", "every row once; the other one goes on",
        "tests/test_faults_two_jobs.py::test_of_two_jobs_that_go_on_with_the_same_run_one_is_refused",
    ),
    "no_file": Fault(
        "a pipe or a device is in a file's place",
        "config, rows, facts, analysis, traces, flight records", "0, 2 or 3", 90, "", "everything",
        "tests/test_special_files.py::test_what_is_no_file_holds_nobody_up",
    ),
    "study_asked_to_end": Fault(
        "a study is asked to end during a job", "SIGTERM", 3, 60, "asked to stop", "what ran; no further job starts",
        _FRONT + "a_study_that_is_asked_to_stop_starts_no_further_job",
    ),
    "wandb_killed": Fault(
        "W&B's process is killed", "SIGKILL", 0, 60, "", "everything",
        _WANDB + "a_killed_wandb_process_does_not_stop_the_job",
    ),
    "wandb_frozen": Fault(
        "W&B's process is frozen, at the job's begin or at its end", "SIGSTOP", 0, 60, "", "everything",
        _WANDB + "a_frozen_wandb_process_holds_the_job_up_for_no_longer_than_it_may",
    ),
    "wandb_disk_full": Fault(
        "the disk under W&B's copy is full", "a small tmpfs", 0, 100, "", "everything",
        _WANDB + "a_full_disk_under_wandb_does_not_stop_the_job",
    ),
    "wandb_left_open": Fault(
        "rank 0 is killed with a W&B run open", "SIGKILL", 3, 100, "rank 0",
        "every step's row; W&B is told how the job ended",
        _WANDB + "a_job_whose_rank_0_is_killed_is_ended_and_told_by_who_started_it",
    ),
}  # fmt: skip
