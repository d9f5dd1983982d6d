/* The replay's event loop, as events.py has it: the same events in the same order, and the same sums to the last bit.

   events.py is what it means, and says why; names are the same here. Times are ns. Indices and ranks (0, 1, … in the
   graph's order) are checked by compiled.py before they come here. Sums must not be fused (-ffp-contract=off), else
   they would differ from Python's in their last bit. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 1 /* to be raised with compiled.py's, where what this file does changes */

enum kind { COMPUTE, COMMUNICATION, OTHER };
enum outcome { DONE, STUCK, NO_MEMORY };

struct graph {
  int64_t activities, ranks, transfers, slows;
  double loss;
  /* by activity */
  const int32_t *kind, *rank, *collective;
  const double *dispatch, *late, *not_before, *work, *slow;
  const uint8_t *until; /* the activities to go on until; NULL: all run */
  /* its streams, one behind another, and where each begins; what waits for another stream's activity, in pairs */
  int64_t streams, pairs;
  const int64_t *stream_at;
  const int32_t *stream, *waiting, *awaited;
  /* hosts' calls, one rank behind another, and where each rank's begin */
  const int64_t *call_at;
  const double *think, *duration, *until_after;
  const int32_t *launches, *awaits;
  const uint8_t *room;
  /* by rank */
  const double *latency, *host_begins;
  /* by transfer: its work, and where its members begin */
  const double *transfer_work;
  const int64_t *member_at;
  const int32_t *member_rank, *member;
  const double *skew;
};

struct timing { /* by activity; by call, when it was begun, once it has returned */
  double *begin, *end, *launch, *called;
};

struct event {
  double when;
  int64_t number, what;
};

struct set { /* of a rank's kernels that run, in the order in which they came in */
  int32_t first, last, size;
};

struct moving { /* a rank's transfers in flight, in that order; as many as the rank has members fit in */
  int32_t *transfers;
  int32_t size;
};

struct run {
  const struct graph *graph;
  struct timing *out;
  struct event *heap;
  size_t pending, room;
  int64_t made, unbegun;
  int out_of_memory;
  double *free, *left, *since, *transfer_left, *transfer_since, *clock;
  int64_t *due, *transfer_due, *position, *made_calls, *user_at;
  int32_t *open, *next, *user, *before, *behind, *communicating, *arrived, *flights;
  uint8_t *awaited_begin, *awaited_end, *runs, *until;
  struct set *computing;
  struct moving *moving;
};

static int comes_first(struct event one, struct event other) {
  return one.when < other.when || (one.when == other.when && one.number < other.number);
}

static int64_t push(struct run *run, double when, int64_t what) {
  if (run->pending == run->room) {
    size_t room = 2 * run->room;
    struct event *heap = realloc(run->heap, room * sizeof *heap);
    if (!heap) {
      run->out_of_memory = 1;
      return run->made;
    }
    run->heap = heap, run->room = room;
  }
  struct event made = {when, ++run->made, what};
  size_t at = run->pending++;
  for (; at && comes_first(made, run->heap[(at - 1) / 2]); at = (at - 1) / 2) run->heap[at] = run->heap[(at - 1) / 2];
  run->heap[at] = made;
  return made.number;
}

static struct event pop(struct run *run) {
  struct event *heap = run->heap, first = heap[0], last = heap[--run->pending];
  size_t at = 0, child;
  while ((child = 2 * at + 1) < run->pending) {
    if (child + 1 < run->pending && comes_first(heap[child + 1], heap[child])) ++child;
    if (!comes_first(heap[child], last)) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = last;
  return first;
}

static void add(struct run *run, int32_t at) {
  struct set *set = &run->computing[run->graph->rank[at]];
  if (run->runs[at]) return;
  run->runs[at] = 1;
  run->before[at] = set->last, run->behind[at] = -1;
  if (set->last >= 0) run->behind[set->last] = at;
  else set->first = at;
  set->last = at;
  ++set->size;
}

static void discard(struct run *run, int32_t at) {
  struct set *set = &run->computing[run->graph->rank[at]];
  if (!run->runs[at]) return;
  run->runs[at] = 0;
  int32_t before = run->before[at], behind = run->behind[at];
  if (before >= 0) run->behind[before] = behind;
  else set->first = behind;
  if (behind >= 0) run->before[behind] = before;
  else set->last = before;
  --set->size;
}

static double speed(const struct run *run, int32_t transfer) {
  const struct graph *graph = run->graph;
  int64_t first = graph->member_at[transfer], last = graph->member_at[transfer + 1], busy = 0;
  if (graph->loss != 0)
    for (int64_t at = first; at < last; ++at) busy += run->computing[graph->member_rank[at]].size > 0;
  return 1.0 - graph->loss * (double)busy / (double)(last - first);
}

static void aim_transfer(struct run *run, int32_t transfer, double now) {
  double left = run->transfer_left[transfer] > 0.0 ? run->transfer_left[transfer] : 0.0;
  run->transfer_due[transfer] = push(run, now + left / speed(run, transfer), transfer + 2 * run->graph->activities);
}

static void aim_transfers(struct run *run, int32_t rank, double now) {
  for (int32_t at = 0; at < run->moving[rank].size; ++at) aim_transfer(run, run->moving[rank].transfers[at], now);
}

static void settle_transfers(struct run *run, int32_t rank, double now) {
  for (int32_t at = 0; at < run->moving[rank].size; ++at) {
    int32_t transfer = run->moving[rank].transfers[at];
    run->transfer_left[transfer] -= (now - run->transfer_since[transfer]) * speed(run, transfer);
    run->transfer_since[transfer] = now;
  }
}

static void compute(struct run *run, int32_t at, double begins) {
  add(run, at);
  run->since[at] = begins;
  double pace = run->communicating[run->graph->rank[at]] ? run->graph->slow[at] : 1.0;
  run->due[at] = push(run, begins + run->left[at] / pace, at);
}

static void host(struct run *run, int32_t rank);

static void release(struct run *run, int32_t at) {
  const struct graph *graph = run->graph;
  double begins = run->out->begin[at] = run->free[at] + graph->dispatch[at];
  int32_t rank = graph->rank[at];
  if (graph->kind[at] == COMPUTE && !run->moving[rank].size) compute(run, at, begins);
  else if (graph->kind[at] != OTHER) push(run, begins, at + graph->activities);
  else run->due[at] = push(run, begins + run->left[at], at);
  if (run->until && run->until[at]) run->until[at] = 0, --run->unbegun;
  if (run->awaited_begin[at]) {
    run->awaited_begin[at] = 0;
    host(run, rank);
  }
}

static void over(struct run *run, int32_t at, double when) {
  if (when > run->free[at]) run->free[at] = when;
  if (--run->open[at] == 0) release(run, at);
}

static void host(struct run *run, int32_t rank) {
  const struct graph *graph = run->graph;
  int64_t at = run->position[rank], made = run->made_calls[rank];
  double clock = run->clock[rank];
  for (; at < graph->call_at[rank + 1]; ++at) {
    double begun = clock + graph->think[at];
    int32_t launched = graph->launches[at], awaited = graph->awaits[at];
    if (launched >= 0 && at >= made) {
      made = at + 1; /* a host that waits comes back to the same call */
      run->out->launch[launched] = begun;
      over(run, launched, begun + graph->latency[rank] + graph->late[launched]);
    }
    if (awaited >= 0) {
      double happened = (graph->room[at] ? run->out->begin : run->out->end)[awaited];
      if (happened < 0) {
        (graph->room[at] ? run->awaited_begin : run->awaited_end)[awaited] = 1;
        break;
      }
      double returns = happened + graph->until_after[at];
      clock = returns > begun ? returns : begun;
    } else {
      clock = begun + graph->duration[at];
    }
    run->out->called[at] = begun;
  }
  run->position[rank] = at, run->clock[rank] = clock, run->made_calls[rank] = made;
}

static void stop_computing(struct run *run, int32_t at, double now) {
  int32_t rank = run->graph->rank[at];
  if (run->computing[rank].size == 1) settle_transfers(run, rank, now);
  discard(run, at);
  if (!run->computing[rank].size) aim_transfers(run, rank, now);
}

static void change_communicating(struct run *run, int32_t rank, int32_t by, double now) {
  const double *slow = run->graph->slow;
  int32_t before = run->communicating[rank], after = run->communicating[rank] = before + by;
  if ((before == 0) == (after == 0) || !run->graph->slows) return;
  for (int32_t at = run->computing[rank].first; at >= 0; at = run->behind[at]) {
    double old = before ? slow[at] : 1.0, new = before ? 1.0 : slow[at];
    if (run->since[at] < now) {
      run->left[at] -= (now - run->since[at]) * old;
      run->since[at] = now;
    }
    run->due[at] = push(run, run->since[at] + (run->left[at] > 0.0 ? run->left[at] : 0.0) / new, at);
  }
}

static void notice_begins(struct run *run, int32_t rank, double now) {
  for (int32_t at = run->computing[rank].first, behind; at >= 0; at = behind) {
    behind = run->behind[at];
    if (run->since[at] <= now) continue;
    discard(run, at);
    run->due[at] = 0;
    push(run, run->since[at], at + run->graph->activities);
  }
}

static void arrive(struct run *run, int32_t transfer, double now) {
  const struct graph *graph = run->graph;
  int64_t first = graph->member_at[transfer], last = graph->member_at[transfer + 1];
  if (++run->arrived[transfer] < last - first) return;
  if (graph->loss != 0)
    for (int64_t at = first; at < last; ++at) {
      struct moving *moving = &run->moving[graph->member_rank[at]];
      notice_begins(run, graph->member_rank[at], now);
      moving->transfers[moving->size++] = transfer;
    }
  run->transfer_since[transfer] = now;
  aim_transfer(run, transfer, now);
}

static void begin(struct run *run, int32_t at, double now) {
  const struct graph *graph = run->graph;
  int32_t rank = graph->rank[at];
  if (graph->kind[at] == COMMUNICATION) {
    change_communicating(run, rank, 1, now);
    if (graph->collective[at] < 0) run->due[at] = push(run, now + run->left[at], at);
    else arrive(run, graph->collective[at], now);
    return;
  }
  int first = run->moving[rank].size && !run->computing[rank].size;
  if (first) settle_transfers(run, rank, now);
  compute(run, at, now);
  if (first) aim_transfers(run, rank, now);
}

static void end(struct run *run, int32_t at, double now) {
  const struct graph *graph = run->graph;
  int32_t rank = graph->rank[at];
  run->out->end[at] = now;
  if (graph->kind[at] == COMPUTE) {
    if (run->moving[rank].size) stop_computing(run, at, now);
    else discard(run, at);
  } else if (graph->kind[at] == COMMUNICATION) {
    change_communicating(run, rank, -1, now);
  }
  if (run->next[at] >= 0) over(run, run->next[at], now);
  for (int64_t user = run->user_at[at]; user < run->user_at[at + 1]; ++user) over(run, run->user[user], now);
  if (run->awaited_end[at]) {
    run->awaited_end[at] = 0;
    host(run, rank);
  }
}

static void transferred(struct run *run, int32_t transfer, double now) {
  const struct graph *graph = run->graph;
  for (int64_t at = graph->member_at[transfer]; at < graph->member_at[transfer + 1]; ++at) {
    struct moving *moving = &run->moving[graph->member_rank[at]];
    int32_t kept = 0;
    for (int32_t place = 0; place < moving->size; ++place)
      if (moving->transfers[place] != transfer) moving->transfers[kept++] = moving->transfers[place];
    moving->size = kept;
    run->due[graph->member[at]] = push(run, now + graph->skew[at], graph->member[at]);
  }
}

/* Count what each activity waits for; those that wait for nothing may begin. */
static void link(struct run *run) {
  const struct graph *graph = run->graph;
  for (int64_t call = 0; call < graph->call_at[graph->ranks]; ++call)
    if (graph->launches[call] >= 0) run->open[graph->launches[call]] = 1;
  for (int64_t stream = 0; stream < graph->streams; ++stream)
    for (int64_t at = graph->stream_at[stream] + 1; at < graph->stream_at[stream + 1]; ++at) {
      run->next[graph->stream[at - 1]] = graph->stream[at];
      ++run->open[graph->stream[at]];
    }
  for (int64_t pair = 0; pair < graph->pairs; ++pair) {
    ++run->open[graph->waiting[pair]];
    ++run->user_at[graph->awaited[pair] + 1];
  }
  for (int64_t at = 0; at < graph->activities; ++at) run->user_at[at + 1] += run->user_at[at];
  for (int64_t pair = graph->pairs; pair--;) { /* backwards, so that they come out as they stand */
    int32_t awaited = graph->awaited[pair];
    run->user[run->user_at[awaited + 1] - ++run->before[awaited]] = graph->waiting[pair];
  }
  for (int64_t place = 0; place < graph->stream_at[graph->streams]; ++place)
    if (run->open[graph->stream[place]] == 0) release(run, graph->stream[place]);
}

static int go(struct run *run) {
  const struct graph *graph = run->graph;
  link(run);
  for (int32_t rank = 0; rank < graph->ranks; ++rank) host(run, rank);
  while (run->pending && run->unbegun && !run->out_of_memory) {
    struct event now = pop(run);
    if (now.what < graph->activities) {
      if (now.number == run->due[now.what]) end(run, (int32_t)now.what, now.when);
    } else if (now.what < 2 * graph->activities) {
      begin(run, (int32_t)(now.what - graph->activities), now.when);
    } else {
      int32_t transfer = (int32_t)(now.what - 2 * graph->activities);
      if (now.number == run->transfer_due[transfer]) transferred(run, transfer, now.when);
    }
  }
  return run->out_of_memory ? NO_MEMORY : run->unbegun ? STUCK : DONE;
}

/* One block of memory, of which each array is a part: all zero. */
struct block {
  char *memory;
  size_t used;
};

static void *part(struct block *block, size_t count, size_t size) {
  void *found = block->memory ? block->memory + block->used : NULL;
  block->used += (count * size + 15) / 16 * 16;
  return found;
}

static void lay_out(struct run *run, struct block *block) {
  const struct graph *graph = run->graph;
  size_t count = (size_t)graph->activities, ranks = (size_t)graph->ranks, transfers = (size_t)graph->transfers;
  size_t members = (size_t)graph->member_at[transfers];
#define PART(name, many) run->name = part(block, many, sizeof *run->name)
  PART(free, count), PART(left, count), PART(since, count), PART(due, count), PART(user_at, count + 1);
  PART(open, count), PART(next, count), PART(before, count), PART(behind, count), PART(user, (size_t)graph->pairs);
  PART(awaited_begin, count), PART(awaited_end, count), PART(runs, count), PART(until, count);
  PART(transfer_left, transfers), PART(transfer_since, transfers), PART(transfer_due, transfers);
  PART(arrived, transfers), PART(flights, members);
  PART(clock, ranks), PART(position, ranks), PART(made_calls, ranks), PART(communicating, ranks);
  PART(computing, ranks), PART(moving, ranks);
#undef PART
}

static void start(struct run *run) {
  const struct graph *graph = run->graph;
  size_t count = (size_t)graph->activities, transfers = (size_t)graph->transfers;
  memcpy(run->free, graph->not_before, count * sizeof *run->free);
  memcpy(run->left, graph->work, count * sizeof *run->left);
  memcpy(run->transfer_left, graph->transfer_work, transfers * sizeof *run->transfer_left);
  memcpy(run->clock, graph->host_begins, (size_t)graph->ranks * sizeof *run->clock);
  for (size_t at = 0; at < count; ++at) {
    run->next[at] = -1;
    run->out->begin[at] = run->out->end[at] = run->out->launch[at] = -1.0;
  }
  for (int64_t call = 0; call < graph->call_at[graph->ranks]; ++call) run->out->called[call] = NAN;
  run->unbegun = -1; /* all run */
  if (graph->until) {
    memcpy(run->until, graph->until, count);
    run->unbegun = 0;
    for (size_t at = 0; at < count; ++at) run->unbegun += graph->until[at];
  } else {
    run->until = NULL;
  }
  int32_t *flights = run->flights;
  for (int32_t rank = 0; rank < graph->ranks; ++rank) {
    run->position[rank] = run->made_calls[rank] = graph->call_at[rank];
    run->computing[rank] = (struct set){-1, -1, 0};
    run->moving[rank].transfers = flights;
    for (int64_t at = 0; at < graph->member_at[transfers]; ++at) flights += graph->member_rank[at] == rank;
  }
}

/* Which layout and meaning of `struct graph` this was compiled for, as compiled.py has it: an older file, which an
   update of a checkout leaves where it lay, must not be given today's graphs. */
int scalescope_replay_layout(void) { return VERSION * 1000 + (int)sizeof(struct graph); }

/* Run a graph; return how it came out. What is not known of a time is -1, of a call NAN. */
int scalescope_replay(const struct graph *graph, struct timing *out) {
  struct run run = {.graph = graph, .out = out, .room = 1024};
  struct block block = {NULL, 0};
  lay_out(&run, &block);
  block.memory = calloc(1, block.used + 16);
  run.heap = malloc(run.room * sizeof *run.heap);
  int outcome = NO_MEMORY;
  if (block.memory && run.heap) {
    block.used = 0;
    lay_out(&run, &block);
    start(&run);
    outcome = go(&run);
  }
  free(run.heap);
  free(block.memory);
  return outcome;
}
