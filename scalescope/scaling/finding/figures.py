"""The names of evidence that decides something: what wrote a row, and who reads it, agree by these."""

LOADER_WORKERS = "loader_workers"  # the figure that loaders have worker processes: what ranks wait for batches, ms
#: Evidence of how many cores a rank's child processes used in the mean, or all ranks' together: then it is known that
#: they have them.
WORKERS_CORES = "workers_cores"
CORES_WAITED_FOR = "cores_waited_for"  # … and how many all ranks wait for, where their rows tell it
MAY_BE_OTHERS = "may_be_others"  # what of a cost may as well have other reasons, ms: half of what may go with it
MAY_BE_OTHERS_UP_TO = "may_be_others_up_to"  # … and all that may go with it, where that is not twice as much
#: Evidence of a cause that is there in some steps alone: `ms` in each of `calls` steps, of `value`.
IN_STEPS = "in_steps"
NOT_IN_STEPS = "not_in_steps"  # … and in none of the job's own `value` steps around the window
EVERY = "every_so_many_steps"  # … and that it comes back: it takes `ms` in every `value`-th step
#: Evidence of which steps have it, where few do and no period is known: `value` is one's place among them, from 1 on.
AT_STEP = "at_step"
STEP_NUMBER = "step_number"  # … or by the number that the job counts it with
#: … that one of these was profiled (`value`, its number), and which part of a step (its name follows) takes `ms` longer
#: there: most of it, with `calls` times the other steps' operators.
MET_STEP = "met_step"
WAITED_THERE = "waited_for_cores_there"  # … by how much longer its ranks wait for a core there (ms), by their rows
AS_MANY = "as_many_operators"  # … and that it runs no more operators there than in the other steps
SAME_INPUTS = "inputs_of_the_same_size"  # … which work on as many elements there as in the others
#: Evidence that what takes longer works on larger inputs, by recorded shapes: `value` times the elements of the other
#: ranks', or of a rank's other steps; the operator's name follows.
LARGER_IN = "times_the_elements_in"
LONGER_BY = "longer_by"  # … what of that (ms) one of a step's parts takes, whose name follows, where several take much
IN_EVERY_STEP = "in_every_step"  # a host stands still at one place in each step for longer than chance can make it
LONGER_IN = "longer_in"  # … what most of that (ms) lies in: the operator's name follows
STOOD_BEFORE = "stood_before"  # … where nothing is recorded of its host meanwhile: the operator after that follows
#: Evidence of gaps that are there whenever a host comes to a place: `ms` is what one of them typically takes, `calls`
#: how many there are a step; the name ends with the operator before them.
EACH_PASS = "each_pass_after"
#: Evidence that others have the cores: `calls` of a rank's operators a step take `ms` longer than at their shortest,
#: and most of them as long as ever; all together `value` times as long.
CORES_BY_TURNS = "cores_by_turns"
#: Evidence of loops of Python, `calls` and `ms` a step: how many operators of a step's one runs, and what lies between
#: them (the name ends with what is before it); how many values are read one by one, and what that takes.
LOOP_AFTER, ELEMENTS_READ = "loop_of_python_after", "elements_read"
FILLED = "elements_filled"  # … and how many operators fill tensors element by element, and what these take
#: Evidence that all hosts stand still before a step's first operator: most likely they load, though nothing says so.
MAY_LOAD = "may_load"
LOCK_WAITS = "lock_waits"  # evidence of waits that last Python's switch interval: `calls` a step, which take `ms`
OWN_THREAD = "own_thread"  # a thread of a rank's own process, whose name follows, uses `value` cores beside its loop
#: Evidence that a child process of a rank (`calls`) that is no loader's worker, whose command's name follows, uses
#: `value` cores.
OTHER_CHILD = "other_child"
#: What prices threads that take turns: the loop that waits most for a core does so for `ms` of a steady step.
LOOPS_WAIT = "loops_wait"
#: Evidence of one rank: it is bound to fewer cores (`value`) than the ranks of its host may run on.
BOUND_CORES = "bound_cores"
GARBAGE = "garbage_collection"  # evidence that Python's own collector tells of: `calls` times a step, which take `ms`
#: Evidence that a finding is of the job's own steady steps, not of those that a window holds: `ms` is their mean.
STEADY_STEPS = "steady_steps"
#: Evidence that all steps say for how long hosts are in their loaders: `ms` in the mean, of `value` steps.
LOADED = "loaded_in_all_steps"
#: Evidence that all steps say how late a rank is, whatever its window holds: `ms` in the mean, of `value` steps.
LATE = "late_in_all_steps"
NO_TRACE = "no_trace"  # evidence that of a rank which comes late in all steps there is no trace
#: The figure of what threads that run no operators launch in the same process, a rank and step.
BESIDE = "launched_beside"
#: The figure of waits of all hosts for their devices, a step: by those a stall of one host shows, else hidden.
SHOWN_BY_WAITS = "shown_by_waits"
HIDDEN = "hidden_by_devices"  # the figure of launching that costs nothing as long as devices do what they need not
READ_VALUES = "read_values"  # the figure of what kernels take that compute values for being read alone, as it seems
#: The figure of how often a step a rank launches what goes round in its loops over time, and how often the others do.
ROUNDS = "rounds_of_loops"
#: How many times the others' inputs a rank has, by shapes or its script; how many times one step's work another has.
INPUTS, LOADS = "times_the_inputs", "times_the_load"
COUNTED_LOADS = "times_the_counted_load"  # the same as the latter, where shapes tell the loads
#: What goes with a cause whose bound is more than it is seen to take: waits behind it, or launches that others hide.
GOES_WITH_IT = "goes_with_it"
ANOMALY = "anomaly_detection"  # how many of its launches a step look for NaN behind the backward pass's nodes
#: The figure that says how many launches a step a rank makes that the others do not: as many in every step, counted.
BESIDES = "launches_besides"
#: … and how many times a step its host alone waits for the device, or oftener than the others' hosts do, counted.
WAITS_BESIDES = "synchronisations_besides"
AROUND = "host_around"  # what a host takes in and around a block of launches that one rank alone makes, beside them
#: Evidence that a rank runs operators which the others do not where its host stands still: what they take (`ms`), the
#: most of which is of the one whose name follows.
RUN_THERE = "run_there"
#: Evidence of a step without another finding: communication that nothing hides, or that nothing runs, for much of it;
EXPOSED, IDLE, BETWEEN = "exposed_communication", "idle", "idle_between_operators"  # … as in any eager step of CPUs
#: … of that, where it is split: waits of ranks for each other, and transfer; and the one of two ranks that waits for
#: longer, if it does by far (`value`), for how long it does (`ms`), and for how long the other one does (`others_ms`).
EXPOSED_WAIT, EXPOSED_TRANSFER, ONE_WAITS = "exposed_wait", "exposed_transfer", "one_rank_waits"
#: Evidence that steps do not do the same: they launch from `value` to `calls` kernels.
LAUNCHES_DIFFER = "launches_differ"
#: Evidence of steps that are longer now and then: how many times as much as in the others a device computes there.
TIMES_COMPUTE = "times_the_compute"
#: A row of some longer steps of the window: how many times as long all that the host does takes in them (value).
HOST_SLOWED = "host_slowed"
LATE_RANK = "late_rank"  # names one of several ranks of which a finding is (value), where it is nobody's alone
MAY_WAIT = "may_wait_for_others"  # that what collectives take may be waits for so many ranks (value) without a trace
UNTOLD_WAITS = "untold_waits"  # what may wait for another rank before copy engines move data: no trace tells
#: Evidence of a step without another finding, by its kernels' names: what they take that multiply in fp32 without the
#: matrix units, in fp64, or sides that are no multiples of eight elements; that turn layouts around convolutions; that
#: sum up gradients by sorted positions; that are an optimizer's single operations (`value`: to save), or a network's.
FULL_PRECISION, DOUBLE_PRECISION, UNALIGNED_PRODUCTS = "full_precision", "double_precision", "unaligned_products"
LAYOUT_CONVERSIONS, SORTED_SCATTERS = "layout_conversions", "sorted_scatters"
UNFUSED_OPTIMISER, UNFUSED = "unfused_optimiser", "unfused"
#: Evidence that a few of a rank's launches, now here and now there, take longer than on the others, or than the same
#: ones in other steps, and the rest do not: `calls` a step, by `value` ms each.
BY_TURNS, OWN_TURNS = "by_turns", "by_turns_of_others"
#: The figure of what a loop of the user's own takes that updates parameters one at a time (`calls`: operators;
#: `value`: parameters), a rank and step.
UPDATED_BY_HAND = "updated_one_by_one"
#: … where no operator of that writes in place: it may be averages, or what is looked at.
NONE_WRITTEN = "none_written_in_place"
CLIPPED_BY_HAND = "clipped_by_hand"  # … and where it is gradients that are squared, summed up and scaled, all alike
PREPARING = "prepared_before_forward"  # the figure of what operators make of a batch there, a rank and step
LOOKED_AT = "looked_at_behind_update"  # … of what operators make of what a step made, behind its update
#: The figures of what normalisation that is written out takes with its backward pass (`calls`: operators), a rank and
#: step; and in how many chains (`calls`), of up to so many operators (`value`).
NORMALISED, NORMALISATIONS = "normalised_by_operators", "normalisations"
RECOMPUTED = "recomputed_in_backward"  # the figure of what of the forward pass runs there once more, a rank and step
UNUSED_FORWARD = "forward_without_backward"  # the figure of what of the forward pass no gradient comes back to
SPARSE = "sparse_collectives"  # the figure of how many collectives a step carry sparse tensors, of sizes nobody tells
BARRIERS = "barriers"  # evidence of barriers in each step: `calls`, in which a rank is for `ms`
#: … of collectives of Python objects, whose name follows; and for how much of both together a rank waits for others.
OBJECTS, WAITED_AT_THEM = "collective_of_objects", "waited_for_ranks_there"
PASSES = "backward_passes"  # the figure of how many passes of a step exchange the same gradients
#: The figure that says by how much compute is slower for collectives beside it, a step.
SLOWER_BESIDE = "slower_beside_collectives"
#: The figure that says how many times the others' even the quickest of a rank's products take in each step.
AT_LEAST = "times_as_long_at_least"
#: The figure that says how many times the others' a rank's launches take that collectives run beside, where its cost is
#: of those, too: `ms` a step, and `others_ms`.
TIMES_BESIDE = "times_as_long_beside_collectives"
OTHER_KERNELS = "other_kernels"  # the same of a rank's kernels where the others run other ones for the same operators
BUS = "bus_gb_s"  # the figure that says how fast data move, and which share that is of what they could
#: Evidence that a rank computes in a dearer precision than the others, whose name both precisions follow, the rank's
#: first: what its operators take, and what theirs do (`ms`, `others_ms`, `calls` of them a step); what conversions do.
PRECISION, CONVERTING = "in_precision", "converts_precision"
