"""One run, explained: its answer, with what more is compared between runs or replayed."""

import msgspec

from scalescope.scaling.answer import RunAnalysis
from scalescope.scaling.evidence.host_cause import HostCause
from scalescope.scaling.rank.exchanges import RankExchanges
from scalescope.scaling.rank.kernels import KernelTable
from scalescope.scaling.rank.partition import Partition
from scalescope.scaling.rank.records.record import RankRecord


class Explained(msgspec.Struct, frozen=True):
    """A run's analysis, with what a study compares between runs: exact partitions a step, and kernels, by rank."""

    analysis: RunAnalysis
    partitions: dict[int, list[Partition]]
    kernels: dict[int, KernelTable]
    exchanges: dict[int, RankExchanges] = {}
    records: dict[int, RankRecord] = {}  # what a replay needs, where that was asked for and the ranks are few
    ready: dict[int, dict[int, int]] = {}  # by rank and collective, when its data can be there, ns
    host: list[HostCause] = []  # what the hosts' own records say, side by side
    windows: list["Explained"] = []  # each by itself, of a run that was profiled in several
    usual: "Explained | None" = None  # the windows at the usual level, beside those of steps that became longer
