/* The fields of a trace's events, from the text of a JSON array of them: a row an event, a column a field.

   This reads what profilers write, and leaves everything else: at the first thing that is not plainly what is expected
   here (an escape in a key, a number of 19 digits, a time of more than three decimals, an argument of another type)
   it gives up, and Python decodes the whole text (fields.py), which says what it means. So whatever is accepted here
   must be accepted there, to the same values; what is refused here may be anything.

   Text ends in a NUL, which nothing here passes: every loop stops at a character that it does not take. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 1    /* to be raised with compiled.py's, where what this file does changes */
#define DEEPEST 32   /* brackets within brackets */
#define PROBES 64    /* slots looked at for a string; a text that is made to collide is left to Python */
#define FARTHEST_US 4000000000000000 /* beyond lies no event's time: see tables.py */
#define LONGEST_US 1000000000000

/* The columns, in the order of compiled.py. BEGIN and END are where in the text the event stands; PHASE, CATEGORY,
   NAME and THREAD_WORD (a thread that has a word for a number) are numbers of strings, -1 where there is none; times
   are ns; numbers that are not given are -1, but THREAD, START and DURATION 0. TALKS: it names a collective. */
enum column {
  BEGIN, END, PHASE, CATEGORY, NAME, THREAD, THREAD_WORD, START, DURATION, EXTERNAL, EXTERNAL_OLD, CORRELATION, STREAM,
  DEVICE, BLOCKS, TALKS, COLUMNS
};

struct fields {
  int64_t rows_room, strings_room; /* how many fit */
  int64_t *columns;                /* [COLUMNS][rows_room] */
  int64_t *strings;                /* [2][strings_room]: where each begins and ends in the text, quotes included */
  int64_t rows, strings_found;
};

struct reader {
  const char *text, *at;
  struct fields *out;
  int32_t *slots; /* a hash table of strings, -1 where one is free */
  uint64_t mask;
  int64_t row;
};

#define MUST(taken) \
  if (!(taken)) return 0

static int64_t *cell(struct reader *reader, enum column column) {
  return reader->out->columns + column * reader->out->rows_room + reader->row;
}

static void skip_space(struct reader *reader) {
  while (*reader->at == ' ' || *reader->at == '\n' || *reader->at == '\t' || *reader->at == '\r') ++reader->at;
}

/* Take a sign, and the space behind it. */
static int take(struct reader *reader, char sign) {
  MUST(*reader->at == sign);
  ++reader->at;
  skip_space(reader);
  return 1;
}

static int is_digit(char sign) { return sign >= '0' && sign <= '9'; }

static int is_hex(char sign) {
  return is_digit(sign) || (sign >= 'a' && sign <= 'f') || (sign >= 'A' && sign <= 'F');
}

/* Take what ends a value: nothing else may follow it. */
static int ends_value(struct reader *reader) {
  skip_space(reader);
  return *reader->at == ',' || *reader->at == '}' || *reader->at == ']';
}

/* What a string may need: 0 nothing, else a look. */
static int needs_look(char sign) { return sign == '"' || sign == '\\' || (unsigned char)sign < 0x20; }

static int skip_escape(struct reader *reader) {
  ++reader->at;
  if (*reader->at == 'u') {
    /* halves of surrogates stand first or second, and must fit: left to Python */
    MUST(is_hex(reader->at[1]) && reader->at[1] != 'd' && reader->at[1] != 'D');
    MUST(is_hex(reader->at[2]) && is_hex(reader->at[3]) && is_hex(reader->at[4]));
    reader->at += 5;
    return 1;
  }
  MUST(*reader->at && strchr("\"\\/bfnrt", *reader->at));
  ++reader->at;
  return 1;
}

static int skip_string(struct reader *reader) {
  MUST(*reader->at == '"');
  ++reader->at;
  for (;;) {
    while (!needs_look(*reader->at)) ++reader->at;
    if (*reader->at == '"') break;
    MUST(*reader->at == '\\' && skip_escape(reader));
  }
  ++reader->at;
  return 1;
}

/* A string of ASCII without escapes: what it says is what stands there. */
static int take_plain(struct reader *reader, const char **begin, int64_t *length) {
  MUST(*reader->at == '"');
  *begin = ++reader->at;
  while (!needs_look(*reader->at) && (unsigned char)*reader->at < 0x80) ++reader->at;
  MUST(*reader->at == '"');
  *length = reader->at++ - *begin;
  return 1;
}

/* A key, its colon, and the space around it. */
static int take_key(struct reader *reader, const char **begin, int64_t *length) {
  MUST(take_plain(reader, begin, length));
  skip_space(reader);
  return take(reader, ':');
}

static int skip_number(struct reader *reader) {
  if (*reader->at == '-') ++reader->at;
  MUST(is_digit(*reader->at));
  if (*reader->at++ != '0')
    while (is_digit(*reader->at)) ++reader->at;
  if (*reader->at == '.') {
    ++reader->at;
    MUST(is_digit(*reader->at));
    while (is_digit(*reader->at)) ++reader->at;
  }
  if (*reader->at == 'e' || *reader->at == 'E') {
    ++reader->at;
    if (*reader->at == '+' || *reader->at == '-') ++reader->at;
    MUST(is_digit(*reader->at));
    while (is_digit(*reader->at)) ++reader->at;
  }
  return 1;
}

static int skip_word(struct reader *reader, const char *word) {
  size_t length = strlen(word);
  MUST(strncmp(reader->at, word, length) == 0);
  reader->at += length;
  return 1;
}

static int skip_value(struct reader *reader, int depth);

static int skip_list(struct reader *reader, int depth) {
  MUST(depth < DEEPEST && take(reader, '['));
  if (*reader->at != ']')
    for (;;) {
      MUST(skip_value(reader, depth + 1) && ends_value(reader));
      if (*reader->at == ']') break;
      MUST(take(reader, ','));
    }
  ++reader->at;
  return 1;
}

static int skip_object(struct reader *reader, int depth) {
  MUST(depth < DEEPEST && take(reader, '{'));
  if (*reader->at != '}')
    for (;;) {
      MUST(skip_string(reader));
      skip_space(reader);
      MUST(take(reader, ':') && skip_value(reader, depth + 1) && ends_value(reader));
      if (*reader->at == '}') break;
      MUST(take(reader, ','));
    }
  ++reader->at;
  return 1;
}

static int skip_value(struct reader *reader, int depth) {
  switch (*reader->at) {
    case '"': return skip_string(reader);
    case '[': return skip_list(reader, depth);
    case '{': return skip_object(reader, depth);
    case 't': return skip_word(reader, "true");
    case 'f': return skip_word(reader, "false");
    case 'n': return skip_word(reader, "null");
    default: return skip_number(reader);
  }
}

/* Digits, no more than fit into 64 bits and none in front that says nothing; `most` of them. */
static int take_digits(struct reader *reader, int most, int64_t *value) {
  const char *begin = reader->at;
  int64_t found = 0;
  while (is_digit(*reader->at) && reader->at - begin < most) found = 10 * found + (*reader->at++ - '0');
  MUST(reader->at > begin && !is_digit(*reader->at) && (*begin != '0' || reader->at == begin + 1));
  *value = found;
  return 1;
}

static int take_integer(struct reader *reader, int64_t *value) {
  int negative = *reader->at == '-';
  reader->at += negative;
  MUST(take_digits(reader, 18, value) && ends_value(reader));
  if (negative) *value = -*value;
  return 1;
}

/* A time in us of no more than three decimals, its whole part below `most` us, as ns. */
static int take_time(struct reader *reader, int64_t most, int64_t *ns) {
  int negative = *reader->at == '-';
  reader->at += negative;
  MUST(take_digits(reader, 16, ns) && *ns < most);
  int64_t unit = 1000;
  *ns *= unit;
  if (*reader->at == '.') {
    ++reader->at;
    MUST(is_digit(*reader->at));
    for (; is_digit(*reader->at); ++reader->at) {
      unit /= 10;
      MUST(unit);
      *ns += unit * (*reader->at - '0');
    }
  }
  if (negative) *ns = -*ns;
  return ends_value(reader);
}

/* The product of a list of numbers that are not negative, 0 of none; -1 is what Python makes of one beyond 64 bits. */
static int take_product(struct reader *reader, int64_t *product) {
  MUST(take(reader, '['));
  *product = *reader->at == ']' ? 0 : 1;
  if (*reader->at != ']')
    for (;;) {
      int64_t one;
      MUST(take_integer(reader, &one) && one >= 0 && one < ((int64_t)1 << 31) && *product < ((int64_t)1 << 31));
      *product *= one;
      if (*reader->at == ']') break;
      MUST(take(reader, ','));
    }
  ++reader->at;
  return 1;
}

static uint64_t hash_of(const char *begin, int64_t length) {
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
static int take_string(struct reader *reader, int64_t *number) {
  const char *begin = reader->at;
  MUST(skip_string(reader));
  int64_t length = reader->at - begin;
  struct fields *out = reader->out;
  int64_t *begins = out->strings, *ends = out->strings + out->strings_room;
  uint64_t slot = hash_of(begin, length);
  for (int tried = 0; tried < PROBES; ++tried, ++slot) {
    int32_t *held = &reader->slots[slot & reader->mask];
    if (*held < 0) {
      MUST(out->strings_found < out->strings_room);
      *held = (int32_t)out->strings_found++;
      begins[*held] = begin - reader->text;
      ends[*held] = reader->at - reader->text;
    }
    const char *known = reader->text + begins[*held];
    if (ends[*held] - begins[*held] == length && memcmp(known, begin, (size_t)length) == 0) {
      *number = *held;
      return 1;
    }
  }
  return 0;
}

/* A word or null, which Python makes a string or None; `*is_word` tells which. */
static int skip_word_or_null(struct reader *reader, int64_t *is_word) {
  const char *begin;
  int64_t length;
  *is_word = *reader->at == '"';
  return *is_word ? take_plain(reader, &begin, &length) : skip_word(reader, "null");
}

#define IS(word) (length == sizeof(word) - 1 && memcmp(key, word, sizeof(word) - 1) == 0)

/* The value of one argument. Those that Python decodes as a type of their own are of that type here, too. */
static int take_argument(struct reader *reader, const char *key, int64_t length) {
  int64_t ignored;
  switch (length) {
    case 3:
      if (IS("Seq")) return take_integer(reader, &ignored);
      break;
    case 4:
      if (IS("grid")) return take_product(reader, cell(reader, BLOCKS));
      if (IS("Rank")) return take_integer(reader, &ignored);
      if (IS("name")) return *reader->at == '"' || *reader->at == 'n' ? skip_word_or_null(reader, &ignored)
                                                                    : take_integer(reader, &ignored);
      break;
    case 5:
      if (IS("bytes")) return take_integer(reader, &ignored);
      if (IS("dtype")) return skip_word_or_null(reader, &ignored);
      break;
    case 6:
      if (IS("stream")) return take_integer(reader, cell(reader, STREAM));
      if (IS("device")) return take_integer(reader, cell(reader, DEVICE));
      break;
    case 8:
      if (IS("Src Rank") || IS("Dst Rank")) return take_integer(reader, &ignored);
      break;
    case 10:
      if (IS("Group size")) return take_integer(reader, &ignored);
      break;
    case 11:
      if (IS("External id")) return take_integer(reader, cell(reader, EXTERNAL));
      if (IS("external id")) return take_integer(reader, cell(reader, EXTERNAL_OLD));
      if (IS("correlation")) return take_integer(reader, cell(reader, CORRELATION));
      if (IS("In msg size")) return take_integer(reader, &ignored);
      break;
    case 12:
      if (IS("Out msg size")) return take_integer(reader, &ignored);
      break;
    case 13:
      if (IS("In msg nelems")) return take_integer(reader, &ignored);
      break;
    case 14:
      if (IS("Out msg nelems")) return take_integer(reader, &ignored);
      break;
    case 15:
      if (IS("Collective name")) return skip_word_or_null(reader, cell(reader, TALKS));
      break;
    case 18:
      if (IS("Process Group Name")) return skip_word_or_null(reader, &ignored);
      break;
    case 19:
      if (IS("Process Group Ranks")) return skip_word_or_null(reader, &ignored);
      break;
    case 25:
      if (IS("Process Group Description")) return skip_word_or_null(reader, &ignored);
      break;
  }
  return skip_value(reader, 0);
}

static int take_arguments(struct reader *reader) {
  MUST(take(reader, '{'));
  if (*reader->at != '}')
    for (;;) {
      const char *key;
      int64_t length;
      MUST(take_key(reader, &key, &length) && take_argument(reader, key, length) && ends_value(reader));
      if (*reader->at == '}') break;
      MUST(take(reader, ','));
      MUST(*reader->at == '"');
    }
  ++reader->at;
  return 1;
}

struct seen { /* of the event that is read */
  int arguments, time, complete;
};

static int take_field(struct reader *reader, struct seen *seen, const char *key, int64_t length) {
  int64_t ignored;
  if (IS("ph")) {
    const char *begin = reader->at;
    MUST(take_string(reader, cell(reader, PHASE)) && reader->at - begin == 3); /* a letter */
    seen->complete = begin[1] == 'X';
    return 1;
  }
  if (IS("cat")) return take_string(reader, cell(reader, CATEGORY));
  if (IS("name")) return take_string(reader, cell(reader, NAME));
  if (IS("pid")) return *reader->at == '"' ? skip_word_or_null(reader, &ignored) : take_integer(reader, &ignored);
  if (IS("tid")) {
    int is_word = *reader->at == '"';
    *cell(reader, is_word ? THREAD : THREAD_WORD) = is_word ? 0 : -1; /* given twice, the last counts */
    return is_word ? take_string(reader, cell(reader, THREAD_WORD)) : take_integer(reader, cell(reader, THREAD));
  }
  if (IS("ts")) {
    seen->time = 1;
    return take_time(reader, FARTHEST_US, cell(reader, START));
  }
  if (IS("dur")) return *reader->at != '-' && take_time(reader, LONGEST_US, cell(reader, DURATION));
  if (IS("args")) {
    MUST(!seen->arguments); /* given twice, the second takes the place of all of the first */
    seen->arguments = 1;
    return take_arguments(reader);
  }
  return skip_value(reader, 0);
}

static int take_event(struct reader *reader) {
  MUST(reader->row < reader->out->rows_room);
  struct seen seen = {0, 0, 0};
  for (int column = 0; column < COLUMNS; ++column) *cell(reader, column) = -1;
  *cell(reader, BEGIN) = reader->at - reader->text;
  *cell(reader, THREAD) = *cell(reader, START) = *cell(reader, DURATION) = 0;
  *cell(reader, BLOCKS) = *cell(reader, TALKS) = 0;
  MUST(take(reader, '{'));
  if (*reader->at != '}')
    for (;;) {
      const char *key;
      int64_t length;
      MUST(take_key(reader, &key, &length) && take_field(reader, &seen, key, length) && ends_value(reader));
      if (*reader->at == '}') break;
      MUST(take(reader, ','));
    }
  MUST(seen.time || !seen.complete);
  ++reader->at;
  *cell(reader, END) = reader->at - reader->text;
  ++reader->row;
  return 1;
}

static int take_array(struct reader *reader) {
  skip_space(reader);
  MUST(take(reader, '['));
  if (*reader->at != ']')
    for (;;) {
      MUST(take_event(reader) && ends_value(reader));
      if (*reader->at == ']') break;
      MUST(take(reader, ','));
    }
  ++reader->at;
  skip_space(reader);
  return 1;
}

/* Which layout and meaning of `struct fields` this was compiled for: see events.c of the replay. */
int scalescope_fields_layout(void) { return VERSION * 1000 + (int)sizeof(struct fields) + COLUMNS; }

/* Read the text of `length` characters and a NUL; return whether it was read. */
int scalescope_fields(const char *text, int64_t length, struct fields *out) {
  uint64_t slots = 64;
  while (slots < 2 * (uint64_t)out->strings_room) slots *= 2;
  struct reader reader = {.text = text, .at = text, .out = out, .mask = slots - 1};
  reader.slots = malloc(slots * sizeof *reader.slots);
  out->strings_found = 0;
  if (!reader.slots) return 0;
  memset(reader.slots, 0xFF, slots * sizeof *reader.slots);
  int whole = take_array(&reader) && reader.at == text + length;
  out->rows = reader.row;
  free(reader.slots);
  return whole;
}
