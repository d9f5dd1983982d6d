"""The kernels (or, on a CPU, operators) that take the most time of a step, on the mean rank.

A compute kernel counts with its own share of the compute time (rank/kernels.py), so the shares of all kernels add up
to 1. A communication kernel counts with its whole duration, waiting included, and has no share: it may run under
compute.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from scalescope.scaling.answer_rows import KernelRow
from scalescope.scaling.rank.collective import RankCollective
from scalescope.scaling.rank.kernels import CARRIED, KernelTable
from scalescope.scaling.trace.kernel_kinds import COMMUNICATION, kind_of
from scalescope.scaling.trace.kernel_names import short_name

_Key = tuple[str, str]  # a label, and the kind

#: Rows that are kept.
MOST = 20
_LONGEST = 200  # characters of a name; a mangled one may have thousands
_HEAD, _TAIL = 130, 69  # of a longer one

#: Kernels that only carry a function over all elements; which function, their template arguments say.
_SHELL = re.compile(r"\w*elementwise_kernel\w*|reduce_kernel|multi_tensor_apply_kernel")
#: Names inside a shell's template arguments that wrap the function, or that are not it.
_WRAPPERS = re.compile(
    r"array|operator|lambda|std|const|ReduceOp|func_wrapper_t|(Unary|Binary|BUnary|AUnary)Functor|gpu_kernel_impl\w*"
    r"|\w*OffsetCalculator|LoadWithCast|StoreWithCast|LoadWithoutCast|StoreWithoutCast|\w*Metadata|OpaqueType"
)
_CALLED = re.compile(r"(?<!\w)([A-Za-z_]\w*+)(?=[<(])")


def top_kernels(
    kernels: Mapping[int, KernelTable], collectives: Mapping[int, Sequence[RankCollective]]
) -> list[KernelRow]:
    """Return the kernels with the most device time a step, longest first; on a CPU, the outermost operators.

    `kernels` and `collectives` are by rank; ranks without a step count for nothing.
    """
    ranks = [rank for rank, table in kernels.items() if table.steps > 0]
    compute: dict[_Key, list[_OneRank]] = {}
    moving: dict[_Key, list[_OneRank]] = {}
    kinds: dict[str, str] = {}
    total = 0.0
    for rank in ranks:
        table = kernels[rank]
        total += table.total_ns / table.steps
        own: dict[_Key, _OneRank] = {}
        for name, kind, kernel in table.by_kind():
            if name != CARRIED:
                label = kernel_label(name)
                if kind == kind_of(name):
                    kind = kinds.setdefault(label, kind)  # the whole name says more than its label
                own.setdefault((label, kind), _OneRank(table.steps)).add(kernel.steps, kernel.total_ns)
        _gather(compute, own)
        own = {}
        for one in collectives.get(rank, ()):
            if one.step is not None:
                own.setdefault((one.label, COMMUNICATION), _OneRank(table.steps)).add(1, one.end - one.start)
        _gather(moving, own)
    rows = [_row(name, kind, members, len(ranks), total) for (name, kind), members in compute.items()]
    rows += [_row(name, kind, members, len(ranks), None) for (name, kind), members in moving.items()]
    return sorted((row for row in rows if row.ms > 0), key=lambda row: (-row.ms, row.name))[:MOST]


@lru_cache(maxsize=4096)  # every rank has the same names
def kernel_label(name: str) -> str:
    """Return a kernel's short name; of a shell, with the function that it carries: `reduce_kernel<sum_functor>`."""
    label = short_name(name)
    if _SHELL.fullmatch(label):
        inside = name.partition("<")[2]
        carried = next((word for word in _CALLED.findall(inside) if not _WRAPPERS.fullmatch(word)), None)
        label = f"{label}<{carried}>" if carried else label
    return label if len(label) <= _LONGEST else f"{label[:_HEAD]}…{label[-_TAIL:]}"


class _OneRank(msgspec.Struct):
    """What one kernel is on one rank, over its steps."""

    steps: int
    calls: int = 0
    ns: int = 0

    def add(self, calls: int, ns: int) -> None:
        self.calls += calls
        self.ns += ns


def _gather(found: dict[_Key, list[_OneRank]], own: dict[_Key, _OneRank]) -> None:
    for key, figures in own.items():
        found.setdefault(key, []).append(figures)


def _row(name: str, kind: str, members: Sequence[_OneRank], ranks: int, compute_ns: float | None) -> KernelRow:
    """Return a kernel's row, its figures the mean over all ranks.

    `compute_ns` is the compute of a step, summed over the ranks; None for communication.
    """
    ns = sum(one.ns / one.steps for one in members)
    return KernelRow(
        name=name,
        kind=kind,
        communication=compute_ns is None,
        calls=sum(one.calls / one.steps for one in members) / ranks,
        ms=ns / ranks / 1e6,
        share_of_compute=ns / compute_ns if compute_ns else None,
    )
