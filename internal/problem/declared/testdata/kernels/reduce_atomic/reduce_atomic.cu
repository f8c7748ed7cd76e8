// Every block adds its partial sum to the total by an atomic operation, so that the order of the
// sum differs from launch to launch.
extern "C" __global__ void sum(const float *x, float *total, long long n) {
  extern __shared__ float partial[];
  float own = 0;
  for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) own += x[i];
  for (int step = 16; step > 0; step /= 2) own += __shfl_xor_sync(~0u, own, step);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = own;
  __syncthreads();
  if (threadIdx.x == 0) {
    float block = 0;
    for (int i = 0; i < blockDim.x / 32; i++) block += partial[i];
    atomicAdd(total, block);
  }
}
