// What the host must know to launch an image. attune reads the array by its name from the PTX, so that a variant's block
// size, tile and shared memory stand in one place: the source that uses them.
#pragma once

// blocks_a_multiprocessor is 0 for one block a tile, and else the most blocks of which each takes tile after tile.
#define ATTUNE_LAUNCH(threads, query_rows, dynamic_shared_bytes, blocks_a_multiprocessor) \
  extern "C" __device__ const unsigned attune_launch[4] = {threads, query_rows, dynamic_shared_bytes, blocks_a_multiprocessor}
