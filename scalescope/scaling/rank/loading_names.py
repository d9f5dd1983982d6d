"""What the names of annotations say of loading data."""

import re
from functools import lru_cache

from scalescope.records.steps.annotations import LOADING

#: What torch's data loaders put around their own `__next__`.
_ENUMERATED = re.compile(r"enumerate\((DataLoader|\w*DataPipe\w*)\)#")
#: Annotations of torch, its libraries and compilers; none of them loads data.
_NOT_THE_LOOP = re.compile(
    r"ProfilerStep#|Optimizer\.|\w*DataParallel\b|FSDP|FullySharded|fsdp|(nccl|gloo|mpi|rccl|ucc|xccl):"
    r"|## |Torch-Compiled|TorchDynamo|CompiledFxGraph|Inductor|c10d::|autograd::|aten::|torch::"
    r"|AOTDispatcher|.*\(dynamo_timed\)|scalescope:(?!data$)"
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_BATCHES = frozenset({"data", "dataset", "datasets", "loader", "batch", "batches", "sample", "samples", "inputs"})
_FETCHES = frozenset({"load", "loading", "loads", "fetch", "fetching", "get", "next", "prefetch", "prefetching", "read",
                      "reading", "wait", "iter", "iterator", "generator"})  # fmt: skip
_BOTH = frozenset({"dataloader", "dataloading", "nextbatch", "getbatch", "loaddata", "dataload", "prefetcher"})

STRONG, WEAK, SILENT = 2, 1, 0


def is_known_loader(name: str) -> bool:
    """Tell whether an annotation is our own jobs' around fetching a batch, or that of torch's loaders."""
    return name == LOADING or _ENUMERATED.match(name) is not None


@lru_cache(4096)
def says_loading(name: str) -> int:
    """Return how clearly an annotation's name says that a batch is fetched: STRONG, WEAK or SILENT (-1: it is not)."""
    if is_known_loader(name):
        return STRONG
    if _NOT_THE_LOOP.match(name):
        return -1
    tokens = {word.lower() for word in _WORD.findall(name)}
    if tokens & _BOTH or (tokens & _BATCHES and tokens & _FETCHES) or {"data", "loader"} <= tokens:
        return STRONG
    return WEAK if tokens & (_BATCHES | _FETCHES) else SILENT
