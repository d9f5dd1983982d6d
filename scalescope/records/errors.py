"""The errors a user is meant to read, and the exit code each of them ends with."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What a scalescope process tells its caller."""

    OK = 0
    CHECK_FAILED = 1  # a measured regression or a failed check
    USER_INPUT = 2  # the command, the config or a file the user named is wrong, or tells nothing; nothing was started
    RUN_FAILED = 3  # it failed while running; what was measured is kept and named
    PREEMPTED = 75  # state saved on request: run me again


class UserError(Exception):
    """Input that the user can mend. The message says what is wrong, where, and what to do."""

    exit_code = ExitCode.USER_INPUT


class RunError(Exception):
    """A job that failed while running. The message names what is kept and where."""

    exit_code = ExitCode.RUN_FAILED


class NothingMeasured(RunError):
    """A job that came to its end on every rank, and has nothing to show for it."""


class Stopped(RunError):
    """A job that somebody stopped: what would have come after it is not started either."""


class Preempted(Exception):
    """The job was asked to end, has saved its state, and can be run again from there."""

    exit_code = ExitCode.PREEMPTED


class ReaderGone(BrokenPipeError):
    """What is printed has no reader any more (`| head`); the exit code was known before, and stands."""

    def __init__(self, exit_code: ExitCode) -> None:
        super().__init__()
        self.exit_code = exit_code
