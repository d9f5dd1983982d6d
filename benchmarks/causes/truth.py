"""The truth of a case: what its steps took without a profiler, with the cause and without, and so what it costs.

Torch-free. `truth.json` lies beside the traces of a window. Step times are [rank][stretch][step], in ms, between CUDA
events at the steps' boundaries (without a GPU: host clock) while the steps run freely. Stretches alternate: one without
the cause, one with it, and so on, and a last one without it; all before the process has used a profiler. What was
measured later is kept apart under names of its own, since tracing leaves its mark on a process.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FILE = "truth.json"
Stretches = list[list[list[float]]]  # [rank][stretch][step], ms
_DRAWS = 2000
#: Steps that are so many times as long as in any of the turns are run at another pace.
ANOTHER_PACE = 1.2


@dataclass(frozen=True)
class Cost:
    """How much shorter the untraced step would be without the cause, with its 95% interval."""

    ms: float
    low_ms: float
    high_ms: float


@dataclass
class Truth:
    """Everything known about one window."""

    case: str
    launch: str
    code: str
    codes: list[str]  # other right answers
    rank: int | list[int] | None
    world_size: int
    model: str
    strategy: str
    batch: str
    samples: int  # a rank
    loading: str
    varies: bool  # its steps differ on purpose: their mean counts
    recording: dict[str, bool]
    amount: dict[str, Any]
    injected_ms: float  # nominal, of the disturbed rank's own time
    limits: dict[str, Any]  # of the undisturbed job; see measuring.Limits
    step_ms_untraced_undisturbed: Stretches
    step_ms_untraced: Stretches
    cost_ms: float
    cost_low_ms: float
    cost_high_ms: float
    others: list[dict[str, Any]] = field(default_factory=list)  # what else costs time, as {code, rank, cost_ms}
    # after profilers were used in this process: right before the window, and right after it
    step_ms_undisturbed_before_window: list[list[float]] = field(default_factory=list)  # [rank][step]
    step_ms_before_window: list[list[float]] = field(default_factory=list)
    step_ms_traced: list[list[float]] = field(default_factory=list)
    step_ms_after_window: list[list[float]] = field(default_factory=list)

    @property
    def step_ms(self) -> float:
        """The untraced step as run, the cause included."""
        return float(np.median(np.concatenate([np.ravel(rank) for rank in self.step_ms_untraced])))

    @property
    def of_window(self) -> "Truth":
        """The truth of the window itself: where the steps right before it are none of those measured in turns.

        What a host does once in a while (compiling for another shape) has a pace of its own, and hosts themselves have
        one from one minute to the next. Recording makes no step shorter: traced steps that are all shorter than any
        untraced one were run at another pace. So were steps right before the window that are longer or shorter than
        any of the turns by far. What those took, with the cause and without, is then what there is to find.
        """
        plain, disturbed = self.step_ms_undisturbed_before_window, self.step_ms_before_window
        if not (plain and disturbed and self.step_ms_traced):
            return self
        turns = over_ranks(self.step_ms_untraced)
        shorter = np.mean(self.step_ms_traced, axis=0).max() < min(steps.min() for steps in turns)
        medians, now = [float(np.median(steps)) for steps in turns], float(np.median(np.mean(disturbed, axis=0)))
        if not shorter and min(medians) / ANOTHER_PACE <= now <= max(medians) * ANOTHER_PACE:
            return self
        found = cost([[steps, steps] for steps in plain], [[steps] for steps in disturbed], self.varies)
        return replace(
            self,
            step_ms_untraced=[[steps] for steps in disturbed],
            step_ms_untraced_undisturbed=[[steps] for steps in plain],
            cost_ms=found.ms,
            cost_low_ms=found.low_ms,
            cost_high_ms=found.high_ms,
        )

    @property
    def causes_beside(self) -> list[dict[str, Any]]:
        """What else costs time: what was written, and launching, where the undisturbed job's limits show it.

        Hosts have a pace of their own from one minute to the next: what launching costs lies between what it did in
        the undisturbed stretches around the cause (`low_ms`, `high_ms`), and what it did as the limits were measured.
        """
        others = [one for one in self.others if one["code"] != "host_bound" or not hosts_are_ahead(self.limits)]
        if self.code != "host_bound" and not any(one["code"] == "host_bound" for one in others):
            others += launching(self.limits)
        return [
            {**one, **self._launching_around(one["cost_ms"])} if one["code"] == "host_bound" else one for one in others
        ]

    def _launching_around(self, cost_ms: float) -> dict[str, float]:
        if not self.limits:
            return {}
        stretches = over_ranks(self.step_ms_untraced_undisturbed)
        costs = [cost_ms, *(float(np.median(steps)) - self.limits["device_ms"] for steps in stretches)]
        return {"low_ms": max(0.0, min(costs)), "high_ms": max(costs)}

    def write(self, folder: Path) -> None:
        """Write it beside the traces, whole or not at all."""
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f".{FILE}"
        temporary.write_text(json.dumps(asdict(self)) + "\n")
        temporary.replace(folder / FILE)

    @classmethod
    def read(cls, folder: Path) -> "Truth":
        """Read what `write` wrote. Raises FileNotFoundError where the case was not finished."""
        kept = json.loads((folder / FILE).read_text())
        return cls(**{one.name: kept[one.name] for one in fields(cls) if one.name in kept})


def launching(limits: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what the hosts cost an undisturbed job, as one of a truth's `others`; nothing where devices bound it.

    Where hosts compute, their time is the step's, and nothing is launched.
    """
    if not limits or limits["host_ms"] == limits["step_ms"] or hosts_are_ahead(limits):
        return []
    ms = float(np.mean(limits["step_ms"])) - limits["device_ms"]
    return [{"code": "host_bound", "rank": None, "cost_ms": round(ms, 4)}] if ms > 0 else []


def hosts_are_ahead(limits: dict[str, Any]) -> bool:
    """Tell whether every host launches an undisturbed step in less time than its device takes for it.

    What such a step takes beyond that is exchanged data, or clocks that differ between two moments, and no launching.
    """
    return bool(limits) and limits["host_ms"] != limits["step_ms"] and max(limits["host_ms"]) < limits["device_ms"]


def cost(undisturbed: Stretches, disturbed: Stretches, varies: bool) -> Cost:
    """Return the disturbed stretches' typical step less that of their neighbours, the median over the pairs.

    A stretch's typical step is its median, which a hiccup of the host does not move; where steps differ on purpose
    it is their mean. The interval is a bootstrap over the pairs and, within each stretch, over its steps.
    """
    without, with_it = over_ranks(undisturbed), over_ranks(disturbed)
    if len(without) != len(with_it) + 1:
        raise ValueError(f"{len(with_it)} disturbed stretches need one more without: {len(without)}")
    generator = np.random.default_rng(0)

    def typical(steps: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(steps.mean(axis=-1) if varies else np.median(steps, axis=-1))

    def differences(one: Sequence[NDArray[np.float64]], other: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        plain = np.stack([typical(steps) for steps in one])
        return np.stack([typical(steps) for steps in other]) - (plain[:-1] + plain[1:]) / 2  # (pairs, draws)

    def drawn(steps: NDArray[np.float64]) -> NDArray[np.float64]:
        return steps[generator.integers(len(steps), size=(_DRAWS, len(steps)))]

    def middle(pairs: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(pairs.mean(axis=0) if varies else np.median(pairs, axis=0))

    found = float(middle(differences(without, with_it)))
    draws = differences([drawn(steps) for steps in without], [drawn(steps) for steps in with_it])
    chosen = generator.integers(len(draws), size=draws.shape)
    low, high = np.quantile(middle(np.take_along_axis(draws, chosen, axis=0)), (0.025, 0.975))
    return Cost(found, float(min(low, found)), float(max(high, found)))


def over_ranks(stretches: Stretches) -> list[NDArray[np.float64]]:
    """Return each stretch's steps as means over the ranks: they step together."""
    return [np.mean([rank[index] for rank in stretches], axis=0) for index in range(len(stretches[0]))]
