// Launches of every kind: cooperative, of clusters, with much shared memory, and those that fail.
#include <cooperative_groups.h>
#include <cstdio>
#include <cstdlib>

namespace cg = cooperative_groups;

#include "check.cuh"

// Each block adds what the next one has stored before the grid's barrier.
__global__ void rotate(int *p, int *out) {
  cg::grid_group grid = cg::this_grid();
  if (threadIdx.x == 0) p[blockIdx.x] = blockIdx.x;
  grid.sync();
  if (threadIdx.x == 0) out[blockIdx.x] = p[(blockIdx.x + 1) % gridDim.x];
}

__global__ void neighbours(int *out) {
  __shared__ int value;
  cg::cluster_group cluster = cg::this_cluster();
  if (threadIdx.x == 0) value = 100 + cluster.block_rank();
  cluster.sync();
  if (threadIdx.x == 0) out[blockIdx.x] = *cluster.map_shared_rank(&value, (cluster.block_rank() + 1) % cluster.num_blocks());
  cluster.sync();
}

__global__ void large(int *out, int n) {
  extern __shared__ int tile[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) tile[i] = i;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = tile[n - 1 - i];
}

static int cooperative(int *p, int *out) {
  int blocks = 0;
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, rotate, 64, 0));
  void *args[] = {&p, &out};
  CHECK(cudaLaunchCooperativeKernel((void *)rotate, dim3(8), dim3(64), args, 0, 0));
  int got[8], wrong = blocks < 1;
  CHECK(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 8; i++) wrong += got[i] != (i + 1) % 8;
  return wrong;
}

static int clusters(int *out) {
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {4, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(8);
  config.blockDim = dim3(32);
  config.attrs = &attribute;
  config.numAttrs = 1;
  CHECK(cudaLaunchKernelEx(&config, neighbours, out));
  int got[8], wrong = 0;
  CHECK(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 8; i++) wrong += got[i] != 100 + (i + 1) % 4;
  config.gridDim = dim3(16);
  attribute.val.clusterDim = {16, 1, 1};
  wrong += cudaLaunchKernelEx(&config, neighbours, out) != cudaErrorInvalidClusterSize;
  wrong += cudaGetLastError() != cudaErrorInvalidClusterSize;
  CHECK(cudaFuncSetAttribute(neighbours, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  CHECK(cudaLaunchKernelEx(&config, neighbours, out));
  return wrong;
}

static int shared(int *out) {
  const int n = 20000;
  int wrong = 0, *got = (int *)malloc(n * sizeof(int));
  large<<<1, 256, n * sizeof(int)>>>(out, n);
  wrong += cudaGetLastError() != cudaErrorInvalidValue;
  CHECK(cudaFuncSetAttribute(large, cudaFuncAttributeMaxDynamicSharedMemorySize, n * sizeof(int)));
  large<<<1, 256, n * sizeof(int)>>>(out, n);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(got, out, n * sizeof(int), cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; i++) wrong += got[i] != n - 1 - i;
  large<<<1, 2000>>>(out, n);
  wrong += cudaGetLastError() != cudaErrorInvalidConfiguration;
  return wrong;
}

int main() {
  int *p, *out;
  CHECK(cudaMalloc(&p, 1 << 20));
  CHECK(cudaMalloc(&out, 1 << 20));
  int wrong = cooperative(p, out);
  printf("cooperative: %s\n", wrong ? "wrong" : "ok");
  wrong += clusters(out);
  printf("clusters: %s\n", wrong ? "wrong" : "ok");
  wrong += shared(out);
  printf("shared: %s\n", wrong ? "wrong" : "ok");
  return wrong != 0;
}
