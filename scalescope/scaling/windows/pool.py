"""Several windows of one run, each explained, as one: figures of a step are means over the steps of all windows.

Parts of a step add up as they do in each window. Collectives are matched within their window, and clocks compared
there. A projection, which replays what hides what in a step, takes the last window.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from scalescope.scaling.answer import Quality, RunAnalysis, SlowedSteps
from scalescope.scaling.answer_rows import PARTS, Collective, KernelRow, RankSplit
from scalescope.scaling.findings.derived import keep
from scalescope.scaling.join.explained import Explained
from scalescope.scaling.rank.exchanges import RankExchanges
from scalescope.scaling.rank.kernels import KernelTable, placed_in_all
from scalescope.scaling.rank.partition import total
from scalescope.scaling.verdicts.efficiency import efficiency_of
from scalescope.scaling.verdicts.kinds import kernel_kinds
from scalescope.scaling.verdicts.top_kernels import MOST, top_kernels
from scalescope.scaling.windows.findings import pool_findings

_WORSE = ("good", "degraded", "unusable")


def pool(windows: Sequence[Explained]) -> Explained:
    """Return the windows of one run, ascending in time and of the same ranks, as one; each stays in `windows`."""
    if len(windows) == 1:
        return windows[0]
    usable = [one for one in windows if one.analysis.quality.verdict != "unusable"] or list(windows)
    last = windows[-1]
    tables = [one.kernels for one in usable]
    kernels = {rank: _merged([one[rank] for one in tables if rank in one]) for rank in _ranks(tables)}
    splits = _splits(usable)
    partitions = {
        rank: [step for one in usable for step in one.partitions.get(rank, ())]
        for rank in _ranks([one.partitions for one in usable])
    }
    whole = all(one.analysis.efficiency is not None for one in usable)
    collectives, offsets = _collectives(usable)
    analysis = msgspec.structs.replace(
        last.analysis,
        quality=_quality([one.analysis for one in windows]),
        windows=len(usable),
        ranks=splits,
        steps=[step for one in usable for step in one.analysis.steps],
        collectives=collectives,
        kernels=_kernel_rows([one.analysis for one in usable], kernels),
        kinds=kernel_kinds(kernels, splits),
        efficiency=efficiency_of([total(steps) for steps in partitions.values()]) if whole else None,
        findings=[],
        stragglers=[],
        advice=[],
    )
    steps = sum(one.steps for one in splits)
    step_ms = sum(one.window_ms for one in splits) / steps if steps else 0.0
    found = [one.analysis.findings for one in usable]
    keep(analysis, pool_findings(found, step_ms, on_cpus=analysis.activity == "cpu"))
    exchanges = {rank: _moved(one, offsets[-1]) for rank, one in usable[-1].exchanges.items()}
    return Explained(analysis, partitions, kernels, exchanges, windows=list(windows))


def _ranks(of: Sequence[Mapping[int, object]]) -> list[int]:
    return sorted({rank for one in of for rank in one})


def _quality(analyses: Sequence[RunAnalysis]) -> Quality:
    """Return the windows' quality: unusable ones are left out, and said; what is wrong in some is said of those."""
    verdicts = [one.quality.verdict for one in analyses]
    bad = sum(verdict == "unusable" for verdict in verdicts)
    kept = [one for one in analyses if one.quality.verdict != "unusable"] or list(analyses)
    said = {
        reason: sum(reason in one.quality.reasons for one in kept) for one in kept for reason in one.quality.reasons
    }
    reasons = [
        text if count == len(kept) else f"in {count} of {len(kept)} windows: {text}" for text, count in said.items()
    ]
    if 0 < bad < len(analyses):
        reasons.insert(0, f"{bad} of {len(analyses)} windows {'holds' if bad == 1 else 'hold'} too little to count")
    verdict = max((one.quality.verdict for one in kept), key=_WORSE.index)
    fractions = [one.quality.unlinked_fraction for one in kept if one.quality.unlinked_fraction is not None]
    return Quality(
        verdict="degraded" if bad and verdict == "good" else verdict,
        missing_ranks=sorted({rank for one in kept for rank in one.quality.missing_ranks}),
        left_out_ranks=sorted({rank for one in kept for rank in one.quality.left_out_ranks}),
        lossy_ranks=sorted({rank for one in kept for rank in one.quality.lossy_ranks}),
        incomplete_ranks=sorted({rank for one in kept for rank in one.quality.incomplete_ranks}),
        several_devices=kept[-1].quality.several_devices,
        unknown_collectives=sorted({name for one in kept for name in one.quality.unknown_collectives}),
        cut_ranks=sorted({rank for one in kept for rank in one.quality.cut_ranks}),
        slowed=_slowed(kept),
        common_steps=[common for one in kept for common in one.quality.common_steps],
        clocks_apart_ms=max((one.quality.clocks_apart_ms or 0.0 for one in kept), default=0.0) or None,
        unlinked_fraction=max(fractions, default=None),
        reasons=reasons,
    )


def _slowed(analyses: Sequence[RunAnalysis]) -> SlowedSteps | None:
    """Return the steps that are left out of windows, of all that these have."""
    found = [one.quality.slowed for one in analyses if one.quality.slowed is not None]
    if not found:
        return None
    others = sum(max((rank.steps for rank in one.ranks), default=0) for one in analyses if one.quality.slowed is None)
    return SlowedSteps(
        steps=[step for one in found for step in one.steps],
        of=others + sum(one.of for one in found),
        times=max(one.times for one in found),
        slowed_ms=statistics.fmean(one.slowed_ms for one in found),
        quiet_ms=statistics.fmean(one.quiet_ms for one in found),
    )


def _splits(windows: Sequence[Explained]) -> list[RankSplit]:
    by_rank: dict[int, list[RankSplit]] = {}
    for one in windows:
        for split in one.analysis.ranks:
            by_rank.setdefault(split.rank, []).append(split)
    return [_split(by_rank[rank]) for rank in sorted(by_rank)]


def _split(splits: Sequence[RankSplit]) -> RankSplit:
    def added(of: Callable[[RankSplit], float]) -> float:
        return sum(of(one) for one in splits)

    communication = added(lambda one: one.communication_ms)
    hidden = added(lambda one: (one.overlap_fraction or 0.0) * one.communication_ms)
    return RankSplit(
        rank=splits[0].rank,
        window_ms=added(lambda one: one.window_ms),
        **{f"{part}_ms": sum(one.part_ms(part) for one in splits) for part in PARTS},
        steps=sum(one.steps for one in splits),
        communication_ms=communication,
        overlap_fraction=hidden / communication if communication else None,
        before_window_ms=added(lambda one: one.before_window_ms),
    )


def _collectives(windows: Sequence[Explained]) -> tuple[list[Collective], list[int]]:
    """Return all windows' collectives, numbered on, and by how much each window's numbers have moved."""
    found: list[Collective] = []
    offsets = []
    for one in windows:
        offsets.append(len(found))
        found += [msgspec.structs.replace(row, index=row.index + offsets[-1]) for row in one.analysis.collectives]
    return found, offsets


def _moved(rank: RankExchanges, offset: int) -> RankExchanges:
    moved = [
        one if one.match is None else msgspec.structs.replace(one, match=one.match + offset) for one in rank.exchanges
    ]
    return RankExchanges(rank.edges, rank.exposed, moved)


def _merged(tables: Sequence[KernelTable]) -> KernelTable:
    """Return one rank's kernels over the steps of all windows."""
    labels = tuple(dict.fromkeys(label for one in tables for label in one.labels))
    names: dict[str, int] = {}
    rows: dict[tuple[str, int], int] = {}
    for one in tables:
        for key, _ in one.items():
            rows.setdefault(key, len(rows))
    ran, time = np.zeros(len(rows), np.int32), np.zeros(len(rows), np.int64)
    overlap = np.zeros((len(rows), len(labels)), np.int64)
    for one in tables:
        at = np.array([rows[key] for key, _ in one.items()], np.int64)
        ran[at] += one.ran
        time[at] += one.time
        for column, label in enumerate(one.labels):
            overlap[at, labels.index(label)] += one.overlap[:, column]
    return KernelTable(
        steps=sum(one.steps for one in tables),
        name=np.array([names.setdefault(name, len(names)) for name, _ in rows], np.int32),
        names=tuple(names),
        ordinal=np.array([ordinal for _, ordinal in rows], np.int32),
        ran=ran,
        time=time,
        labels=labels,
        overlap=overlap,
        placed=placed_in_all(tables),
    )


def _kernel_rows(analyses: Sequence[RunAnalysis], kernels: Mapping[int, KernelTable]) -> list[KernelRow]:
    """Return the longest kernels of all windows; collectives with the mean of the windows' rows, by steps."""
    rows = top_kernels(kernels, {})
    weights = [sum(one.steps for one in analysis.ranks) for analysis in analyses]
    whole = sum(weights) or 1
    moving: dict[str, KernelRow] = {}
    for analysis, weight in zip(analyses, weights, strict=True):
        for row in analysis.kernels:
            if row.communication:
                before = moving.get(row.name, msgspec.structs.replace(row, ms=0.0, calls=0.0))
                moving[row.name] = msgspec.structs.replace(
                    before,
                    ms=before.ms + row.ms * weight / whole,
                    calls=before.calls + row.calls * weight / whole,
                )
    return sorted([*rows, *moving.values()], key=lambda row: (-row.ms, row.name))[:MOST]
