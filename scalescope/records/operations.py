"""What a collective is, whoever measures or reads it: its name, what it moves, and who waits for whom. Torch-free.

One row an operation. S is the largest send or receive buffer of any rank, n the group's size.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache


class Waiting(Enum):
    """Whose arrival a member's data waits for."""

    ALL = "all"  # of all members: none ends before the last has started
    ROOT = "root"  # of the root, which the data comes from
    MEMBERS = "members"  # at the root, of the members that send to it
    PARTNER = "partner"  # of the other end


@dataclass(frozen=True)
class OperationFacts:
    """One operation. `sent_share` is nccl-tests' bus factor: the share of S that each rank sends over its link."""

    name: str
    waiting: Waiting
    sent_share: Callable[[float], float] | None  # by n; None: it moves no data
    ring: bool = False  # of rooted ones: the data pass through every member, so one that comes late holds others up
    sharded: bool = False  # every rank has a part of its own, S / n
    reduces: bool = False
    personalised: bool = False  # what goes between two ranks is for that pair alone
    rounds: int = 1  # trips round a ring of n − 1 messages each, or up or down a tree of log2(n)
    spellings: tuple[str, ...] = ()  # squashed names that traces have for it, beside its own
    dispatched: str = ""  # the operator by which torch hands over one of tensors, where objects travel by such

    @property
    def symmetric(self) -> bool:
        return self.waiting is Waiting.ALL

    @property
    def gives_all_the_whole(self) -> bool:
        """Whether every rank ends up with what all have reduced, as gradients are averaged."""
        return self.symmetric and self.reduces and not self.sharded

    @property
    def rooted(self) -> bool:
        return self.waiting in (Waiting.ROOT, Waiting.MEMBERS)

    @property
    def pairwise(self) -> bool:
        return self.waiting is Waiting.PARTNER

    @property
    def moves_data(self) -> bool:
        return self.sent_share is not None

    def bus_factor(self, group_size: int) -> float | None:
        """Return busbw / algbw as nccl-tests defines it, or None for an operation that moves no data."""
        return None if self.sent_share is None else self.sent_share(group_size)


def _twice(n: float) -> float:
    return 2 * (n - 1) / n


def _others(n: float) -> float:
    return (n - 1) / n


def _whole(n: float) -> float:
    return 1.0


#: How NCCL's and gloo's all-reduces of sparse tensors are spelled.
_SPARSE = ("allreducesparse", "sparseallreduce")

#: Every operation, by its name.
OPERATION_FACTS = {
    facts.name: facts
    for facts in (
        OperationFacts("all_reduce", Waiting.ALL, _twice, reduces=True, rounds=2,
                       spellings=("allreducecoalesced", *_SPARSE)),
        OperationFacts("all_gather", Waiting.ALL, _others, sharded=True, dispatched="c10d::allgather_",
                       spellings=("allgatherbase", "allgatherinto", "allgatherintotensor",
                                  "allgatherintotensorcoalesced", "allgathercoalesced", "allgathersingle",
                                  "allgatherv")),
        OperationFacts("reduce_scatter", Waiting.ALL, _others, sharded=True, reduces=True,
                       spellings=("reducescatterbase", "reducescattertensor", "reducescattertensorcoalesced",
                                  "reducescattercoalesced", "reducescattersingle", "reducescatterv")),
        OperationFacts("broadcast", Waiting.ROOT, _whole, ring=True, dispatched="c10d::broadcast_",
                       spellings=("broadcastoop",)),
        OperationFacts("reduce", Waiting.MEMBERS, _whole, ring=True, reduces=True, spellings=("reduceoop",)),
        OperationFacts("all_to_all", Waiting.ALL, _others, sharded=True, personalised=True,
                       spellings=("alltoallbase", "alltoallv", "alltoallsingle")),
        OperationFacts("gather", Waiting.MEMBERS, _others, sharded=True, personalised=True, dispatched="c10d::gather_"),
        OperationFacts("scatter", Waiting.ROOT, _others, sharded=True, personalised=True, dispatched="c10d::scatter_"),
        OperationFacts("send_recv", Waiting.PARTNER, _whole, dispatched="c10d::send",
                       spellings=("send", "recv", "recvanysource")),
        OperationFacts("barrier", Waiting.ALL, None, rounds=2, spellings=("allreducebarrier", "monitoredbarrier")),
    )
}  # fmt: skip

_BY_SPELLING = {
    re.sub(r"[^a-z]", "", spelling): facts.name
    for facts in OPERATION_FACTS.values()
    for spelling in (facts.name, *facts.spellings)
}


@lru_cache(1024)
def canonical_operation(name: str) -> str:
    """Return the one name of an operation for a trace's `Collective name` or an annotation such as `gloo:all_reduce`.

    A name that no operation has comes back without its prefix.
    """
    return _BY_SPELLING.get(_spelling(name), _bare(name))


def is_sparse(name: str) -> bool:
    """Tell whether a trace's name of an operation says that it carries a sparse tensor, as `gloo:sparse_all_reduce`."""
    return _spelling(name) in _SPARSE


def _bare(name: str) -> str:
    return name.rsplit(":", 1)[-1]


def _spelling(name: str) -> str:
    return re.sub(r"[^a-z]", "", _bare(name).lower())


def bus_factor(operation: str, group_size: int) -> float | None:
    """Return busbw / algbw of an operation by its name, or None where it has none or is not known."""
    facts = OPERATION_FACTS.get(operation)
    return None if facts is None else facts.bus_factor(group_size)


def named(where: Callable[[OperationFacts], bool]) -> frozenset[str]:
    """Return the names of the operations for which something holds."""
    return frozenset(name for name, facts in OPERATION_FACTS.items() if where(facts))


SYMMETRIC = named(lambda facts: facts.symmetric)
#: Every member has something else for every other one.
EXCHANGES = named(lambda facts: facts.symmetric and facts.personalised)
#: Every member brings or takes the whole: as much on every rank.
WHOLE_ON_EVERY_RANK = named(lambda facts: facts.moves_data and not facts.sharded and not facts.pairwise)
FROM_ROOT = named(lambda facts: facts.waiting is Waiting.ROOT)
TO_ROOT = named(lambda facts: facts.waiting is Waiting.MEMBERS)
#: What passes through every member of a ring: a member that comes late holds up those behind it.
THROUGH_MEMBERS = named(lambda facts: facts.ring)
PAIRWISE = named(lambda facts: facts.pairwise)
#: Of which every member has as many elements; an uneven all_gather or all_to_all has other counts on every rank.
EVEN = named(lambda facts: facts.moves_data and not facts.sharded and not facts.pairwise)
MOVE_NO_DATA = named(lambda facts: not facts.moves_data)
#: Whole buffers reduced on all ranks: what replicas exchange their gradients by.
REDUCE_ON_ALL = named(lambda facts: facts.symmetric and facts.reduces and not facts.sharded)

#: NCCL_CTA_POLICY_* from 0 on: how many multiprocessors collectives may take; zero leaves what can be to copy engines.
CTA_POLICIES = ("default", "efficiency", "zero")
#: What copy engines can do: it moves data and reduces nothing, and no member passes on another's.
_FOR_COPY_ENGINES = frozenset({"all_gather", "all_to_all", "gather", "scatter"})


def runs_on_copy_engines(operation: str, cta_policy: str | None) -> bool:
    """Tell whether an operation over symmetric windows goes to the copy engines under a CTA policy."""
    return cta_policy == CTA_POLICIES[-1] and operation in _FOR_COPY_ENGINES


#: The operators by which torch hands over what Python objects travel by, of each operation that objects do.
DISPATCHED = {name: facts.dispatched for name, facts in OPERATION_FACTS.items() if facts.dispatched}
