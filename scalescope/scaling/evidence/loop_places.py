"""Where in a training loop its host stands still: by what the loop calls before and after.

The operator after a gap is torch's own, and nobody who wrote a loop knows it. What torch annotates (an optimizer's
step, the forward pass of a wrapped model) and autograd's own frames are what a loop is made of: the last of them before
a gap and the first one after it tell where it lies. Where one of them is missing nothing is told that needs it.
"""

import re
from collections.abc import Sequence
from typing import Literal

import numpy as np

from scalescope.scaling.evidence.host_timeline import HostTimeline
from scalescope.scaling.finding.finding import LoopPlace
from scalescope.scaling.trace.backward_calls import backward_begins
from scalescope.scaling.trace.families import ENGINE_FRAMES
from scalescope.scaling.trace.intervals import Intervals, Ints, covered_before, covers, union

_FORWARD = re.compile(r"(DistributedDataParallel|FullyShardedDataParallel)\.forward$")
#: A forward pass of which only the begin is annotated.
_FORWARD_BEGINS = re.compile(r"FSDP::root_pre_forward$")
_OPTIMIZER = re.compile(r"Optimizer\.step#")
#: A place is told where this share of the time that the gaps there take lies in one part of the loop.
_NEARLY_ALL = 0.9

#: `called`: a backward pass, of which no frame has begun.
_Part = Literal["called", "backward", "optimizer", "forward", "unknown"]


class LoopParts:
    """The parts of a loop as one rank's trace has them, in order."""

    def __init__(self, host: HostTimeline) -> None:
        self._host = host
        engine = np.array([name.startswith(ENGINE_FRAMES) for name in host.names], bool)[host.operators.name]
        self._frames = union(host.operators.of(engine).intervals)
        self._operators = union(host.operators.intervals)
        self._optimizer = union(host.annotations.of(host.named(_OPTIMIZER)[host.annotations.name]).intervals)
        self._forward = union(host.annotations.of(host.named(_FORWARD)[host.annotations.name]).intervals)
        opened = host.annotations.of(host.named(_FORWARD_BEGINS)[host.annotations.name]).start
        calls = backward_begins(host.operators.start, host.operators.end, host.operators.name, host.names)
        # what began and has not ended, or whose end nothing tells, leaves open what comes next
        self._over, self._over_kinds = _in_order(
            ("backward", self._frames.ends),
            ("optimizer", self._optimizer.ends),
            ("forward", self._forward.ends),
            ("unknown", opened),
            ("called", calls),
        )
        self._begun, self._begun_kinds = _in_order(
            ("backward", np.concatenate((self._frames.starts, calls))),
            ("optimizer", self._optimizer.starts),
            ("forward", np.concatenate((self._forward.starts, opened))),
        )
        self._forward_known = bool(self._forward.starts.size or opened.size)

    def place_of(self, gaps: Intervals, *, first: bool) -> LoopPlace | None:
        """Return where in the loop gaps (in order) at one place lie, by nearly all of their time; None: nothing tells.

        `first`: they come before their steps' first operators.
        """
        length = gaps.ends - gaps.starts
        time: dict[LoopPlace | None, int] = {}
        for place, ns in zip(self._places(gaps, first=first), length.tolist(), strict=True):
            time[place] = time.get(place, 0) + ns
        most = max(time, key=lambda place: time[place], default=None)
        return most if most is not None and time[most] >= _NEARLY_ALL * length.sum() else None

    def _places(self, gaps: Intervals, *, first: bool) -> list[LoopPlace | None]:
        inside = [self._inside(own, gaps) for own in (self._frames, self._optimizer, self._forward)]
        # annotations begin and end while nothing else does: near a gap's ends they are beside it, and else parts of it
        edge_ns = ((1 - _NEARLY_ALL) * (gaps.ends - gaps.starts)).astype(np.int64)
        opens, closes = gaps.starts + edge_ns, gaps.ends - edge_ns
        before = np.searchsorted(self._over, opens, side="right") - 1
        after = np.searchsorted(self._begun, closes, side="left")
        whole = before == np.searchsorted(self._over, closes, side="left") - 1
        whole &= after == np.searchsorted(self._begun, opens, side="right")
        step = self._host.step_of(gaps.starts)
        between = self._between_frames(gaps)
        found: list[LoopPlace | None] = []
        for at in range(gaps.starts.size):
            within: tuple[LoopPlace, ...] = ("in_backward", "in_optimizer", "in_forward")
            here = next((place for place, mask in zip(within, inside, strict=True) if mask[at]), None)
            last = self._over_kinds[before[at]] if before[at] >= 0 else None
            following = self._begun_kinds[after[at]] if after[at] < self._begun.size else None
            if here is None and whole[at] and last == following == "backward" and between[at]:
                here = "in_backward"
            if here is None and whole[at]:
                edge = self._host.edges[step[at] + 1] if step[at] >= 0 else 0
                same = before[at] >= 0 and self._over[before[at]] >= self._host.edges[step[at]]
                ends = after[at] >= self._begun.size or self._begun[after[at]] >= edge
                here = self._outside(last, following, same_step=bool(same), to_its_end=bool(ends))
            found.append("before_first" if here is None and first else here)
        return found

    def _inside(self, part: Intervals, gaps: Intervals) -> Sequence[bool]:
        """Tell which gaps lie inside a part of the loop, but for what is beside it near their ends."""
        covered = covered_before(part, gaps.ends) - covered_before(part, gaps.starts)
        lies: Sequence[bool] = (covered >= _NEARLY_ALL * (gaps.ends - gaps.starts)).tolist()
        return lies

    def _outside(
        self, last: _Part | None, following: _Part | None, *, same_step: bool, to_its_end: bool
    ) -> LoopPlace | None:
        """Return where between two parts of the loop something lies.

        `same_step`: as the part before; `to_its_end`: none begins in the rest of the step.
        """
        if last == "called":
            return "in_backward"
        if last == "backward" and following == "optimizer":
            return "after_backward"
        if last == "forward" and following == "backward":
            return "after_forward"
        if last not in ("optimizer", "backward", None) or following in ("optimizer", "backward"):
            # without annotations of forward passes one may lie before the next backward pass
            return "after_optimizer" if last == "optimizer" and same_step and to_its_end else None
        if not self._forward_known:
            return "after_optimizer" if last == "optimizer" and same_step and to_its_end else None
        if last is None or not same_step:
            return "before_forward" if following == "forward" else None
        return "optimizer_to_forward" if last == "optimizer" else "backward_to_forward"

    def _between_frames(self, gaps: Intervals) -> list[bool]:
        """Tell which gaps have one of autograd's frames right before and right after them."""
        starts, ends = self._operators
        if not starts.size:
            return [False] * gaps.starts.size
        before = np.searchsorted(ends, gaps.starts, side="right") - 1
        after = np.searchsorted(starts, gaps.ends, side="left")
        known = (before >= 0) & (after < starts.size)
        last = covers(self._frames, ends[np.maximum(before, 0)] - 1)
        following = covers(self._frames, starts[np.minimum(after, starts.size - 1)])
        both: list[bool] = (known & last & following).tolist()
        return both


def _in_order(*parts: tuple[_Part, Ints]) -> tuple[Ints, Sequence[_Part]]:
    instants = np.concatenate([own for _, own in parts])
    kinds = [kind for kind, own in parts for _ in range(own.size)]
    order = np.argsort(instants, kind="stable")
    return instants[order], [kinds[at] for at in order.tolist()]
