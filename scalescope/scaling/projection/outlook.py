"""What a user gives beside a study: other sweeps, the GPU counts to look at, and the machine those would be on."""

import msgspec

from scalescope.scaling.costs.points import Launch
from scalescope.scaling.costs.topology import Topology


class Outlook(msgspec.Struct, frozen=True):
    """Nothing of it is needed: a study has its own sweep, and the next two doublings are looked at by themselves."""

    sweeps: tuple[Launch, ...] = ()
    gpus: tuple[int, ...] = ()
    topology: Topology | None = None

    def targets(self, largest: int) -> list[int]:
        """Return the GPU counts to project to, ascending, from a study that goes up to `largest`."""
        return sorted(set(self.gpus)) if self.gpus else [2 * largest, 4 * largest]


NO_OUTLOOK = Outlook()
