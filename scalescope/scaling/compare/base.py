"""Whether a run is one job on another number of ranks than its base: each rank with as much work, or its share."""

from scalescope.records.errors import UserError
from scalescope.scaling.compare.alike.same_work import another_job
from scalescope.scaling.compare.kernels.matching import another_size
from scalescope.scaling.compare.windows import identity_of
from scalescope.scaling.join.explained import Explained

#: Work that is shared out gives each rank its share of the blocks within this: grids are rounded up.
_SHARED_OUT = 0.1


def refuse_other_work(base: Explained, here: Explained, ratio: float | None) -> None:
    """Raise UserError unless a rank has as much to do in both runs (weak scaling), or its share of it (strong).

    `ratio`: by how much more the same kernels have to do in `here`; None where nothing tells.
    """
    names = f"{here.analysis.name} is not {base.analysis.name}'s job"
    if (refused := another_job(identity_of(base), identity_of(here))) is not None:
        raise UserError(f"{names}: {refused.notes[0]}; give --base the same job on another number of ranks")
    share = base.analysis.world_size / here.analysis.world_size
    if (differs := another_size(ratio)) is not None and (ratio is None or abs(ratio / share - 1) > _SHARED_OUT):
        raise UserError(
            f"{names}: {differs}; give --base as much work a rank, or {share:.3g} times it, the whole shared out"
        )
