// Textures and surfaces. Prints "ok" if all results are right.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "check.cuh"

static const int kWidth = 8, kHeight = 4, kDepth = 2;

__global__ void sample(cudaTextureObject_t plane, cudaTextureObject_t volume, cudaTextureObject_t layers, cudaTextureObject_t bytes,
                       cudaTextureObject_t line, float *out) {
  int i = 0;
  out[i++] = tex2D<float>(plane, 2.5f, 1.5f);          // the centre of a texel
  out[i++] = tex2D<float>(plane, 3.0f, 1.5f);          // half way to the next one
  out[i++] = tex2D<float>(plane, -5.0f, 1.5f);         // clamped
  out[i++] = tex2D<float>(plane, 2.5f, 100.0f);        // in the border
  out[i++] = tex3D<float>(volume, 1.5f / kWidth, 0.5f / kHeight, 1.25f);  // wraps to the first slice
  out[i++] = tex2DLayered<float>(layers, 3.5f, 2.5f, 1);
  float4 four = tex2DLayered<float4>(layers, 3.5f, 2.5f, 9);  // the last layer
  out[i++] = four.x;
  float4 colour = tex2D<float4>(bytes, 1.5f, 0.5f);  // bytes as fractions
  out[i++] = colour.y;
  out[i++] = tex1Dfetch<float>(line, 7);
  out[i++] = tex1Dfetch<float>(line, 8);  // behind the end
  float4 around = tex2Dgather<float4>(plane, 2.0f, 1.0f, 0);
  out[i++] = around.x, out[i++] = around.y, out[i++] = around.z, out[i++] = around.w;
}

// Lines: an array with one extent, layers of lines, and integers with the mirror of their coordinates.
__global__ void sample_lines(cudaTextureObject_t line, cudaTextureObject_t layers, cudaTextureObject_t numbers, float *out) {
  int i = 0;
  out[i++] = tex1D<float>(line, 3.0f);          // between two texels
  out[i++] = tex1D<float>(line, 100.0f);        // clamped
  out[i++] = tex1DLayered<float>(layers, 2.5f, 1);
  short2 pair = tex2D<short2>(numbers, 1.25f, 0.75f);  // the mirror of the second texel from the right, and the last row
  out[i++] = pair.x;
  out[i++] = pair.y;
}

__global__ void shift(cudaSurfaceObject_t to, cudaSurfaceObject_t from) {
  int x = threadIdx.x, y = threadIdx.y;
  float value = surf2Dread<float>(from, (x + 1) * 4, y, cudaBoundaryModeZero);
  surf2Dwrite(value, to, x * 4, y);
}

__global__ void outside(cudaSurfaceObject_t to) {
  surf2Dwrite(1.0f, to, threadIdx.x * 4, 4);
}

struct Options {
  cudaTextureFilterMode filter;
  cudaTextureAddressMode x, y;
  bool normalised, scaled;
};

static cudaTextureObject_t texture(const cudaResourceDesc &resource, Options o) {
  cudaTextureDesc d = {};
  d.addressMode[0] = o.x, d.addressMode[1] = o.y, d.addressMode[2] = o.x;
  d.filterMode = o.filter;
  d.readMode = o.scaled ? cudaReadModeNormalizedFloat : cudaReadModeElementType;
  d.normalizedCoords = o.normalised;
  d.borderColor[0] = -1;
  cudaTextureObject_t made = 0;
  CHECK(cudaCreateTextureObject(&made, &resource, &d, nullptr));
  return made;
}

static cudaResourceDesc of_array(cudaArray_t array) {
  cudaResourceDesc r = {};
  r.resType = cudaResourceTypeArray;
  r.res.array.array = array;
  return r;
}

// volume makes an array of numbers that count up.
static cudaArray_t volume(cudaExtent extent, unsigned flags) {
  std::vector<float> values(extent.width * (extent.height ? extent.height : 1) * (extent.depth ? extent.depth : 1));
  for (size_t i = 0; i < values.size(); i++) values[i] = (float)i;
  cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  cudaArray_t array;
  CHECK(cudaMalloc3DArray(&array, &format, extent, flags));
  cudaMemcpy3DParms p = {};
  p.extent = extent;
  if (p.extent.height == 0) p.extent.height = 1;
  if (p.extent.depth == 0) p.extent.depth = 1;
  p.srcPtr = make_cudaPitchedPtr(values.data(), extent.width * 4, extent.width, p.extent.height);
  p.dstArray = array;
  p.kind = cudaMemcpyHostToDevice;
  CHECK(cudaMemcpy3D(&p));
  return array;
}

int main(int count, char **) {
  cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
  std::vector<float> numbers(kWidth * kHeight);
  for (int i = 0; i < kWidth * kHeight; i++) numbers[i] = (float)i;
  cudaArray_t plane;
  CHECK(cudaMallocArray(&plane, &format, kWidth, kHeight, cudaArraySurfaceLoadStore));
  CHECK(cudaMemcpy2DToArray(plane, 0, 0, numbers.data(), kWidth * 4, kWidth * 4, kHeight, cudaMemcpyHostToDevice));

  float *line;
  uchar4 *bytes;
  size_t pitch;
  CHECK(cudaMalloc(&line, kWidth * 4));
  CHECK(cudaMemcpy(line, numbers.data(), kWidth * 4, cudaMemcpyHostToDevice));
  CHECK(cudaMallocPitch(&bytes, &pitch, 4 * sizeof(uchar4), 2));
  CHECK(cudaMemset2D(bytes, pitch, 51, 4 * sizeof(uchar4), 2));
  cudaResourceDesc linear = {}, pitched = {};
  linear.resType = cudaResourceTypeLinear;
  linear.res.linear.devPtr = line, linear.res.linear.desc = format, linear.res.linear.sizeInBytes = kWidth * 4;
  pitched.resType = cudaResourceTypePitch2D;
  pitched.res.pitch2D.devPtr = bytes, pitched.res.pitch2D.desc = cudaCreateChannelDesc<uchar4>();
  pitched.res.pitch2D.width = 4, pitched.res.pitch2D.height = 2, pitched.res.pitch2D.pitchInBytes = pitch;

  const auto clamp = cudaAddressModeClamp, wrap = cudaAddressModeWrap, border = cudaAddressModeBorder;
  const auto point = cudaFilterModePoint, smooth = cudaFilterModeLinear;
  cudaTextureObject_t t1 = texture(of_array(plane), {smooth, clamp, border, false, false});
  cudaTextureObject_t t2 = texture(of_array(volume(make_cudaExtent(kWidth, kHeight, kDepth), 0)), {point, wrap, wrap, true, false});
  cudaTextureObject_t t3 = texture(of_array(volume(make_cudaExtent(kWidth, kHeight, 3), cudaArrayLayered)), {point, clamp, clamp, false, false});
  cudaTextureObject_t t4 = texture(pitched, {point, clamp, clamp, false, true});
  cudaTextureObject_t t5 = texture(linear, {point, clamp, clamp, false, false});

  float *out;
  CHECK(cudaMallocManaged(&out, 64 * sizeof(float)));
  sample<<<1, 1>>>(t1, t2, t3, t4, t5, out);
  CHECK(cudaDeviceSynchronize());
  const float want[] = {10, 10.5f, 8, -1, 1, 51, 83, 0.2f, 7, 0, 9, 10, 2, 1};
  int wrong = 0;
  for (int i = 0; i < (int)(sizeof want / sizeof *want); i++) {
    if (fabsf(out[i] - want[i]) > 1e-6f) printf("sample %d is %g, want %g\n", i, out[i], want[i]), wrong++;
  }

  cudaArray_t pairs;
  cudaChannelFormatDesc two = cudaCreateChannelDesc<short2>();
  const short2 texels[2][4] = {{{0, -1}, {1, -2}, {2, -3}, {3, -4}}, {{10, -11}, {11, -12}, {12, -13}, {13, -14}}};
  CHECK(cudaMallocArray(&pairs, &two, 4, 2));
  CHECK(cudaMemcpy2DToArray(pairs, 0, 0, texels, sizeof texels[0], sizeof texels[0], 2, cudaMemcpyHostToDevice));
  const auto mirror = cudaAddressModeMirror;
  cudaTextureObject_t t6 = texture(of_array(volume(make_cudaExtent(kWidth, 0, 0), 0)), {smooth, clamp, clamp, false, false});
  cudaTextureObject_t t7 = texture(of_array(volume(make_cudaExtent(kWidth, 0, 2), cudaArrayLayered)), {point, clamp, clamp, false, false});
  cudaTextureObject_t t8 = texture(of_array(pairs), {point, mirror, mirror, true, false});
  sample_lines<<<1, 1>>>(t6, t7, t8, out);
  CHECK(cudaDeviceSynchronize());
  const float want_lines[] = {2.5f, 7, 10, 12, -13};
  for (int i = 0; i < (int)(sizeof want_lines / sizeof *want_lines); i++) {
    if (fabsf(out[i] - want_lines[i]) > 1e-6f) printf("line %d is %g, want %g\n", i, out[i], want_lines[i]), wrong++;
  }
  cudaTextureDesc described = {};
  CHECK(cudaGetTextureObjectTextureDesc(&described, t8));
  if (described.addressMode[1] != mirror || !described.normalizedCoords) printf("the description is wrong\n"), wrong++;

  cudaArray_t shifted;
  CHECK(cudaMallocArray(&shifted, &format, kWidth, kHeight, cudaArraySurfaceLoadStore));
  cudaResourceDesc r1 = of_array(shifted), r2 = of_array(plane);
  cudaSurfaceObject_t to, from;
  CHECK(cudaCreateSurfaceObject(&to, &r1));
  CHECK(cudaCreateSurfaceObject(&from, &r2));
  shift<<<1, dim3(kWidth, kHeight)>>>(to, from);
  CHECK(cudaMemcpy2DFromArray(numbers.data(), kWidth * 4, shifted, 0, 0, kWidth * 4, kHeight, cudaMemcpyDeviceToHost));
  for (int i = 0; i < kWidth * kHeight; i++) wrong += numbers[i] != (i % kWidth == kWidth - 1 ? 0 : i + 1);
  if (count > 1) {
    outside<<<1, 1>>>(to);  // below the last row
    CHECK(cudaDestroyTextureObject(t5));
    sample<<<1, 1>>>(t1, t2, t3, t4, t5, out);  // one of them has been destroyed
    CHECK(cudaDeviceSynchronize());
  }
  if (wrong == 0) printf("ok\n");
  return wrong;
}
