extern "C" __global__ void transpose(const unsigned short *x, unsigned short *y, int rows, int cols) {
  __shared__ unsigned short tile[TILE][TILE + 2];
  const int c0 = blockIdx.x * TILE, r0 = blockIdx.y * TILE;
  for (int i = threadIdx.y; i < TILE; i += 8) {
    if (r0 + i < rows && c0 + threadIdx.x < cols) tile[i][threadIdx.x] = x[(r0 + i) * cols + c0 + threadIdx.x];
  }
  __syncthreads();
  for (int i = threadIdx.y; i < TILE; i += 8) {
    if (c0 + i < cols && r0 + threadIdx.x < rows) y[(c0 + i) * rows + r0 + threadIdx.x] = tile[threadIdx.x][i];
  }
}
