"""Replayed steps at scales of recording's cost, and what the scale is at which a step is so long."""

from collections.abc import Mapping

import msgspec
import numpy as np

from scalescope.scaling.costs.interval import Interval
from scalescope.scaling.replay.graph import Graph
from scalescope.scaling.replay.host_cost import (
    HostCost,
    Recording,
    Start,
    on_slower_devices,
    started,
    starts_of,
    with_quicker_copies,
    with_quicker_operators,
    without_recording,
)
from scalescope.scaling.replay.simulate import (
    bounded,
    bounded_steps,
    longest_host_ns,
    mean_step_ns,
    simulate,
    simulate_begins,
)

#: No recording costs a host more than this many times what the measured terms say.
HIGHEST_SCALE = 5.0
#: The scale is near enough where the replayed step is so near the untraced one.
NEAR = 0.004
#: Of the scales that are replayed to find the least one at which a step is short enough.
_CROSSING = 5
#: Of the scales that are replayed to find a bound of one that is known already.
_REFINED = 2
#: Of the scales that are tried for what the hosts' own calls take: halvings of the interval.
_HALVINGS = 12


class Replays(msgspec.Struct):
    """Replayed steps, ns, by the scale of recording's cost: what one calibration replayed, another need not."""

    graph: Graph
    cost: HostCost
    steps: dict[float, float] = msgspec.field(default_factory=dict)  # that this calibration looked at
    first: dict[float, float] = msgspec.field(default_factory=dict)
    starts: dict[float, Mapping[int, Start]] = msgspec.field(default_factory=dict)
    settled: dict[float, float] = msgspec.field(default_factory=dict)  # of all calibrations, as the two before
    devices: float = 1.0  # how many times as long the graph's devices take as in the trace
    copies: float = 0.0  # how far its copies of pageable memory are on the way to the window's quickest
    operators: float = 1.0  # how many times as long its operators of CPUs take as in the trace

    def of_another(self, traced_ns: float) -> "Replays":
        """Return these for a calibration that has looked at none but the step as traced: it comes out as without."""
        self.first[0.0], self.starts[0.0] = traced_ns, {}
        return msgspec.structs.replace(self, steps={0.0: traced_ns})

    def on_slower_devices(self, times: float) -> "Replays":
        """Return replays, none so far, of the graph with devices that take so many times as long."""
        slower = on_slower_devices(self.graph, times)
        return Replays(slower, self.cost, devices=self.devices * times, copies=self.copies)

    def with_quicker_operators(self, times: float) -> "Replays":
        """Return replays, none so far, of a graph as traced whose operators of CPUs take so many times as long."""
        return Replays(with_quicker_operators(self.graph, times), self.cost, operators=times)

    def with_quicker_copies(self, share: float) -> "Replays":
        """Return replays, none so far, of the graph with such copies; these where it has none that differ."""
        quicker = with_quicker_copies(self.graph, share)
        if quicker is self.graph:
            return self
        return Replays(quicker, self.cost, devices=self.devices, copies=share)

    def from_trace(self, scale: float) -> float:
        """Return the mean step at a scale, from a start as in the trace. Raises RunError where the replay stalls."""
        if scale not in self.first:
            graph = without_recording(self.graph, self.cost, scale)
            if any(len(own) < 2 for own in graph.steps.values()):
                self.starts[scale] = {}
                self.first[scale] = mean_step_ns(bounded(simulate(graph).step_ns(graph)))
            else:
                timing = simulate_begins(graph)
                self.starts[scale] = starts_of(graph, timing)
                self.first[scale] = mean_step_ns(bounded_steps(graph, timing))
        return self.first[scale]

    def at(self, scale: float) -> float:
        """Return the mean step at a scale, from a start in full swing. Raises RunError where the replay stalls."""
        if scale not in self.steps:
            if scale not in self.settled:
                step = self.from_trace(scale)
                if self.starts[scale]:
                    graph = started(without_recording(self.graph, self.cost, scale), self.starts[scale])
                    step = mean_step_ns(bounded_steps(graph, simulate_begins(graph)))
                self.settled[scale] = step
            self.steps[scale] = self.settled[scale]
        return self.steps[scale]

    def scale_of_hosts(self, goal: float) -> float | None:
        """Return the scale at which the slowest host's own calls take so long for a step, ns; None where none does."""
        low, high = 0.0, HIGHEST_SCALE
        if not longest_host_ns(without_recording(self.graph, self.cost, high)) < goal < longest_host_ns(self.graph):
            return None
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            longer = longest_host_ns(without_recording(self.graph, self.cost, middle)) > goal
            low, high = (middle, high) if longer else (low, middle)
        return (low + high) / 2

    def least_scale_for(self, step_ns: float, likely: float) -> float:
        """Return the least scale at which the step is no longer than that: by the hosts' own calls, else by halving.

        Where hosts wait for their devices in mid-step, the step gets shorter with the scale along a curve: a line
        between its ends would tell far too high a scale.
        """
        by_hosts = self.scale_of_hosts(step_ns)
        if by_hosts is not None and self.at(by_hosts) <= step_ns * (1 + NEAR):
            return by_hosts
        low, high = by_hosts or 0.0, HIGHEST_SCALE
        tried = max(likely, low)
        for _ in range(_CROSSING):
            low, high = (tried, high) if self.at(tried) > step_ns else (low, tried)
            tried = (low + high) / 2
        return self._between_replays(step_ns)

    def recording(self, scale: Interval, *, fitted: bool = False, copies_high: float = 0.0) -> Recording:
        """Return what recording costs at a scale whose value was replayed; `fitted`: to the untraced step.

        `copies_high`: how quick copies of pageable memory may be.
        """
        return Recording(
            self.cost, scale, self.starts[scale.value], self.devices, self.copies, max(self.copies, copies_high),
            self.operators, fitted,
        )  # fmt: skip

    def scale_for(self, step_ns: float, near: float) -> float:
        """Return the scale at which the step would be so long, `near` one that was replayed.

        Where the hosts' own calls make all of that one's step, they tell; else hosts wait in mid-step, for the longer
        the less they take themselves, and only replays do.
        """
        by_hosts = self.scale_of_hosts(step_ns)
        if by_hosts is not None and self.is_its_hosts(near):
            return by_hosts
        for _ in range(_REFINED):
            tried = self._between_replays(step_ns)
            if tried in self.steps or abs(self.at(tried) - step_ns) <= NEAR * step_ns:
                break
        return self._between_replays(step_ns)

    def is_its_hosts(self, scale: float) -> bool:
        """Tell whether the step at a scale is as long as the slowest host's own calls."""
        return self.at(scale) <= longest_host_ns(without_recording(self.graph, self.cost, scale)) * (1 + NEAR)

    def _between_replays(self, step_ns: float) -> float:
        """Return the scale at which the step would be so long, on the lines between those replayed."""
        scales = np.array(sorted(self.steps, reverse=True))
        steps = np.maximum.accumulate(np.array([self.steps[scale] for scale in scales.tolist()]))
        return float(np.interp(step_ns, steps, scales))
