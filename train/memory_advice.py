"""What would need less memory, and about how much less: estimates from a job's settings and its peak. Torch-free."""

from typing import NamedTuple, cast

from scalescope.train.config import GptConfig, TrainConfig

#: Bytes of a parameter: the weight and its gradient in fp32, and what the optimiser keeps.
WEIGHT, GRADIENT = 4, 4
OPTIMIZER = {"adamw": 8, "sgd": 4}
#: What a block keeps for its backward pass, in numbers a token and unit of width: the inputs of two norms, of four
#: layers (the last one's four times as wide), query, key and value, and GELU's input (four times). After Korthikanti et
#: al. 2022, without dropout and with attention that keeps no scores.
BLOCK_KEEPS = 16


class Way(NamedTuple):
    """One way to need less."""

    override: str
    saves_bytes: float  # on a rank, about

    def __str__(self) -> str:
        return f"{self.override} (about {self.saves_bytes / 1e9:.1f} GB less)"


def ways_to_need_less(config: TrainConfig, ranks: int, samples: int, parameters: int, needed_bytes: float) -> list[Way]:
    """Return the settings that need less, the largest saving first.

    `samples` are a rank's a step, `needed_bytes` what it had and asked for in all.
    """
    states = parameters * (WEIGHT + GRADIENT + OPTIMIZER[config.optimizer.kind])
    sharded = _sharded(config, ranks, parameters)
    activations = max(0.0, needed_bytes - (states - sharded))
    ways = []
    if config.global_batch_size is None and config.model.batch_size > 1:
        ways.append(Way(f"model.batch_size={config.model.batch_size // 2}", activations / 2))
    parts = next((parts for parts in range(2 * config.accumulate, samples + 1) if samples % parts == 0), None)
    if parts is not None:
        ways.append(Way(f"accumulate={parts}", activations * (1 - config.accumulate / parts)))
    if config.model.kind == "gpt" and not config.recompute:
        kept = _kept_by_blocks(config, samples)
        ways.append(Way("recompute=true", min(activations, kept * (1 - 1 / BLOCK_KEEPS))))
    if ranks > 1 and config.strategy.kind in ("ddp", "local"):
        away = (1 - 1 / ranks) * parameters
        ways.append(Way("strategy=zero1", away * OPTIMIZER[config.optimizer.kind]))
        ways.append(Way("strategy=fsdp2", (1 - 1 / ranks) * states))
    return sorted(ways, key=lambda way: -way.saves_bytes)


def _sharded(config: TrainConfig, ranks: int, parameters: int) -> float:
    """Return the bytes of states that lie on other ranks already."""
    stage = {"zero": config.strategy.stage, "fsdp2": 3}.get(config.strategy.kind, 0)
    parts = (OPTIMIZER[config.optimizer.kind], GRADIENT, WEIGHT)[:stage]
    return parameters * sum(parts) * (1 - 1 / ranks)


def _kept_by_blocks(config: TrainConfig, samples: int) -> float:
    model = cast(GptConfig, config.model)
    width_bytes = 4 if config.precision.kind in ("fp32", "tf32") else 2
    tokens = samples // config.accumulate * model.context
    return float(model.layers * tokens * model.width * BLOCK_KEEPS * width_bytes)
