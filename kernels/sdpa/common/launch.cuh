// What the host must know to launch an image. attune reads the array by its name from the PTX, so that a variant's block
// size, tile and shared memory stand in one place: the source that uses them.
#pragma once

#define ATTUNE_LAUNCH(threads, query_rows, dynamic_shared_bytes) \
  extern "C" __device__ const unsigned attune_launch[3] = {threads, query_rows, dynamic_shared_bytes}
