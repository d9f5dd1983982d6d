"""What a step takes at least, said before it is waited for: a model made for GPUs is minutes a step on a CPU."""

from scalescope.records.rows import Ceilings, TrainFacts

_WORTH_SAYING_S = 30.0


def forecast(facts: TrainFacts, ceilings: Ceilings) -> str | None:
    """Return a line on how long a step takes at the measured matmul rate; None where that is short or not known."""
    if not ceilings.matmul_tflops:
        return None
    least_s = facts.flops_per_sample * facts.samples_per_rank_step / (1e12 * ceilings.matmul_tflops)
    if least_s < _WORTH_SAYING_S:
        return None
    length = f"{least_s:.0f} s" if least_s < 100 else f"{least_s / 60:.0f} minutes"
    return (
        f"{facts.model}: {facts.samples_per_rank_step} samples a rank take {length} a step at least, at this device's "
        f"measured {ceilings.matmul_tflops:.2g} TFLOP/s; lower model.batch_size, or take model=gpt_tiny or "
        "model=resnet50_64px, which CPUs can train"
    )
