"""What a rank's own code has computed the long way, as its operators tell: which of its activities that makes."""

from dataclasses import dataclass, field
from typing import NamedTuple


class Update(NamedTuple):
    """One loop over parameters in one step."""

    step: int
    activities: tuple[int, ...]  # that the rule is made of, ascending
    parameters: int
    roots: bool  # as Adam and its kin take, which have a fused form
    anew: bool  # it makes tensors that are gone with the next operator
    clips: bool = False  # it squares, sums up and scales each gradient: as clipping does, by norms of its own


class Chain(NamedTuple):
    """One normalisation of one step, forwards or backwards."""

    step: int
    activities: tuple[int, ...]  # all that the loop's thread runs from its first to its last operator
    operators: int  # of these, the ones that compute; of a backward pass 0


@dataclass(frozen=True, slots=True)
class LongWay:
    """Activities of a rank, by what its host runs: on CPUs these operators, else what they have launched. `operators`,
    `double` and `converting` are of devices alone.
    """

    single: dict[str, list[int]] = field(default_factory=dict)  # an optimizer's, by its step's name: see optimizers.py
    updates: list[Update] = field(default_factory=list)  # see by_hand.py
    chains: list[Chain] = field(default_factory=list)  # see normalising.py; `operators` are kernels and the like
    operators: dict[int, str] = field(default_factory=dict)  # by activity of these: the operator that launched it
    double: list[int] = field(default_factory=list)  # that compute in float64, ascending: see by_operators.py
    converting: list[int] = field(default_factory=list)  # that convert to it, or from it, and do nothing else


NO_LONG_WAY = LongWay()
