// Ends the program with a line if a call of the runtime library fails.
#pragma once

#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                                          \
  do {                                                                                       \
    cudaError_t e = (call);                                                                  \
    if (e != cudaSuccess) {                                                                  \
      printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(e));           \
      exit(1);                                                                               \
    }                                                                                        \
  } while (0)
