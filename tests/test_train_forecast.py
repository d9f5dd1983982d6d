"""A step that takes minutes is told before it is waited for."""

import msgspec
import pytest

from scalescope.launch.compose import compose_job, typed
from scalescope.records.rows import Ceilings, StepRow, TrainFacts
from scalescope.train.config import TrainConfig, register
from scalescope.train.measure.forecast import forecast, hopeless
from scalescope.train.measure.progress import StepProgress

# GPT-2 small as conf/ has it: 64 samples of 1024 tokens
GPT = TrainFacts(
    model="gpt_small", strategy="ddp", precision="bf16", parameters=124_000_000, flops_per_sample=0.875e12,
    flops_formula="6(N - N_position) + 12LHQT", samples_per_rank_step=64,
)  # fmt: skip


def test_a_model_for_gpus_on_a_cpu_is_told_in_minutes() -> None:
    [said] = forecast(GPT, Ceilings(matmul_tflops=0.1))
    assert "9 minutes a step at least" in said and "model=gpt_tiny" in said
    [said] = forecast(GPT, Ceilings(matmul_tflops=1.0))
    assert "56 s a step" in said


def test_nothing_is_said_of_a_gpu_or_of_what_is_not_known() -> None:
    assert forecast(GPT, Ceilings(matmul_tflops=400.0)) == []
    assert forecast(GPT, Ceilings()) == []


def test_a_first_step_that_compiles_is_announced_on_any_device() -> None:
    compiled = msgspec.structs.replace(GPT, compiled=True)
    [said] = forecast(compiled, Ceilings(matmul_tflops=400.0))
    assert "the first step compiles the model" in said and "70 s" in said
    assert said in forecast(compiled, Ceilings(matmul_tflops=0.1))  # beside how long a step takes


@pytest.mark.parametrize(("model", "cores", "length"), [("gpt_small", 2, "5 minutes a step"), ("resnet50", 2, "63 s")])
def test_a_job_that_would_take_hours_on_cpus_is_refused_with_one_that_does_not(
    model: str, cores: int, length: str
) -> None:
    register()
    config = typed(compose_job("train", [f"model={model}"]), TrainConfig)
    said = hopeless(config.model, config.model.batch_size, 1000, cores)
    assert said is not None and length in said and "model=gpt_tiny or model=resnet50_64px" in said
    assert hopeless(config.model, config.model.batch_size, 10, cores) is None  # minutes: for who wants them
    assert hopeless(config.model, config.model.batch_size, 1000, 512) is None


def test_what_cpus_can_train_is_not_refused() -> None:
    register()
    for model in ("gpt_tiny", "resnet50_64px"):
        config = typed(compose_job("train", [f"model={model}"]), TrainConfig)
        assert hopeless(config.model, config.model.batch_size, config.steps, 2) is None
        assert hopeless(config.model, config.model.batch_size, 1_000_000, 2) is None  # a night, by its own steps


def test_the_time_left_is_told_from_the_pace(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = iter(range(100, 10_000, 10))
    monkeypatch.setattr("time.monotonic", lambda: float(next(now_s)))
    progress = StepProgress("gpt", 100)
    for step in (0, 1, 2):
        progress.show(StepRow(step=step, phase="steady", step_ms=[1.0], samples_per_s=1.0))
    first, *later = capsys.readouterr().out.splitlines()
    assert "left" not in first and all(line.endswith(" minutes left") for line in later), later
