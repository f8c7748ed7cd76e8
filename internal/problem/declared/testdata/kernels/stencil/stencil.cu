extern "C" __global__ void stencil(const int *in, int *out, unsigned h, unsigned w) {
  __shared__ int tile[10][18];
  const int x0 = blockIdx.x * 16, y0 = blockIdx.y * 8;
  for (int i = threadIdx.y * 16 + threadIdx.x; i < 10 * 18; i += 128) {
    const int y = y0 + i / 18 - 1, x = x0 + i % 18 - 1;
    tile[i / 18][i % 18] = y >= 0 && y < (int)h && x >= 0 && x < (int)w ? in[y * w + x] : 0;
  }
  __syncthreads();
  const int y = y0 + threadIdx.y, x = x0 + threadIdx.x;
  if (y >= h || x >= w) return;
  const int r = threadIdx.y + 1, c = threadIdx.x + 1;
  out[y * w + x] = tile[r - 1][c] + tile[r + 1][c] + tile[r][c - 1] + tile[r][c + 1] - 4 * tile[r][c];
}
