"""What hides transfer behind compute brings at most, where hosts do both: the threads that move data need cores, too.

Of ranks with a thread each on as many cores, a replay promised 6.1 ms (2.6 to 10.3) of smaller buckets, and four turns
with and without them differed by -6.0 to +4.9.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from scalescope.scaling.finding.codes import HIDES_TRANSFER
from scalescope.scaling.finding.finding import Finding
from scalescope.scaling.findings.candidate import Scene


def bounded_by_cores(scene: Scene, found: Sequence[Finding]) -> list[Finding]:
    """Return the findings with what only hides transfer as a bound, unless cores are known to be free for it."""
    if not scene.replayer.on_cpu or _has_free_cores(scene):
        return list(found)
    return [replace(one, low_ms=0.0, at_most=True) if _only_hides(one) else one for one in found]


def _only_hides(one: Finding) -> bool:
    return one.remedy is not None and one.remedy.cure in HIDES_TRANSFER


def _has_free_cores(scene: Scene) -> bool:
    """Tell whether each rank has a core beside those that it computes on, which traces alone do not tell."""
    cores = scene.cores
    return cores is not None and cores.threads + cores.ranks <= cores.cores
