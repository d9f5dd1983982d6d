"""What would shorten the step most: changes tried on the replay, with the setting that makes each.

Only what the traces give a reason for is tried, since each costs replays:

- DDP's buckets, and what gradients travel as, where collectives cost step time at all;
- handing gradients over as they are made, where a compiled backward pass hands over several buckets at once;
- loading ahead, where the device stands idle while the host loads data;
- launching less, where the device waits for launches: a bound, since compiling does not make launching free;
- evening out a rank that the others wait for;
- taking copies out of the step, where nothing computes meanwhile: a bound.

The three that bring most are given, each with the interval of its prediction. What brings less than a half per cent of
the step, or could cost as much as it is expected to bring, is no advice. Nor is, where profiling made the steps much
longer and the step as run is not known, what would leave them longer than the measured ones are.
"""

from collections.abc import Iterator, Sequence

import msgspec

from scalescope.scaling.answer import Advice, RunAnalysis
from scalescope.scaling.replay.buckets import Cut, cut_by
from scalescope.scaling.replay.bursts import comes_in_bursts
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.graph import median
from scalescope.scaling.replay.whatif import Prediction, Replayer
from scalescope.scaling.verdicts.steady import slowed_by_profiling

#: Advice brings at least this share of the step.
WORTH_SAYING = 0.005
_MOST = 3
_BUCKETS_MIB = (5.0, 10.0, 25.0, 50.0, 100.0, 200.0)
_MIB = 1 << 20


class _Idea(msgspec.Struct, frozen=True):
    """A change that a trace gives reason for, and how to make it; what it brings is not known yet."""

    change: Change
    what: str
    because: str
    overrides: Sequence[str]
    elsewhere: str
    at_most: bool = False


def advise(replayer: Replayer, analysis: RunAnalysis, config: str = "") -> list[Advice]:
    """Return the changes that bring most, best first; none where the replay is off, or nothing is worth it.

    `config`: the run's frozen config, where it has one; some settings depend on others.
    """
    if not replayer.replay.faithful:
        return []
    ideas = list(_ideas(replayer, analysis, config))
    replayer.work_out([idea.change for idea in ideas], quick=True)
    ideas = [idea for idea in ideas if (_first_look(replayer, idea).fraction or 0.0) <= -WORTH_SAYING]
    replayer.work_out([idea.change for idea in ideas])
    found = [advice for idea in ideas if (advice := _weigh(replayer, idea)) is not None]
    found = [advice for advice in [*found, *_on_copies(replayer, analysis)] if _is_worth_it(advice)]
    if slowed_by_profiling(analysis) and not _is_as_run(analysis):
        # a gain that leaves the profiled step longer than the measured one is first of all what profiling costs
        found = [advice for advice in found if replayer.replay.replayed_ms - advice.gain_ms < _measured_ms(analysis)]
    # a bound is no expectation: half of it is weighed
    found.sort(key=lambda advice: -advice.gain_ms * (0.5 if advice.at_most else 1.0))
    if "strategy: script" in config:  # somebody's own loop, which has none of our settings
        found = [msgspec.structs.replace(advice, overrides=[]) for advice in found]
    return found[:_MOST]


def _first_look(replayer: Replayer, idea: _Idea) -> Prediction:
    return replayer.predict(idea.change, quick=True)


def _weigh(replayer: Replayer, idea: _Idea) -> Advice | None:
    """Return an idea as advice, with what it brings; None where that cannot be told."""
    found = replayer.predict(idea.change)
    if found.change_ms is None or found.low_ms is None or found.high_ms is None or found.fraction is None:
        return None
    return Advice(
        what=idea.what,
        because=idea.because,
        overrides=list(idea.overrides),
        elsewhere=idea.elsewhere,
        gain_ms=-found.change_ms,
        low_ms=-found.high_ms,
        high_ms=-found.low_ms,
        fraction=-found.fraction,
        at_most=idea.at_most,
    )


def _is_as_run(analysis: RunAnalysis) -> bool:
    """Tell whether gains are of the step as run, by an untraced step: then profiling has no share in them."""
    return analysis.as_run is not None and analysis.as_run.source in ("steps", "given", "metadata")


def _measured_ms(analysis: RunAnalysis) -> float:
    times = analysis.step_times
    return times.measured_step_ms or 0.0 if times is not None else 0.0


def _is_worth_it(advice: Advice) -> bool:
    return advice.fraction >= WORTH_SAYING and advice.low_ms > -advice.gain_ms


def _ideas(replayer: Replayer, analysis: RunAnalysis, config: str) -> Iterator[_Idea]:
    if replayer.graph.transfers and _cost_of_communication(replayer) >= WORTH_SAYING:
        yield from _on_gradients(replayer)
    yield from _on_data(analysis, config)
    yield from _on_launching(replayer, analysis)
    yield from _on_stragglers(analysis)


def _cost_of_communication(replayer: Replayer) -> float:
    """Return the share of the step that collectives cost at most: waited for, slowing compute, or handed over."""
    best = replayer.predict(Change(overlap="perfect", no_inflation=True), quick=True)
    return max(_handing_over_share(replayer), -(best.fraction or 0.0))


def _handing_over_share(replayer: Replayer) -> float:
    """Return the share of the step that the host spends on handing collectives over, on the rank with most."""
    steps = max(1, len(replayer.graph.step_numbers))
    spent = [
        sum(call.duration_ns + call.think_ns for call in calls if call.hands_over >= 0) / steps
        for calls in replayer.graph.calls.values()
    ]
    return max(spent, default=0.0) / replayer.base_ns if replayer.base_ns else 0.0


def _on_gradients(replayer: Replayer) -> Iterator[_Idea]:
    graph = replayer.graph
    steps = replayer.buckets
    if isinstance(steps, str):
        return
    rank = graph.ranks[0]
    sizes = [one.bytes for one in steps[0].gradients[rank]]
    now = [held for _, held in steps[0].cut]
    count = f"{len(now)} all-reduces a step of {_size(median(now))} in the median"
    if comes_in_bursts(graph, steps) == "all at once":
        yield _Idea(
            Change(spread=True),
            "hand gradients over while the backward pass runs",
            "the compiled backward pass hands all gradients over at its end, so no all-reduce is hidden",
            ["strategy.compile_by_bucket=true"],
            "torch.compile(DistributedDataParallel(model)), with torch._dynamo.config.optimize_ddp as it is by default",
        )
    cuts: dict[float, Cut] = {}
    for cap in _BUCKETS_MIB:
        cut = cut_by(sizes, round(cap * _MIB))
        if cut != steps[0].cut and len(cut) not in map(len, cuts.values()):
            cuts[cap] = cut
    replayer.work_out([Change(bucket_mib=cap) for cap in cuts], quick=True)
    tried = {cap: replayer.predict(Change(bucket_mib=cap), quick=True).change_ms for cap in cuts}
    known = {cap: change_ms for cap, change_ms in tried.items() if change_ms is not None}
    if known:
        cap = min(known, key=lambda cap: known[cap])
        if known[cap] < 0:
            larger = len(cuts[cap]) < len(now)
            yield _Idea(
                Change(bucket_mib=cap),
                f"gradient buckets of {cap:g} MiB",
                f"{count}: "
                + ("each costs a launch and a round of messages" if larger else "the last ones begin too late to hide"),
                [f"strategy.bucket_mib={cap:g}"],
                f"DistributedDataParallel(…, bucket_cap_mb={cap:g})",
            )
    if steps[0].scale == 1.0 and not replayer.on_cpu:
        yield _Idea(
            Change(gradients="bf16"),
            "gradients travel as bf16",
            f"{_size(sum(now))} a step travel as fp32; half of that would do, rounded",
            ["strategy.gradient_dtype=bf16"],
            "DistributedDataParallel.register_comm_hook(None, bf16_compress_hook)",
        )


def _on_data(analysis: RunAnalysis, config: str) -> Iterator[_Idea]:
    loading = _share(analysis, "idle_data")
    if loading < WORTH_SAYING:
        return
    yield _Idea(
        Change(data_free=True),
        "load batches ahead, in processes of their own",
        f"the devices stand idle for {100 * loading:.1f}% of the step while the host loads data",
        # null: as many as cores are left, which decoding images can use and cutting tokens cannot
        ["data.workers=null" if "kind: image_folder" in config else "data.workers=4"],
        "DataLoader(num_workers=4, prefetch_factor=4, pin_memory=True, persistent_workers=True)",
    )


def _on_launching(replayer: Replayer, analysis: RunAnalysis) -> Iterator[_Idea]:
    late = _share(analysis, "idle_launch")
    if late < WORTH_SAYING:
        return
    yield _Idea(
        Change(host_free=True),
        "launch less: compile the step",
        f"{'the loop' if replayer.on_cpu else 'the device'} waits for the host for {100 * late:.1f}% of the step",
        [] if replayer.on_cpu else ["compile=true"],
        "torch.compile(model), with mode='reduce-overhead' for CUDA graphs; no synchronisation inside the step",
        at_most=True,
    )


def _on_stragglers(analysis: RunAnalysis) -> Iterator[_Idea]:
    for guilty in analysis.stragglers[:1]:
        if guilty.verdict.startswith("loading data"):
            continue  # loading ahead is the advice then
        yield _Idea(
            Change(no_straggler=guilty.rank),
            f"find what holds rank {guilty.rank} up",
            f"the others wait for it: {guilty.verdict}",
            [],
            "even out the batches, or look at that device and its host",
        )


def _on_copies(replayer: Replayer, analysis: RunAnalysis) -> Iterator[Advice]:
    copies = _share(analysis, "exposed_memory")
    if copies < WORTH_SAYING:
        return
    gain = copies * replayer.replay.replayed_ms
    yield Advice(
        what="take copies out of the step",
        because=f"copies and fills run alone for {100 * copies:.1f}% of the step",
        elsewhere="pinned memory, tensor.to(device, non_blocking=True), and copies on a stream of their own",
        gain_ms=gain,
        low_ms=gain / 2,
        high_ms=gain,
        fraction=copies,
        at_most=True,
    )


def _share(analysis: RunAnalysis, part: str) -> float:
    window = sum(rank.window_ms for rank in analysis.ranks)
    return sum(rank.part_ms(part) for rank in analysis.ranks) / window if window else 0.0


def _size(count: float) -> str:
    return f"{count / _MIB:.1f} MiB" if count >= _MIB else f"{count / 1024:.1f} KiB"
