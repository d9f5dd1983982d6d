"""What is injected, into which jobs, and by which codes it may be called. Needs no torch."""

#: Cause → the codes that name it. What begins by waiting for the device takes away its host's lead: what it does then,
#: and that wait, are one cause.
CODES: dict[str, tuple[str, ...]] = {
    "none": ("nothing",),
    "own": ("own_work", "more_work", "slower_compute"),
    "rows": ("more_work", "slower_compute"),
    "cotenant": ("slower_compute", "throttled"),
    "stall_one": ("host_stall", "synchronising"),
    "stall_all": ("host_stall", "synchronising"),
    "python_one": ("host_stall", "synchronising"),
    "items": ("synchronising",),
    "syncs": ("synchronising",),
    "pageable_one": ("copies", "synchronising"),
    "empty_cache": ("allocation",),
    "load_one": ("data_loading", "synchronising"),
    "load_all": ("data_loading", "synchronising"),
    "uneven": ("pipeline_bubble", "more_work", "slower_compute"),
    "skew": ("expert_imbalance", "more_work", "slower_compute"),
    "extra_reduce": ("slow_transfer", "exposed_transfer"),
}
#: What the last rank alone does; a slow stage is told of the pipeline.
OF_ONE = ("own", "rows", "cotenant", "stall_one", "python_one", "pageable_one", "load_one", "skew")
JOBS: dict[str, tuple[str, ...]] = {
    "fsdp2": ("none", "own", "stall_one", "python_one", "items", "pageable_one", "load_all"),
    "vit": ("none", "rows", "cotenant", "syncs", "stall_all", "load_one", "empty_cache"),
    "conv_fp16": ("none", "own", "load_one", "items", "python_one"),
    "tp": ("none", "own", "stall_one", "items", "syncs"),
    "pipe": ("none", "uneven", "stall_one", "own"),
    "moe": ("none", "skew", "stall_one", "own"),
    "compiled": ("none", "own", "stall_one", "items", "load_one"),
    "tiny": ("none", "own", "stall_one", "stall_all", "items", "load_one", "extra_reduce"),
}
