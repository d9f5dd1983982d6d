"""`scalescope sweep`: collectives over sizes and GPU counts, or this process as a rank of it."""

from scalescope.cli.measure import measure
from scalescope.collectives import config
from scalescope.launch.verb import Verb


def verb() -> Verb:
    """Return what the launch floor has to know of the sweep, its config types registered at Hydra."""
    config.register()
    return Verb(
        "sweep", "sweep", config.SweepConfig, "scalescope.collectives.sweep:run", "scalescope.collectives.checks:check"
    )


def run(argv: list[str]) -> int:
    """Sweep, and show what was measured."""
    return measure(verb(), argv)
