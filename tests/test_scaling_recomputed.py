"""What the backward pass runs of the forward pass again, and where that is booked.

tests/data/recomputed: a small convolutional network on CPUs, by tests/recomputed_job.py.
"""

from pathlib import Path

import pytest

from scalescope.scaling.rank.recomputed import find_recomputed
from scalescope.scaling.trace.kernel_kinds import CONVOLUTION, ELEMENTWISE, NORMALISATION
from scalescope.scaling.trace.reader import read_trace
from tests.gloo_traces import analysed

DATA = Path(__file__).parent / "data"
RECORDED = DATA / "recomputed"


@pytest.mark.parametrize("case", ["unpacked", "reentrant"])
def test_what_is_computed_again_is_booked_to_the_operators_that_compute(case: str) -> None:
    """8 convolutions and 8 norms of a step stood as `ReluBackward0`, 48% elementwise operators, with as many calls of
    each kind as in the network whose activations are kept. Where a function of Python's own runs a backward pass within
    itself, 97% of the compute was `CheckpointFunctionBackward`, of no kind that is known.
    """
    kept, again = ({row.kind: row for row in analysed(RECORDED / one).kinds} for one in ("kept", case))
    assert kept[CONVOLUTION].calls == kept[NORMALISATION].calls == 16
    assert again[CONVOLUTION].calls == again[NORMALISATION].calls == 24
    assert again[CONVOLUTION].ms > 1.15 * kept[CONVOLUTION].ms
    assert again[ELEMENTWISE].ms < again[CONVOLUTION].ms / 3


@pytest.mark.parametrize("folder", ["recomputed/kept", "recomputed/twice", "cpu_fsdp2_n2", "gpt_ddp_n2"])
def test_other_operators_of_a_backward_pass_are_no_recomputation(folder: str) -> None:
    """Gradients of gradients, a function of the user's own whose gradients are products called by name, weights that
    FSDP gathers in hooks: none of these repeats the forward pass.
    """
    for file in sorted((DATA / folder).glob("*.json.gz")):
        found = find_recomputed(read_trace(file))
        assert not found.operators.size and not found.nodes and not found.around.size
