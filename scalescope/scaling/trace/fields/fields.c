/* The fields of a trace's events, from the text of a JSON array of them: a row an event, a column a field.

   This reads what profilers write, and leaves everything else: at the first thing that is not plainly what is expected
   here (an escape in a key, a number of 19 digits, a time of more than three decimals, an argument of another type)
   it gives up, and Python decodes the whole text (fields.py), which says what it means. So whatever is accepted here
   must be accepted there, to the same values; what is refused here may be anything.

   Text ends in a NUL, which nothing here passes: every loop stops at a character that it does not take. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 2    /* to be raised with compiled.py's, where what this file does changes */
#define DEEPEST 32   /* brackets within brackets */
#define PROBES 64    /* slots looked at for a string; a text that is made to collide is left to Python */
#define FARTHEST_US 4000000000000000 /* beyond lies no event's time: see tables.py */
#define LONGEST_US 1000000000000

/* The columns, in the order of compiled.py. BEGIN and END are where in the text the event stands; PHASE, CATEGORY,
   NAME and THREAD_WORD (a thread that has a word for a number) are numbers of strings, -1 where there is none; times
   are ns; numbers that are not given are -1, but THREAD, START and DURATION 0. TALKS: it names a collective. What
   others are made of comes last: torch 1.8 gave EXTERNAL as EXTERNAL_OLD. DIMS and TYPES are where the arguments'
   shapes and types stand, to DIMS_END and TYPES_END. */
enum column {
  BEGIN, END, PHASE, CATEGORY, NAME, THREAD, THREAD_WORD, START, STOP, EXTERNAL, CORRELATION, STREAM, DEVICE, BLOCKS,
  TALKS, DIMS, DIMS_END, TYPES, TYPES_END, COLUMNS, DURATION = COLUMNS, EXTERNAL_OLD, CELLS
};

struct fields {
  int64_t rows_room, strings_room; /* how many fit */
  int64_t *columns;                /* [COLUMNS][rows_room] */
  int64_t *strings;                /* [2][strings_room]: where each begins and ends in the text, quotes included */
  int64_t rows, strings_found;     /* a row for each span and each piece of metadata; none for other events */
  int64_t events;                  /* of every kind */
  int64_t farthest;                /* of their times, in ns from 0, either way */
};

struct reader {
  const char *text;
  struct fields *out;
  int32_t *slots; /* a hash table of strings, -1 where one is free */
  uint64_t mask;
  int64_t cells[CELLS]; /* of the event that is read */
};

/* What takes a part of the text is given where it begins, and returns where what follows begins: NULL refuses it. (A
   place kept in the reader would be written at each sign: signs may be anything, and so may be the place.) */
typedef const char *place;

#define MUST(taken) \
  if (!(taken)) return NULL

static inline place skip_space(place at) {
  if (*at > ' ') return at;
  while (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r') ++at;
  return at;
}

/* Take a sign, and the space behind it. */
static inline place take(place at, char sign) {
  MUST(*at == sign);
  return skip_space(at + 1);
}

static inline int is_digit(char sign) { return sign >= '0' && sign <= '9'; }

static int is_hex(char sign) {
  return is_digit(sign) || (sign >= 'a' && sign <= 'f') || (sign >= 'A' && sign <= 'F');
}

/* Skip what a string holds without a look: all but its end, escapes, control characters and, of a plain one, what is
   not ASCII. (Eight signs at once take longer: most strings are shorter.) */
static inline place skip_plainly(place at, int plain) {
  while (*at != '"' && *at != '\\' && (unsigned char)*at >= 0x20 && !(plain && (unsigned char)*at >= 0x80)) ++at;
  return at;
}

static place skip_escape(place at) {
  ++at;
  if (*at == 'u') {
    /* halves of surrogates stand first or second, and must fit: left to Python */
    MUST(is_hex(at[1]) && at[1] != 'd' && at[1] != 'D');
    MUST(is_hex(at[2]) && is_hex(at[3]) && is_hex(at[4]));
    return at + 5;
  }
  MUST(*at && strchr("\"\\/bfnrt", *at));
  return at + 1;
}

static inline place skip_string(place at) {
  MUST(*at == '"');
  ++at;
  while (*(at = skip_plainly(at, 0)) != '"') MUST(*at == '\\' && (at = skip_escape(at)));
  return at + 1;
}

/* A string of ASCII without escapes: what it says is what stands there, from `at` + 1 on. */
static inline place skip_ascii(place at) {
  MUST(*at == '"');
  at = skip_plainly(at + 1, 1);
  MUST(*at == '"');
  return at + 1;
}

/* A key, its colon, and the space around it. */
static inline place take_key(place at, place *key, int64_t *length) {
  *key = at + 1;
  MUST(at = skip_ascii(at));
  *length = at - 1 - *key;
  return take(skip_space(at), ':');
}

static inline place skip_digits(place at) {
  MUST(is_digit(*at));
  while (is_digit(*at)) ++at;
  return at;
}

static inline place skip_number(place at) {
  if (*at == '-') ++at;
  if (*at == '0')
    ++at;
  else
    MUST(at = skip_digits(at));
  if (*at == '.') MUST(at = skip_digits(at + 1));
  if (*at == 'e' || *at == 'E') {
    ++at;
    if (*at == '+' || *at == '-') ++at;
    MUST(at = skip_digits(at));
  }
  return at;
}

static place skip_word(place at, const char *word) {
  size_t length = strlen(word);
  MUST(strncmp(at, word, length) == 0);
  return at + length;
}

static place skip_value(place at, int depth);

static place skip_list(place at, int depth) {
  MUST(depth < DEEPEST && (at = take(at, '[')));
  if (*at != ']')
    for (;;) {
      MUST(at = skip_value(at, depth + 1));
      at = skip_space(at);
      if (*at == ']') break;
      MUST(at = take(at, ','));
    }
  return at + 1;
}

static place skip_object(place at, int depth) {
  MUST(depth < DEEPEST && (at = take(at, '{')));
  if (*at != '}')
    for (;;) {
      MUST((at = skip_string(at)) && (at = take(skip_space(at), ':')));
      MUST(at = skip_value(at, depth + 1));
      at = skip_space(at);
      if (*at == '}') break;
      MUST(at = take(at, ','));
    }
  return at + 1;
}

static place skip_value(place at, int depth) {
  if (*at == '"') return skip_string(at);
  if (*at == '[') return skip_list(at, depth);
  switch (*at) {
    case '{': return skip_object(at, depth);
    case 't': return skip_word(at, "true");
    case 'f': return skip_word(at, "false");
    case 'n': return skip_word(at, "null");
    default: return skip_number(at);
  }
}

/* Digits, no more than fit into 64 bits and none in front that says nothing; `most` of them. */
static inline place take_digits(place at, int most, int64_t *value) {
  place begin = at;
  int64_t found = 0;
  while (is_digit(*at) && at - begin < most) found = 10 * found + (*at++ - '0');
  MUST(at > begin && !is_digit(*at) && (*begin != '0' || at == begin + 1));
  *value = found;
  return at;
}

static inline place take_integer(place at, int64_t *value) {
  int negative = *at == '-';
  MUST(at = take_digits(at + negative, 18, value));
  if (negative) *value = -*value;
  return at;
}

/* A time in us of no more than three decimals, its whole part below `most` us, as ns. */
static inline place take_time(place at, int64_t most, int64_t *ns) {
  int negative = *at == '-';
  int64_t found;
  MUST((at = take_digits(at + negative, 16, &found)) && found < most);
  int64_t unit = 1000;
  found *= unit;
  if (*at == '.') {
    ++at;
    MUST(is_digit(*at));
    for (; is_digit(*at); ++at) {
      unit /= 10;
      MUST(unit);
      found += unit * (*at - '0');
    }
  }
  *ns = negative ? -found : found;
  return at;
}

/* The product of a list of numbers that are not negative, 0 of none; -1 is what Python makes of one beyond 64 bits. */
static place take_product(place at, int64_t *product) {
  MUST(at = take(at, '['));
  *product = *at == ']' ? 0 : 1;
  if (*at != ']')
    for (;;) {
      int64_t one;
      MUST((at = take_integer(at, &one)) && one >= 0 && one < ((int64_t)1 << 31) && *product < ((int64_t)1 << 31));
      *product *= one;
      at = skip_space(at);
      if (*at == ']') break;
      MUST(at = take(at, ','));
    }
  return at + 1;
}

static inline uint64_t hash_of(place begin, int64_t length) {
  uint64_t found = (uint64_t)length;
  for (; length >= 8; begin += 8, length -= 8) {
    uint64_t word;
    memcpy(&word, begin, 8);
    found = (found ^ word) * 0x9E3779B97F4A7C15u;
    found ^= found >> 29;
  }
  for (; length; ++begin, --length) found = (found ^ (unsigned char)*begin) * 0x9E3779B97F4A7C15u;
  return found ^ found >> 32;
}

/* A string, by its number among those found so far. Spelt in two ways it has two; Python tells that they are one. */
static place take_string(struct reader *reader, place begin, int64_t *number) {
  place at;
  MUST(at = skip_string(begin));
  int64_t length = at - begin;
  struct fields *out = reader->out;
  int64_t *begins = out->strings, *ends = out->strings + out->strings_room;
  uint64_t slot = hash_of(begin, length);
  for (int tried = 0; tried < PROBES; ++tried, ++slot) {
    int32_t *held = &reader->slots[slot & reader->mask];
    if (*held < 0) {
      MUST(out->strings_found < out->strings_room);
      *held = (int32_t)out->strings_found++;
      begins[*held] = begin - reader->text;
      ends[*held] = at - reader->text;
    }
    place known = reader->text + begins[*held];
    if (ends[*held] - begins[*held] == length && memcmp(known, begin, (size_t)length) == 0) {
      *number = *held;
      return at;
    }
  }
  return NULL;
}

/* A word or null, which Python makes a string or None; `*is_word` tells which. */
static place skip_word_or_null(place at, int64_t *is_word) {
  *is_word = *at == '"';
  return *is_word ? skip_ascii(at) : skip_word(at, "null");
}

#define IS(word) (length == sizeof(word) - 1 && memcmp(key, word, sizeof(word) - 1) == 0)

/* Any value, and where it stands: its begin in a cell and its end in the next. */
static inline place skip_and_note(const struct reader *reader, place begin, int64_t *cells) {
  place at;
  MUST(at = skip_value(begin, 0));
  cells[0] = begin - reader->text;
  cells[1] = at - reader->text;
  return at;
}

/* The value of one argument. Those that Python decodes as a type of their own are of that type here, too. */
static inline place take_argument(struct reader *reader, place at, place key, int64_t length) {
  int64_t ignored, *cells = reader->cells;
  switch (length) {
    case 3: case 4:
      if (IS("Seq")) return take_integer(at, &ignored);
      if (IS("grid")) return take_product(at, cells + BLOCKS);
      if (IS("Rank")) return take_integer(at, &ignored);
      if (IS("name"))
        return *at == '"' || *at == 'n' ? skip_word_or_null(at, &ignored) : take_integer(at, &ignored);
      break;
    case 5: case 6:
      if (IS("bytes")) return take_integer(at, &ignored);
      if (IS("dtype")) return skip_word_or_null(at, &ignored);
      if (IS("stream")) return take_integer(at, cells + STREAM);
      if (IS("device")) return take_integer(at, cells + DEVICE);
      break;
    case 10:
      if (IS("Group size")) return take_integer(at, &ignored);
      if (IS("Input Dims") || IS("Input type")) return skip_and_note(reader, at, cells + (key[6] == 'D' ? DIMS : TYPES));
      break;
    case 11:
      if (IS("External id")) return take_integer(at, cells + EXTERNAL);
      if (IS("external id")) return take_integer(at, cells + EXTERNAL_OLD);
      if (IS("correlation")) return take_integer(at, cells + CORRELATION);
      if (IS("In msg size")) return take_integer(at, &ignored);
      break;
    case 8: case 12: case 13: case 14:
      if (IS("Src Rank") || IS("Dst Rank")) return take_integer(at, &ignored);
      if (IS("Out msg size") || IS("In msg nelems") || IS("Out msg nelems")) return take_integer(at, &ignored);
      break;
    case 15:
      if (IS("Collective name")) return skip_word_or_null(at, cells + TALKS);
      break;
    case 18: case 19: case 25:
      if (IS("Process Group Name") || IS("Process Group Ranks") || IS("Process Group Description"))
        return skip_word_or_null(at, &ignored);
      break;
  }
  return skip_value(at, 0);
}

static place take_arguments(struct reader *reader, place at) {
  MUST(at = take(at, '{'));
  if (*at != '}')
    for (;;) {
      place key;
      int64_t length;
      MUST(at = take_key(at, &key, &length));
      MUST(at = take_argument(reader, at, key, length));
      at = skip_space(at);
      if (*at == '}') break;
      MUST(at = take(at, ','));
    }
  return at + 1;
}

struct seen { int arguments, time, complete, kept; }; /* of the event that is read */

static inline place take_field(struct reader *reader, struct seen *seen, place at, place key, int64_t length) {
  int64_t ignored, *cells = reader->cells;
  if (IS("ph")) {
    place begin = at;
    MUST((at = take_string(reader, at, cells + PHASE)) && at - begin == 3); /* a letter */
    seen->complete = begin[1] == 'X';
    seen->kept = seen->complete || begin[1] == 'M';
    return at;
  }
  if (IS("cat")) return take_string(reader, at, cells + CATEGORY);
  if (IS("name")) return take_string(reader, at, cells + NAME);
  if (IS("pid")) return *at == '"' ? skip_word_or_null(at, &ignored) : take_integer(at, &ignored);
  if (IS("tid")) {
    int is_word = *at == '"';
    cells[is_word ? THREAD : THREAD_WORD] = is_word ? 0 : -1; /* given twice, the last counts */
    return is_word ? take_string(reader, at, cells + THREAD_WORD) : take_integer(at, cells + THREAD);
  }
  if (IS("ts")) {
    seen->time = 1;
    return take_time(at, FARTHEST_US, cells + START);
  }
  if (IS("dur")) return *at != '-' ? take_time(at, LONGEST_US, cells + DURATION) : NULL;
  if (IS("args")) {
    MUST(!seen->arguments); /* given twice, the second takes the place of all of the first */
    seen->arguments = 1;
    return take_arguments(reader, at);
  }
  return skip_value(at, 0);
}

static place take_event(struct reader *reader, place at) {
  struct fields *out = reader->out;
  MUST(out->events < out->rows_room);
  struct seen seen = {0, 0, 0, 0};
  int64_t *cells = reader->cells;
  for (int cell = 0; cell < CELLS; ++cell) cells[cell] = -1;
  cells[BEGIN] = at - reader->text;
  cells[THREAD] = cells[START] = cells[DURATION] = cells[BLOCKS] = cells[TALKS] = 0;
  MUST(at = take(at, '{'));
  if (*at != '}')
    for (;;) {
      place key;
      int64_t length;
      MUST(at = take_key(at, &key, &length));
      MUST(at = take_field(reader, &seen, at, key, length));
      at = skip_space(at);
      if (*at == '}') break;
      MUST(at = take(at, ','));
    }
  MUST(seen.time || !seen.complete);
  cells[END] = ++at - reader->text;
  int64_t far = cells[START] < 0 ? -cells[START] : cells[START];
  if (far > out->farthest) out->farthest = far;
  ++out->events;
  if (seen.kept) {
    cells[STOP] = cells[START] + cells[DURATION];
    if (cells[EXTERNAL] < 0) cells[EXTERNAL] = cells[EXTERNAL_OLD] < 0 ? -1 : cells[EXTERNAL_OLD];
    for (int column = 0; column < COLUMNS; ++column) out->columns[column * out->rows_room + out->rows] = cells[column];
    ++out->rows;
  }
  return at;
}

static place take_array(struct reader *reader, place at) {
  MUST(at = take(skip_space(at), '['));
  if (*at != ']')
    for (;;) {
      MUST(at = take_event(reader, at));
      at = skip_space(at);
      if (*at == ']') break;
      MUST(at = take(at, ','));
    }
  return skip_space(at + 1);
}

/* Which layout and meaning of `struct fields` this was compiled for: see events.c of the replay. */
int scalescope_fields_layout(void) { return VERSION * 1000 + (int)sizeof(struct fields) + COLUMNS; }

/* Read the text of `length` characters and a NUL; return whether it was read. */
int scalescope_fields(const char *text, int64_t length, struct fields *out) {
  uint64_t slots = 64;
  while (slots < 2 * (uint64_t)out->strings_room) slots *= 2;
  struct reader reader = {.text = text, .out = out, .mask = slots - 1};
  reader.slots = malloc(slots * sizeof *reader.slots);
  out->rows = out->strings_found = out->events = out->farthest = 0;
  if (!reader.slots) return 0;
  memset(reader.slots, 0xFF, slots * sizeof *reader.slots);
  int whole = take_array(&reader, text) == text + length;
  free(reader.slots);
  return whole;
}
