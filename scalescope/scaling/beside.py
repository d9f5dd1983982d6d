"""How the traces of several folders, named in one call, relate to the first of them: one job or several, by what ran.

No trace tells which launch it is of. The same step of a rank is in one launch only once, so a number that two folders
share is of two launches, unless one launch had two profilers, each of which counts from 0; else they may be windows of
one.
"""

from collections.abc import Sequence
from pathlib import Path

from scalescope.records.errors import UserError
from scalescope.scaling.answer_steps import Beside, How
from scalescope.scaling.compare.alike.same_work import another_job, in_common
from scalescope.scaling.compare.kernels.matching import another_size, work_ratio_of
from scalescope.scaling.compare.windows import identity_of
from scalescope.scaling.join.explained import Explained

#: Kernels' blocks are their share of the whole within this, where a job shares out its batch.
_SHARED_OUT = 0.1


def tell_relations(found: Sequence[tuple[Path, Explained]]) -> None:
    """Say in each analysis but the first how its traces relate to those of the first."""
    for path, other in found[1:]:
        other.analysis.beside = _relation(*found[0], path, other)


def _relation(first_path: Path, first: Explained, path: Path, other: Explained) -> Beside:
    name, own_name = _told_apart(first_path, first.analysis.name, path, other.analysis.name)
    how, work_ratio, reason = _how(first_path, first, path, other)
    return Beside(
        name=name,
        own_name=own_name,
        world_size=first.analysis.world_size,
        how=how,
        work_ratio=work_ratio,
        reason=reason,
        alike=None if how in ("unknown", "another_job") else _alike(first, other),
    )


def _alike(first: Explained, other: Explained) -> float | None:
    """Return the share of the compute that is in kernels of the same names; None where both are named alike."""
    here, there = identity_of(first), identity_of(other)
    named = here.model is not None and here.model == there.model
    return None if named or not (here.names and there.names) else in_common(here.names, there.names)


def _told_apart(first_path: Path, first_name: str, path: Path, name: str) -> tuple[str, str]:
    """Return two names by which traces are told apart: folders of one name by as many of those above as that takes."""
    if first_name != name:
        return first_name, name
    first, own = first_path.resolve().parts, path.resolve().parts
    for count in range(1, min(len(first), len(own))):
        if first[-count] != own[-count]:
            return "/".join(first[-count:]), "/".join(own[-count:])
    return str(first_path), str(path)


def _how(first_path: Path, first: Explained, path: Path, other: Explained) -> tuple[How, float | None, str | None]:
    """Return how traces relate to the first ones, how many times their blocks they launch, and why they are others'."""
    here, there = first.analysis, other.analysis
    if not first.kernels or not other.kernels or "unusable" in (here.quality.verdict, there.quality.verdict):
        return "unknown", None, None
    if (refused := another_job(identity_of(first), identity_of(other))) is not None:
        return "another_job", None, refused.notes[0]
    try:
        ratio = work_ratio_of(first_path, path)
    except UserError:
        ratio = None
    same_count = here.world_size == there.world_size
    shared_out = ratio is not None and abs(ratio * there.world_size / here.world_size - 1) <= _SHARED_OUT
    if another_size(ratio) is not None and (same_count or not shared_out):
        return "another_size", ratio, None
    if not same_count:
        return "another_world_size", ratio, None
    if not {row.rank for row in here.ranks} & {row.rank for row in there.ranks}:
        return "other_ranks", ratio, None
    steps = [{(row.rank, row.step) for row in one.steps} for one in (here, there)]
    if not here.steps_by == there.steps_by == "profiler" or not all(steps):
        return "unnumbered_steps", ratio, None
    return "same_job" if steps[0] & steps[1] else "other_steps", ratio, None
