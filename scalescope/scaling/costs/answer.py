"""The cost model as an answer: each fit with its terms, its points, the ceiling of the links, and the holdout."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from scalescope.hardware.link_ceiling import link_ceiling_gb_s
from scalescope.hardware.peaks import find_peak
from scalescope.records.operations import bus_factor
from scalescope.scaling.costs.holdout import Holdout, hold_out
from scalescope.scaling.costs.interval import Interval

if TYPE_CHECKING:  # an answer is read where nothing is fitted
    from scalescope.scaling.costs.fit import Branch, Fit
    from scalescope.scaling.costs.model import CostModel


class Term(msgspec.Struct, frozen=True):
    """One term of one segment: `us` for a latency, `ns_per_kib` for a bandwidth; times its factor it is a time."""

    name: str  # constant | steps | levels | moved | own: see scalescope/scaling/costs/terms.py
    us: float | None = None
    ns_per_kib: float | None = None


class CostSegment(msgspec.Struct, frozen=True):
    """The terms between two sizes."""

    from_bytes: int
    to_bytes: int
    terms: list[Term]


class FittedForm(msgspec.Struct, frozen=True):
    """One combination of terms, with its Akaike weight: how much of the prediction it makes."""

    weight: float
    segments: list[CostSegment]


class FittedPoint(msgspec.Struct, frozen=True):
    """A measured point beside the fit and beside what the links allow."""

    bytes: int
    group_size: int
    measured_us: float
    fitted_us: Interval
    ceiling_us: float | None  # at the links' rate, without any latency


class OperationCost(msgspec.Struct, frozen=True):
    """What one operation of one dtype takes."""

    operation: str
    dtype: str
    across_hosts: bool  # the groups take more than one host
    group_sizes: list[int]
    forms: list[FittedForm]
    points: list[FittedPoint]
    typical_error: float | None  # median of |fitted / measured − 1| from 1 MiB up
    ceiling_assumes: str | None
    holdout: Holdout | None
    holdout_reason: str | None = None


class CostAnswer(msgspec.Struct, frozen=True):
    """What collectives take on a machine."""

    device: str | None
    operations: list[OperationCost]
    model: str = "latency and bandwidth terms by segments, AICc, bootstrap; scalescope 1"


def cost_answer(model: "CostModel") -> CostAnswer:
    """Return the fits of all operations that a model's sweeps measured."""
    return CostAnswer(
        model.device, [_operation(model.fit_of(*key), model.device, across_hosts=key[2]) for key in model.measured]
    )


def _operation(fitted: "Fit", device: str | None, across_hosts: bool) -> OperationCost:
    peak = find_peak(device) if device else None
    points = []
    assumes = None
    for point in sorted(fitted.points, key=lambda point: (point.group_size, point.bytes)):
        ceiling = None
        factor = bus_factor(fitted.operation, point.group_size)
        limit = link_ceiling_gb_s(peak, point.group_size) if peak is not None and not across_hosts else None
        if limit is not None and factor is not None:
            rate, assumes = limit
            ceiling = point.bytes * factor / rate / 1e3
        predicted = fitted.time_us(point.bytes, point.group_size)
        points.append(FittedPoint(point.bytes, point.group_size, point.time_us, predicted, ceiling))
    held = hold_out(fitted.operation, fitted.dtype, fitted.points)
    errors = [abs(point.fitted_us.value / point.measured_us - 1) for point in points if point.bytes >= 1 << 20]
    return OperationCost(
        operation=fitted.operation,
        dtype=fitted.dtype,
        across_hosts=across_hosts,
        group_sizes=fitted.groups,
        forms=[_form(branch, fitted) for branch in fitted.branches],
        points=points,
        typical_error=float(np.median(errors)) if errors else None,
        ceiling_assumes=assumes,
        holdout=held,
        holdout_reason=(
            None
            if held is not None
            else "one group size alone checks nothing: sweep over two, better three (group_sizes=[2,3,4])"
        ),
    )


def _form(branch: "Branch", fitted: "Fit") -> FittedForm:
    smallest, largest = fitted.sizes
    edges = [smallest, *(round(edge) for edge in branch.cut.edges), largest]
    return FittedForm(
        branch.weight,
        [
            CostSegment(edges[at], edges[at + 1], _terms(branch.form, branch.coefficients[at].tolist()))
            for at in range(len(edges) - 1)
        ],
    )


def _terms(names: Sequence[str], coefficients: Sequence[float]) -> list[Term]:
    return [
        Term(name, ns_per_kib=value * 1e3 * 1024) if name in ("moved", "own") else Term(name, us=value)
        for name, value in zip(names, coefficients, strict=True)
    ]
