// Virtual memory: a range of addresses larger than the device, with memory at some of them.
#include <cuda.h>

#include <cstdio>
#include <cstdlib>

#define REQUIRE(condition)                             \
  do {                                                 \
    if (!(condition)) {                                \
      printf("line %d: %s\n", __LINE__, #condition);   \
      exit(1);                                         \
    }                                                  \
  } while (0)

__global__ void count(int *at, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) at[i] = i;
}

static CUmemGenericAllocationHandle create(size_t bytes) {
  CUmemAllocationProp property = {};
  property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  property.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle piece;
  REQUIRE(cuMemCreate(&piece, bytes, &property, 0) == CUDA_SUCCESS);
  return piece;
}

static CUmemGenericAllocationHandle map(CUdeviceptr at, size_t bytes) {
  const CUmemGenericAllocationHandle piece = create(bytes);
  REQUIRE(cuMemMap(at, bytes, 0, piece, 0) == CUDA_SUCCESS);
  CUmemAccessDesc access = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  REQUIRE(cuMemSetAccess(at, bytes, &access, 1) == CUDA_SUCCESS);
  return piece;
}

int main() {
  REQUIRE(cudaFree(0) == cudaSuccess);
  size_t piece = 2 << 20, all = 64ull << 30, before, after;
  CUdeviceptr at = 0;
  REQUIRE(cuMemAddressReserve(&at, all, 0, 0, 0) == CUDA_SUCCESS);
  int word = 0;
  REQUIRE(cuMemcpyDtoH(&word, at, sizeof word) != CUDA_SUCCESS);  // nothing is mapped
  cuMemGetInfo(&before, nullptr);
  const auto second = map(at + piece, 2 * piece);  // behind what is mapped next
  const auto first = map(at, piece);
  cuMemGetInfo(&after, nullptr);
  REQUIRE(before - after >= 3 * piece && before - after < 4 * piece);

  const int n = 3 * piece / sizeof(int);
  count<<<(n + 255) / 256, 256>>>((int *)at, n);
  int across[2];  // a copy over the border of the pieces
  REQUIRE(cuMemcpyDtoH(across, at + piece - sizeof(int), sizeof across) == CUDA_SUCCESS);
  REQUIRE(across[1] == int(piece / sizeof(int)) && across[0] == across[1] - 1);

  REQUIRE(cuMemMap(at, piece, 0, create(piece), 0) == CUDA_ERROR_INVALID_VALUE);  // there is memory already
  REQUIRE(cuMemUnmap(at + all, piece) == CUDA_ERROR_INVALID_VALUE);  // not reserved
  REQUIRE(cuMemUnmap(at, piece) == CUDA_SUCCESS && cuMemRelease(first) == CUDA_SUCCESS);
  REQUIRE(cuMemcpyDtoH(across, at + piece - sizeof(int), sizeof across) != CUDA_SUCCESS);
  REQUIRE(cuMemcpyDtoH(&word, at + piece, sizeof word) == CUDA_SUCCESS && word == across[1]);  // it stays
  REQUIRE(cuMemAddressFree(at, all) == CUDA_ERROR_INVALID_VALUE);  // it has memory
  REQUIRE(cuMemUnmap(at, all) == CUDA_SUCCESS && cuMemRelease(second) == CUDA_SUCCESS);
  cuMemGetInfo(&after, nullptr);
  REQUIRE(after == before);
  REQUIRE(cuMemAddressFree(at, all) == CUDA_SUCCESS);
  return 0;
}
