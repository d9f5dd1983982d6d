"""What is said first of a folder that holds files of several windows or jobs: which belong together, and what to do."""

from collections.abc import Sequence

from scalescope.report.drawing.numbers import listing, span
from scalescope.scaling.answer import Apart, Mixed

#: So many windows or jobs are named by their files, and so many files of each.
_MOST_NAMED, _MOST_FILES = 4, 3

_WHY: dict[Apart, str] = {
    "rank": "which hold the same ranks",
    "world_size": "whose headers name different numbers of ranks",
    "backend": "whose ranks talk by different libraries",
    "vendor": "whose devices are of different vendors",
    "work": "which compute different things",
    "times": "which lie apart in time",
    "steps": "which have no step in common",
    "collectives": "whose collectives did not run together, whatever the clocks",
}


def mixed_sentence(mixed: Mixed, *, lacks_ranks: bool) -> str:
    """Return the sentence; `lacks_ranks`: of the window or job that is told here, other ranks' traces are missing."""
    count = len(mixed.files)
    what = "jobs or windows" if mixed.apart in ("rank", "collectives") else mixed.kind
    named = [f"({number}) {_files(files)}" for number, files in enumerate(mixed.files[:_MOST_NAMED], 1)]
    more = [f"{count - _MOST_NAMED} more"] if count > _MOST_NAMED else []
    why = _WHY[mixed.apart]
    if mixed.apart_s is not None:
        later = f"{span(mixed.apart_s)} apart"
        why = f"which lie {later}" if mixed.apart == "times" else f"{later}, {why}"
    mend = "give each a folder of its own"
    if lacks_ranks:
        mend = "who waits for whom is not in them: profile every rank in the same steps, into a folder of its own"
    return (
        f"the folder mixes {count} {what}, {listing([*named, *more])}, {why}; each is told by itself, {mixed.number} "
        f"here; {mend}."
    )


def _files(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_FILES]) + (
        f" and {len(names) - _MOST_FILES} more" if len(names) > _MOST_FILES else ""
    )
