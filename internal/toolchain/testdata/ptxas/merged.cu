// Functions that are not inlined, but that ptxas merges into the entries that call them: their stack becomes
// the entry's. Local arrays, static shared memory, numbered barriers, three entries.

__device__ __noinline__ float deep(const float* x, int n) {
  float local[40];
  for (int i = 0; i < 40; ++i) local[i] = x[i] * n;
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += local[(i * 7) % 40];
  return sum;
}

__device__ __noinline__ float common_to_both(const float* x, int n) {
  float local[10];
  for (int i = 0; i < 10; ++i) local[i] = x[i] + n;
  return local[n % 10] + deep(x, n);
}

__device__ __noinline__ float only_second(const float* x, int n) {
  float local[100];
  for (int i = 0; i < 100; ++i) local[i] = x[i] - n;
  return local[n % 100];
}

extern "C" __global__ void first(float* out, const float* x, int n) {
  __shared__ float tile[256];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = tile[255 - threadIdx.x] + common_to_both(x, n);
}

extern "C" __global__ void second(float* out, const float* x, int n) {
  __shared__ float tile[512];
  tile[threadIdx.x] = x[threadIdx.x];
  asm volatile("bar.sync 3, 64;");
  out[threadIdx.x] = tile[n] + common_to_both(x, n) + only_second(x, n);
}

extern "C" __global__ void third(float* out) { out[threadIdx.x] = 1; }
