// The connection to attune: one socket, and one memory that both processes map.

#include "client.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct Machine machine;
CUresult sticky = CUDA_SUCCESS;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int server = -1;
static pid_t owner;  // the process that connected; a child of fork must not use the socket
static char *printed;
static size_t printed_bytes;

static bool send_all(const void *data, size_t bytes) {
  for (const char *at = data; bytes > 0;) {
    const ssize_t n = send(server, at, bytes, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n, bytes -= (size_t)n;
  }
  return true;
}

static bool receive_all(void *data, size_t bytes) {
  for (char *at = data; bytes > 0;) {
    const ssize_t n = recv(server, at, bytes, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n, bytes -= (size_t)n;
  }
  return true;
}

static void keep_output(const char *text, size_t bytes) {
  char *grown = realloc(printed, printed_bytes + bytes);
  if (grown == NULL) return;
  memcpy(grown + printed_bytes, text, bytes);
  printed = grown;
  printed_bytes += bytes;
}

// Reply begins every reply. The text that kernels have printed follows, then the result.
struct Reply {
  int32_t status;
  uint32_t printed, bytes;
};

// lost ends a program whose simulator is gone: nothing that it would compute were right.
static CUresult lost(void) {
  fprintf(stderr, "attune exec: the connection to the simulator is lost\n");
  _exit(125);
}

static CUresult exchange(enum Request request, const void *head, size_t head_bytes, const void *body,
                         size_t body_bytes, void *reply, size_t capacity, size_t *received) {
  const uint64_t prefix[2] = {request, head_bytes + body_bytes};
  struct Reply answer;
  if (!send_all(prefix, sizeof prefix) || !send_all(head, head_bytes) || !send_all(body, body_bytes) ||
      !receive_all(&answer, sizeof answer)) {
    return lost();
  }
  const size_t total = (size_t)answer.printed + answer.bytes;
  char *data = malloc(total + 1);
  if (data == NULL || !receive_all(data, total)) return lost();
  if (answer.printed > 0) keep_output(data, answer.printed);
  const size_t n = answer.bytes < capacity ? answer.bytes : capacity;
  if (n > 0) memcpy(reply, data + answer.printed, n);
  if (received != NULL) *received = n;
  free(data);
  return answer.status;
}

CUresult call(enum Request request, const void *head, size_t head_bytes, const void *body, size_t body_bytes,
              void *reply, size_t capacity, size_t *received) {
  const CUresult connected = connect_server();
  if (connected != CUDA_SUCCESS) return connected;
  if (in_callback && request != REQUEST_LIBRARY) return CUDA_ERROR_NOT_PERMITTED;  // libraries run their calls as callbacks
  pthread_mutex_lock(&lock);
  const CUresult status = exchange(request, head, head_bytes, body, body_bytes, reply, capacity, received);
  pthread_mutex_unlock(&lock);
  return status;
}

void flush_output(void) {
  pthread_mutex_lock(&lock);
  if (printed_bytes > 0) {
    fwrite(printed, 1, printed_bytes, stdout);
    fflush(stdout);
  }
  printed_bytes = 0;
  pthread_mutex_unlock(&lock);
}

// receive_memory receives the file of device memory, which the server sends first.
static int receive_memory(void) {
  char byte;
  struct iovec data = {&byte, 1};
  union {
    struct cmsghdr header;
    char space[CMSG_SPACE(sizeof(int))];
  } control;
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  if (recvmsg(server, &message, MSG_CMSG_CLOEXEC) != 1) return -1;
  const struct cmsghdr *first = CMSG_FIRSTHDR(&message);
  if (first == NULL || first->cmsg_type != SCM_RIGHTS) return -1;
  int file;
  memcpy(&file, CMSG_DATA(first), sizeof file);
  return file;
}

int arena_file = -1;

static int64_t shift;  // from an address of device memory to where the client accesses it

uint64_t attuneHostAddress(uint64_t address) {
  return address - machine.arena < machine.arena_bytes ? address + (uint64_t)shift : address;
}

// protect opens the pages of an allocation to the program, or closes them.
static void protect(uint64_t address, uint64_t bytes, int protection) {
  const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), start = address / page * page;
  if (shift == 0 || address - machine.arena >= machine.arena_bytes) return;
  if (mprotect((void *)(uintptr_t)start, (address + bytes - start + page - 1) / page * page, protection) == 0) return;
  mprotect((void *)(uintptr_t)machine.arena, machine.arena_bytes, PROT_READ | PROT_WRITE);  // too many pieces
}

void attuneOpenMemory(uint64_t address, uint64_t bytes) { protect(address, bytes, PROT_READ | PROT_WRITE); }
void close_memory(uint64_t address, uint64_t bytes) { protect(address, bytes, PROT_NONE); }

// explain_fault reports an access of the host to device memory. The access is then done again, and ends
// the program as it would without attune.
static void explain_fault(int signal_number, siginfo_t *info, void *context) {
  (void)context;
  const uint64_t address = (uintptr_t)info->si_addr;
  char text[200];
  if (address - machine.arena < machine.arena_bytes) {
    const int n = snprintf(text, sizeof text,
                           "attune exec: the host accesses device memory at %#llx; copy it by cudaMemcpy, or allocate it by cudaMallocManaged\n",
                           (unsigned long long)address);
    if (write(STDERR_FILENO, text, (size_t)n) < 0) errno = 0;
  }
  signal(signal_number, SIG_DFL);
}

// watch_faults explains faults to programs that have no handler of their own.
static void watch_faults(void) {
  struct sigaction before;
  if (sigaction(SIGSEGV, NULL, &before) != 0 || (before.sa_flags & SA_SIGINFO) || before.sa_handler != SIG_DFL) return;
  struct sigaction action = {.sa_sigaction = explain_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  sigaction(SIGSEGV, &action, NULL);
}

static void *map_file(void *at, int protection, int flags) {
  void *const got = mmap(at, machine.arena_bytes, protection, MAP_SHARED | MAP_NORESERVE | flags, arena_file, 0);
  if (got == MAP_FAILED) return got;
  madvise(got, machine.arena_bytes, MADV_DONTDUMP);
  madvise(got, machine.arena_bytes, MADV_DONTFORK);
  return got;
}

// map_arena maps device memory at the address that the simulator gives it, where the program may
// access what is managed or pinned, and a second time for the client. Where addresses are short, the
// program may access all of it.
static CUresult map_arena(void) {
  void *const at = (void *)(uintptr_t)machine.arena;
  void *const got = map_file(at, PROT_NONE, MAP_FIXED_NOREPLACE);
  if (got != at) {
    fprintf(stderr, "attune exec: cannot map %llu bytes of device memory at %p: %s\n", (unsigned long long)machine.arena_bytes, at,
            got == MAP_FAILED ? strerror(errno) : "the addresses are in use");
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  void *const own = map_file(NULL, PROT_READ | PROT_WRITE, 0);
  shift = own == MAP_FAILED ? 0 : (int64_t)((uintptr_t)own - machine.arena);
  if (shift == 0) mprotect(at, machine.arena_bytes, PROT_READ | PROT_WRITE);
  else watch_faults();
  return CUDA_SUCCESS;
}

static CUresult open_connection(void) {
  const char *path = getenv("ATTUNE_EXEC_SOCKET");
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (path == NULL || strlen(path) >= sizeof address.sun_path) {
    fprintf(stderr, "attune exec: this libcuda.so.1 is attune's; start the program with `attune exec PROGRAM`\n");
    return CUDA_ERROR_NOT_INITIALIZED;
  }
  strcpy(address.sun_path, path);
  server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (server < 0 || connect(server, (struct sockaddr *)&address, sizeof address) != 0) {
    fprintf(stderr, "attune exec: cannot connect to the simulator: %s\n", strerror(errno));
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  arena_file = receive_memory();
  if (arena_file < 0) return lost();
  const int32_t process = getpid();
  const CUresult status = exchange(REQUEST_HELLO, &process, sizeof process, NULL, 0, &machine, sizeof machine, NULL);
  return status == CUDA_SUCCESS ? map_arena() : status;
}

CUresult connect_server(void) {
  static CUresult status = CUDA_SUCCESS;
  pthread_mutex_lock(&lock);
  if (owner == 0) {
    owner = getpid();
    status = open_connection();
  }
  const bool own = owner == getpid();
  pthread_mutex_unlock(&lock);
  return own ? status : CUDA_ERROR_NOT_INITIALIZED;
}

// attuneDisconnect ends the connection, or lets a child of fork have one of its own. The next call
// connects again.
API void attuneDisconnect(void) {
  pthread_mutex_lock(&lock);
  if (owner != 0) {
    if (server >= 0) close(server);
    if (arena_file >= 0) close(arena_file);
    if (owner == getpid() && machine.arena_bytes > 0) {
      if (shift != 0) munmap((void *)(uintptr_t)attuneHostAddress(machine.arena), machine.arena_bytes);
      munmap((void *)(uintptr_t)machine.arena, machine.arena_bytes);
    }
    server = arena_file = -1;
    owner = 0;
    printed_bytes = 0;
    sticky = CUDA_SUCCESS;
  }
  pthread_mutex_unlock(&lock);
}

CUresult unsupported(const char *name) {
  call(REQUEST_UNSUPPORTED, name, strlen(name), NULL, 0, NULL, 0, NULL);
  return CUDA_ERROR_NOT_SUPPORTED;
}

// attuneUnsupported is unsupported for the runtime library.
API CUresult attuneUnsupported(const char *name) { return unsupported(name); }

static CUresult send_regions(const char *function, const struct Region *regions, uint32_t count, uint32_t flags) {
  const size_t bytes = sizeof count + count * sizeof *regions;
  const uint32_t first = count | flags;
  char *head = malloc(bytes);
  if (head == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  memcpy(head, &first, sizeof first);
  memcpy(head + sizeof count, regions, count * sizeof *regions);
  const CUresult status = call(REQUEST_LIBRARY, head, bytes, function, strlen(function), NULL, 0, NULL);
  free(head);
  return status;
}

API CUresult attuneLibrary(const char *function, const struct Region *regions, uint32_t count) {
  return send_regions(function, regions, count, 0);
}

API CUresult attuneCheck(const char *function, const struct Region *regions, uint32_t count) {
  const uint32_t check_only = 1u << 31;  // internal/exec/hosted.go has the same bit
  return send_regions(function, regions, count, check_only);
}
