"""What can be wrong with a sweep's config, found before any process starts. Torch-free."""

import difflib
from collections.abc import Iterable, Sequence
from importlib import util
from pathlib import Path

from scalescope.collectives.config import SweepConfig
from scalescope.collectives.dtypes import DTYPES, REDUCTIONS
from scalescope.collectives.operations import OPERATIONS
from scalescope.collectives.operations.operation import JAX_IS_MISSING
from scalescope.collectives.plan import as_list, group_sizes
from scalescope.collectives.sizes import parse_sizes
from scalescope.launch.bounds import is_whole
from scalescope.records.errors import UserError
from scalescope.records.operations import CTA_POLICIES
from scalescope.records.outputs.overwriting import refuse_to_lose

MODES = ("in_place", "out_of_place")
TRANSPORTS = ("c10d", "direct", "mpi", "xla")
EXECUTIONS = ("eager", "graph")
PLACEMENTS = ("packed", "spread", "pairs")
ALGORITHMS = ("Ring", "Tree", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("Simple", "LL", "LL128")
MEMORIES = ("auto", "torch", "library")
_MOST_CHANNELS = 128  # RCCL's; NCCL has 64, and takes more for that
CLOCKS = ("auto", "device", "host")


def check(config: SweepConfig, world_size: int) -> None:
    """Raise UserError for a sweep that cannot be planned: unknown names (with the near ones), bad sizes, bad groups."""
    _known("operations", config.operations, OPERATIONS)
    _known("dtypes", config.dtypes, DTYPES)
    _known("reductions", config.reductions, REDUCTIONS)
    if config.modes != "auto":
        _known("modes", as_list(config.modes), MODES)
    _known("transport", as_list(config.transport), TRANSPORTS)
    if "xla" in as_list(config.transport) and util.find_spec("jax") is None:
        raise UserError(JAX_IS_MISSING)
    _known("execution", as_list(config.execution), EXECUTIONS)
    _known("placement", as_list(config.placement), PLACEMENTS)
    for key, known in (
        ("algorithm", ALGORITHMS),
        ("protocol", PROTOCOLS),
        ("contention", ("matmul",)),
        ("cta_policy", CTA_POLICIES),
    ):
        if getattr(config, key) is not None:
            _known(key, as_list(getattr(config, key)), (*known, "none"))
    for channels in [] if config.channels is None else as_list(config.channels):
        if channels not in ("none", None) and not (is_whole(channels) and 1 <= channels <= _MOST_CHANNELS):
            raise UserError(f"channels: {channels!r} is none; write a number from 1 to {_MOST_CHANNELS}, or a list")
    _known("clock", [config.clock], CLOCKS)
    _known("memory", [config.memory], MEMORIES)
    for sizes in (config.sizes, config.auto_sizes.gpu, config.auto_sizes.cpu):
        if sizes != "auto":
            parse_sizes(sizes)
    if config.csv is not None:
        refuse_to_lose(Path(config.csv), "csv", f"csv={config.csv}", "name another file")
    if config.launch.backend == "mpi":
        raise UserError("MPI is a transport of a sweep, not its backend: "
                        "mpirun -n 4 scalescope sweep transport=mpi launch.device=cpu")  # fmt: skip
    _check_groups(config, world_size)


def _check_groups(config: SweepConfig, world_size: int) -> None:
    if world_size < 2:
        raise UserError("a collective needs at least 2 ranks, and this sweep would have 1; set launch.ranks=2 or more")
    if config.group_sizes != "all":
        for size in as_list(config.group_sizes):
            if not is_whole(size) or size < 1:
                raise UserError(f"group_sizes: {size!r} is no group size; write a list such as [2,4], or all")
            if size > world_size:
                raise UserError(f"group_sizes: a group of {size} in a world of {world_size} ranks; "
                                f"leave {size} out, or start with launch.ranks={size}")  # fmt: skip
    if not group_sizes(config, world_size):
        raise UserError(f"group_sizes={config.group_sizes}: no group has two ranks; write a list such as [2,4], or all")


def _known(key: str, given: Sequence[str], known: Iterable[str]) -> None:
    names = list(known)
    if not given:
        raise UserError(f"{key} is empty; choose from {', '.join(names)}")
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(str(name), names, n=2, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else f"choose from {', '.join(names)}"
            raise UserError(f"{key}: there is no {name!r}; {hint}")
