// The NVRTC of attune exec: a libnvrtc.so that runs nvcc. What it returns as machine code is PTX, which
// attune's driver loads too.

#define _GNU_SOURCE
#include "../client.h"

#include <errno.h>
#include <ftw.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

typedef int nvrtcResult;

CUresult attuneUnsupported(const char *);

enum {
  NVRTC_SUCCESS = 0,
  NVRTC_OUT_OF_MEMORY = 1,
  NVRTC_PROGRAM_CREATION_FAILURE = 2,
  NVRTC_INVALID_INPUT = 3,
  NVRTC_INVALID_PROGRAM = 4,
  NVRTC_INVALID_OPTION = 5,
  NVRTC_COMPILATION = 6,
  NVRTC_NO_NAMES_AFTER_COMPILATION = 8,
  NVRTC_NO_NAMES_BEFORE_COMPILATION = 9,
  NVRTC_NAME_NOT_VALID = 10,
  NVRTC_INTERNAL = 11,
};

struct Header {
  char *name, *text;
};

struct Name {
  char *expression, *lowered;
};

struct Program {
  char *source, *name, *log, *ptx;
  struct Header *headers;
  int header_count;
  struct Name *names;
  int name_count;
  bool compiled;
};

static char *copy_text(const char *text) { return strdup(text == NULL ? "" : text); }

API nvrtcResult nvrtcCreateProgram(struct Program **made, const char *source, const char *name, int count, const char *const *headers,
                                   const char *const *header_names) {
  if (made == NULL || source == NULL || count < 0) return NVRTC_INVALID_INPUT;
  struct Program *p = calloc(1, sizeof *p);
  if (p == NULL) return NVRTC_OUT_OF_MEMORY;
  p->source = copy_text(source);
  p->name = copy_text(name == NULL || *name == 0 ? "default_program" : name);
  p->log = copy_text("");
  p->headers = calloc((size_t)count + 1, sizeof *p->headers);
  for (p->header_count = 0; p->header_count < count; p->header_count++) {
    p->headers[p->header_count] = (struct Header){copy_text(header_names[p->header_count]), copy_text(headers[p->header_count])};
  }
  *made = p;
  return NVRTC_SUCCESS;
}

API nvrtcResult nvrtcDestroyProgram(struct Program **program) {
  if (program == NULL || *program == NULL) return NVRTC_INVALID_PROGRAM;
  struct Program *p = *program;
  for (int i = 0; i < p->header_count; i++) free(p->headers[i].name), free(p->headers[i].text);
  for (int i = 0; i < p->name_count; i++) free(p->names[i].expression), free(p->names[i].lowered);
  free(p->headers), free(p->names), free(p->source), free(p->name), free(p->log), free(p->ptx);
  free(p);
  *program = NULL;
  return NVRTC_SUCCESS;
}

API nvrtcResult nvrtcAddNameExpression(struct Program *p, const char *expression) {
  if (p == NULL) return NVRTC_INVALID_PROGRAM;
  if (p->compiled) return NVRTC_NO_NAMES_AFTER_COMPILATION;
  p->names = realloc(p->names, (size_t)(p->name_count + 1) * sizeof *p->names);
  p->names[p->name_count++] = (struct Name){copy_text(expression), NULL};
  return NVRTC_SUCCESS;
}

// ---- files -------------------------------------------------------------------------------------

// make_parents makes the folders of a path below the folder.
static void make_parents(const char *folder, char *path) {
  for (char *at = path + strlen(folder) + 1; (at = strchr(at, '/')) != NULL; at++) {
    *at = 0;
    mkdir(path, 0755);
    *at = '/';
  }
}

static bool write_file(const char *folder, const char *name, const char *text, const char *more) {
  char path[4096];
  if (strstr(name, "..") != NULL) return true;  // it is a header that another names relative to itself
  snprintf(path, sizeof path, "%s/%s", folder, name);
  make_parents(folder, path);
  FILE *file = fopen(path, "w");
  if (file == NULL) return false;
  fputs(text, file);
  fputs(more, file);
  return fclose(file) == 0;
}

static char *read_source(const char *folder, const char *name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "rb");
  if (file == NULL) return NULL;
  fseek(file, 0, SEEK_END);
  const long bytes = ftell(file);
  rewind(file);
  char *text = calloc(1, (size_t)bytes + 1);
  const bool complete = text != NULL && fread(text, 1, (size_t)bytes, file) == (size_t)bytes;
  fclose(file);
  if (complete) return text;
  free(text);
  return NULL;
}

static int remove_entry(const char *path, const struct stat *s, int type, struct FTW *walk) {
  (void)s, (void)type, (void)walk;
  return remove(path);
}

// write_sources writes the headers and the program. Names are the values of variables behind it.
static bool write_sources(const struct Program *p, const char *folder) {
  size_t bytes = strlen(p->source) + strlen(p->name) + 64;
  for (int i = 0; i < p->name_count; i++) bytes += strlen(p->names[i].expression) + 64;
  char *text = malloc(bytes), *names = malloc(bytes);
  snprintf(text, bytes, "#line 1 \"%s\"\n%s\n", p->name, p->source);
  size_t n = 0;
  names[0] = 0;
  for (int i = 0; i < p->name_count; i++) {
    n += (size_t)snprintf(names + n, bytes - n, "__device__ auto attune_name_%d = %s;\n", i, p->names[i].expression);
  }
  bool written = write_file(folder, "program.cu", text, names);
  for (int i = 0; i < p->header_count; i++) written = written && write_file(folder, p->headers[i].name, p->headers[i].text, "");
  free(text);
  free(names);
  return written;
}

// ---- the compiler ------------------------------------------------------------------------------

enum { kMostArguments = 512 };

// without_prefix returns what follows a prefix, or NULL.
static const char *without_prefix(const char *text, const char *prefix) {
  const size_t n = strlen(prefix);
  return strncmp(text, prefix, n) == 0 ? text + n : NULL;
}

// arch_of returns the architecture of an option, such as 90a; NULL for another option.
static const char *arch_of(const char *option) {
  static const char *const prefixes[] = {"--gpu-architecture=", "-arch=", "--gpu-architecture ", "-arch ", "-arch"};
  for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
    const char *rest = without_prefix(option, prefixes[i]);
    const char *underscore = rest == NULL ? NULL : strchr(rest, '_');
    if (underscore != NULL) return underscore + 1;
  }
  return NULL;
}

// is_ignored reports whether an option concerns machine code or NVRTC itself.
static bool is_ignored(const char *option) {
  static const char *const ignored[] = {"--minimal", "-minimal", "--no-cache", "-no-cache", "--no-source-include", "-no-source-include",
                                        "--device-int128", "-device-int128", "--builtin-", "-builtin-", "-default-device",
                                        "--device-as-default-execution-space", "--pch", "-pch", "--arch-"};
  for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) {
    if (without_prefix(option, ignored[i]) != NULL) return true;
  }
  return false;
}

// arguments_of lists the arguments of nvcc; arch gets the text of one.
static void arguments_of(const char *nvcc, int count, const char *const *options, char **arguments, char *arch) {
  int n = 0;
  arguments[n++] = (char *)nvcc;
  strcpy(arch, "-arch=compute_90");
  for (int i = 0; i < count && n < kMostArguments - 16; i++) {
    const char *value = arch_of(options[i]);
    if (value == NULL && (strcmp(options[i], "-arch") == 0 || strcmp(options[i], "--gpu-architecture") == 0) && i + 1 < count) {
      value = strchr(options[++i], '_');
      value = value == NULL ? options[i] : value + 1;
    }
    if (value != NULL) snprintf(arch, 64, "-arch=compute_%s", value);
    else if (!is_ignored(options[i])) arguments[n++] = (char *)options[i];
  }
  arguments[n++] = arch;
  static char *const rest[] = {"-ptx", "-lineinfo", "-I.", "-o", "program.ptx", "program.cu"};
  for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) arguments[n++] = rest[i];
  arguments[n] = NULL;
}

// run_compiler runs nvcc in the folder; it prints to the file log. Relative folders of headers are those
// of the program.
static bool run_compiler(const char *folder, char **arguments) {
  char *here = getcwd(NULL, 0), *include = NULL, log[4096];
  if (here == NULL || asprintf(&include, "-I%s", here) < 0) return false;
  int n = 0;
  while (arguments[n] != NULL) n++;
  arguments[n] = include;
  arguments[n + 1] = NULL;
  snprintf(log, sizeof log, "%s/log", folder);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, log, 01101, 0644);  // write, create, truncate
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  posix_spawn_file_actions_addchdir_np(&actions, folder);
  pid_t child;
  int status = -1;
  const int failed = posix_spawnp(&child, arguments[0], &actions, NULL, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed == 0) {
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  }
  free(here);
  free(include);
  return failed == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// take_names reads the lowered names from the PTX, and removes their variables from it.
static void take_names(struct Program *p) {
  for (int i = 0; i < p->name_count; i++) {
    char marker[64];
    const int n = snprintf(marker, sizeof marker, "attune_name_%d = ", i);
    char *at = strstr(p->ptx, marker), *end = at == NULL ? NULL : strchr(at, ';');
    if (end == NULL) continue;
    const char *value = at + n;
    if (without_prefix(value, "generic(") != NULL) value += strlen("generic(");
    p->names[i].lowered = strndup(value, strcspn(value, ");+ "));
    while (at > p->ptx && at[-1] != '\n') at--;
    memset(at, ' ', (size_t)(end - at) + 1);
  }
}

API nvrtcResult nvrtcCompileProgram(struct Program *p, int count, const char *const *options) {
  const char *nvcc = getenv("ATTUNE_EXEC_NVCC");
  if (p == NULL) return NVRTC_INVALID_PROGRAM;
  if (nvcc == NULL) {
    attuneUnsupported("NVRTC without nvcc (attune toolchain install)");
    return NVRTC_INTERNAL;
  }
  char folder[] = "/tmp/attune-nvrtc-XXXXXX", arch[64], *arguments[kMostArguments];
  if (mkdtemp(folder) == NULL) return NVRTC_INTERNAL;
  arguments_of(nvcc, count, options, arguments, arch);
  const bool compiled = write_sources(p, folder) && run_compiler(folder, arguments);
  char *log = read_source(folder, "log");
  if (log != NULL) {
    free(p->log);
    p->log = log;
  }
  if (compiled) p->ptx = read_source(folder, "program.ptx");
  nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
  p->compiled = true;
  if (p->ptx == NULL) return NVRTC_COMPILATION;
  take_names(p);
  return NVRTC_SUCCESS;
}

// ---- results -----------------------------------------------------------------------------------

// A TEXT is a result with its size, which counts the 0 byte.
#define TEXT(name, field)                                                \
  API nvrtcResult nvrtcGet##name##Size(struct Program *p, size_t *bytes) { \
    if (p == NULL || p->field == NULL) return NVRTC_INVALID_PROGRAM;     \
    *bytes = strlen(p->field) + 1;                                       \
    return NVRTC_SUCCESS;                                                \
  }                                                                      \
  API nvrtcResult nvrtcGet##name(struct Program *p, char *text) {        \
    if (p == NULL || p->field == NULL) return NVRTC_INVALID_PROGRAM;     \
    strcpy(text, p->field);                                              \
    return NVRTC_SUCCESS;                                                \
  }

TEXT(PTX, ptx)
TEXT(CUBIN, ptx)
TEXT(ProgramLog, log)

API nvrtcResult nvrtcGetLoweredName(struct Program *p, const char *expression, const char **lowered) {
  if (p == NULL) return NVRTC_INVALID_PROGRAM;
  if (!p->compiled) return NVRTC_NO_NAMES_BEFORE_COMPILATION;
  for (int i = 0; i < p->name_count; i++) {
    if (strcmp(p->names[i].expression, expression) != 0 || p->names[i].lowered == NULL) continue;
    *lowered = p->names[i].lowered;
    return NVRTC_SUCCESS;
  }
  return NVRTC_NAME_NOT_VALID;
}

API nvrtcResult nvrtcVersion(int *major, int *minor) {
  *major = attune_major, *minor = 0;
  return NVRTC_SUCCESS;
}

static const int archs[] = {75, 80, 86, 87, 89, 90, 100, 120};

API nvrtcResult nvrtcGetNumSupportedArchs(int *count) {
  *count = sizeof archs / sizeof *archs;
  return NVRTC_SUCCESS;
}

API nvrtcResult nvrtcGetSupportedArchs(int *list) {
  memcpy(list, archs, sizeof archs);
  return NVRTC_SUCCESS;
}

API const char *nvrtcGetErrorString(nvrtcResult result) {
  static const char *const names[] = {
      "NVRTC_SUCCESS", "NVRTC_ERROR_OUT_OF_MEMORY", "NVRTC_ERROR_PROGRAM_CREATION_FAILURE", "NVRTC_ERROR_INVALID_INPUT",
      "NVRTC_ERROR_INVALID_PROGRAM", "NVRTC_ERROR_INVALID_OPTION", "NVRTC_ERROR_COMPILATION", "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE",
      "NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION", "NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION",
      "NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID", "NVRTC_ERROR_INTERNAL_ERROR"};
  return result >= 0 && (size_t)result < sizeof names / sizeof *names ? names[result] : "NVRTC_ERROR unknown";
}

#define MISSING(name)             \
  API nvrtcResult name(void) {    \
    attuneUnsupported(#name);     \
    return NVRTC_INTERNAL;        \
  }

MISSING(nvrtcGetLTOIR)
MISSING(nvrtcGetLTOIRSize)
MISSING(nvrtcGetOptiXIR)
MISSING(nvrtcGetOptiXIRSize)
MISSING(nvrtcGetPCHCreateStatus)
MISSING(nvrtcGetPCHHeapSize)
MISSING(nvrtcGetPCHHeapSizeRequired)
MISSING(nvrtcGetTileIR)
MISSING(nvrtcGetTileIRSize)
MISSING(nvrtcSetFlowCallback)
MISSING(nvrtcSetPCHHeapSize)
