"""What of a step's compute its kernels' names tell to be done the long way: products in full width, layouts to and fro.

Nothing here is a fault around the compute, and what mending it brings no trace tells: each row says how much of a step
such kernels take. So they stand beside what a step consists of that loses nothing else.
"""

import bisect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from scalescope.hardware.peaks import Peak
from scalescope.scaling.finding.figures import (
    DOUBLE_PRECISION,
    FULL_PRECISION,
    LAYOUT_CONVERSIONS,
    SORTED_SCATTERS,
    UNALIGNED_PRODUCTS,
    UNFUSED,
    UNFUSED_OPTIMISER,
)
from scalescope.scaling.finding.finding import EvidenceRow
from scalescope.scaling.findings.candidate import Scene
from scalescope.scaling.findings.computing.wider_numbers import less_ms
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.replay.ranks.shortened import in_double
from scalescope.scaling.trace.kernel_kinds import (
    COPIES,
    ELEMENTWISE,
    MULTIPLYING,
    OPTIMISER,
    kind_of,
)
from scalescope.scaling.trace.kernel_names import is_in_double, is_off_matrix_units

#: One operator a kernel, element by element; what gathers by positions is not fused with what comes before.
_ELEMENTWISE = re.compile(r"(?<!gather_)elementwise_kernel(?!.*(index|gather|scatter))")
#: Layouts are turned around convolutions where a network's own is not the one that they compute in.
_LAYOUTS = re.compile(r"nchwtonhwc|nhwctonchw|transpose_[cn]{2}hw2[cn]{2}hw|batched_transpose_\d+x|nhwcaddpadding")
#: Half-precision products of sides that are no multiples of eight elements are read one or two at a time.
_UNALIGNED = re.compile(r"tensorop\w*_align[12]\b")
_INDUCTORS = re.compile(r"^triton_[a-z]+_fused")
#: One kernel for each operation of an optimizer (`foreach`), or for each parameter; a fused one has a name of its own.
_FUSED_OPTIMISER = re.compile(r"fused_?optimizer|fused_?(adam|sgd|adagrad|lamb|lion)|adam|lamb_?(stage|kernel)|amp_")
#: What torch's optimizers with a fused form say that they do, and those of them whose single operations read and write
#: the same tensors 18 to 20 times, which a fused one does 7 times: more than half of what they take.
_OPTIMISERS = re.compile(r"Optimizer\.step#(Adam|AdamW|SGD|Adagrad)\.step")
_READ_OFTEN = re.compile(r"Optimizer\.step#AdamW?\.step")
_GIVEN_BACK = 0.5
#: Gradients of what was indexed by a tensor: positions are sorted, so that equal ones can be summed up.
_SORTED = re.compile(r"indexing_backward|compute_grad_weight|sum_and_scatter|krn_partial|partial_segments")

#: What multiplies in full width is told from this share of the compute on, what is unfused from this one, and all
#: others from that one.
_MUCH_FULL, _MUCH_UNFUSED, _MUCH = 0.25, 0.4, 0.05

#: Of a number in fp64, bf16 has two of eight bytes.
_BYTES_LEFT = 0.25


class OfOptimisers(NamedTuple):
    """What optimizers' single operations take that no kernel's name tells, on the mean rank and step."""

    ns_by_name: Mapping[str, float]
    calls: float
    given_back_ns: float  # by a fused form, of these and of those that `foreach` groups; at least


_NO_OPTIMISERS = OfOptimisers({}, 0.0, 0.0)


class _Kernel(NamedTuple):
    name: str
    lower: str
    kind: str


def _is_full_precision(kernel: _Kernel) -> bool:
    return kernel.kind in MULTIPLYING and is_off_matrix_units(kernel.name)


def _is_double(kernel: _Kernel) -> bool:
    return is_in_double(kernel.name)


def _is_unfused_optimiser(kernel: _Kernel) -> bool:
    return kernel.kind == OPTIMISER and "multi_tensor" in kernel.lower and not _FUSED_OPTIMISER.search(kernel.lower)


def _is_unfused(kernel: _Kernel) -> bool:
    return kernel.kind in (ELEMENTWISE, COPIES) and bool(_ELEMENTWISE.search(kernel.lower))


#: The figure's name, from which share of the compute on it is told, and which kernels it counts.
_HABITS: tuple[tuple[str, float, Callable[[_Kernel], bool]], ...] = (
    (DOUBLE_PRECISION, _MUCH, _is_double),
    (FULL_PRECISION, _MUCH_FULL, _is_full_precision),
    (UNALIGNED_PRODUCTS, _MUCH, lambda one: one.kind in MULTIPLYING and bool(_UNALIGNED.search(one.lower))),
    (LAYOUT_CONVERSIONS, _MUCH, lambda one: bool(_LAYOUTS.search(one.lower))),
    (SORTED_SCATTERS, 2 * _MUCH, lambda one: bool(_SORTED.search(one.lower))),
    (UNFUSED_OPTIMISER, 2 * _MUCH, _is_unfused_optimiser),
    (UNFUSED, _MUCH_UNFUSED, _is_unfused),
)


def habits_of(scene: Scene) -> Iterator[EvidenceRow]:
    """Yield what of the compute on devices is done the long way, by habit: ms a step and its share of the compute."""
    if scene.replayer.on_cpu:
        yield from _double_on_cpus(scene)  # operators' names tell no precision and no layout
        return
    ns_by_name, calls_by_name = _times(scene)
    for row in habits(ns_by_name, calls_by_name, _of_optimisers(scene)):
        yield replace(row, value=given_back_ms(ns_by_name, scene.peak)) if row.name == DOUBLE_PRECISION else row


def _double_on_cpus(scene: Scene) -> Iterator[EvidenceRow]:
    """Yield what operators take in double precision on all ranks, where shapes were recorded: of the one with least."""
    graph = scene.replayer.graph
    numbers = set(graph.step_numbers)
    scale = 1e6 * max(1, len(numbers))
    found = []
    for rank in graph.ranks:
        own = [at for at in _computing(scene) if graph.activities[at].rank == rank]
        own = [at for at in own if graph.activities[at].step in numbers]
        convolved, others = (
            [at for at in in_double(graph, rank, convolved=kind) if graph.activities[at].step in numbers]
            for kind in (True, False)
        )
        whole, of_convolutions, of_others = (
            sum(graph.activities[at].traced_end - graph.activities[at].traced_start for at in rows) / scale
            for rows in (own, convolved, others)
        )
        calls = len(convolved + others) / max(1, len(numbers))
        found.append((of_convolutions + of_others, whole, calls, less_ms(of_convolutions, of_others)))
    ms, whole, calls, less = min(found, default=(0.0, 0.0, 0.0, 0.0))
    if ms >= _MUCH * whole > 0:
        yield EvidenceRow(kind="figure", name=DOUBLE_PRECISION, ms=ms, calls=calls, share=ms / whole, value=less)


def given_back_ms(ns_by_name: Mapping[str, float], peak: Peak | None) -> float | None:
    """Return what kernels in fp64 give back at most in bf16, ms: the rest is what the data sheet's peaks allow.

    Products take as much shorter as the device's peaks are apart, all others move a quarter of the bytes. None where
    the peaks are not known.
    """
    fp64, bf16 = (None, None) if peak is None else (peak.tflops("fp64"), peak.tflops("bf16"))
    if not fp64 or not bf16:
        return None
    kernels = [_Kernel(name, name.lower(), kind_of(name)) for name in ns_by_name]
    return sum(
        ns_by_name[one.name] * (1 - fp64 / bf16 if one.kind in MULTIPLYING else 1 - _BYTES_LEFT)
        for one in kernels
        if _is_double(one)
    ) / 1e6  # fmt: skip


def habits(
    ns_by_name: Mapping[str, float], calls_by_name: Mapping[str, float], of_optimisers: OfOptimisers = _NO_OPTIMISERS
) -> Iterator[EvidenceRow]:
    """Yield the habits of kernels by what each name takes and how often it runs, on the mean rank and step.

    What optimizers launch element by element is among these, and is their habit.
    """
    kernels = [_Kernel(name, name.lower(), kind_of(name)) for name in ns_by_name]
    whole = sum(ns_by_name.values())
    compiled = any(_INDUCTORS.match(one.name) for one in kernels)
    for figure, least, counts in _HABITS:
        if figure == UNFUSED and compiled:
            continue  # what is left alone of a compiled step stays so
        own = [one.name for one in kernels if counts(one)]
        ns = sum(ns_by_name[name] for name in own)
        calls = sum(calls_by_name[name] for name in own)
        more = {UNFUSED_OPTIMISER: 1.0, UNFUSED: -1.0}.get(figure, 0.0)
        ns += more * sum(of_optimisers.ns_by_name.values())
        calls += more * of_optimisers.calls
        if ns >= least * whole > 0:
            given_back = of_optimisers.given_back_ns / 1e6 if figure == UNFUSED_OPTIMISER else 0.0
            yield EvidenceRow(
                kind="figure", name=figure, ms=ns / 1e6, calls=calls, share=ns / whole, value=given_back or None
            )


def _of_optimisers(scene: Scene) -> OfOptimisers:
    """Return what is launched element by element while the loop's thread says that its optimizer steps."""
    records, numbers = scene.replayer.records, set(scene.replayer.graph.step_numbers)
    scale = max(1, len(scene.replayer.graph.ranks) * len(numbers))
    ns: dict[str, float] = {}
    calls = given_back = 0.0
    for rank in scene.replayer.graph.ranks:
        record = records[rank]
        stepping = [phase for phase in record.phases if _OPTIMISERS.fullmatch(phase[2])]
        for call in record.calls if stepping else ():
            at = call.activity
            if at < 0 or record.kind[at] != COMPUTE or record.step[at] not in numbers:
                continue
            within = bisect.bisect_right(stepping, call.start, key=lambda phase: phase[0]) - 1
            if within < 0 or call.start > stepping[within][1]:
                continue
            name, took = record.name[at], (record.end[at] - record.start[at]) / scale
            kernel = _Kernel(name, name.lower(), kind_of(name))
            if _is_unfused(kernel):
                ns[name] = ns.get(name, 0.0) + took
                calls += 1 / scale
            elif not _is_unfused_optimiser(kernel):
                continue
            given_back += _GIVEN_BACK * took if _READ_OFTEN.fullmatch(stepping[within][2]) else 0.0
    return OfOptimisers(ns, calls, given_back)


def _times(scene: Scene) -> tuple[dict[str, float], dict[str, float]]:
    graph = scene.replayer.graph
    steps = set(graph.step_numbers)
    scale = max(1, len(graph.ranks) * len(steps))
    ns: dict[str, float] = {}
    calls: dict[str, float] = {}
    for at in _computing(scene):
        node = graph.activities[at]
        if node.step in steps:
            ns[node.name] = ns.get(node.name, 0.0) + (node.traced_end - node.traced_start) / scale
            calls[node.name] = calls.get(node.name, 0.0) + 1 / scale
    return ns, calls


def _computing(scene: Scene) -> Sequence[int]:
    activities = scene.replayer.graph.activities
    return [at for at, node in enumerate(activities) if node.kind == COMPUTE]
