// Streams, events and captures.

#include "runtime.h"

CUresult cuStreamCreateWithPriority(CUstream *, unsigned, int);
CUresult cuStreamDestroy_v2(CUstream);
CUresult cuStreamSynchronize(CUstream);
CUresult cuStreamQuery(CUstream);
CUresult cuStreamWaitEvent(CUstream, CUevent, unsigned);
CUresult cuStreamGetFlags(CUstream, unsigned *);
CUresult cuStreamGetPriority(CUstream, int *);
CUresult cuStreamGetId(CUstream, unsigned long long *);
CUresult cuStreamAddCallback(CUstream, void (*)(CUstream, CUresult, void *), void *, unsigned);
CUresult cuEventCreate(CUevent *, unsigned);
CUresult cuEventDestroy_v2(CUevent);
CUresult cuEventRecord(CUevent, CUstream);
CUresult cuEventRecordWithFlags(CUevent, CUstream, unsigned);
CUresult cuEventSynchronize(CUevent);
CUresult cuEventQuery(CUevent);
CUresult cuEventElapsedTime(float *, CUevent, CUevent);
CUresult cuStreamBeginCapture_v2(CUstream, int);
CUresult cuStreamBeginCaptureToGraph(CUstream, CUgraph, const CUgraphNode *, const void *, size_t, int);
CUresult cuStreamEndCapture(CUstream, CUgraph *);
CUresult cuStreamIsCapturing(CUstream, int *);
CUresult cuStreamGetCaptureInfo_v2(CUstream, int *, uint64_t *, CUgraph *, CUgraphNode const **, size_t *);
CUresult cuStreamGetCaptureInfo_v3(CUstream, int *, uint64_t *, CUgraph *, CUgraphNode const **, const void **, size_t *);
CUresult cuStreamUpdateCaptureDependencies(CUstream, CUgraphNode *, size_t, unsigned);
CUresult cuThreadExchangeStreamCaptureMode(int *);

API cudaError_t cudaStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
  DO(cuStreamCreateWithPriority(stream, flags, priority));
}

API cudaError_t cudaStreamCreate(CUstream *stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
API cudaError_t cudaStreamCreateWithFlags(CUstream *stream, unsigned flags) { return cudaStreamCreateWithPriority(stream, flags, 0); }
API cudaError_t cudaStreamDestroy(CUstream stream) { DO(cuStreamDestroy_v2(stream)); }
API cudaError_t cudaStreamSynchronize(CUstream stream) { DO(cuStreamSynchronize(stream)); }
API cudaError_t cudaStreamQuery(CUstream stream) { DO(cuStreamQuery(stream)); }
API cudaError_t cudaStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) { DO(cuStreamWaitEvent(stream, event, flags)); }
API cudaError_t cudaStreamGetFlags(CUstream stream, unsigned *flags) { DO(cuStreamGetFlags(stream, flags)); }
API cudaError_t cudaStreamGetPriority(CUstream stream, int *priority) { DO(cuStreamGetPriority(stream, priority)); }
API cudaError_t cudaStreamGetId(CUstream stream, unsigned long long *id) { DO(cuStreamGetId(stream, id)); }

API cudaError_t cudaStreamGetDevice(CUstream stream, int *device) {
  (void)stream;
  *device = 0;
  return record(ready());
}

API cudaError_t cudaStreamAddCallback(CUstream stream, void (*callback)(CUstream, CUresult, void *), void *data, unsigned flags) {
  DO(cuStreamAddCallback(stream, callback, data, flags));
}

API cudaError_t cudaStreamAttachMemAsync(CUstream stream, void *p, size_t bytes, unsigned flags) {
  (void)stream, (void)p, (void)bytes, (void)flags;
  return record(ready());
}

CUresult cuStreamGetAttribute(CUstream, int, void *);

API cudaError_t cudaStreamSetAttribute(CUstream stream, int attribute, const void *value) {
  (void)stream, (void)attribute, (void)value;
  return record(ready());
}

API cudaError_t cudaStreamGetAttribute(CUstream stream, int attribute, void *value) { DO(cuStreamGetAttribute(stream, attribute, value)); }

// ---- events ------------------------------------------------------------------------------------

API cudaError_t cudaEventCreateWithFlags(CUevent *event, unsigned flags) { DO(cuEventCreate(event, flags)); }
API cudaError_t cudaEventCreate(CUevent *event) { return cudaEventCreateWithFlags(event, 0); }
API cudaError_t cudaEventDestroy(CUevent event) { DO(cuEventDestroy_v2(event)); }
API cudaError_t cudaEventRecord(CUevent event, CUstream stream) { DO(cuEventRecord(event, stream)); }

API cudaError_t cudaEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
  DO(cuEventRecordWithFlags(event, stream, flags));
}

API cudaError_t cudaEventSynchronize(CUevent event) { DO(cuEventSynchronize(event)); }
API cudaError_t cudaEventQuery(CUevent event) { DO(cuEventQuery(event)); }

API cudaError_t cudaEventElapsedTime(float *milliseconds, CUevent start, CUevent end) { DO(cuEventElapsedTime(milliseconds, start, end)); }
API cudaError_t cudaEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) {
  return cudaEventElapsedTime(milliseconds, start, end);
}

// ---- capture -----------------------------------------------------------------------------------

API cudaError_t cudaStreamBeginCapture(CUstream stream, int mode) { DO(cuStreamBeginCapture_v2(stream, mode)); }

API cudaError_t cudaStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *dependencies, const void *edges, size_t count,
                                              int mode) {
  DO(cuStreamBeginCaptureToGraph(stream, graph, dependencies, edges, count, mode));
}

API cudaError_t cudaStreamEndCapture(CUstream stream, CUgraph *graph) { DO(cuStreamEndCapture(stream, graph)); }
API cudaError_t cudaStreamIsCapturing(CUstream stream, int *status) { DO(cuStreamIsCapturing(stream, status)); }

#if RUNTIME >= 13
API cudaError_t cudaStreamGetCaptureInfo(CUstream stream, int *status, uint64_t *id, CUgraph *graph, CUgraphNode const **dependencies,
                                         const void **edges, size_t *count) {
  DO(cuStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, edges, count));
}
#else
API cudaError_t cudaStreamGetCaptureInfo(CUstream stream, int *status, uint64_t *id) {
  DO(cuStreamGetCaptureInfo_v2(stream, status, id, NULL, NULL, NULL));
}
#endif

API cudaError_t cudaStreamGetCaptureInfo_v2(CUstream stream, int *status, uint64_t *id, CUgraph *graph, CUgraphNode const **dependencies,
                                            size_t *count) {
  DO(cuStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count));
}

API cudaError_t cudaStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *nodes,
#if RUNTIME >= 13
                                                    const void *edges,
#endif
                                                    size_t count, unsigned flags) {
#if RUNTIME >= 13
  (void)edges;
#endif
  DO(cuStreamUpdateCaptureDependencies(stream, nodes, count, flags));
}

API cudaError_t cudaThreadExchangeStreamCaptureMode(int *mode) { DO(cuThreadExchangeStreamCaptureMode(mode)); }
