/* A selection that was measured on the GPU of the user: a file of `attune tune`, which says which form
 * of the warp kernel computes which problems. A form that cannot compute a problem is passed over, so
 * that a wrong file costs time and no result. */
#define _GNU_SOURCE /* pthreads beside -std=c11 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attune_internal.h"

enum {
  VERSION = 1,
  MAX_CHOICES = 64,
  MAX_COMPARISONS = 8,
  MAX_NAME = 64,
  MAX_PATH = 4096,
  MAX_BYTES = 1 << 20
};

/* Of a property of the problem: less or equal, greater, or equal. */
typedef struct comparison {
  int property;
  char operator;
  int64_t value;
} comparison;

typedef struct choice {
  char variant[MAX_NAME]; /* without _fp16 */
  int count;
  comparison all[MAX_COMPARISONS];
} choice;

struct selection {
  selection *next;
  target target; /* that it was looked for */
  char error[MAX_PATH + 256]; /* empty without one */
  int count;
  choice choices[MAX_CHOICES];
};

/* Rows are the query rows of a K/V head, and tiles those of TILE_ROWS rows of a query head. */
static const char *const properties[] = {"head_dim", "batch",  "kv_heads", "group", "queries",
                                         "keys",     "causal", "rows",     "tiles"};
enum { TILE_ROWS = 64 };
enum { PROPERTIES = sizeof properties / sizeof *properties };

/* ---- JSON ----------------------------------------------------------------------------------- */

/* A reader of JSON; `at` is NULL after an error. Strings have no escapes but those of " and \. */
typedef struct reader {
  const char *at;
} reader;

static char peek(reader *r) {
  if (r->at == NULL) return '\0';
  r->at += strspn(r->at, " \t\r\n");
  return *r->at;
}

static bool take(reader *r, char wanted) {
  if (peek(r) != wanted || wanted == '\0') return false;
  ++r->at;
  return true;
}

static void expect(reader *r, char wanted) {
  if (!take(r, wanted)) r->at = NULL;
}

/* Copies a string as far as it fits. */
static void read_string(reader *r, char *into, size_t size) {
  size_t n = 0;
  expect(r, '"');
  while (r->at != NULL && *r->at != '"') {
    if (*r->at == '\\' && strchr("\"\\/", *++r->at) == NULL) r->at = NULL;
    if (r->at != NULL && *r->at == '\0') r->at = NULL;
    if (r->at == NULL) break;
    if (n + 1 < size) into[n++] = *r->at;
    ++r->at;
  }
  into[n] = '\0';
  if (r->at != NULL) ++r->at;
}

static long read_number(reader *r) {
  char *end = NULL;
  if (peek(r) == '\0') return 0;
  const long n = strtol(r->at, &end, 10);
  r->at = end == r->at ? NULL : end;
  return n;
}

static void skip_value(reader *r, int depth) {
  char text[2];
  const char open = peek(r);
  if (open == '"') {
    read_string(r, text, sizeof text);
  } else if (open != '{' && open != '[') {
    if (r->at != NULL) r->at += strcspn(r->at, ",]} \t\r\n");
  } else if (depth == 0) {
    r->at = NULL;
  } else {
    const char close = open == '{' ? '}' : ']';
    expect(r, open);
    if (take(r, close)) return;
    do {
      if (open == '{') read_string(r, text, sizeof text), expect(r, ':');
      skip_value(r, depth - 1);
    } while (take(r, ','));
    expect(r, close);
  }
}

/* ---- choices -------------------------------------------------------------------------------- */

static bool read_comparison(char *text, comparison *into) {
  char name[MAX_NAME], operator[3] = "", rest[2] = "";
  long long value = 0;
  const bool negated = sscanf(text, " not %63[a-z_] %1s", name, rest) == 1;
  if (negated || sscanf(text, " %63[a-z_] %1s", name, rest) == 1) {
    *into = (comparison){0, negated ? '=' : '>', 0};
  } else if (sscanf(text, " %63[a-z_] %2[<>=] %lld %1s", name, operator, &value, rest) == 3) {
    const bool known = strcmp(operator, "<=") == 0 || strcmp(operator, ">") == 0 ||
                       strcmp(operator, "==") == 0;
    *into = (comparison){0, known ? operator[0] : '\0', value};
  } else {
    return false;
  }
  while (into->property < PROPERTIES && strcmp(properties[into->property], name) != 0) {
    ++into->property;
  }
  return into->property < PROPERTIES && into->operator != '\0';
}

/* A conjunction, as the tuner writes it: "queries <= 64 and not causal". */
static bool read_condition(char *text, choice *into) {
  for (char *next = text; next != NULL; text = next + 5) {
    next = strstr(text, " and ");
    if (next != NULL) *next = '\0';
    if (into->count == MAX_COMPARISONS) return false;
    if (!read_comparison(text, &into->all[into->count++])) return false;
    if (next == NULL) break;
  }
  return true;
}

static void strip_fp16(char *variant) {
  char *suffix = strstr(variant, "_fp16");
  if (suffix != NULL) memmove(suffix, suffix + 5, strlen(suffix + 5) + 1);
}

static bool read_choice(reader *r, choice *into) {
  char key[MAX_NAME], when[512] = "";
  memset(into, 0, sizeof *into);
  expect(r, '{');
  do {
    read_string(r, key, sizeof key);
    expect(r, ':');
    if (strcmp(key, "when") == 0) {
      read_string(r, when, sizeof when);
    } else if (strcmp(key, "variant") == 0) {
      read_string(r, into->variant, sizeof into->variant);
    } else {
      skip_value(r, MAX_CHOICES);
    }
  } while (take(r, ','));
  expect(r, '}');
  strip_fp16(into->variant);
  if (r->at == NULL || *into->variant == '\0' || strlen(when) == sizeof when - 1) return false; /* cut */
  return *when == '\0' || read_condition(when, into);
}

/* A list, or null for an empty one: Go writes that. */
static bool read_choices(reader *r, selection *into) {
  if (peek(r) == 'n' && strncmp(r->at, "null", 4) == 0) {
    r->at += 4;
    return true;
  }
  expect(r, '[');
  if (take(r, ']')) return true;
  do {
    if (into->count == MAX_CHOICES || !read_choice(r, &into->choices[into->count++])) return false;
  } while (take(r, ','));
  expect(r, ']');
  return r->at != NULL;
}

/* What a file says beside its choices. */
typedef struct heading {
  long version;
  char arch[MAX_NAME];
  long multiprocessors;
} heading;

static bool read_selection(const char *text, selection *into, heading *of) {
  char key[MAX_NAME];
  reader r = {text};
  expect(&r, '{');
  do {
    read_string(&r, key, sizeof key);
    expect(&r, ':');
    if (strcmp(key, "schema_version") == 0) {
      of->version = read_number(&r);
    } else if (strcmp(key, "arch") == 0) {
      read_string(&r, of->arch, sizeof of->arch);
    } else if (strcmp(key, "multiprocessors") == 0) {
      of->multiprocessors = read_number(&r);
    } else if (strcmp(key, "choices") == 0) {
      if (!read_choices(&r, into)) return false;
    } else {
      skip_value(&r, MAX_CHOICES);
    }
  } while (take(&r, ','));
  expect(&r, '}');
  return r.at != NULL && peek(&r) == '\0' && strncmp(of->arch, "sm_", 3) == 0;
}

/* ---- files ---------------------------------------------------------------------------------- */

/* The file that ATTUNE_SELECTION names, or that of the GPU in the cache; false without a folder. */
static bool find_path(target t, char path[MAX_PATH]) {
  const char *named = getenv("ATTUNE_SELECTION"), *cache = getenv("ATTUNE_CACHE"),
             *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  char folder[MAX_PATH - 64];
  if (named != NULL && *named != '\0') return snprintf(path, MAX_PATH, "%s", named) < MAX_PATH;
  int n = -1;
  if (cache != NULL && *cache != '\0') {
    n = snprintf(folder, sizeof folder, "%s", cache);
  } else if (xdg != NULL && *xdg != '\0') {
    n = snprintf(folder, sizeof folder, "%s/attune", xdg);
  } else if (home != NULL && *home != '\0') {
    n = snprintf(folder, sizeof folder, "%s/.cache/attune", home);
  }
  if (n < 0 || n >= (int)sizeof folder) return false;
  snprintf(path, MAX_PATH, "%s/selections/sm_%d-%d.json", folder, t.arch, t.multiprocessors);
  return true;
}

/* The text of a file of at most MAX_BYTES, or the reason why there is none. */
static char *read_file(const char *path, bool *opened, const char **reason) {
  struct stat facts;
  const int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* waits for no writer of a pipe */
  *opened = file >= 0;
  *reason = strerror(file < 0 ? errno : ENOMEM);
  if (file < 0) return NULL;
  char *text = NULL;
  if (fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode)) {
    *reason = "it is not a regular file";
  } else if (facts.st_size > MAX_BYTES) {
    *reason = "it has more than 1 MB";
  } else if ((text = calloc(MAX_BYTES + 1, 1)) != NULL) {
    ssize_t n = 0;
    for (size_t at = 0; at < MAX_BYTES && (n = read(file, text + at, MAX_BYTES - at)) > 0;) {
      at += (size_t)n;
    }
  }
  close(file);
  return text;
}

/* A choice whose form this library does not have; NULL for none. */
static const choice *unknown_choice(const selection *s) {
  for (const choice *c = s->choices; c < s->choices + s->count; ++c) {
    bool known = false;
    for (int i = attune_sdpa_dense_count; i < attune_sdpa_form_count && !known; ++i) {
      char variant[MAX_NAME];
      snprintf(variant, sizeof variant, "%s", attune_sdpa_forms[i].variant);
      strip_fp16(variant);
      known = attune_sdpa_forms[i].kernel == ATTUNE_KERNEL_WARP && strcmp(variant, c->variant) == 0;
    }
    if (!known) return c;
  }
  return NULL;
}

/* Why a selection that was read is not for this library and GPU. */
static void check(selection *s, const char *path, const heading *of) {
  const size_t size = sizeof s->error;
  const choice *unknown = unknown_choice(s);
  const bool is_other = atoi(of->arch + 3) != s->target.arch ||
                        of->multiprocessors != s->target.multiprocessors;
  if (of->version != VERSION) {
    snprintf(s->error, size,
             "%s has version %ld, and this library reads %d; write it again by its attune tune", path,
             of->version, VERSION);
  } else if (is_other) {
    snprintf(s->error, size,
             "%s is for %s with %ld multiprocessors, and the GPU is sm_%d with %d; unset "
             "ATTUNE_SELECTION, or tune this GPU",
             path, of->arch, of->multiprocessors, s->target.arch, s->target.multiprocessors);
  } else if (unknown != NULL) {
    snprintf(s->error, size,
             "%s chooses %s, which this library does not have; write it again by its attune tune", path,
             unknown->variant);
  }
}

static void load(selection *into) {
  char path[MAX_PATH];
  const char *named = getenv("ATTUNE_SELECTION"), *reason = NULL;
  bool opened = false;
  heading of = {VERSION, "", 0};
  if (!find_path(into->target, path)) return;
  char *text = read_file(path, &opened, &reason);
  if (text == NULL) {
    /* The caller has not named the file of the cache: a home that cannot be searched has none. */
    if (!opened && (named == NULL || *named == '\0')) return;
    snprintf(into->error, sizeof into->error, "the selection %s cannot be opened: %s", path, reason);
  } else if (!read_selection(text, into, &of)) {
    snprintf(into->error, sizeof into->error,
             "%s is no selection of attune tune for the warp kernel; write it again, or delete it", path);
  } else {
    check(into, path, &of);
  }
  free(text);
}

static _Atomic(selection *) selections;
static pthread_mutex_t selections_lock = PTHREAD_MUTEX_INITIALIZER;

static selection *known_selection(target t) {
  selection *s = atomic_load(&selections);
  while (s != NULL && (s->target.arch != t.arch || s->target.multiprocessors != t.multiprocessors)) {
    s = s->next;
  }
  return s;
}

attune_sdpa_status attune_find_selection(target t, const selection **into) {
  selection *s = known_selection(t);
  if (s == NULL) {
    pthread_mutex_lock(&selections_lock);
    if ((s = known_selection(t)) == NULL && (s = calloc(1, sizeof *s)) != NULL) {
      s->target = t;
      load(s);
      s->next = atomic_load(&selections);
      atomic_store(&selections, s);
    }
    pthread_mutex_unlock(&selections_lock);
  }
  *into = s;
  if (s == NULL || *s->error == '\0') return ATTUNE_SDPA_OK;
  return attune_fail(ATTUNE_SDPA_INVALID_ARGUMENT, "%s", s->error);
}

/* ---- the choice ----------------------------------------------------------------------------- */

static bool holds(const choice *c, const attune_sdpa_params *p, bool causal) {
  const int64_t group = p->heads / p->kv_heads, tiles = (p->queries + TILE_ROWS - 1) / TILE_ROWS,
                values[PROPERTIES] = {p->head_dim, p->batch, p->kv_heads,
                                      group,       p->queries, p->keys,
                                      causal,      group * p->queries,
                                      (int64_t)p->batch * p->heads * tiles};
  for (const comparison *one = c->all; one < c->all + c->count; ++one) {
    const int64_t value = values[one->property];
    const bool right = one->operator == '<'   ? value <= one->value
                       : one->operator == '>' ? value > one->value
                                              : value == one->value;
    if (!right) return false;
  }
  return true;
}

int attune_rank(const selection *s, const problem *x, const attune_sdpa_form_info *form) {
  char variant[MAX_NAME];
  const int count = s == NULL ? 0 : s->count;
  if (count == 0) return 0;
  snprintf(variant, sizeof variant, "%s", form->variant);
  strip_fp16(variant);
  for (int i = 0; i < count; ++i) {
    if (strcmp(s->choices[i].variant, variant) == 0 && holds(&s->choices[i], &x->p, x->causal)) return i;
  }
  return count;
}
