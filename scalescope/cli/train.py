"""`scalescope train`: one training job on this machine's devices, or this process as a rank of one."""

from scalescope.cli.measure import measure
from scalescope.launch.verb import Verb
from scalescope.train import config


def verb() -> Verb:
    """Return what the launch floor has to know of training, its config types registered at Hydra."""
    config.register()
    return Verb(
        "train",
        "train",
        config.TrainConfig,
        "scalescope.train.job:run",
        "scalescope.train.checks:check",
        config.VARIANTS,
    )


def run(argv: list[str]) -> int:
    """Train, and show what was measured."""
    return measure(verb(), argv)
