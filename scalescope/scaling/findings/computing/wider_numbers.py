"""What all ranks compute in wider numbers than needed: in float64, or products in float32 beside the matrix units.

It is no fault of a rank, and some of it may be meant; what narrower numbers give back of it was measured, and varies
with what is computed: so does the interval. What one rank alone computes so is told of that rank (dearer_precision,
other_kernels).
"""

from collections.abc import Collection, Iterator, Sequence

from msgspec.structs import replace

from scalescope.hardware.peaks import Peak
from scalescope.scaling.finding.codes import Cure
from scalescope.scaling.finding.figures import DOUBLE_PRECISION, FULL_PRECISION
from scalescope.scaling.finding.finding import Remedy
from scalescope.scaling.findings.candidate import Candidate, Scene
from scalescope.scaling.findings.computing.tally import Tally, takes_much
from scalescope.scaling.rank.timeline import COMPUTE
from scalescope.scaling.replay.change import Change
from scalescope.scaling.replay.graph import Activity, Graph
from scalescope.scaling.replay.ranks.shortened import in_double, off_matrix_units
from scalescope.scaling.replay.removal import Removal
from scalescope.scaling.trace.kernel_kinds import CONVOLUTION, MATMUL, NORMALISATION, kind_of

#: Of what cores compute in fp64, fp32 gave back so much in the middle, and between so much mostly: vectors hold twice
#: as many numbers, and half is moved; and of convolutions, which oneDNN does not have in fp64, by their shapes
#: (benchmarks/wider_numbers.py, docs/method/findings.md).
GIVEN_BACK, GIVEN_BACK_LOW, GIVEN_BACK_HIGH = 0.55, 0.45, 0.7
CONVOLVED, CONVOLVED_LOW, CONVOLVED_HIGH = 0.68, 0.4, 0.85
#: The same on devices, by the kind of kernel: measured on an H200, which has no convolution in fp64 but a slow one, and
#: whose products in it take as long as plain fp32 ones do. What converts to float64 and back goes, all of it.
ON_DEVICE = {CONVOLUTION: (0.4, 0.85, 0.95), NORMALISATION: (0.55, 0.64, 0.7), MATMUL: (0.0, 0.0, 0.3)}
#: … and of a device whose peaks are not known, which may have a thirtieth of them in fp64.
PRODUCTS_ANYWHERE = (0.0, 0.5, 0.97)
ON_DEVICE_ELSE = (0.35, 0.4, 0.6)


#: By how long a product takes in fp32, ns, from which on: which share of what a data sheet's peaks allow came back of
#: it, at least in tf32, in the middle, and at most in bf16, on an H200 (benchmarks/matrix_units.py). Shorter ones wait
#: for memory as well, and so do convolutions of few channels, however long they take.
OF_PEAKS = ((1_000_000, (0.9, 0.95, 1.0)), (100_000, (0.55, 0.75, 0.95)), (0, (0.0, 0.35, 0.8)))
OF_PEAKS_CONVOLVED = (0.15, 0.65, 0.95)
#: Where nothing is multiplied by narrower numbers yet, bf16 also halves what all other kernels move, at most.
_ALL, _NARROWED = 0.95, 0.5


def double_precision(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate where all ranks compute in double precision, for much of the step."""
    graph = scene.replayer.graph
    ranks = scene.side.ranks
    if not scene.replayer.on_cpu:
        yield from _on_devices(scene)
        return
    if not graph.precisions:
        return
    tally = Tally(ranks, set(graph.step_numbers))
    of_convolutions = of_others = 0.0
    for convolved in (True, False):
        for at in (at for rank in ranks for at in in_double(graph, rank, convolved=convolved)):
            took = tally.add(graph.activities[at].name, graph.activities[at])
            of_convolutions, of_others = of_convolutions + took * convolved, of_others + took * (not convolved)
    if not tally.is_alike():
        return
    removals = (Removal("double", share=GIVEN_BACK), Removal("double_convolutions", share=CONVOLVED))
    if not takes_much(scene, Change(without=removals)):
        return
    low, ms, high = (less_ms(of_convolutions, of_others, shares) for shares in _SHARES)
    yield Candidate(
        code="double_precision",
        removals=removals,
        known_within=(low / ms, high / ms),
        evidence=tally.rows(DOUBLE_PRECISION, "operator"),
        remedy=Remedy(cure="narrower_numbers"),
    )


def _on_devices(scene: Scene) -> Iterator[Candidate]:
    graph = scene.replayer.graph
    tally = Tally(scene.side.ranks, set(graph.step_numbers))
    computing = back_low = back = back_high = 0.0
    for at in sorted(graph.double):
        kind = kind_of(graph.activities[at].name)
        took = tally.add(kind, graph.activities[at])
        shares = ON_DEVICE.get(kind, ON_DEVICE_ELSE)
        if kind == MATMUL and scene.peak is None:
            shares = PRODUCTS_ANYWHERE
        low, middle, high = (share * took for share in shares)
        computing, back_low, back, back_high = computing + took, back_low + low, back + middle, back_high + high
    converting = sum(
        tally.add(kind_of(graph.activities[at].name), graph.activities[at]) for at in sorted(graph.converting)
    )
    ms = back + converting
    if not tally.is_alike() or not ms:
        return
    removals = (Removal("double", share=back / computing if computing else 0.0),)
    if not takes_much(scene, Change(without=removals)):
        return
    yield Candidate(
        code="double_precision",
        removals=removals,
        known_within=((back_low + converting) / ms, (back_high + converting) / ms),
        evidence=tally.rows(DOUBLE_PRECISION, "activity"),
        remedy=Remedy(cure="narrower_numbers"),
    )


def full_precision(scene: Scene) -> Iterator[Candidate]:
    """Yield a candidate where all ranks multiply in fp32 beside the matrix units, on a device whose peaks are known.

    What can come back is bounded by these: of fp32's, tf32's and bf16's. Of a device that gains nothing in tf32, or of
    which that is not known, by bf16's alone, which is all that is advised then.
    """
    peak = scene.peak
    if scene.replayer.on_cpu or peak is None or peak.bf16_tflops <= peak.fp32_tflops:
        return
    by_bf16 = 1 - peak.fp32_tflops / peak.bf16_tflops
    tf32_tflops = _faster_tf32(peak)
    by_tf32 = by_bf16 if tf32_tflops is None else 1 - peak.fp32_tflops / tf32_tflops
    graph, ranks = scene.replayer.graph, scene.side.ranks
    tally = Tally(ranks, set(graph.step_numbers))
    low = middle = high = whole = 0.0
    for at in (at for rank in ranks for at in off_matrix_units(graph, rank)):
        took = tally.add(kind_of(graph.activities[at].name), graph.activities[at])
        least, usual, most = _of_peaks(graph.activities[at])
        whole, low, high = whole + took, low + least * by_tf32 * took, high + most * by_bf16 * took
        middle += usual * (by_tf32 + by_bf16) / 2 * took
    removals = (Removal("full", share=middle / whole if whole else 0.0),)
    if not middle or not tally.is_alike() or not takes_much(scene, Change(without=removals)):
        return
    computed, multiplied = _computed_ms(graph, ranks)
    if whole >= _ALL * multiplied:
        high += _NARROWED * (computed - whole)
    figure, *kinds = tally.rows(FULL_PRECISION, "activity")
    told = replace(figure, share=whole / computed, value=None if tf32_tflops is None else low / whole)
    yield Candidate(
        code="full_precision",
        removals=removals,
        known_within=(low / middle, high / middle),
        evidence=(told, *kinds),
        remedy=Remedy(cure=onto_matrix_units(peak)),
    )


def onto_matrix_units(peak: Peak | None) -> Cure:
    """Return what lets products in fp32 run on a device's matrix units: tf32 only where its peaks, where these are
    known, say that it is faster.
    """
    return "matrix_units" if peak is None or _faster_tf32(peak) is not None else "matrix_units_in_bf16"


def _faster_tf32(peak: Peak) -> float | None:
    """Return a device's peak in tf32, where that is known to be beyond fp32's."""
    return peak.tf32_tflops if peak.tf32_tflops is not None and peak.tf32_tflops > peak.fp32_tflops else None


def _of_peaks(node: Activity) -> tuple[float, float, float]:
    """Return which share of what peaks allow a product in fp32 gives back: at least, in the middle, and at most."""
    took = node.traced_end - node.traced_start
    shares = next(shares for since, shares in OF_PEAKS if took >= since)
    return shares if kind_of(node.name) != CONVOLUTION or took < OF_PEAKS[1][0] else OF_PEAKS_CONVOLVED


def _computed_ms(graph: Graph, ranks: Collection[int]) -> tuple[float, float]:
    """Return what all compute of the ranks takes, and products and convolutions of it, ms."""
    steps = set(graph.step_numbers)
    own = [one for one in graph.activities if one.kind == COMPUTE and one.rank in ranks and one.step in steps]
    products = [one for one in own if kind_of(one.name) in (MATMUL, CONVOLUTION)]
    computed, multiplied = (sum(one.traced_end - one.traced_start for one in some) / 1e6 for some in (own, products))
    return computed, multiplied


def less_ms(of_convolutions_ms: float, of_others_ms: float, shares: Sequence[float] = (CONVOLVED, GIVEN_BACK)) -> float:
    """Return what float32 gives back of convolutions and of all others that are in float64, ms."""
    return shares[0] * of_convolutions_ms + shares[1] * of_others_ms


_SHARES = ((CONVOLVED_LOW, GIVEN_BACK_LOW), (CONVOLVED, GIVEN_BACK), (CONVOLVED_HIGH, GIVEN_BACK_HIGH))
