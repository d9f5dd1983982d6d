"""Which ranks arrived at a progress marker and which did not, as text."""

from collections.abc import Sequence

from scalescope.launch.watch.presence import Heartbeat, is_of_this_host, process_state

JOINING = -(1 << 20)  # the markers of a job's start, which lie before those of its body
FORMING, MEASURING, PREPARING = JOINING + 1, JOINING + 2, JOINING + 3
END = 1 << 60


def where_they_are(heartbeats: dict[int, Heartbeat | None], silent: Sequence[int]) -> str:
    """Return which ranks arrived where, and what has become of those that say nothing: the stopped and dead ones first.

    Of a rank that waits for others by itself, nobody expects more.
    """
    at: dict[tuple[int, str], list[int]] = {}
    for rank, beat in heartbeats.items():
        if rank not in silent and beat is not None and not beat.waits:
            at.setdefault((beat.marker, beat.name), []).append(rank)
    furthest = max(at, default=(END, ""))
    causes_first = sorted(
        silent, key=lambda rank: (beat := heartbeats[rank]) is not None and process_state(beat) is None
    )
    parts = [f"rank {rank} {_what_became_of(heartbeats[rank], furthest[0])}" for rank in causes_first]
    parts += [f"{_ranks(at[where])} did not arrive: at {where[1]}" for where in sorted(at) if where != furthest]
    if not parts:
        return "every rank arrived: the library or the network hangs"
    return "; ".join([*parts, *(f"{_ranks(ranks)} arrived" for where, ranks in at.items() if where == furthest)])


def _what_became_of(beat: Heartbeat | None, furthest: int) -> str:
    if beat is None:
        return "never joined: not started, stopped or dead"
    where = "here" if beat.marker == furthest else f"at {beat.name}"
    silent = "runs, but gives no sign of life: it waits inside a library, or for a core"
    if not is_of_this_host(beat):
        silent = "does not respond: stopped, dead or cut off"
    return f"({beat}) {process_state(beat) or silent}, last heard from {where}"


def _ranks(ranks: Sequence[int]) -> str:
    listed = ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {listed}"
