"""Other kernels for the same operators on one rank: one cause, as large as all of them, and no work of its own."""

import numpy as np
import pytest

from scalescope.scaling.replay.ranks.side_by_side import align
from scalescope.scaling.replay.ranks.unlike import UnlikeStretch, shared_out, unlike_stretches
from tests.test_known_windows import first

_PRODUCT, _TF32 = "sm90_xmma_gemm_bf16bf16", "sm90_xmma_gemm_f32f32_tf32f32"
_AROUND = ["norm_before", "rope_before", "gate_before", "mask_before"]


@pytest.mark.parametrize(
    ("recorded", "step_ms", "low_ms", "high_ms"),
    [
        ("fp32_layer_gan_rank1_n2", 23.68, 4.57, 6.27),
        ("fp32_layer_diffusion_rank1_n2", 62.20, 0.78, 0.96),
    ],
)
def test_a_layer_in_another_precision_is_one_cause(
    recorded: str, step_ms: float, low_ms: float, high_ms: float
) -> None:
    """One layer in fp32 on rank 1, of which untraced turns tell between what it costs.

    Of 5.19 ms it was told as slower compute of 3.72 ms and work of its own of 2.69 ms, of kernels that take 1.10x
    whatever their kind; and of 0.86 ms in a step of 62.2 that nothing was wrong.
    """
    analysis, sentence = first(recorded, step_ms)
    told = analysis.findings[0]
    assert (told.code, told.rank) == ("slower_compute", 1)
    assert told.ms is not None and low_ms <= told.ms <= high_ms
    assert all((one.rank, one.code) != (1, "own_work") for one in analysis.findings)
    assert "other kernels than the others for the same operators" in sentence


def test_what_a_rank_runs_besides_stands_in_for_nothing() -> None:
    """Sixty products of a rank's own beside one that is chosen otherwise are no other way to do that one."""
    common = [*_AROUND, _PRODUCT, *_AROUND]
    own = [*_AROUND, _TF32, *["log_product_gemm"] * 60, *_AROUND]
    assert unlike_stretches(own, common, align(own, common)) == ()


def test_casts_around_a_product_go_with_it_and_stand_in_for_its_place() -> None:
    common = [*_AROUND, _PRODUCT, "bias_bf16", *_AROUND]
    own = [*_AROUND, "cast_to_f32", _TF32, "bias_f32", "cast_to_bf16", *_AROUND]
    assert unlike_stretches(own, common, align(own, common)) == (UnlikeStretch([4, 5, 6, 7], [4, 5]),)
    assert shared_out(np.array([3.0, 1.0]), np.array([1.0, 1.0, 0.0, 2.0])).tolist() == [1.0, 1.0, 0.0, 2.0]


def test_elementwise_kernels_alone_stand_in_for_nothing() -> None:
    """What a rank checks or logs may stand where another rank does something else: only a product tells of a layer."""
    common = [*_AROUND, "scale", *_AROUND]
    own = [*_AROUND, "isnan", "any", *_AROUND]
    assert unlike_stretches(own, common, align(own, common)) == ()
