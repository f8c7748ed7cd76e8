// The client of attune exec: a libcuda.so.1 whose device is the simulator of another process.
//
// The declarations of the driver API here are the client's own: the types that its functions need,
// with the sizes and the order of the binary interface.
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default")))

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct Context *CUcontext;
typedef struct Module *CUmodule;
typedef struct Function *CUfunction;
typedef struct Stream *CUstream;
typedef struct Event *CUevent;
typedef struct Graph *CUgraph;
typedef struct Node *CUgraphNode;
typedef struct Exec *CUgraphExec;
typedef struct Array *CUarray;
typedef struct Pool *CUmemoryPool;
typedef void (*CUhostFn)(void *);

enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_FILE_NOT_FOUND = 301,
  CUDA_ERROR_OPERATING_SYSTEM = 304,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = 217,
  CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
  CUDA_ERROR_INVALID_CLUSTER_SIZE = 912,
  CUDA_ERROR_PEER_ACCESS_NOT_ENABLED = 705,
  CUDA_ERROR_NOT_PERMITTED = 800,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
  CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
  CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904,
  CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
  CUDA_ERROR_CAPTURED_EVENT = 907,
  CUDA_ERROR_ILLEGAL_STATE = 401,
  CUDA_ERROR_UNKNOWN = 999,
};

// attune_major is the major version of a library that the host computes (hosted/version.c).
extern const int attune_major;

// ---- the connection (wire.c) -------------------------------------------------------------------

// Requests. internal/exec/wire.go has the same numbers.
enum Request {
  REQUEST_HELLO = 1,
  REQUEST_ALLOC,
  REQUEST_FREE,
  REQUEST_COPY,
  REQUEST_FILL,
  REQUEST_LOAD,
  REQUEST_UNLOAD,
  REQUEST_FUNCTION,
  REQUEST_GLOBAL,
  REQUEST_LAUNCH,
  REQUEST_TENSORMAP,
  REQUEST_UNSUPPORTED,
  REQUEST_REGISTER,
  REQUEST_UNREGISTER,
  REQUEST_RANGE,
  REQUEST_KERNELS,
  REQUEST_MEMORY,
  REQUEST_LIMIT,
  REQUEST_LIBRARY,
  REQUEST_TEXTURE,
  REQUEST_TEXTURE_FREE,
  REQUEST_MAP,
  REQUEST_UNMAP,
  REQUEST_REPORTS = 64,
};

enum { kAttributes = 160, kNameBytes = 64 };

// Machine is what the server says about the device.
struct Machine {
  uint64_t arena, arena_bytes;  // addresses of device memory
  uint64_t memory_bytes;        // that a program may allocate
  int32_t attributes[kAttributes];
  char name[kNameBytes];
};

extern struct Machine machine;

// connect_server connects once. Every entry point that needs the device calls it.
CUresult connect_server(void);

// call sends a request and waits for its reply. reply gets at most capacity bytes; *received, which
// may be NULL, their number. What kernels print is kept until flush_output.
CUresult call(enum Request request, const void *head, size_t head_bytes, const void *body, size_t body_bytes,
              void *reply, size_t capacity, size_t *received);

// attuneHostAddress is where the client and its libraries access a byte that a program names: device
// memory at a place of their own, because the program has no access to it, and host memory where it is.
API uint64_t attuneHostAddress(uint64_t address);

// attuneOpenMemory lets the program access an allocation: managed and pinned memory. close_memory ends
// it.
API void attuneOpenMemory(uint64_t address, uint64_t bytes);
void close_memory(uint64_t address, uint64_t bytes);

// flush_output writes what kernels have printed, as the driver does when the host synchronises.
void flush_output(void);

// in_callback is set while a function of the program runs in a stream, which must not call CUDA.
extern __thread bool in_callback;

// unsupported reports an entry point that does not exist here, once by its name.
CUresult unsupported(const char *name);

// Region is what a function of a library accesses: rows of device memory. Host memory may be among
// them where the function allows it.
struct Region {
  uint64_t address, pitch, width, height;  // in bytes
  uint32_t writes, host;
};

// attuneLibrary has the server check the accesses of a call that the host computes, and note the call.
CUresult attuneLibrary(const char *function, const struct Region *regions, uint32_t count);

// attuneCheck checks accesses that a call begins with: it learns from them what the others are.
CUresult attuneCheck(const char *function, const struct Region *regions, uint32_t count);

// sticky is the error of a kernel that ended its context; CUDA_SUCCESS before.
extern CUresult sticky;

// ---- modules (module.c) ------------------------------------------------------------------------

enum { kFunctionClusterWidth = 11, kFunctionLargeClusters = 14, kFunctionAttributes = 16 };

struct Function {
  uint32_t id;
  struct Module *module;
  char *name;
  uint32_t params, param_bytes;
  uint32_t *offsets, *sizes;
  int32_t attributes[kFunctionAttributes];
  struct Function *next;
};

struct Module {
  uint32_t id;
  struct Function *functions;
};

CUresult find_function(struct Module *module, const char *name, struct Function **function);

// ---- handles (handles.c) -----------------------------------------------------------------------

enum HandleKind { HANDLE_STREAM = 1, HANDLE_EVENT, HANDLE_GRAPH, HANDLE_EXEC, HANDLE_FUNCTION };

// add_handle notes a handle that a program gets; false without memory.
bool add_handle(enum HandleKind kind, const void *handle);

// remove_handle reports whether a handle was one that exists, which it then is no more.
bool remove_handle(enum HandleKind kind, const void *handle);

bool is_handle(enum HandleKind kind, const void *handle);

// ---- work (launch.c, memory.c) -----------------------------------------------------------------

struct Kernel {
  struct Function *function;
  uint32_t grid[3], block[3], cluster[3], shared, cooperative;
};

// Copy is a box of bytes between two addresses. Pitches and slices are distances in bytes.
struct Copy {
  uint64_t to, from, width, height, depth, to_pitch, to_slice, from_pitch, from_slice;
};

// Fill sets elements of 1, 2 or 4 bytes in rows.
struct Fill {
  uint64_t to, pitch, width, height;  // width in elements
  uint32_t value, element;
};

// The kinds of nodes are those of the driver.
enum NodeKind {
  NODE_KERNEL = 0,
  NODE_MEMCPY = 1,
  NODE_MEMSET = 2,
  NODE_HOST = 3,
  NODE_GRAPH = 4,
  NODE_EMPTY = 5,
  NODE_WAIT_EVENT = 6,
  NODE_EVENT_RECORD = 7,
  NODE_MEM_ALLOC = 10,
  NODE_MEM_FREE = 11,
  NODE_CONDITIONAL = 13,
};

// Node is one piece of work: of a stream, or of a graph.
struct Node {
  enum NodeKind kind;
  struct Kernel kernel;
  struct Copy copy;
  struct Fill fill;
  CUhostFn host;
  void *host_data;
  struct Graph *child;
  struct Event *event;
  uint64_t address;  // of an allocation node
  size_t bytes;
  unsigned char *params;
  void **param_list;  // into params, for cuGraphKernelNodeGetParams
  // In a graph:
  struct Graph *graph;
  struct Node **dependencies;
  size_t dependency_count;
  const struct Node *origin;  // of a node of an executable graph or a clone
  bool disabled;
  bool joined;  // the end of its capture depends on it
};

CUresult run_node(const struct Node *node);
CUresult run_copy(const struct Copy *copy);
CUresult run_graph(const struct Graph *graph);
CUresult set_kernel_params(struct Node *node, void **params, void **extra);
CUresult allocate(size_t bytes, uint32_t kind, CUdeviceptr *address);

// read_file reads a file, with at least eight zeros behind it; NULL if it cannot be read.
char *read_file(const char *path, size_t *bytes);

// allocate_for_graph allocates memory that frees leave, because the graph may run again.
CUresult allocate_for_graph(size_t bytes, CUdeviceptr *address);

enum { ALLOCATE_DEVICE, ALLOCATE_MANAGED, ALLOCATE_HOST, ALLOCATE_RESERVED = 4 };

// Range is what the server knows of an address.
struct Range {
  uint64_t base, bytes;
  uint32_t kind, known;
};

CUresult range_of(uint64_t address, struct Range *range);

// The types of memory in descriptions of copies.
enum { kHost = 1, kDevice = 2, kArray = 3, kUnified = 4 };

// Memcpy3D is the description of a 3D copy; the reserved words are contexts in that of peers.
struct Memcpy3D {
  size_t from_x, from_y, from_z, from_level;
  int from_type;
  const void *from_host;
  CUdeviceptr from_device;
  struct Array *from_array;
  void *from_reserved;
  size_t from_pitch, from_height;
  size_t to_x, to_y, to_z, to_level;
  int to_type;
  void *to_host;
  CUdeviceptr to_device;
  struct Array *to_array;
  void *to_reserved;
  size_t to_pitch, to_height;
  size_t width, height, depth;
};

// Array3D describes a CUDA array.
struct Array3D {
  size_t width, height, depth;
  int format;
  unsigned channels, flags;
};

// Array is a CUDA array: rows of device memory without gaps.
struct Array {
  CUdeviceptr address;
  size_t width, height, depth;  // in elements; 0 where the array has no such extent
  int format;
  unsigned channels, flags;
};

size_t format_bytes(int format);
size_t element_bytes(const struct Array *array);

// ---- streams and events (stream.c) -------------------------------------------------------------

struct Stream {
  unsigned flags;
  int priority;
  uint64_t id;
  struct Graph *capture;  // NULL unless it captures
  bool origin;            // it began the capture
  struct Node **last;     // the nodes that its next node depends on
  size_t last_count;
  struct Stream *next;
};

struct Stream *stream_of(CUstream handle);

// is_stream reports whether a handle names a stream that exists.
bool is_stream(CUstream handle);

// submit runs a node, or adds it to the graph that the stream captures.
CUresult submit(CUstream stream, const struct Node *node);

// check_captures refuses a call that no stream may capture, where one does. Its capture is then invalid.
CUresult check_captures(CUresult refusal, bool blocking_only);

// synchronize is what every call does that waits for the device.
CUresult synchronize(void);

// ---- graphs (graph.c) --------------------------------------------------------------------------

struct Graph {
  struct Node **nodes;
  size_t count, capacity;
  uint64_t id;
  bool invalid;  // its capture has done what captures must not do
};

struct Graph *new_graph(void);
void free_graph(struct Graph *graph);

// add_node adds a copy of a node, with its dependencies.
struct Node *add_node(struct Graph *graph, const struct Node *node, struct Node *const *dependencies, size_t count);

// ---- tables (table.c) --------------------------------------------------------------------------

// current is the context; there is one.
extern struct Context *const primary_context;

// find_entry returns the entry point with the name of a version of the API, or NULL.
void *find_entry(const char *name, int version);
