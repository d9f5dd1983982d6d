"""`scalescope sweep`: collectives over sizes and GPU counts, or this process as a rank of it."""

from collectives import config
from launch.verb import Verb
from verbs.measure import measure


def verb() -> Verb:
    """Return what the launch floor has to know of the sweep, its config types registered at Hydra."""
    config.register()
    return Verb("sweep", "sweep", config.SweepConfig, "collectives.sweep:run", "collectives.checks:check")


def run(words: list[str]) -> int:
    """Sweep, and show what was measured."""
    return measure(verb(), words)
