"""What would need less memory, and about how much less: estimates from a job's settings and its peak. Torch-free."""

from typing import NamedTuple

from scalescope.train.config import TrainConfig
from scalescope.train.strategies.config import State
from scalescope.train.strategies.registry import STRATEGIES

#: Bytes of a parameter's weight and gradient, in fp32, and of what the optimiser keeps of it.
_WEIGHT, _GRADIENT = 4, 4
_OPTIMIZER = {"adamw": 8, "sgd": 4}


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
    kept = {State.WEIGHT: _WEIGHT, State.GRADIENT: _GRADIENT, State.OPTIMIZER: _OPTIMIZER[config.optimizer.kind]}

    def away(slices: tuple[State, ...]) -> float:
        """Return the bytes of states that lie on other ranks."""
        return parameters * sum(kept[state] for state in slices) * (1 - 1 / ranks)

    activations = max(0.0, needed_bytes - (parameters * sum(kept.values()) - away(config.strategy.slices)))
    ways = []
    if config.global_batch_size is None and config.model.batch_size > 1:
        ways.append(Way(f"model.batch_size={config.model.batch_size // 2}", activations / 2))
    parts = next((parts for parts in range(2 * config.accumulate, samples + 1) if samples % parts == 0), None)
    if parts is not None:
        ways.append(Way(f"accumulate={parts}", activations * (1 - config.accumulate / parts)))
    numbers = config.model.recompute_saves(samples // config.accumulate)
    if numbers is not None and not config.recompute:
        ways.append(Way("recompute=true", min(activations, numbers * _number_bytes(config))))
    if ranks > 1 and not config.strategy.slices:
        lighter = {choice: slices for each in STRATEGIES.values() for choice, slices in each.lighter.items()}
        ways += [Way(f"strategy={choice}", away(slices)) for choice, slices in lighter.items()]
    return sorted(ways, key=lambda way: -way.saves_bytes)


def _number_bytes(config: TrainConfig) -> int:
    return 4 if config.precision.kind in ("fp32", "tf32") else 2
