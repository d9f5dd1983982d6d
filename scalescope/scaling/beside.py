"""How the traces of several folders, named in one call, relate to the first of them: one job or several, by what ran.

No trace tells which launch it is of. The same step of a rank is in one launch only once, so a number that two folders
share is of two launches; else they may be windows of one.
"""

from collections.abc import Sequence
from pathlib import Path

from scalescope.records.errors import UserError
from scalescope.scaling.answer_steps import Beside
from scalescope.scaling.compare.kernels.matching import another_size, work_ratio_of
from scalescope.scaling.compare.same_work import another_job
from scalescope.scaling.compare.windows import identity_of
from scalescope.scaling.join.explained import Explained

#: Kernels' blocks are their share of the whole within this, where a job shares out its batch.
_SHARED_OUT = 0.1


def tell_relations(found: Sequence[tuple[Path, Explained]]) -> None:
    """Say in each analysis but the first how its traces relate to those of the first."""
    for path, other in found[1:]:
        other.analysis.beside = _relation(*found[0], path, other)


def _relation(first_path: Path, first: Explained, path: Path, other: Explained) -> Beside:
    here, there = first.analysis, other.analysis
    if not first.kernels or not other.kernels or "unusable" in (here.quality.verdict, there.quality.verdict):
        return Beside(name=here.name, how="unknown")
    if (refused := another_job(identity_of(first), identity_of(other))) is not None:
        return Beside(name=here.name, how="another_job", reason=refused.notes[0])
    try:
        ratio = work_ratio_of(first_path, path)
    except UserError:
        ratio = None
    sizes = here.world_size, there.world_size
    if here.world_size != there.world_size:
        shared_out = ratio is not None and abs(ratio * sizes[1] / sizes[0] - 1) <= _SHARED_OUT
        if another_size(ratio) is not None and not shared_out:
            return Beside(name=here.name, how="another_size", work_ratio=ratio)
        return Beside(name=here.name, how="another_world_size", work_ratio=ratio)
    if another_size(ratio) is not None:
        return Beside(name=here.name, how="another_size", work_ratio=ratio)
    if not {row.rank for row in here.ranks} & {row.rank for row in there.ranks}:
        return Beside(name=here.name, how="other_ranks", work_ratio=ratio)
    numbered = here.steps_by == there.steps_by == "profiler"
    steps = [{(row.rank, row.step) for row in one.steps} for one in (here, there)]
    if numbered and steps[0] and steps[1] and not steps[0] & steps[1]:
        return Beside(name=here.name, how="other_steps", work_ratio=ratio)
    return Beside(name=here.name, how="same_job", work_ratio=ratio)
