"""What the two devices' data sheets lead to expect of a kernel: bound by memory, by products, or by the links."""

from scalescope.hardware.peaks import find_peak
from scalescope.scaling.compare.answer import Bound
from scalescope.scaling.trace import kernel_kinds

_COMPUTES = (kernel_kinds.MATMUL, kernel_kinds.ATTENTION, kernel_kinds.CONVOLUTION)
#: Of operations one after another, or of several kinds at once: none of the peaks tells.
_NEITHER = (kernel_kinds.RECURRENT, kernel_kinds.TRANSFORMS, kernel_kinds.OTHER)
_USUAL_PRECISION = "bf16"


def bound_of(kind: str) -> Bound:
    """Return what bounds large kernels of a kind."""
    if kind == kernel_kinds.COMMUNICATION:
        return "communication"
    if kind in _COMPUTES:
        return "compute"
    return "unknown" if kind in _NEITHER else "memory"


def expected_ratio(bound: Bound, here: str | None, there: str | None, precision: str | None = None) -> float | None:
    """Return OTHER's time over the baseline's by their data sheets; None where one is not known."""
    if here is None or there is None or bound == "unknown":
        return None
    if here == there:
        return 1.0
    before, after = find_peak(here), find_peak(there)
    if before is None or after is None:
        return None
    figures: tuple[float | None, float | None]
    if bound == "memory":
        figures = before.memory_tb_s, after.memory_tb_s
    elif bound == "communication":
        figures = before.link_gb_s, after.link_gb_s
    else:
        figures = before.tflops(precision or _USUAL_PRECISION), after.tflops(precision or _USUAL_PRECISION)
    here_can, there_can = figures
    return here_can / there_can if here_can and there_can else None
