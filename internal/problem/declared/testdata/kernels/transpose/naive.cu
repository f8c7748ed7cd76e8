extern "C" __global__ void naive(const unsigned short *x, unsigned short *y, int rows, int cols) {
  for (int c = threadIdx.x; c < cols; c += blockDim.x) y[c * rows + blockIdx.x] = x[blockIdx.x * cols + c];
}
