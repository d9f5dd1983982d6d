"""How far a set of traces can be trusted: a verdict, and every reason for it in words."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from scalescope.records.console import counted
from scalescope.scaling.answer import Quality, StepSource
from scalescope.scaling.rank.collective import ASSUMED_GROUP
from scalescope.scaling.ranks.evidence import Evidence
from scalescope.scaling.ranks.matching import NO_GROUP, Match
from scalescope.scaling.ranks.summary import LOST_SHARE, RankSummary
from scalescope.scaling.ranks.updates import said_of_updates

#: A larger share of unlinked activities, or of launches without an activity, makes a set of traces degraded …
DEGRADED_FRACTION = LOST_SHARE
#: … and this one makes the partition meaningless.
UNUSABLE_FRACTION = 0.5
#: Of real traces 0.6% of what activities take, and mostly nothing.
_OVER_THE_NEXT = 0.02
#: Of a group's collectives in the steps that are analysed: real recordings lose none of those, of all up to 37%.
_TRIFLE_CUT = 0.1
_MISPLACED = "contradict their launches, calls that waited for them or the order of their stream"
_MICROSECONDS = 10_000  # ns; calls of the host that are shorter are so by a wrong unit, and so are longer ones


def judge(
    summaries: Mapping[int, RankSummary], world_size: int, matches: Sequence[Match], unsplit: Sequence[Match]
) -> Quality:
    """Return the verdict on a run's traces; `unsplit` are the matches whose waiting cannot be told from transfer."""
    missing = [rank for rank in range(world_size) if rank not in summaries]
    degraded: list[str] = []
    notes: list[str] = []
    if missing:
        degraded.append(
            f"no trace of {ranks_of(missing)}: collectives with them cannot be split into wait and transfer"
        )
    for rank, summary in summaries.items():
        degraded.extend(f"rank {rank}: {reason}" for reason in _faults(summary))
    notes.extend(_over_the_next(summaries))
    notes.extend(_step_sources(summaries))
    notes.extend(dict.fromkeys(said for one in summaries.values() if (said := said_of_updates(one.evidence.updates))))
    windows = {tuple(one.shares.windows.numbers) for one in summaries.values() if one.shares is not None}
    if len(windows) > 1:
        notes.append("the ranks' traces do not hold the same steps")
    notes.extend(_unmatched(matches, summaries))
    sizeless = sum(
        one.bytes is None for row in summaries.values() if row.of_file is not None for one in row.collectives
    )
    if sizeless:
        notes.append(
            f"{counted(sizeless, 'collective')}, over all ranks, whose size the profile does not tell, so no bus "
            "bandwidth: it does not hold their modules, as the .xplane.pb does that jax.profiler writes"
        )
    if any(match.group == ASSUMED_GROUP for match in matches):
        notes.append("the traces name no process group: their collectives are taken as those of all ranks")
    nameless = sum(match.missing == "trace" and match.group == NO_GROUP for match in matches)
    if not missing and nameless and any(row.groups for row in summaries.values()):
        notes.append(
            f"{nameless} collectives of which the traces do not say whose group they are, of the several that there "
            "are: not split into wait and transfer"
        )
        nameless = 0
    groupless = nameless + sum(match.missing == "trace" and match.group != NO_GROUP for match in matches)
    if not missing and groupless:
        notes.append(
            f"{counted(groupless, 'collective')} whose group's ranks are not in the traces: not split into wait and "
            "transfer"
        )
    unknown = Counter(match.group for match in unsplit if match.missing is None)
    notes.extend(
        f"group {group}: {counted(count, 'collective')} whose waiting cannot be told (root or operation not in the "
        "trace)"
        for group, count in unknown.items()
    )
    if alike := _unlike_devices(summaries):
        notes.append(alike)
    if copied := sum(one.by_copies for summary in summaries.values() for one in summary.collectives):
        notes.append(
            f"{counted(copied, 'collective')}, over all ranks, ran on copy engines: what was waited for before the "
            "first copy is told only where nothing else ran on the device"
        )
    activities = sum(one.evidence.activities for one in summaries.values())
    unlinked = sum(one.evidence.unlinked for one in summaries.values())
    fraction = unlinked / activities if activities else None
    blind = [rank for rank, one in summaries.items() if one.shares is None or lacks_its_device(one) or one.blind]
    launches = sum(one.evidence.launches for one in summaries.values())
    lost = sum(one.evidence.launches_without_activity for one in summaries.values())
    too_little = max(fraction or 0.0, lost / launches if launches else 0.0) > UNUSABLE_FRACTION
    # a rank most of whose activity is lost is in no mean, and spoils nobody else's
    kept = [
        rank for rank, one in summaries.items() if rank not in blind and not one.launchless and not one.activityless
    ]
    unusable = len(blind) == len(summaries) or (too_little and not kept)
    lacking_members = any(match.missing == "member" for match in matches)
    return Quality(
        verdict="unusable" if unusable else "degraded" if degraded or lacking_members else "good",
        missing_ranks=missing,
        unlinked_fraction=fraction,
        reasons=degraded + notes,
    )


def _over_the_next(summaries: Mapping[int, RankSummary]) -> Iterator[str]:
    """Yield which ranks' activities lie over one another on a stream by more than those of real traces hardly do."""
    shares = {rank: one.evidence.over_the_next for rank, one in summaries.items() if not one.blind}
    if ranks := [rank for rank, share in shares.items() if share > _OVER_THE_NEXT]:
        yield (
            f"{max(shares.values()):.1%} of what activities take, on {ranks_of(ranks)}, lies over the next ones of "
            "their stream, as programmatic launches make it, or durations that are not the device's: such time counts "
            "once"
        )


_TOLD_BY: dict[StepSource, str] = {
    "profiler": "ProfilerStep",
    "iteration": "the server's iterations",
    "optimizer": "Optimizer.step",
    "step_annotation": "StepTraceAnnotation",
    "module": "the runs of the XLA module that computes most",
    "annotation": "an annotation that recurs",
    "graph": "graphs that are replayed",
    "period": "kernels whose sequence repeats",
    "token": "the tokens that are chosen",
}


def _step_sources(summaries: Mapping[int, RankSummary]) -> Iterator[str]:
    """Yield, where no ProfilerStep tells the steps, what does; and which ranks have none."""
    by_source: dict[StepSource | None, list[int]] = {}
    for rank, summary in summaries.items():
        if summary.shares is not None:
            by_source.setdefault(summary.evidence.steps, []).append(rank)
    for source, ranks in by_source.items():
        where = "in the traces" if len(by_source) == 1 else f"in the trace of {ranks_of(ranks)}"
        if source is None:
            yield f"no steps {where}: there is no ProfilerStep, and nothing that recurs step by step"
        elif source != "profiler" or len(by_source) > 1:
            yield f"steps {where} by {_TOLD_BY[source]}" + (", without ProfilerStep" if source != "profiler" else "")


def lacks_its_device(summary: RankSummary) -> bool:
    """Tell whether a trace was recorded of the host only, of a job that worked elsewhere."""
    evidence = summary.evidence
    worked_elsewhere = evidence.launches > 0 or bool(evidence.unread) or summary.backend in ("nccl", "rccl")
    worked_elsewhere = worked_elsewhere or summary.hides_device
    return summary.activity == "cpu" and worked_elsewhere


def sound(summaries: Mapping[int, RankSummary]) -> Mapping[int, RankSummary]:
    """Return the ranks whose files are whole and hold what the job ran on, when, and in which step; where none is,
    those that hold it at least, and else all.
    """
    lost = [
        rank
        for rank, one in summaries.items()
        if lacks_its_device(one) or one.blind or one.launchless or one.activityless
    ]
    holding = {rank: one for rank, one in summaries.items() if rank not in lost}
    return {rank: one for rank, one in holding.items() if not one.cut_off} or holding or summaries


def _left(evidence: Evidence) -> str:
    if evidence.whole_steps is None:
        return ""
    return (
        f", {counted(evidence.whole_steps, 'whole step')}" if evidence.whole_steps else ", and no step of it is whole"
    )


def _faults(summary: RankSummary) -> list[str]:
    evidence = summary.evidence
    name = summary.path.name
    faults = [f"{name}: {damage}; read as far as it goes{_left(evidence)}" for damage in evidence.damage]
    if evidence.invalid_events:
        faults.append(f"{name}: {_events(evidence.invalid_events)} no valid JSON, or of no time in µs, and left out")
    if summary.framework == "onnxruntime":
        faults += [
            f"{name}: {count:,} nodes, most of its time, ran on {provider}: their times are those of the host's calls, "
            "and the device's are not in it"
            for provider, count in evidence.unread
        ]
    else:
        faults += [
            f"{name}: on a device's streams {_events(count)} of category {category} and not read: only activity that "
            "is written as CUDA's and ROCm's is known here"
            for category, count in evidence.unread
        ]
    if summary.shares is not None and summary.workless and not lacks_its_device(summary):
        faults.append(
            f"{name}: nothing ran in its steps, no operator, no kernel, no collective, as where a profiler's window "
            "opens again behind the last step and is written over the file of the one before: schedule(…, repeat=1) "
            "ends it"
        )
    if lacks_its_device(summary) and not evidence.unread and not evidence.cut_off:
        faults.append(
            f"{name}: the job ran on a device, and the trace holds nothing of it; profile ProfilerActivity.CUDA too"
        )
    elif summary.shares is None and evidence.whole_steps != 0:
        faults.append(f"{name}: neither device activity nor operators in it")
    if evidence.without_time > DEGRADED_FRACTION * evidence.activities:
        faults.append(
            f"{name}: {evidence.without_time} of {evidence.activities} device activities take no time: their time "
            "stamps are lost, as where Kineto writes a trace after it has recorded another one; export each as soon "
            "as it has ended"
        )
    elif evidence.activities and evidence.unlinked > DEGRADED_FRACTION * evidence.activities:
        faults.append(
            f"{name}: {evidence.unlinked} of {evidence.activities} device activities have lost their launch, so their "
            "step, and whether the host was late, is a guess"
        )
    if (quick := evidence.quick_call_ns) is not None:
        many, what = (True, "at least") if quick > _MICROSECONDS else (False, "at most")
        faults.append(
            f"{name}: its times are in another unit: the host's quickest calls, which take microseconds anywhere, take "
            f"{what} {quick / 1e6 if many else quick / 1e3:,.3g} {'ms' if many else 'µs'} each; Kineto writes ts and "
            f"dur in µs, so {'divide' if many else 'multiply'} both by 1,000, if a converter wrote "
            f"{'ns' if many else 'ms'}"
        )
    if evidence.steps_left_out:
        faults.append(
            f"{name}: a step is missing by the ProfilerSteps' numbers; {counted(evidence.steps_left_out, 'step')} "
            "before or behind it not counted"
        )
    if summary.mislinked:
        faults.append(
            f"{name}: {evidence.disordered} of {evidence.activities} device activities begin after one that was "
            "launched later on their stream: their correlations lead to others' launches"
        )
    elif evidence.misplaced:
        faults.append(
            f"{name}: the times of {evidence.misplaced} of {evidence.activities} device activities {_MISPLACED}; "
            "give the file as the profiler wrote it"
        )
    elif summary.overlapping:
        faults.append(
            f"{name}: {evidence.overlapped} of {evidence.activities} device activities lie within another one of their "
            "stream, which runs one thing after another: durations or starts are not those of the device, or several "
            "traces were merged; give the file as the profiler wrote it"
        )
    if summary.nameless:
        faults.append(
            f"{name}: {evidence.nameless} of {evidence.activities} device activities are kernels without a name: what "
            "ran, and which are collectives, is not told; give the file as the profiler wrote it"
        )
    if summary.left_out.activities:
        faults.append(
            f"{name}: {counted(summary.left_out.activities, 'device activity', 'device activities')} left out, whose "
            f"times {_MISPLACED}"
        )
    if summary.device_moved.ns:
        faults.append(f"{name}: {_clock(summary)}")
    if evidence.launches_without_activity > DEGRADED_FRACTION * evidence.launches:
        faults.append(
            f"{name}: {evidence.launches_without_activity} of {evidence.launches} kernel launches have no kernel in "
            "the trace: the profiler lost activity"
        )
    if evidence.copies_without_activity > DEGRADED_FRACTION * evidence.copies:
        faults.append(
            f"{name}: {evidence.copies_without_activity} of {evidence.copies} calls that copy or fill have no copy in "
            "the trace: the profiler lost activity"
        )
    if evidence.lost_collectives:
        faults.append(
            f"{name}: {evidence.lost_collectives} collectives were launched and have no kernel in the trace, or one "
            "without a time (is a stream missing?): what they cost is told as idle time"
        )
    return faults


def _clock(summary: RankSummary) -> str:
    """Return how far its device's clock is off its host's, and how surely that is told."""
    ns, at_most_ns = summary.device_moved
    way = "behind" if ns > 0 else "ahead of"
    told = f"its device's clock is {abs(ns) / 1e6:.2f} ms {way} its host's, by launches"
    if at_most_ns is not None:
        return f"{told} and by calls that wait for the device; that is taken out"
    return (
        f"{told} alone, since no call waits for the device; that is taken out, and as it may be more, what is told as "
        "waiting for launches may be less"
    )


def _unmatched(matches: Sequence[Match], summaries: Mapping[int, RankSummary]) -> list[str]:
    """Return a line for each kind of incomplete match of a group, naming the ranks that have what others lack.

    What is cut off at a window's edge is told only where the answer rests on it.
    """
    notes = []
    kinds = Counter(
        (match.group, match.missing, match.missing_ranks) for match in matches if match.missing in ("window", "member")
    )
    felt = _cut_amid_steps(matches, summaries)
    for (group, missing, lacking), count in kinds.items():
        what = "collective" if count == 1 else "collectives"
        if missing == "member":
            notes.append(f"group {group}: {count} {what} amid others missing on {ranks_of(lacking)}, not split")
        elif group in felt:
            notes.append(
                f"group {group}: {count} {what} cut off by the window's edge on {ranks_of(lacking)}, not matched"
            )
    return notes


def _cut_amid_steps(matches: Sequence[Match], summaries: Mapping[int, RankSummary]) -> set[str]:
    """Return the groups of whose collectives in the steps that are analysed more than a trifle was cut off on a rank.

    A device runs behind its host, so a window's first collectives were launched before it on one rank or another: that
    is how any recording begins. Where no step is known, all that was recorded is analysed.
    """
    stepped = any(one.step is not None for summary in summaries.values() for one in summary.collectives)
    whole: Counter[str] = Counter()
    cut: Counter[str] = Counter()
    for match in matches:
        if stepped and all(summaries[rank].collectives[at].step is None for rank, at in match.members.items()):
            continue
        whole[match.group] += 1
        cut[match.group] += match.missing == "window"
    return {group for group, count in cut.items() if count > _TRIFLE_CUT * whole[group]}


def _unlike_devices(summaries: Mapping[int, RankSummary]) -> str:
    """Return which ranks have which device, where these are not all of one type; else ""."""
    by_device: dict[str, list[int]] = {}
    for rank, one in summaries.items():
        if one.device:
            by_device.setdefault(one.device, []).append(rank)
    if len(by_device) < 2:
        return ""
    told = "; ".join(f"{ranks_of(ranks)}: {device}" for device, ranks in by_device.items())
    return f"the ranks' devices are not alike ({told}): the slower ones make the others wait"


def ranks_of(ranks: Sequence[int]) -> str:
    """Return `rank 3`, or `ranks 0, 1`; of many the first."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = ", ".join(str(rank) for rank in ranks[:8])
    return f"ranks {shown}" + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")


def _events(count: int) -> str:
    return f"{counted(count, 'event')} {'is' if count == 1 else 'are'}"
