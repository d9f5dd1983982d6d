"""What to do about a finding, in words: in one of our jobs, and in a training loop of the reader's own."""

from dataclasses import dataclass

from scalescope.scaling.finding.codes import Cure


@dataclass(frozen=True)
class CureText:
    """What to do, and what does it in a loop of the reader's own, which has none of our keys."""

    what: str
    elsewhere: str


#: What tells of a line of the script, where none is told.
WITH_STACKS = "profile_steps(…, stacks=True)"

CURES: dict[Cure, CureText] = {
    "no_anomaly_detection": CureText(
        "switch anomaly detection off", "no torch.autograd.set_detect_anomaly(True), or detect_anomaly(), but to debug"
    ),
    "launch_without_waiting": CureText(
        "let launches return at once",
        "no CUDA_LAUNCH_BLOCKING, AMD_SERIALIZE_KERNEL or HIP_LAUNCH_BLOCKING in the environment, but to debug",
    ),
    "look_at_rank": CureText(
        "find what launches that on this rank alone",
        "what only that rank runs inside the step: logging, checks or validation under `if rank == …`; where it runs "
        "within the forward or backward pass, a hook that is registered there alone (register_forward_hook, "
        "register_full_backward_hook, register_comm_hook, a tensor's register_hook). "
        f"{WITH_STACKS} puts the lines that call it into the trace, and makes recorded steps longer",
    ),
    "same_kernels": CureText(
        "let that rank compute in the precision and layout that the others do",
        "dtypes, autocast and memory formats alike on every rank; cudnn.benchmark chooses kernels on each by itself",
    ),
    "same_precision": CureText(
        "let that rank compute in the precision that the others do",
        "no .double() or .float() on one rank alone, autocast alike on all; what comes from NumPy is float64: .float()",
    ),
    "even_out": CureText(
        "even out the ranks' load",
        "batches of equal size, length and resolution on every rank; nothing more under `if rank == …` inside the step",
    ),
    "even_out_lengths": CureText(
        "even out the lengths of the ranks' sequences",
        "sort samples into buckets by length, and give all ranks batches of one bucket, or of as many tokens, in each "
        "step; no batch padded beyond its own longest",
    ),
    "pad_less": CureText(
        "pad batches less, if that is what makes them larger",
        "sort samples into buckets by length or size; no batch padded beyond its own longest",
    ),
    "look_at_device": CureText(
        "see what else runs on that device, and its clocks",
        "nvidia-smi or rocm-smi on that host: processes, clocks, power",
    ),
    "load_ahead": CureText(
        "load batches ahead, in processes of their own",
        "DataLoader(num_workers=4, prefetch_factor=4, pin_memory=True, persistent_workers=True), "
        "or more workers than now",
    ),
    "prepare_ahead": CureText(
        "prepare batches in the loader's workers, if that is what the ranks do there",
        "transforms in the dataset's __getitem__ or in collate_fn, with DataLoader(num_workers=…); what is the same in "
        "each epoch once, ahead of training; what a network that does not train makes of a batch, likewise",
    ),
    "measure_rarely": CureText(
        "compute metrics rarely, or at once, if that is what the ranks do there",
        "every 50 steps, or in validation alone; one torch.bincount(classes * labels + predictions) for a confusion "
        "matrix, no loop of Python over classes or samples; sums kept as tensors, and read at the end",
    ),
    "launch_apart": CureText(
        "launch in one thread of the process, or let another process do what the other thread does",
        "decode in loader workers, or ahead of training; fewer and larger launches there",
    ),
    "hand_over_less": CureText(
        "hand batches over more cheaply: the loaders' workers rest, so more of them help only where they wait for "
        "files or a network",
        "num_workers=0 where a batch is quick to make; few large tensors a batch, not many small ones; batches that "
        "are made once and kept in memory",
    ),
    "keep_loader": CureText(
        "keep the loader's workers from one epoch to the next (persistent_workers=True)",
        "DataLoader(persistent_workers=True), of a loader that is made once; where its workers are kept already, "
        "longer epochs, or one sampler over several",
    ),
    "load_faster": CureText(
        "make batches faster than the job takes them",
        "more loader workers where cores are left for them; smaller images, or decoding on the device",
    ),
    "look_at_host": CureText(
        "find what holds that host up",
        "py-spy dump on that rank; gc.freeze() and gc.disable() in the loop; no I/O in the step",
    ),
    "find_wait": CureText(
        "find what that host waits for there, or why it sleeps",
        "py-spy dump on that rank, a few times, names the line; no sleep, no flush() or os.fsync() and no lock in the "
        "step, or in a thread beside it",
    ),
    "find_python": CureText(
        "find what that host computes there, and do it less often, or as operators on whole tensors",
        "py-spy record on that rank names the line: a metric, a histogram, a log's formatting, NumPy",
    ),
    "name_loading": CureText(
        "load batches ahead, if that is what the hosts do there",
        'with torch.profiler.record_function("load batch"): names it in the next trace; DataLoader(num_workers=4) '
        "loads ahead; where it is no loading, py-spy dump on one of the ranks",
    ),
    "collect_less": CureText(
        "let Python collect its garbage less often",
        "gc.freeze() before the loop, gc.disable() in it, and gc.collect() every few hundred steps, on all ranks alike",
    ),
    "less_python": CureText(
        "do less in Python, or read and write less, at that place",
        "no hook on each gradient, no callback or log after each layer: once a step for all of them, or rarely; no "
        "flush() or os.fsync() of a log in the loop",
    ),
    "tensors_not_objects": CureText(
        "exchange tensors, not Python objects, and less often",
        "dist.all_gather or all_reduce of one tensor of figures; objects once an epoch, or written by each rank",
    ),
    "drop_barriers": CureText(
        "leave the barrier out of the step",
        "no dist.barrier() in the loop: collectives wait for all ranks by themselves; one only where ranks need what "
        "another one wrote to a file",
    ),
    "exchange_rarely": CureText(
        "leave the barrier out of the step, and exchange tensors, not Python objects, and less often",
        "no dist.barrier() in the loop: collectives wait for all ranks by themselves; dist.all_reduce of one tensor of "
        "figures, every so many steps",
    ),
    "do_less_often": CureText(
        "see what those steps do beside training, and do it less often or in the background",
        "validation, saving or logging under `if step % … == 0`: rarely, shared by all ranks, or in another process",
    ),
    "free_cores": CureText(
        "give the ranks cores that nothing else uses",
        "quiet the machine (top names what else runs) and run again; taskset or numactl a rank. Where the ranks "
        "compute on all cores of the machine, a core to spare (one thread fewer by OMP_NUM_THREADS, or one rank) for "
        "what loads and exchanges; where top -H shows a busy thread of a rank's own process, a core for that one, too",
    ),
    "core_for_rank": CureText(
        "give that rank cores of its own, as many as its threads and its loader's workers need",
        "taskset -cp or numactl -C tells it cores that nothing else uses, OMP_NUM_THREADS no more threads than these; "
        "under Slurm srun --cpus-per-task=… --cpu-bind=cores; where the rank is bound already, bind it to other or "
        "more cores, as top, with 1 and then H, shows what runs on its own",
    ),
    "more_cores_for_rank": CureText(
        "let that rank run on more cores than it is bound to",
        "taskset -cp tells to which; bound they are by taskset, numactl -C, os.sched_setaffinity or a container's "
        "cpuset: all that the other ranks may use, or as many of its own as it has threads and workers; under Slurm "
        "srun --cpus-per-task=… --cpu-bind=cores, mpirun --bind-to none",
    ),
    "core_for_thread": CureText(
        "give the thread beside the training loop a core of its own, or let it do less while steps run",
        "more cores for the ranks, or the thread's work between epochs or on another machine; in another process it "
        "needs a core just the same",
    ),
    "free_interpreter": CureText(
        "let another process do what a thread beside the training loop does in Python",
        "py-spy dump on that rank names the thread; multiprocessing or loader workers for it, with a core to spare",
    ),
    "fewer_threads": CureText(
        "compute with no more threads than there are cores",
        "OMP_NUM_THREADS={size:g} for each rank where it is launched, or torch.set_num_threads({size:g}) in its "
        "script, which goes before it",
    ),
    "cores_for_ranks": CureText(
        "give each rank a core of its own: they are more than the cores that they may run on",
        "undo what binds them (taskset -pc shows it; numactl, a container's cpuset, Slurm's --cpus-per-task), or start "
        "fewer ranks there",
    ),
    "cheaper_workers": CureText(
        "make the batches of the loaders' workers cheaper, or give the ranks more cores",
        "batches that are prepared once and kept, or ahead of training; cheaper transforms, smaller images; fewer "
        "workers where they are several; cores for them beside the ranks'",
    ),
    "compile": CureText(
        "launch less: compile the step",
        "torch.compile(model), with mode='reduce-overhead' for CUDA graphs; larger batches",
    ),
    "whole_tensors": CureText(
        "compute on whole tensors, not element by element in a loop of Python",
        "x.sum(dim=1) for all rows at once, torch.stack(tensors) for many tensors; tensor.tolist() for figures",
    ),
    "fill_at_once": CureText(
        "fill tensors at once, not element by element in a loop of Python, or once, before the first step",
        "torch.tril, torch.triu or a comparison of torch.arange for a mask; mask[rows, columns] = values for all of "
        "them at once; torch.tensor of a list that Python has filled; what is the same in each step in a "
        "register_buffer",
    ),
    "clip_at_once": CureText(
        "let torch clip the gradients, if that is clipping",
        "where that is clipping, torch.nn.utils.clip_grad_norm_(model.parameters(), …), which makes no tensor of "
        "squares and reads nothing; norms for a log every so many steps",
    ),
    "drop_synchronisation": CureText(
        "take the synchronisation out of the step",
        "no .item(), .cpu() or synchronize() in each step: keep figures on the device, read them every so many steps",
    ),
    "pin_memory": CureText(
        "copy batches out of pinned memory, without waiting for it",
        "DataLoader(pin_memory=True) or tensor.pin_memory() ahead, then tensor.to(device, non_blocking=True)",
    ),
    "read_at_once": CureText(
        "read values all at once, not one by one",
        "tensor.tolist() or tensor.numpy() once, before the loop of Python; figures for a log every so many steps",
    ),
    "fuse_optimizer": CureText(
        "let the optimizer be one operator (fused=True)", "torch.optim.AdamW(…, fused=True), and so Adam and Adagrad"
    ),
    "update_at_once": CureText(
        "update all parameters at once, by an optimizer of torch's or by operators that take lists of tensors",
        "torch.optim.AdamW(model.parameters(), fused=True), and so Adam, Adagrad and SGD; of a rule of your own, "
        "torch._foreach_mul_, torch._foreach_add_, torch._foreach_lerp_ and the like, in place, on lists of all "
        "parameters; optimizer.zero_grad() where gradients are set to zero one by one",
    ),
    "built_in_normalisation": CureText(
        "use the built-in normalisation, which is one operator",
        "nn.GroupNorm, nn.LayerNorm, nn.BatchNorm2d or nn.InstanceNorm2d, or torch.nn.functional's; "
        "torch.compile(model) where it is none of these",
    ),
    "drop_unused": CureText(
        "leave that out of the step, or run it without gradients where its result is wanted",
        "call no module whose outputs the loss does not take, and wrap none of it in DDP; "
        "torch.no_grad() or torch.inference_mode() around what is a fixed target or is only looked at",
    ),
    "recompute_less": CureText(
        "keep more activations, as far as memory allows",
        "torch.utils.checkpoint around fewer blocks; context_fn=functools.partial("
        "create_selective_checkpoint_contexts, …), which keeps what products and convolutions compute",
    ),
    "fixed_shapes": CureText(
        "keep shapes fixed, so that nothing is compiled anew",
        "pad batches, or torch.compile(…, dynamic=True)",
    ),
    "keep_memory": CureText(
        "let the allocator keep its memory",
        "no torch.cuda.empty_cache() in the loop; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    ),
    "copy_ahead": CureText(
        "take copies out of the step",
        "pinned memory, tensor.to(device, non_blocking=True), and copies on a stream of their own",
    ),
    "larger_buckets": CureText(
        "use larger gradient buckets",
        "DistributedDataParallel(…, bucket_cap_mb={size:g}); where none is given, torch's first bucket holds 1 MiB",
    ),
    "fewer_cuts": CureText(
        "cut the compiled graph at fewer places, by larger gradient buckets",
        "DistributedDataParallel(…, bucket_cap_mb={size:g})",
    ),
    "no_cuts": CureText("compile the graph whole", "torch._dynamo.config.optimize_ddp = False"),
    "merge_collectives": CureText(
        "exchange figures together, and not in every step",
        "stack losses, norms and metrics into one tensor for one all_reduce, every so many steps",
    ),
    "merge_tensors": CureText(
        "exchange together what is exchanged one by one",
        "gradients in one flat tensor for one all_reduce, or in DistributedDataParallel's buckets; figures stacked in "
        "one tensor, every so many steps",
    ),
    "larger_units": CureText("shard larger units", "fully_shard(…), or FSDP(…), around blocks and not each layer"),
    "gather_together": CureText(
        "gather together what is gathered one by one",
        "what a loss needs of all ranks in one tensor (torch.cat) for one all_gather, and split behind it",
    ),
    "exchange_once": CureText(
        "exchange gradients in the last backward pass of a step alone",
        "with model.no_sync(): around all backward passes but the last before optimizer.step()",
    ),
    "send_less": CureText(
        "send less, or less often",
        "gradients as bf16 (bf16_compress_hook), gradient accumulation under no_sync(), larger batches; over several "
        "hosts GLOO_SOCKET_IFNAME names the fast interface",
    ),
    "reduce_in_fp32": CureText(
        "let gradients travel as fp32, or narrower", "no .double() before all_reduce; bf16_compress_hook for less still"
    ),
    "broadcast_less": CureText(
        "broadcast no buffers before each forward pass, or fewer",
        "DistributedDataParallel(…, broadcast_buffers=False) where ranks may keep their own; tables that never change "
        "are no buffers: a plain attribute",
    ),
    "record_sizes": CureText(
        "exchange together what is exchanged one by one, if it is small: record shapes, which tell",
        "profile(…, record_shapes=True); many small tensors in one flat tensor for one collective",
    ),
    "smaller_buckets": CureText("use smaller gradient buckets", "DistributedDataParallel(…, bucket_cap_mb={size:g})"),
    "hand_over_early": CureText(
        "hand gradients over while the backward pass runs",
        "torch.compile(DistributedDataParallel(model)), with torch._dynamo.config.optimize_ddp as it is by default",
    ),
    "narrow_gradients": CureText(
        "let gradients travel as bf16",
        "DistributedDataParallel.register_comm_hook(None, bf16_compress_hook)",
    ),
    "look_at_links": CureText(
        "see how the devices are linked, and what limits the library",
        "NCCL_DEBUG=INFO: channels, algorithm, transport; nvidia-smi topo -m; no NCCL_MAX_NCHANNELS left set",
    ),
    "free_root": CureText("let the root send earlier", "broadcast before the root's own work, or with async_op=True"),
    "fewer_channels": CureText(
        "leave the kernels more of the device",
        "NCCL_MAX_NCHANNELS, or NCCL_CTA_POLICY=2 (copy engines); collectives where the kernels leave room",
    ),
    "cool_device": CureText("see to that device's power and cooling", "nvidia-smi -q -d PERFORMANCE,CLOCK,POWER"),
    "more_micro_batches": CureText("use more micro-batches", "more micro-batches a step, or an interleaved schedule"),
    "even_stages": CureText(
        "even the pipeline's stages out",
        "layers moved from the slow stage to the others, so that all compute as long; the embedding and the head count",
    ),
    "balance_experts": CureText("balance the experts", "a balancing loss, or a capacity factor"),
    "measure_again": CureText("measure for longer", "profile more steps, on a machine without other work"),
    "profile_longer": CureText(
        "profile in more windows, of which one may show why",
        "profile_steps(…, repeat=4), which tells of all steps how late each rank is; or longer windows: active=20",
    ),
    "profile_others": CureText(
        "give the other ranks' traces too: together they tell waits for each other from what the exchange takes",
        "the profiler on every rank, in the same steps; what is exchanged one by one together in one tensor",
    ),
    "profile_rank": CureText(
        "record that rank, too, or put its trace back: it alone shows why it is late", "the profiler on every rank"
    ),
    "give_step_ms": CureText(
        "give the step's time without the profiler: --step-ms",
        "time some steps without the profiler, and give --step-ms",
    ),
    "faster_kernels": CureText(
        "make the kernels themselves faster",
        "torch.compile, a lower precision, larger batches, fused optimisers",
    ),
    "matrix_units": CureText(
        "let products run on the matrix units, in bf16 (torch.autocast) or tf32 "
        "(torch.set_float32_matmul_precision('high'))",
        "torch.autocast('cuda', torch.bfloat16) around the forward pass and its loss; of convolutions "
        "torch.backends.cudnn.allow_tf32",
    ),
    "matrix_units_in_bf16": CureText(
        "let products run on the matrix units, in bf16 (torch.autocast)",
        "torch.autocast('cuda', torch.bfloat16) around the forward pass and its loss",
    ),
    "channels_last": CureText(
        "compute in the layout that convolutions have",
        "model and inputs .to(memory_format=torch.channels_last)",
    ),
    "pad_sides": CureText(
        "pad what is multiplied to sides that are multiples of 8, better 64",
        "a vocabulary of 50,304 instead of 50,257; classes, heads' sizes and sequence lengths likewise",
    ),
    "narrower_numbers": CureText(
        "compute in fp32, or narrower, what needs no fp64",
        "tensor.float(): what comes from NumPy is float64, and torch.autocast leaves it so",
    ),
}  # fmt: skip
