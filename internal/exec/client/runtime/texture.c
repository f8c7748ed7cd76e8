// Texture and surface objects.

#include "array.h"

#include <string.h>

enum { kArrayResource = 0, kLinearResource = 2, kPitchedResource = 3 };

// RuntimeResource is what a texture reads, in the runtime's description.
struct RuntimeResource {
  int type;
  union {
    CUarray array;
    struct {
      void *pointer;
      struct Channels channels;
      size_t bytes;
    } linear;
    struct {
      void *pointer;
      struct Channels channels;
      size_t width, height, pitch;
    } pitched;
    int reserved[32];
  };
  unsigned flags;
};

struct DriverResource {
  int type;
  union {
    CUarray array;
    struct {
      CUdeviceptr address;
      int format;
      unsigned channels;
      size_t width, height, pitch;  // of linear memory, the width is in bytes
    };
    int reserved[32];
  };
  unsigned flags;
};

struct RuntimeSampler {
  int modes[3], filter, read_mode, srgb;
  float border[4];
  int normalised;
  unsigned anisotropy;
  int mipmap_filter;
  float bias, least, most;
  int no_trilinear, seamless;
};

struct DriverSampler {
  int modes[3], filter;
  unsigned flags, anisotropy;
  int mipmap_filter;
  float bias, least, most, border[4];
  int reserved[12];
};

CUresult cuTexObjectCreate(uint64_t *, const struct DriverResource *, const struct DriverSampler *, const void *);
CUresult cuTexObjectDestroy(uint64_t);
CUresult cuTexObjectGetResourceDesc(struct DriverResource *, uint64_t);
CUresult cuTexObjectGetTextureDesc(struct DriverSampler *, uint64_t);
CUresult cuSurfObjectCreate(uint64_t *, const struct DriverResource *);
CUresult cuSurfObjectDestroy(uint64_t);

static struct DriverResource driver_resource(const struct RuntimeResource *r) {
  struct DriverResource d = {.type = r->type};
  if (r->type == kLinearResource) {
    d.address = (uintptr_t)r->linear.pointer, d.width = r->linear.bytes;
    d.format = format_of(&r->linear.channels), d.channels = channels_of(&r->linear.channels);
  } else if (r->type == kPitchedResource) {
    d.address = (uintptr_t)r->pitched.pointer, d.width = r->pitched.width, d.height = r->pitched.height, d.pitch = r->pitched.pitch;
    d.format = format_of(&r->pitched.channels), d.channels = channels_of(&r->pitched.channels);
  } else {
    d.array = r->array;
  }
  return d;
}

API cudaError_t cudaCreateTextureObject(uint64_t *handle, const struct RuntimeResource *r, const struct RuntimeSampler *s, const void *view) {
  if (r == NULL || s == NULL) return record(CUDA_ERROR_INVALID_VALUE);
  const struct DriverResource resource = driver_resource(r);
  const unsigned flags = (s->read_mode == 0 ? 1u : 0) | (s->normalised ? 2u : 0) | (s->srgb ? 0x10u : 0);
  struct DriverSampler sampler = {.modes = {s->modes[0], s->modes[1], s->modes[2]}, .filter = s->filter, .flags = flags, .bias = s->bias,
                                  .mipmap_filter = s->mipmap_filter, .anisotropy = s->anisotropy, .least = s->least, .most = s->most};
  memcpy(sampler.border, s->border, sizeof sampler.border);
  DO(cuTexObjectCreate(handle, &resource, &sampler, view));
}

API cudaError_t cudaDestroyTextureObject(uint64_t handle) { DO(cuTexObjectDestroy(handle)); }

API cudaError_t cudaCreateSurfaceObject(uint64_t *handle, const struct RuntimeResource *r) {
  if (r == NULL) return record(CUDA_ERROR_INVALID_VALUE);
  const struct DriverResource resource = driver_resource(r);
  DO(cuSurfObjectCreate(handle, &resource));
}

API cudaError_t cudaDestroySurfaceObject(uint64_t handle) { DO(cuSurfObjectDestroy(handle)); }

API cudaError_t cudaGetTextureObjectResourceDesc(struct RuntimeResource *r, uint64_t handle) {
  struct DriverResource d;
  const CUresult status = cuTexObjectGetResourceDesc(&d, handle);
  if (status != CUDA_SUCCESS) return record(status);
  *r = (struct RuntimeResource){.type = d.type};
  if (d.type == kLinearResource) {
    r->linear.pointer = (void *)(uintptr_t)d.address, r->linear.bytes = d.width;
    r->linear.channels = channels_from(d.format, d.channels);
  } else if (d.type == kPitchedResource) {
    r->pitched.pointer = (void *)(uintptr_t)d.address, r->pitched.width = d.width, r->pitched.height = d.height;
    r->pitched.pitch = d.pitch, r->pitched.channels = channels_from(d.format, d.channels);
  } else {
    r->array = d.array;
  }
  return 0;
}

API cudaError_t cudaGetSurfaceObjectResourceDesc(struct RuntimeResource *r, uint64_t handle) { return cudaGetTextureObjectResourceDesc(r, handle); }

API cudaError_t cudaGetTextureObjectTextureDesc(struct RuntimeSampler *s, uint64_t handle) {
  struct DriverSampler d;
  const CUresult status = cuTexObjectGetTextureDesc(&d, handle);
  if (status != CUDA_SUCCESS) return record(status);
  *s = (struct RuntimeSampler){.modes = {d.modes[0], d.modes[1], d.modes[2]}, .filter = d.filter, .read_mode = d.flags & 1 ? 0 : 1,
                               .normalised = (d.flags & 2) != 0, .anisotropy = d.anisotropy, .mipmap_filter = d.mipmap_filter};
  memcpy(s->border, d.border, sizeof s->border);
  return 0;
}
