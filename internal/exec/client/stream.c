// Streams and events. Work runs when it is enqueued, so every stream is in order with every other.

#include "client.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct Stream default_stream;
static struct Stream *streams;  // that programs have made
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define kPerThread ((CUstream)2)
enum { kNonBlocking = 1 };

struct Stream *stream_of(CUstream handle) {
  return (uintptr_t)handle <= 2 ? &default_stream : handle;  // 0 to 2 name the default streams
}

bool is_stream(CUstream handle) { return (uintptr_t)handle <= 2 || is_handle(HANDLE_STREAM, handle); }

CUresult synchronize(void) {
  if (in_callback) return CUDA_ERROR_NOT_PERMITTED;
  const CUresult connected = connect_server();
  if (connected != CUDA_SUCCESS) return connected;
  flush_output();
  return sticky;
}

static void depend_on(struct Stream *s, struct Node **nodes, size_t count) {
  struct Node **grown = realloc(s->last, (s->last_count + count + 1) * sizeof *grown);
  if (grown == NULL) return;
  s->last = grown;
  for (size_t i = 0; i < count; i++) {
    size_t j = 0;
    while (j < s->last_count && s->last[j] != nodes[i]) j++;
    if (j == s->last_count) s->last[s->last_count++] = nodes[i];
  }
}

CUresult check_captures(CUresult refusal, bool blocking_only) {
  CUresult status = CUDA_SUCCESS;
  pthread_mutex_lock(&lock);
  for (struct Stream *s = streams; s != NULL; s = s->next) {
    if (s->capture == NULL || (blocking_only && s->flags & kNonBlocking)) continue;
    s->capture->invalid = true;
    status = refusal;
  }
  pthread_mutex_unlock(&lock);
  return status;
}

CUresult submit(CUstream stream, const struct Node *node) {
  if (!is_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  struct Stream *s = stream_of(stream);
  if (s->capture == NULL) {
    const bool waits_for_all = s == &default_stream && stream != kPerThread;
    const CUresult status = waits_for_all ? check_captures(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, true) : CUDA_SUCCESS;
    return status == CUDA_SUCCESS ? run_node(node) : status;
  }
  if (s->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  struct Node *added = add_node(s->capture, node, s->last, s->last_count);
  if (added == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  s->last_count = 0;
  depend_on(s, &added, 1);
  return CUDA_SUCCESS;
}

API CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
  static uint64_t made = 2;
  const CUresult status = connect_server();
  if (status != CUDA_SUCCESS) return status;
  struct Stream *s = calloc(1, sizeof *s);
  if (s == NULL || !add_handle(HANDLE_STREAM, s)) return CUDA_ERROR_OUT_OF_MEMORY;
  s->flags = flags;
  s->priority = priority;
  pthread_mutex_lock(&lock);
  s->id = ++made;
  s->next = streams;
  streams = s;
  pthread_mutex_unlock(&lock);
  *stream = s;
  return CUDA_SUCCESS;
}

API CUresult cuStreamCreate(CUstream *stream, unsigned flags) { return cuStreamCreateWithPriority(stream, flags, 0); }

API CUresult cuStreamDestroy_v2(CUstream stream) {
  if (!remove_handle(HANDLE_STREAM, stream)) return CUDA_ERROR_INVALID_HANDLE;
  pthread_mutex_lock(&lock);
  struct Stream **at = &streams;
  while (*at != stream) at = &(*at)->next;
  *at = stream->next;
  pthread_mutex_unlock(&lock);
  free(stream->last);
  free(stream);
  return CUDA_SUCCESS;
}

API CUresult cuStreamSynchronize(CUstream stream) {
  if (!is_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  struct Graph *capture = stream_of(stream)->capture;
  if (capture == NULL) return synchronize();
  capture->invalid = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

API CUresult cuStreamQuery(CUstream stream) { return cuStreamSynchronize(stream); }

API CUresult cuStreamGetFlags(CUstream stream, unsigned *flags) {
  if (!is_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  *flags = stream_of(stream)->flags;
  return CUDA_SUCCESS;
}

API CUresult cuStreamGetPriority(CUstream stream, int *priority) {
  if (!is_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  *priority = stream_of(stream)->priority;
  return CUDA_SUCCESS;
}

API CUresult cuStreamGetId(CUstream stream, unsigned long long *id) {
  if (!is_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  *id = (uintptr_t)stream <= 2 ? 1 : stream->id;
  return CUDA_SUCCESS;
}

API CUresult cuStreamGetCtx(CUstream stream, CUcontext *context) {
  if (!is_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  *context = primary_context;
  return CUDA_SUCCESS;
}

API CUresult cuStreamGetDevice(CUstream stream, CUdevice *device) {
  if (!is_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  *device = 0;
  return CUDA_SUCCESS;
}

API CUresult cuStreamSetAttribute(CUstream stream, int attribute, const void *value) {
  (void)stream, (void)attribute, (void)value;
  return CUDA_SUCCESS;
}

API CUresult cuStreamGetAttribute(CUstream stream, int attribute, void *value) {
  (void)stream, (void)attribute;
  memset(value, 0, 64);
  return CUDA_SUCCESS;
}

API CUresult cuStreamCopyAttributes(CUstream to, CUstream from) {
  (void)to, (void)from;
  return CUDA_SUCCESS;
}

// A stream waits for a value in memory that only the host can still change. All earlier work has run.
API CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags) {
  (void)flags;
  const struct Node node = {.kind = NODE_MEMSET, .fill = {.to = address, .width = 1, .height = 1, .value = value, .element = 4}};
  return submit(stream, &node);
}

// ---- events ------------------------------------------------------------------------------------

struct Event {
  unsigned flags;
  bool recorded;
  struct timespec at;
  struct Graph *capture;  // that it was recorded in; its nodes are those that a waiting stream depends on
  uint64_t capture_id;
  struct Node **nodes;
  size_t count;
};

enum { kDisableTiming = 2 };

void stamp_event(struct Event *event) {
  event->recorded = true;
  clock_gettime(CLOCK_MONOTONIC, &event->at);
}

API CUresult cuEventCreate(CUevent *event, unsigned flags) {
  const CUresult status = connect_server();
  if (status != CUDA_SUCCESS) return status;
  struct Event *e = calloc(1, sizeof *e);
  if (e == NULL || !add_handle(HANDLE_EVENT, e)) return CUDA_ERROR_OUT_OF_MEMORY;
  e->flags = flags;
  *event = e;
  return CUDA_SUCCESS;
}

API CUresult cuEventDestroy_v2(CUevent event) {
  if (!remove_handle(HANDLE_EVENT, event)) return CUDA_ERROR_INVALID_HANDLE;
  free(event->nodes);
  free(event);
  return CUDA_SUCCESS;
}

API CUresult cuEventRecord(CUevent event, CUstream stream) {
  if (!is_handle(HANDLE_EVENT, event) || !is_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  struct Stream *s = stream_of(stream);
  if (s->capture == NULL) {
    event->capture = NULL;
    stamp_event(event);
    return sticky;
  }
  free(event->nodes);
  event->nodes = calloc(s->last_count + 1, sizeof *event->nodes);
  memcpy(event->nodes, s->last, s->last_count * sizeof *event->nodes);
  event->count = s->last_count;
  event->capture = s->capture;
  event->capture_id = s->capture->id;
  return CUDA_SUCCESS;
}

// still_captures reports whether the capture that an event was recorded in goes on.
static bool still_captures(const struct Event *event) {
  bool found = false;
  pthread_mutex_lock(&lock);
  for (const struct Stream *s = streams; s != NULL && !found; s = s->next) {
    found = s->origin && s->capture == event->capture && s->capture->id == event->capture_id;
  }
  pthread_mutex_unlock(&lock);
  return found;
}

enum { kExternal = 1 };

API CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
  if (!is_handle(HANDLE_EVENT, event) || !is_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (flags != kExternal || stream_of(stream)->capture == NULL) return cuEventRecord(event, stream);
  const struct Node node = {.kind = NODE_EVENT_RECORD, .event = event};
  return submit(stream, &node);
}

API CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  (void)flags;
  if (!is_handle(HANDLE_EVENT, event) || !is_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  struct Stream *s = stream_of(stream);
  if (event->capture == NULL) return CUDA_SUCCESS;
  if (!still_captures(event)) return CUDA_ERROR_CAPTURED_EVENT;
  if (s->capture == NULL) s->capture = event->capture;
  if (s->capture == event->capture) depend_on(s, event->nodes, event->count);
  return CUDA_SUCCESS;
}

API CUresult cuEventSynchronize(CUevent event) {
  if (!is_handle(HANDLE_EVENT, event)) return CUDA_ERROR_INVALID_HANDLE;
  if (event->capture != NULL) {
    if (still_captures(event)) event->capture->invalid = true;
    return CUDA_ERROR_CAPTURED_EVENT;
  }
  return synchronize();
}

API CUresult cuEventQuery(CUevent event) { return cuEventSynchronize(event); }

API CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
  if (!is_handle(HANDLE_EVENT, start) || !is_handle(HANDLE_EVENT, end) || !start->recorded || !end->recorded) return CUDA_ERROR_INVALID_HANDLE;
  if ((start->flags | end->flags) & kDisableTiming) return CUDA_ERROR_INVALID_HANDLE;
  *milliseconds = (float)((double)(end->at.tv_sec - start->at.tv_sec) * 1e3 + (double)(end->at.tv_nsec - start->at.tv_nsec) / 1e6);
  return CUDA_SUCCESS;
}

API CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) {
  return cuEventElapsedTime(milliseconds, start, end);
}

// ---- capture -----------------------------------------------------------------------------------

static CUresult begin_capture(struct Stream *s, struct Graph *graph) {
  if (s == &default_stream) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (s->capture != NULL) return CUDA_ERROR_ILLEGAL_STATE;
  s->capture = graph;
  s->origin = true;
  s->last_count = 0;
  return CUDA_SUCCESS;
}

API CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
  if (!is_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  (void)mode;
  return begin_capture(stream_of(stream), new_graph());
}

API CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, CUgraphNode *dependencies, const void *edges, size_t count,
                                         int mode) {
  if (!is_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  (void)edges, (void)mode;
  struct Stream *s = stream_of(stream);
  const CUresult status = begin_capture(s, graph);
  if (status == CUDA_SUCCESS) depend_on(s, dependencies, count);
  return status;
}

// mark_joined marks the nodes that the end of a capture depends on. A node follows those that it
// depends on.
static void mark_joined(const struct Stream *s) {
  const struct Graph *g = s->capture;
  for (size_t i = 0; i < g->count; i++) g->nodes[i]->joined = false;
  for (size_t i = 0; i < s->last_count; i++) s->last[i]->joined = true;
  for (size_t i = g->count; i-- > 0;) {
    if (!g->nodes[i]->joined) continue;
    for (size_t j = 0; j < g->nodes[i]->dependency_count; j++) g->nodes[i]->dependencies[j]->joined = true;
  }
}

static bool all_joined(const struct Stream *s) {
  size_t joined = 0;
  while (joined < s->last_count && s->last[joined]->joined) joined++;
  return joined == s->last_count;
}

API CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
  if (!is_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  struct Stream *s = stream_of(stream);
  if (s->capture == NULL || !s->origin) return CUDA_ERROR_ILLEGAL_STATE;
  struct Graph *captured = s->capture;
  CUresult status = captured->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
  mark_joined(s);
  pthread_mutex_lock(&lock);
  for (struct Stream *other = streams; other != NULL; other = other->next) {
    if (other->capture != captured) continue;
    if (status == CUDA_SUCCESS && !all_joined(other)) status = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    other->capture = NULL;
    other->origin = false;
    other->last_count = 0;
  }
  pthread_mutex_unlock(&lock);
  captured->invalid = false;
  *graph = status == CUDA_SUCCESS ? captured : NULL;
  return status;
}

// capture_state is 0 without a capture, 1 with one, and 2 with one that is invalid.
static int capture_state(const struct Stream *s) { return s->capture == NULL ? 0 : s->capture->invalid ? 2 : 1; }

API CUresult cuStreamIsCapturing(CUstream stream, int *status) {
  if (!is_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  *status = capture_state(stream_of(stream));
  return CUDA_SUCCESS;
}

API CUresult cuStreamGetCaptureInfo_v3(CUstream stream, int *status, uint64_t *id, CUgraph *graph, CUgraphNode const **dependencies,
                                       const void **edges, size_t *count) {
  if (!is_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  const struct Stream *s = stream_of(stream);
  *status = capture_state(s);
  if (s->capture == NULL) return CUDA_SUCCESS;
  if (id != NULL) *id = s->capture->id;
  if (graph != NULL) *graph = s->capture;
  if (dependencies != NULL) *dependencies = s->last;
  if (edges != NULL) *edges = NULL;
  if (count != NULL) *count = s->last_count;
  return CUDA_SUCCESS;
}

API CUresult cuStreamGetCaptureInfo_v2(CUstream stream, int *status, uint64_t *id, CUgraph *graph, CUgraphNode const **dependencies,
                                       size_t *count) {
  return cuStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, NULL, count);
}

API CUresult cuStreamGetCaptureInfo(CUstream stream, int *status, uint64_t *id) {
  return cuStreamGetCaptureInfo_v3(stream, status, id, NULL, NULL, NULL, NULL);
}

API CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *nodes, size_t count, unsigned flags) {
  if (!is_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  struct Stream *s = stream_of(stream);
  if (s->capture == NULL) return CUDA_ERROR_ILLEGAL_STATE;
  if (flags == 1) s->last_count = 0;  // replace
  depend_on(s, nodes, count);
  return CUDA_SUCCESS;
}

API CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *nodes, const void *edges, size_t count, unsigned flags) {
  (void)edges;
  return cuStreamUpdateCaptureDependencies(stream, nodes, count, flags);
}

API CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
  static __thread int current;
  const int before = current;
  current = *mode;
  *mode = before;
  return CUDA_SUCCESS;
}
