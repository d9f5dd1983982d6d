"""The parts of a step, as people meet them: name, meaning, colour, and what helps when one of them is the loss."""

from collections.abc import Sequence

import msgspec

from scalescope.scaling.answer_rows import PARTS


class Part(msgspec.Struct, frozen=True):
    """One part of the partition of a step (docs/concepts.md). Its two colours, for a light and a dark page, are the
    same everywhere."""

    key: str
    name: str
    meaning: str
    light: str
    dark: str
    remedy: str  # on GPUs
    remedy_cpu: str = ""  # on CPU ranks, where it is another one
    shrunk: str = ""  # its name where it takes from a step, and `name` would say the opposite
    remedy_inference: str = ""  # on GPUs that only infer, where it is another one
    remedy_jax: str = ""  # in JAX's words, where torch's are others
    remedy_onnxruntime: str = ""
    remedy_tensorflow: str = ""
    remedy_compiled: str = ""  # where torch.compile has made the kernels already
    remedy_hosts: str = ""  # what helps on CPUs besides, unless all ranks are on one host

    def remedy_for(
        self,
        activity: str | None,
        *,
        trains: bool = True,
        framework: str = "torch",
        compiled: bool = False,
        hosts: int | None = None,
    ) -> str:
        """Return what may help against this part as the largest loss, on GPUs or on CPU ranks.

        `hosts`: how many the ranks are on; None: not known.
        """
        others = {
            "jax": self.remedy_jax,
            "onnxruntime": self.remedy_onnxruntime,
            "tensorflow": self.remedy_tensorflow,
        }
        if own := others.get(framework):
            return own
        if compiled and self.remedy_compiled and activity != "cpu":
            return self.remedy_compiled
        if activity == "cpu" and self.remedy_cpu:
            return f"{self.remedy_cpu}{self.remedy_hosts if hosts != 1 else ''}"
        return self.remedy_inference if not trains and self.remedy_inference else self.remedy

    @property
    def variable(self) -> str:
        """The CSS variable that holds this part's colour."""
        return f"--part-{self.key.replace('_', '-')}"


_ALL = (
    Part(
        "compute",
        "compute",
        "A compute kernel runs.",
        "#3f6fa8",
        "#6f9fd8",
        "collectives that overlap take multiprocessors and memory bandwidth from compute: give them fewer channels "
        "(NCCL_MAX_NCHANNELS), send less (bf16 gradients), or let them run where the kernels leave room",
        "ranks on one machine share its cores, caches and memory bandwidth: fewer threads a rank (OMP_NUM_THREADS), "
        "ranks bound to cores of their own, or fewer ranks",
    ),
    Part(
        "exposed_transfer",
        "exposed transfer",
        "Data moves between ranks and no compute kernel runs.",
        "#e08a3c",
        "#eda362",
        "hide the transfer: start it earlier (more, smaller buckets), send less (bf16 gradients), or step less often "
        "(gradient accumulation)",
        "send less or less often (gradient accumulation, larger batches)",
        remedy_hosts="; over several hosts, check that gloo uses the fast interface (GLOO_SOCKET_IFNAME)",
        remedy_inference="hide the transfer, or send less: fewer ranks a replica, quantised or fused all-reduces",
        remedy_jax="hide the transfer: let XLA overlap it (XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true) "
        "and combine less (--xla_gpu_all_reduce_combine_threshold_bytes), or send less (bf16)",
    ),
    Part(
        "exposed_wait",
        "exposed wait",
        "A collective waits for another rank and no compute kernel runs.",
        "#c2504c",
        "#e27d77",
        "find the rank that comes last and what it does meanwhile; even out the batches, or its launch and input",
    ),
    Part(
        "exposed_unsplit",
        "exposed wait or transfer",
        "A collective runs and no compute kernel does; whether it waits or moves data cannot be told, as from a single "
        "trace.",
        "#a9744f",
        "#c99873",
        "hide the communication: start it earlier, send less (bf16 gradients), or step less often (gradient "
        "accumulation)",
        "send less or less often (gradient accumulation, larger batches)",
        remedy_inference="hide the communication, or send less: fewer ranks a replica, quantised or fused all-reduces",
    ),
    Part(
        "exposed_memory",
        "exposed copies",
        "A copy or a fill runs on the device and no compute kernel does.",
        "#8566ab",
        "#ac90cf",
        "use pinned memory with non_blocking copies, and take copies out of the step",
        remedy_jax="take copies out of the step: jax.device_put of the next batch ahead of it, and donated arguments",
    ),
    Part(
        "idle_data",
        "idle (loading data)",
        "The device is idle while the host loads data.",
        "#2f8f83",
        "#5cb8ab",
        "load ahead: more loader workers, pinned memory, prefetching",
        "load ahead: more loader workers, prefetching; cores left to them",
        remedy_jax="load ahead: grain or tf.data with worker processes, and jax.device_put of the next batch before "
        "this step is awaited",
    ),
    Part(
        "idle_launch",
        "idle (host late)",
        "The device is idle and nothing is enqueued: the host comes too late.",
        "#b39b2f",
        "#d3bd5c",
        "launch less: torch.compile, CUDA graphs, fused optimisers, no synchronisation inside the step",
        "the processor is busy with what is no operator, such as Python: larger batches, torch.compile, less Python",
        remedy_inference="launch less: CUDA graphs, torch.compile, no synchronisation inside the step",
        remedy_jax="launch less: jax.jit around the whole step, donated state, and no figure read inside it",
        remedy_onnxruntime="the runtime is between two nodes, or its caller between two runs: larger batches, fused "
        "nodes (graph_optimization_level=ORT_ENABLE_ALL), inputs bound ahead (IOBinding)",
        remedy_tensorflow="launch less: tf.function around the whole step (jit_compile=True), larger batches, "
        "tf.data's prefetch",
        remedy_compiled="launch less: CUDA graphs (torch.compile(mode='reduce-overhead')), larger batches, no "
        "synchronisation inside the step",
    ),
    Part(
        "idle_queued",
        "idle (queued)",
        "The device is idle although the next kernel is enqueued: dispatch gaps and dependencies between streams.",
        "#98a1ad",
        "#79828f",
        "fewer, larger kernels (torch.compile, fusion), and fewer dependencies between streams",
        remedy_compiled="larger batches, CUDA graphs (torch.compile(mode='reduce-overhead')), and fewer dependencies "
        "between streams",
        remedy_jax="fewer, larger kernels: larger batches, and what keeps XLA from fusing taken out of the step",
    ),
)

BY_KEY = {part.key: part for part in _ALL}
ALL = tuple(BY_KEY[key] for key in PARTS)

#: Compute's share of a waterfall, where kernels match between the runs.
INFLATION = Part(
    "compute_inflation",
    "slower compute",
    "The same compute kernels take longer than in the smaller run.",
    BY_KEY["compute"].light,
    BY_KEY["compute"].dark,
    BY_KEY["compute"].remedy,
    BY_KEY["compute"].remedy_cpu,
    shrunk="faster compute",
)
MORE_WORK = Part(
    "compute_more_work",
    "more compute",
    "Compute kernels that the smaller run does not have, or has fewer of.",
    "#8fb0d6",
    "#3f6fa8",
    "look for what only the larger run does: bucket copies, gradient scaling, casts",
    shrunk="less compute",
)


#: What of exposed communication is told apart, where the third of its parts is what is not.
_SPLIT = tuple(BY_KEY[key].name for key in ("exposed_transfer", "exposed_wait"))
_UNSPLIT = BY_KEY["exposed_unsplit"].name


def zero_line(gone: Sequence[str]) -> str:
    """Return which parts that a table leaves out are 0 ms on every rank, by their names; "" where none is.

    Wait or transfer that is not split is no part beside those that are: that there is none, says that all is split.
    Where there is some, nobody knows that of the others there is none.
    """
    told = [name for name in gone if name != _UNSPLIT]
    if _UNSPLIT not in gone:
        told = [name for name in told if name not in _SPLIT]
    return f"0 ms on every rank: {', '.join(told)}." if told else ""


def named(key: str) -> Part:
    """Return a part by its key; a key of a later version names itself."""
    known = BY_KEY.get(key) or {INFLATION.key: INFLATION, MORE_WORK.key: MORE_WORK}.get(key)
    return known or Part(key, key.replace("_", " "), "", "#98a1ad", "#79828f", "")
