"""What is injected, into which jobs, and by which codes it may be called. Needs no torch."""

#: Cause → the codes that name it. What begins by waiting for the device takes away its host's lead: what it does then,
#: and that wait, are one cause.
CODES: dict[str, tuple[str, ...]] = {
    "none": ("nothing",),
    "own": ("own_work", "more_work", "slower_compute"),
    "rows": ("more_work", "slower_compute"),
    # from beside by the rank's own process: its trace has these products, which no other rank makes
    "cotenant": ("own_work", "slower_compute", "throttled"),
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
    "norms": ("synchronising",),
    "slow_one": ("slower_compute", "more_work", "own_work"),
    "long_one": ("more_work", "slower_compute"),
    "alternating": ("alternating_load",),
    "long_generation": ("more_work", "own_work", "synchronising"),
    "every_sync": ("exposed_transfer", "slow_transfer"),
    "slow_workers": ("data_loading",),
    "no_pin": ("copies", "synchronising"),
    "no_prefetch": ("exposed_transfer", "slow_transfer"),
    "small_shards": ("small_collectives", "exposed_transfer", "slow_transfer"),
}
#: What the last rank alone does; a slow stage is told of the pipeline.
OF_ONE = tuple(
    "own rows cotenant stall_one python_one pageable_one load_one skew slow_one long_one long_generation".split()
)
#: What shows a few steps after it began, when what was made ahead is used up.
SHOWS_LATE = ("slow_workers",)
#: Many operators: most of their steps are bound by launching.
LAUNCH_BOUND: dict[str, tuple[str, ...]] = {
    "fsdp2": ("none", "own", "stall_one", "python_one", "items", "pageable_one", "load_all"),
    "vit": ("none", "rows", "cotenant", "syncs", "stall_all", "load_one", "empty_cache"),
    "conv_fp16": ("none", "own", "load_one", "items", "python_one"),
    "tp": ("none", "own", "stall_one", "items", "syncs"),
    "pipe": ("none", "uneven", "stall_one", "own"),
    "moe": ("none", "skew", "stall_one", "own"),
    "compiled": ("none", "own", "stall_one", "items", "load_one"),
    "tiny": ("none", "own", "stall_one", "stall_all", "items", "load_one", "extra_reduce"),
}
#: Few operators that take long: devices bind.
DEVICE_BOUND: dict[str, tuple[str, ...]] = {
    "gan": ("none", "own", "slow_one", "stall_one", "items", "load_one"),
    "rnn": ("none", "long_one", "alternating", "own", "stall_one"),
    "contrastive": ("none", "slow_one", "stall_one", "items", "load_all"),
    "zero1": ("none", "rows", "cotenant", "stall_one", "norms", "pageable_one"),
    "accumulate": ("none", "every_sync", "slow_one", "stall_one", "items", "load_one"),
    "diffusion": ("none", "slow_workers", "no_pin", "slow_one", "items", "python_one"),
    "rollout": ("none", "long_generation", "own", "stall_all", "norms"),
    "fsdp2_large": ("none", "no_prefetch", "small_shards", "own", "stall_one", "items"),
}
JOBS = LAUNCH_BOUND | DEVICE_BOUND


def codes_of(cause: str, *, read_loss: bool) -> tuple[str, ...]:
    """Return the codes that name a cause. Where all ranks read their loss, that is not what one of them is late by."""
    codes = CODES[cause]
    return tuple(code for code in codes if code != "synchronising" or len(codes) == 1) if read_loss else codes
