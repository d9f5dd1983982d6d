"""The vocabulary: what can be found, and what can be done about it."""

from typing import Literal, get_args

#: What can be found. A code names the cause, not its symptom.
Code = Literal[
    "own_work",  # a kernel that the other ranks do not run
    "more_work",  # the same kernels more often than on the other ranks, or on more data
    "slower_compute",  # the same kernels, longer than on the other ranks
    "alternating_load",  # ranks take turns in being late: nobody's fault alone, and all lose
    "data_loading",  # the host fetches a batch while the device has nothing to do
    "host_stall",  # a gap in which the host launches nothing: sleep, garbage collection, I/O, a lock
    "host_starved",  # everything that a rank's host does takes longer than on the others: its cores are shared
    "host_bound",  # the devices wait for launches, on all ranks
    "element_reads",  # a loop of Python reads a host's tensors value by value
    "unfused_optimizer",  # it runs operator after operator where one would do: on all ranks
    "updates_by_hand",  # a loop over parameters where a few operators would do for all of them: on all ranks
    "unfused_normalisation",  # it is written out in operators where one would do: on all ranks
    "double_precision",  # what float32 would do, computed in float64: on all ranks
    "full_precision",  # products in float32 that a device's matrix units would do: on all ranks
    "batch_preparation",  # what operators make of a batch before the forward pass: on CPUs, on all ranks
    "metrics",  # what operators compute behind the optimizer's step, for no gradient: on CPUs, on all ranks
    "recomputation",  # the backward pass runs parts of the forward pass again, so that memory is saved: on all ranks
    "unused_forward",  # what the forward pass computes that leads to no gradient: on all ranks
    "synchronising",  # the host waits for the device in mid-step, which then waits for the host
    "recompilation",
    "allocation",  # memory taken from, or given back to, the driver in a step
    "copies",  # from one memory to another, that nothing hides
    "small_buckets",
    "small_collectives",  # figures exchanged one by one, units of shards too small: each costs a round of messages
    "needless_collectives",  # a barrier, or an exchange of Python objects, in each step: on CPUs, on all ranks
    "late_bucket",  # gradients are handed over when the backward pass is over, or nearly
    "slow_transfer",  # data move slower than they do alone, or than the links allow
    "exposed_transfer",  # data move as they should, and nothing hides it
    "debug_mode",  # anomaly detection, or launches that wait for their kernels, left on
    "late_root",  # the others wait for the root of a broadcast
    "contention",  # compute is slowed by collectives beside it
    "throttled",  # a device's clocks are held down
    "pipeline_bubble",
    "expert_imbalance",
    "unsteady",  # steps differ by more than anything else explains
    "profiler_cost",  # recording slows the host, and by how much is not known
    "nothing",
]

CODES: tuple[Code, ...] = get_args(Code)
#: What to do about it, in a loop of anybody's: a code, whose words are made where they are shown.
Cure = Literal[
    "look_at_rank",  # see what launches this there
    "same_kernels",  # as the others run: the same precision and layout
    "same_precision",  # as the others compute in
    "no_anomaly_detection",
    "launch_without_waiting",
    "even_out",  # the ranks' batches
    "even_out_lengths",  # of their sequences
    "pad_less",  # where all ranks' batches are larger in the same steps
    "look_at_device",
    "load_ahead",
    "prepare_ahead",  # in the loader's processes, what the loop's thread makes of a batch
    "measure_rarely",  # metrics, or at once
    "launch_apart",  # in a process of its own, what another thread of this one launches
    "hand_over_less",  # batches of workers that rest: it is taking them over that costs
    "keep_loader",  # what is entered anew at each epoch's begin starts its workers, and has no batch ready
    "load_faster",  # ahead it is already: batches are made slower than they are taken
    "look_at_host",
    "find_wait",  # of a host that sleeps at a place
    "find_python",  # … or computes there, in what no operator tells
    "name_loading",  # which all hosts most likely do there; then load ahead
    "collect_less",  # of Python's garbage
    "less_python",  # at a place that a host comes to many times a step
    "tensors_not_objects",  # are to be exchanged
    "drop_barriers",  # which training needs in no step
    "exchange_rarely",  # objects, and as tensors; and no barrier in a step
    "do_less_often",  # what some steps do beside training
    "free_cores",
    "core_for_rank",  # that waits for one far longer than the others do
    "more_cores_for_rank",  # that is bound to fewer than the others may run on
    "core_for_thread",  # of a rank's own process, which takes turns with the loop
    "free_interpreter",  # of what another thread of the process computes in Python
    "fewer_threads",
    "cores_for_ranks",  # that compute with a thread each, and are more than the cores that they may run on
    "cheaper_workers",  # of loaders, on the cores that ranks compute on
    "compile",
    "whole_tensors",  # in place of a loop of Python over their elements, rows, or over many of them
    "fill_at_once",  # what such a loop fills element by element, or before the first step
    "drop_synchronisation",
    "pin_memory",  # of batches
    "read_at_once",  # what is read value by value
    "fuse_optimizer",  # to one operator
    "update_at_once",  # parameters that a loop of the user's own updates one at a time
    "clip_at_once",  # gradients that such a loop squares and scales, if it clips them
    "built_in_normalisation",  # in place of one that is written out
    "drop_unused",  # what is computed with gradients for no loss, or have it computed without
    "recompute_less",  # of the forward pass: activations that memory has room for are kept
    "fixed_shapes",
    "keep_memory",
    "copy_ahead",
    "larger_buckets",
    "merge_collectives",
    "merge_tensors",  # gradients, or figures: their sizes leave it open
    "larger_units",  # of FSDP
    "gather_together",  # what a loss needs of all ranks
    "smaller_buckets",
    "fewer_cuts",  # of a compiled graph, at the edges of gradient buckets
    "no_cuts",
    "hand_over_early",
    "narrow_gradients",
    "look_at_links",
    "free_root",
    "fewer_channels",
    "cool_device",
    "more_micro_batches",
    "even_stages",  # of a pipeline
    "balance_experts",
    "measure_again",
    "profile_longer",  # in more windows, of which one may show why
    "profile_rank",  # whose trace alone is missing
    "profile_others",  # than the only one whose trace is there: waits and exchanges are told apart by both
    "give_step_ms",
    "faster_kernels",
    "matrix_units",  # for products that run in fp32 without them
    "matrix_units_in_bf16",  # the same, of a device of which nothing tells that it is faster in tf32
    "channels_last",  # the layout that convolutions compute in
    "pad_sides",  # of products, to multiples of eight elements
    "narrower_numbers",  # for what computes in fp64
    "exchange_once",  # gradients of several backward passes
    "send_less",
    "reduce_in_fp32",  # what travels in fp64
    "broadcast_less",  # DDP's buffers before each forward pass
    "record_sizes",  # of collectives, which tell what to do about them
]

#: What all ranks compute alike at length: none of what a step loses beside its compute, and no fault of any.
COMPUTED_BY_ALL: tuple[Code, ...] = (
    "unfused_optimizer",
    "updates_by_hand",
    "unfused_normalisation",
    "double_precision",
    "full_precision",
    "batch_preparation",
    "metrics",
    "recomputation",
    "unused_forward",
)
#: What mends more threads that compute than cores.
TOO_MANY_THREADS: tuple[Cure, ...] = ("fewer_threads", "cores_for_ranks")
#: What spreads over all ranks what one of them has more of.
EVENS_OUT: tuple[Cure, ...] = ("even_out", "even_out_lengths")
#: What hides transfer behind compute, and makes none of it shorter.
HIDES_TRANSFER: tuple[Cure, ...] = ("hand_over_early", "smaller_buckets")
#: What tells more, and by itself saves nothing, whatever it may show.
TELLS_MORE: tuple[Cure, ...] = ("measure_again", "profile_longer", "profile_rank", "profile_others", "give_step_ms")
#: What devices do: it is there whatever recording costs the hosts.
ON_THE_DEVICE: tuple[Code, ...] = ("own_work", "more_work", "slower_compute", "throttled", "alternating_load")
