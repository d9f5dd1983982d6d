"""What the two devices' data sheets lead to expect of a kernel: bound by memory, by products, or by the links.

What binds a kernel does not follow from its kind. Hardware counters of an H200 beside times on an H100 and an H200 (GPT
and ResNet-50, eager) say: torch's kernels that load 16 bytes at a time move nearly what a copy does, and had memory's
ratio within 10% (GELU, whose instructions take as long, had not); so had lists of tensors in one kernel. Large products
of linear layers had that of the products. Normalisation, attention, embedding, casts, what changes the layout,
reductions, and convolutions with the products that they are made of are bound by neither limit alone: their ratio lies
between, and nothing in a trace says where. Of other libraries' kernels nobody has measured it.
"""

import re
from collections.abc import Sequence

from scalescope.hardware.peaks import USUAL_PRECISION, find_peak
from scalescope.scaling.compare.answer import Bound
from scalescope.scaling.compare.kernels.operators import Call
from scalescope.scaling.trace import kernel_kinds

_MOVES = (kernel_kinds.ELEMENTWISE, kernel_kinds.COPIES, kernel_kinds.OPTIMISER)
#: Torch's kernels that load vectors, or lists of tensors at once.
_IN_VECTORS = re.compile(r"vectorized_elementwise_kernel|_vectorized\b|multi_tensor_apply")
_COMPUTES = re.compile(r"(?i)gelu")
_CONVOLVES = re.compile(r"(?i)conv")
#: A call that is shorter is bound by its launch and its ramps, too.
_LARGE_US = 20.0
#: Of a call of several kernels the longest says what binds it where it takes most of the time.
_MOST = 0.9


def bound_of(calls: Sequence[Call]) -> Bound:
    """Return what binds calls that stand side by side on two devices; unknown where one does not tell."""
    found = {_bound_of(call) for call in calls}
    return found.pop() if len(found) == 1 else "unknown"


def _bound_of(call: Call) -> Bound:
    if call.kind == kernel_kinds.COMMUNICATION:
        return "communication"
    main = call.main
    if main.us < _LARGE_US or main.us < _MOST * call.us:
        return "unknown"
    if call.kind == kernel_kinds.MATMUL:
        return "unknown" if _CONVOLVES.search(call.operator or "") else "compute"
    moves = call.kind in _MOVES and _IN_VECTORS.search(main.name) and not _COMPUTES.search(main.name)
    return "memory" if moves else "unknown"


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
        figures = before.tflops(precision or USUAL_PRECISION), after.tflops(precision or USUAL_PRECISION)
    here_can, there_can = figures
    return here_can / there_can if here_can and there_can else None
