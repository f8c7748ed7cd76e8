// The runtime library of attune exec: a libcudart.so over the driver library beside it.
//
// A program that is linked with a shared runtime library loads it in the place of NVIDIA's. Every
// function is a few calls of the driver API. RUNTIME is the major version that it stands in for,
// because some structures and parameters differ.
#pragma once

#include "../client.h"

#ifndef RUNTIME
#define RUNTIME 13
#endif

typedef int cudaError_t;

enum {
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidSymbol = 13,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorInvalidDevice = 101,
};

typedef struct {
  unsigned x, y, z;
} dim3;

// The driver's entry points that the runtime calls.
CUresult cuInit(unsigned);
CUresult cuDriverGetVersion(int *);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuCtxSynchronize(void);
CUresult cuDeviceGetAttribute(int *, int, CUdevice);
CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
CUresult cuGetErrorName(CUresult, const char **);
CUresult cuGetErrorString(CUresult, const char **);
CUresult cuModuleLoadData(CUmodule *, const void *);
CUresult cuModuleGetFunction(CUfunction *, CUmodule, const char *);
CUresult cuModuleGetGlobal_v2(CUdeviceptr *, size_t *, CUmodule, const char *);
CUresult attuneUnsupported(const char *);
bool attuneIsFunction(const void *);

// ready makes the device current in the thread. Every function calls it first.
cudaError_t ready(void);

// record keeps an error for cudaGetLastError, and returns it.
cudaError_t record(CUresult status);

// DO is the body of a function that is one call of the driver.
#define DO(call)                                   \
  do {                                             \
    const cudaError_t ready_status = ready();      \
    return record(ready_status != 0 ? ready_status : (call)); \
  } while (0)

// function_of finds the function of a kernel by the address of its host stub, or of a handle.
cudaError_t function_of(const void *host, CUfunction *function);

// host_of is the address of the host stub of a function, or its handle if it has none.
const void *host_of(CUfunction function);

// variable_of finds a __device__ or __constant__ variable by the address of its host shadow.
cudaError_t variable_of(const void *host, CUdeviceptr *address, size_t *bytes);
