"""A step that takes minutes is told before it is waited for."""

from scalescope.records.rows import Ceilings, TrainFacts
from scalescope.train.measure.forecast import forecast

# GPT-2 small as conf/ has it: 64 samples of 1024 tokens
GPT = TrainFacts(
    model="gpt_small", strategy="ddp", precision="bf16", parameters=124_000_000, flops_per_sample=0.875e12,
    flops_formula="6(N - N_position) + 12LHQT", samples_per_rank_step=64,
)  # fmt: skip


def test_a_model_for_gpus_on_a_cpu_is_told_in_minutes() -> None:
    said = forecast(GPT, Ceilings(matmul_tflops=0.1))
    assert said is not None and "9 minutes a step at least" in said and "model=gpt_tiny" in said
    assert "56 s a step" in (forecast(GPT, Ceilings(matmul_tflops=1.0)) or "")


def test_nothing_is_said_of_a_gpu_or_of_what_is_not_known() -> None:
    assert forecast(GPT, Ceilings(matmul_tflops=400.0)) is None
    assert forecast(GPT, Ceilings()) is None
