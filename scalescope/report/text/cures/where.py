"""What else is to be done where a job runs on CPUs, over another library, in JAX, compiled, or on several ranks."""

from scalescope.records.rows import Origin
from scalescope.report.text.cures.table import CureText
from scalescope.scaling.finding.codes import Cure

LINKS_OF_HOSTS = CureText(
    "see over which interface the hosts talk, and what else does",
    "GLOO_SOCKET_IFNAME (gloo), or the MPI library's own setting, names the fast one; cores left to its threads",
)

#: Where the same cure is done otherwise: on CPUs, where nothing is trained, and in JAX.
ON_CPUS: dict[Cure, CureText] = {
    "look_at_device": CureText(
        "see whether that rank has more to compute, and what else runs on its cores",
        "batches of equal size and length; the same OMP_NUM_THREADS on all; top on that host; taskset a rank",
    ),
    "load_ahead": CureText(
        "load batches ahead, in processes of their own",
        "DataLoader(num_workers=2, prefetch_factor=4, persistent_workers=True), or more workers than now, "
        "with cores left for them",
    ),
    "load_faster": CureText(
        "make batches faster than the job takes them, by more loader workers as far as these wait (for files, a "
        "network) or find cores, or by cheaper batches",
        "DataLoader(num_workers=…), more than now; batches that are prepared once and kept, or ahead of training; "
        "cheaper transforms, smaller images; more cores for the ranks",
    ),
    "compile": CureText("launch less: compile the step", "torch.compile(model); larger batches"),
    "faster_kernels": CureText(
        "make the operators themselves faster", "torch.compile, a lower precision, fused optimisers"
    ),
    "copy_ahead": CureText("take copies out of the step", "no .clone() or .to() in each step; views where they do"),
    "cool_device": CureText(
        "see to that host's power and cooling", "turbostat, and the governor: cpupower frequency-info"
    ),
    "look_at_links": LINKS_OF_HOSTS,
    "fewer_channels": CureText(
        "leave the compute its cores", "OMP_NUM_THREADS below a rank's cores, so that what communicates has one"
    ),
}
#: … and where the ranks compute on all of their cores: what computes beside them takes these from them.
ON_FULL_CORES: dict[Cure, CureText] = {
    "load_ahead": CureText(
        "make batches cheaper, or once, ahead of training: the ranks compute on all cores, and worker processes help "
        "only as far as loading waits (for files, a network)",
        "batches that are prepared once and kept; cheaper transforms, smaller images; more cores for the ranks; "
        "one worker process a rank where loading waits",
    ),
    "load_faster": CureText(
        "make batches cheaper, or once, ahead of training: the ranks compute on all cores, and more workers help only "
        "as far as loading waits (for files, a network)",
        "batches that are prepared once and kept; cheaper transforms, smaller images; more cores for the ranks",
    ),
    "name_loading": CureText(
        "make batches cheaper, if the hosts load there: the ranks compute on all cores, and worker processes help only "
        "as far as loading waits (for files, a network)",
        'torch.profiler.record_function("load batch"), profile.loading(loader) or jax.profiler.TraceAnnotation names '
        "it in the next trace; batches prepared once and kept; where it is no loading, py-spy dump on one of the "
        "ranks",
    ),
    "prepare_ahead": CureText(
        "prepare batches more cheaply, or once, ahead of training, if that is what the ranks do there: they compute on "
        "all cores, which workers would take from them",
        "what is the same in each epoch once, ahead of training; what a network that does not train makes of a batch, "
        "likewise; with cores left for them, transforms in the loader's workers",
    ),
}
#: Where another library than NCCL (or RCCL) moves what is on GPUs, by its name.
_BY_NCCL = CureText(
    "let NCCL (RCCL) move what is on GPUs: gloo takes it through the hosts", "init_process_group('nccl')"
)
_SEND_LESS = CureText(
    "send less, or less often",
    "gradients as bf16 (bf16_compress_hook), gradient accumulation under no_sync(), larger batches",
)
#: … in a step that adds gradients up already.
ACCUMULATING: dict[Cure, CureText] = {
    "send_less": CureText(
        "send less, or less often",
        "gradients as bf16 (bf16_compress_hook), more micro-batches before each exchange, larger batches",
    )
}
BY_BACKEND: dict[str | None, dict[Cure, CureText]] = {
    "gloo": {"look_at_links": _BY_NCCL, "fewer_channels": _BY_NCCL},
    "mpi": {"look_at_links": LINKS_OF_HOSTS},
}
#: Where all ranks are on one host, whatever moves their data: between them there is no interface to choose.
ON_ONE_HOST: dict[Cure, CureText] = {"send_less": _SEND_LESS}
#: What gloo's interface is nothing to, between GPUs.
OTHER_INTERFACES = ("nccl", "mpi")
_CORES_THAT_SEND = CureText(
    "leave cores to the threads that move the data",
    "fewer ranks on the host, or OMP_NUM_THREADS below a rank's cores; nothing else on it meanwhile",
)
#: … and where they compute on its CPUs.
ON_CPUS_OF_ONE_HOST: dict[Cure, CureText] = {"look_at_links": _CORES_THAT_SEND}
MPI_ON_ONE_HOST = CureText(
    "see how the devices are linked, and whether the MPI library uses those links",
    "nvidia-smi topo -m; an MPI library that takes device memory as it is",
)
INFERENCE: dict[Cure, CureText] = {
    "send_less": CureText(
        "send less for what is computed", "activations as bf16, larger batches, fewer ranks a replica"
    ),
    "compile": CureText(
        "launch less: replay CUDA graphs", "torch.compile(model, mode='reduce-overhead'); larger batches"
    ),
    "faster_kernels": CureText(
        "make the kernels themselves faster", "torch.compile, quantised weights, larger batches"
    ),
}
#: Where the job is compiled already.
COMPILED: dict[Cure, CureText] = {
    "compile": CureText(
        "launch less: replay CUDA graphs", "torch.compile(model, mode='reduce-overhead'); larger batches"
    ),
    "faster_kernels": CureText(
        "make the kernels themselves faster", "a lower precision, larger batches, fused optimisers"
    ),
}
IN_JAX: dict[Cure, CureText] = {
    "look_at_rank": CureText(
        "find what launches that on this rank alone",
        "logging, checks or validation under `if jax.process_index() == …` inside the step",
    ),
    "name_loading": CureText(
        "load batches ahead, if that is what the hosts do there",
        'with jax.profiler.TraceAnnotation("load batch"): names it in the next trace; batches made by other processes, '
        "ahead of the step; where it is no loading, py-spy dump on one of the ranks",
    ),
    "fewer_threads": CureText(
        "compute with no more threads than there are cores", "taskset a process, so that each has its own"
    ),
    "load_ahead": CureText(
        "load batches ahead, in processes of their own",
        "grain or tf.data with worker processes; jax.device_put of the next batch before this step is awaited",
    ),
    "keep_loader": CureText(
        "keep the loader's workers from one epoch to the next",
        "one iterator over all epochs: grain or tf.data with repeat(), made once",
    ),
    "prepare_ahead": CureText(
        "prepare batches in the loader's workers, if that is what the ranks do there",
        "transforms in grain's or tf.data's workers; what is the same in each epoch once, ahead of training",
    ),
    "measure_rarely": CureText(
        "compute metrics rarely, or at once, if that is what the ranks do there",
        "every 50 steps, or in validation alone; within the jitted step, and read at the end",
    ),
    "compile": CureText(
        "launch less: jit the whole step", "jax.jit around loss, gradients and update, with donated state"
    ),
    "whole_tensors": CureText(
        "compute on whole arrays, not element by element in a loop of Python", "jax.vmap, or jnp on all rows at once"
    ),
    "fill_at_once": CureText(
        "fill arrays at once, not element by element in a loop of Python, or once, before the first step",
        "jnp.tril, a comparison of jnp.arange, or x.at[rows, columns].set(values)",
    ),
    "clip_at_once": CureText(
        "compile the clipping with the step, if that is clipping", "optax.clip_by_global_norm, inside jax.jit"
    ),
    "drop_synchronisation": CureText(
        "take the synchronisation out of the step",
        "no block_until_ready(), float() or np.asarray() in each step: read figures every so many steps",
    ),
    "pin_memory": CureText(
        "hand the next batch over while this step runs", "jax.device_put of the next batch before this step is awaited"
    ),
    "read_at_once": CureText(
        "read values all at once, not one by one", "np.asarray(array).tolist() once, before the loop of Python"
    ),
    "fuse_optimizer": CureText("compile the optimizer's update with the step", "optax's update inside jax.jit"),
    "update_at_once": CureText(
        "compile the update of all parameters with the step",
        "optax's update, or jax.tree.map of a rule, inside jax.jit",
    ),
    "drop_unused": CureText(
        "leave that out of the step, or keep gradients from it where its result is wanted",
        "jax.lax.stop_gradient around what is a fixed target; what nothing uses jax.jit drops by itself",
    ),
    "built_in_normalisation": CureText(
        "compile the normalisation with the step", "jax.jit around the step, which fuses its operators"
    ),
    "recompute_less": CureText(
        "keep more activations, as far as memory allows",
        "jax.checkpoint around fewer functions, or with policy=jax.checkpoint_policies.dots_saveable",
    ),
    "fixed_shapes": CureText(
        "keep shapes fixed, so that nothing is compiled anew", "pad batches; jax_log_compiles=True tells"
    ),
    "keep_memory": CureText(
        "let the allocator keep its memory", "XLA_PYTHON_CLIENT_PREALLOCATE=true; donated arguments"
    ),
    "copy_ahead": CureText("take copies out of the step", "jax.device_put ahead of the step, and donated arguments"),
    "larger_buckets": CureText(
        "let more gradients travel together", "XLA_FLAGS=--xla_gpu_all_reduce_combine_threshold_bytes=…, larger"
    ),
    "merge_tensors": CureText(
        "let what is exchanged one by one travel together",
        "XLA_FLAGS=--xla_gpu_all_reduce_combine_threshold_bytes=…, larger; figures stacked in one array",
    ),
    "gather_together": CureText(
        "gather together what is gathered one by one", "one lax.all_gather of arrays that are concatenated before it"
    ),
    "fewer_cuts": CureText(
        "cut the compiled graph at fewer places", "XLA_FLAGS=--xla_gpu_all_reduce_combine_threshold_bytes=…, larger"
    ),
    "no_cuts": CureText("compile the graph whole", "jax.jit around loss, gradients and update"),
    "smaller_buckets": CureText(
        "let fewer gradients travel together", "XLA_FLAGS=--xla_gpu_all_reduce_combine_threshold_bytes=…, smaller"
    ),
    "hand_over_early": CureText(
        "send gradients while the backward pass runs", "XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true"
    ),
    "send_less": CureText(
        "send less, or less often", "cast gradients to bfloat16 before their psum; accumulate them; larger batches"
    ),
    "narrow_gradients": CureText("let gradients travel as bf16", "cast gradients to bfloat16 before their psum"),
    "reduce_in_fp32": CureText("let gradients travel as fp32, or narrower", "cast gradients before their psum"),
    "no_anomaly_detection": CureText("look for NaN in debugging alone", "jax_debug_nans=False"),
    "broadcast_less": CureText("broadcast less in each step", "replicated arrays that stay on their devices"),
    "matrix_units": CureText(
        "let products run on the matrix units", "bfloat16 arrays, or jax.default_matmul_precision('tensorfloat32')"
    ),
    "matrix_units_in_bf16": CureText("let products run on the matrix units, in bf16", "bfloat16 arrays"),
    "narrower_numbers": CureText(
        "compute in fp32, or narrower, what needs no fp64", "jax_enable_x64 off, or array.astype(jnp.float32)"
    ),
    "channels_last": CureText("compute in the layout that convolutions have", "NHWC in lax.conv_general_dilated"),
    "faster_kernels": CureText(
        "make the kernels themselves faster", "a lower precision, larger batches, Pallas kernels"
    ),
}

#: Where a cause is of several ranks, and not of one that could be pointed at.
ON_SEVERAL: dict[Cure, CureText] = {
    "same_precision": CureText(
        "let those ranks compute in the precision that the others do",
        "no .double() or .float() on some ranks alone, autocast alike on all; what comes from NumPy is float64: "
        ".float()",
    ),
    "look_at_host": CureText(
        "find what holds the hosts up",
        "py-spy dump on one of the ranks; gc.freeze() and gc.disable() in the loop; no I/O in the step",
    ),
    "find_wait": CureText(
        "find what the hosts wait for there, or why they sleep",
        "py-spy dump on one of the ranks, a few times, names the line; no sleep, no flush() or os.fsync() and no lock "
        "in the step, or in a thread beside it",
    ),
    "find_python": CureText(
        "find what the hosts compute there, and do it less often, or as operators on whole tensors",
        "py-spy record on one of the ranks names the line: a metric, a histogram, a log's formatting, NumPy",
    ),
    "free_interpreter": CureText(
        "let another process do what a thread beside the training loop does in Python",
        "py-spy dump on one of the ranks names the thread; multiprocessing or loader workers for it, with a core to "
        "spare",
    ),
}

#: What is done by settings of ours, where the loop is one of our jobs', or calls `profile_steps`.
BY_ORIGIN: dict[tuple[Cure, Origin | None], CureText] = {
    ("profile_longer", "job"): CureText(
        "profile in more windows, of which one may show why, with profiler.repeat=4", "profile_steps(…, repeat=4)"
    ),
    ("name_loading", "script"): CureText(
        "load batches ahead, if that is what the hosts do there",
        "for batch in profile.loading(loader): names it in the next run; DataLoader(num_workers=4, "
        "prefetch_factor=4) loads ahead; where it is no loading, py-spy dump on one of the ranks, no I/O and no "
        "gc.collect() between steps",
    ),
    ("fewer_threads", "script"): CureText(
        "compute with no more threads than there are cores, with torch.set_num_threads({size:g})",
        "this call goes before OMP_NUM_THREADS={size:g} at each rank's launch, which is enough where the script has "
        "none",
    ),
    ("profile_longer", "script"): CureText(
        "profile in more windows, of which one may show why, with profile_steps(…, repeat=4)",
        "or in longer ones: active=20",
    ),
}
