"""Why a job ends before its body does: what one rank posts, every rank reads, and one writes into run.json."""

import msgspec

from scalescope.records.rows import EndedBy, RunStatus


class AbortReason(msgspec.Struct, frozen=True):
    """Why the job ends, and by whose word."""

    by: int
    message: str
    status: RunStatus = "failed"
    ended_by: EndedBy | None = None  # where the status does not say it
    marker: int | None = None  # the progress marker that was not passed in time, where that is the reason
    silent: tuple[int, ...] = ()  # ranks that will not read this
