/* A collective library's operations in a row, called without Python in between.

   Every function called here takes pointers, sizes and ints, and returns an int. On the machines that have such a
   library (Linux on x86-64 and aarch64) each of those arguments fills one register or one stack slot of a word, and
   words beyond the last one that a function looks at do no harm. So one type of function serves them all. */

#include <stddef.h>
#include <stdint.h>

#define WORDS 8 /* ncclReduce takes the most arguments */

typedef intptr_t word;

struct call {
  int (*function)(word, word, word, word, word, word, word, word);
  word arguments[WORDS];
  size_t stream_at; /* the argument that is the stream: a graph's capture gives another one */
};

struct operations {
  struct call *calls; /* calls_each of the first slot, then of the next */
  size_t slots, calls_each;
  int (*group_start)(void), (*group_end)(void); /* both NULL where an operation is one call by itself */
};

static int make(struct call *call, word stream) {
  word *a = call->arguments;
  a[call->stream_at] = stream;
  return call->function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]);
}

static int run(const struct operations *operations, struct call *calls, word stream) {
  int result = operations->group_start ? operations->group_start() : 0;
  if (result) return result;
  for (size_t index = 0; index < operations->calls_each && !result; ++index) result = make(&calls[index], stream);
  if (operations->group_end) { /* also after a failure: the thread would stay inside the group */
    int ended = operations->group_end();
    if (!result) result = ended;
  }
  return result;
}

/* Run `count` operations, from slot `first` on and round the slots. Returns the first result that is not 0, with
   which it stops; else 0. */
int issue(const struct operations *operations, size_t first, size_t count, word stream) {
  for (size_t slot = first % operations->slots; count; --count) {
    int result = run(operations, operations->calls + slot * operations->calls_each, stream);
    if (result) return result;
    if (++slot == operations->slots) slot = 0;
  }
  return 0;
}
