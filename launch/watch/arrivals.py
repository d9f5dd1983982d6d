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
    known, unseen, run = [], [], dict[str, list[int]]()
    for rank in silent:
        beat = heartbeats[rank]
        last = "here" if beat is None or beat.marker == furthest[0] else f"at {beat.name}"
        if beat is None:
            known.append(f"rank {rank} never joined: not started, stopped or dead")
        elif (state := process_state(beat)) is not None:
            known.append(f"rank {rank} ({beat}) {state}, last heard from {last}")
        elif is_of_this_host(beat):
            run.setdefault(last, []).append(rank)
        else:
            unseen.append(f"rank {rank} ({beat}) does not respond: stopped, dead, cut off, or inside a library, "
                          f"last heard from {last}")  # fmt: skip
    parts = [*known, *unseen, *(_what_holds(ranks, heartbeats, last) for last, ranks in run.items())]
    parts += [f"{_ranks(at[where])} did not arrive: at {where[1]}" for where in sorted(at) if where != furthest]
    if not parts:
        return "every rank arrived: the library or the network hangs"
    return "; ".join([*parts, *(f"{_ranks(ranks)} arrived" for where, ranks in at.items() if where == furthest)])


def _what_holds(ranks: Sequence[int], heartbeats: dict[int, Heartbeat | None], last: str) -> str:
    """Return what keeps ranks of this host that say nothing, though their processes are neither stopped nor dead."""
    if len(ranks) == 1:
        who = f"{_ranks(ranks)} ({heartbeats[ranks[0]]}) runs, but gives no sign of life: it waits"
    else:
        who = f"{_ranks(ranks)} run, but give no sign of life: they wait"
    return f"{who} inside a library, or for a core, last heard from {last}"


def _ranks(ranks: Sequence[int]) -> str:
    listed = ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {listed}"
