"""What of the host's events is kept, from whichever of the two files: launches, runs of modules, cliques, steps."""

import sys

from scalescope.scaling.trace.xla import profile as model
from scalescope.scaling.trace.xla.profile import LaunchCall, ModuleRun, Profile, StepMark

#: The groups of devices that one process joins, and the devices that say so: no job has more. A group may take 70 kB.
_MOST_CLIQUES = _MOST_MEMBERS = 1024

Stats = dict[str, int | str]


def add_host_event(found: Profile, name: str, start: int, duration: int, thread: int, stats: Stats) -> None:
    """Keep an event of the host where it launches, executes a module, joins a clique, or marks a step."""
    if (number := number_of(stats, "correlation_id")) > 0:
        found.launches.append(LaunchCall(name, start, duration, thread, number, number_of(stats, "device_id")))
    elif (step := number_of(stats, "step_num")) >= 0:
        found.steps.append(StepMark(step, start, duration, thread))
    elif (match := model.MODULE_RUN.match(name)) and (device := number_of(stats, "global_device_id")) >= 0:
        found.runs.append(ModuleRun(sys.intern(match[1]), start, duration, thread, device))
    elif name == model.CLIQUE and (device := number_of(stats, "device")) >= 0:
        _join_clique(found, device, str(stats.get("clique_key", "")))
    elif (partitions := number_of(stats, "num_partitions")) > 0:
        world = partitions * max(1, number_of(stats, "num_replicas"))
        found.world_size = max(found.world_size, world if world < 1 << 24 else -1)


def number_of(stats: Stats, name: str, without: int = -1) -> int:
    """Return a statistic that is a number; `without` where there is none."""
    value = stats.get(name, without)
    return value if isinstance(value, int) else without


def _join_clique(found: Profile, device: int, key: str) -> None:
    """Keep that a device communicates in a clique. Every collective joins anew, so a list of devices is read once."""
    listed = model.listed_devices(key)
    clique = found.known_cliques.get(listed)
    full = len(found.known_cliques) >= _MOST_CLIQUES
    if clique is None and not full:
        clique = found.known_cliques[listed] = model.clique_of(listed)
    if clique is None or (device not in found.cliques and len(found.cliques) >= _MOST_MEMBERS):
        found.harm(f"more than {_MOST_CLIQUES:,} cliques, or devices that join them; the rest is left out")
    elif clique:
        found.cliques.setdefault(device, set()).add(clique)
