"""What a step takes at least, said before it is waited for: a model made for GPUs is minutes a step on a CPU."""

from scalescope.records.console import duration
from scalescope.records.rows import Ceilings, TrainFacts
from scalescope.train.models.config import ModelConfig

_WORTH_SAYING_S = 30.0
_HOPELESS_S = 3600.0  # of a whole job, at a rate that no core reaches: then it is a mistake and no plan,
_HOPELESS_STEP_S = 1.0  # unless a step is short: then somebody wants many
_CORE_FLOPS = 100e9  # above what a core's matrix products reach in fp32 (Sapphire Rapids, Zen 4: 60 to 90 GFLOP/s)


def hopeless(model: ModelConfig, samples: int, steps: int, cores: int) -> str | None:
    """Return why a rank's `steps` on CPUs would never come to their end, and what would; None where they may.

    `samples`: of a rank and step. A lower bound: as if the rank had all cores for itself, at more than their best.
    """
    if (parameters := model.parameters) is None:
        return None
    step_s = model.flops(parameters, recompute=False).per_sample * samples / (_CORE_FLOPS * cores)
    if step_s < _HOPELESS_STEP_S or step_s * steps < _HOPELESS_S:
        return None
    return (
        f"model={model.name} with {samples} samples a rank takes {duration(step_s)} a step at least on {cores} CPU "
        f"cores, so {steps} steps take {duration(step_s * steps)} or more; take model=gpt_tiny or model=resnet50_64px, "
        "which CPUs can train, or lower model.batch_size and steps"
    )


def forecast(facts: TrainFacts, ceilings: Ceilings) -> list[str]:
    """Return a line on how long a step takes at the measured matmul rate, and one on a first step that compiles.

    Neither where there is nothing to wait for that is worth saying.
    """
    lines = []
    if ceilings.matmul_tflops:
        least_s = facts.flops_per_sample * facts.samples_per_rank_step / (1e12 * ceilings.matmul_tflops)
        if least_s >= _WORTH_SAYING_S:
            lines.append(
                f"{facts.model}: {facts.samples_per_rank_step} samples a rank take {duration(least_s)} a step at "
                f"least, at this device's measured {ceilings.matmul_tflops:.2g} TFLOP/s; lower model.batch_size, or "
                "take model=gpt_tiny or model=resnet50_64px, which CPUs can train"
            )
    if facts.compiled:
        # of our two models on hosts of H200s, where nothing was cached: 20 to 26 s and 59 to 69 s
        lines.append(f"{facts.model}: the first step compiles the model, which takes 20 to 70 s unless it is cached")
    return lines
