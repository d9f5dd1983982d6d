"""Which ranks are run in a mode for debugging: in training it is left on by mistake, mostly on all of them."""

from scalescope.scaling.evidence.causes.common_steps import CommonSteps
from scalescope.scaling.evidence.host_cause import HostCause, HostFigure
from scalescope.scaling.evidence.modes.debugging import Debugging, PerStep

ANOMALY, BLOCKING = "anomaly_detection", "blocking_launches"
#: The figure that says how much of anomaly detection keeps where operators were called.
STACKS = "stacks"


def debugging_causes(common: CommonSteps) -> list[HostCause]:
    """Return a cause for each mode that all ranks are in, and one for each rank that alone is."""
    found = []
    for name in (ANOMALY, BLOCKING):
        modes = {rank: mode for rank, one in common.by_rank.items() if (mode := _mode(one.debugging, name)) is not None}
        if len(modes) == len(common.ranks):
            found.append(_cause(common, None, name, list(modes.items())))
        else:
            found += [_cause(common, rank, name, [(rank, mode)]) for rank, mode in modes.items()]
    return found


def _mode(own: Debugging | None, name: str) -> tuple[PerStep, PerStep] | None:
    """Return how often a step, and for how long, ns."""
    if own is None:
        return None
    if name == BLOCKING:
        return (own.blocking, own.blocking_ns) if own.blocking else None
    longer = tuple(looks + stacks for looks, stacks in zip(own.looks_ns, own.stacks_ns, strict=True))
    return (own.looks, longer) if own.looks else None


def _cause(
    common: CommonSteps, rank: int | None, name: str, modes: list[tuple[int, tuple[PerStep, PerStep]]]
) -> HostCause:
    rows = [common.row(one, ns) for one, (_, ns) in modes]
    least = min(rows, key=lambda row: float(row.mean()))
    count = sum(sum(often) / len(often) for _, (often, _) in modes) / len(modes)
    figures = [HostFigure(kind="mode", name=name, ns=float(least.mean()), count=count)]
    stacks = [sum(own.stacks_ns) / len(own.stacks_ns) for one, _ in modes
              if (own := common.by_rank[one].debugging) is not None and own.stacks_ns]  # fmt: skip
    if name == ANOMALY and stacks:
        figures.append(HostFigure(kind="mode", name=STACKS, ns=min(stacks), count=count))
    return HostCause(
        code="debug_mode",
        rank=rank,
        steps=common.steps,
        ns=tuple(least.tolist()),
        evidence=tuple(figures),
    )
