// Texture and surface objects. The server has them; the client remembers their descriptions.

#include "client.h"

#include <stdlib.h>
#include <string.h>

// TextureRequest describes an object to the server.
struct TextureRequest {
  uint64_t address, extent[3], pitch, slice;
  uint32_t bits, kind, channels, surface, linear, filter, normalised, scaled, modes[3];
  float border[4];
  uint32_t padding;
};

enum { kResourceArray = 0, kResourceMipmapped = 1, kResourceLinear = 2, kResourcePitched = 3 };

struct Resource {
  int type;
  union {
    struct Array *array;
    struct {
      CUdeviceptr address;
      int format;
      unsigned channels;
      size_t bytes;
    } linear;
    struct {
      CUdeviceptr address;
      int format;
      unsigned channels;
      size_t width, height, pitch;
    } pitched;
    int reserved[32];
  };
  unsigned flags;
};

struct Sampler {
  int modes[3], filter;
  unsigned flags, anisotropy;
  int mipmap_filter;
  float bias, least, most, border[4];
  int reserved[12];
};

enum { kReadAsInteger = 1, kNormalisedCoordinates = 2, kSRGB = 0x10 };

// Object is a texture or surface object that the program has made.
struct Object {
  uint64_t handle;
  struct Resource resource;
  struct Sampler sampler;
  struct Object *next;
};

static struct Object *objects;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void set_format(struct TextureRequest *r, int format, unsigned channels) {
  r->bits = 8 * (uint32_t)format_bytes(format);
  r->kind = format < 8 ? 1 : format < 0x10 ? 0 : 2;
  r->channels = channels;
}

// describe fills in what a resource is.
static CUresult describe(struct TextureRequest *r, const struct Resource *resource) {
  switch (resource->type) {
    case kResourceArray: {
      const struct Array *a = resource->array;
      if (a == NULL) return CUDA_ERROR_INVALID_HANDLE;
      set_format(r, a->format, a->channels);
      r->address = a->address;
      r->extent[0] = a->width, r->extent[1] = a->height, r->extent[2] = a->depth;
      r->pitch = a->width * element_bytes(a);
      r->slice = r->pitch * (a->height == 0 ? 1 : a->height);
      return CUDA_SUCCESS;
    }
    case kResourceLinear:
      set_format(r, resource->linear.format, resource->linear.channels);
      r->address = resource->linear.address;
      r->extent[0] = resource->linear.bytes / (r->bits / 8 * r->channels);
      r->linear = 1;
      return CUDA_SUCCESS;
    case kResourcePitched:
      set_format(r, resource->pitched.format, resource->pitched.channels);
      r->address = resource->pitched.address;
      r->extent[0] = resource->pitched.width, r->extent[1] = resource->pitched.height;
      r->pitch = resource->pitched.pitch;
      return CUDA_SUCCESS;
  }
  return unsupported("a texture with mipmaps");
}

static CUresult create(uint64_t *handle, struct TextureRequest *r, const struct Resource *resource, const struct Sampler *sampler) {
  CUresult status = describe(r, resource);
  if (status == CUDA_SUCCESS) status = call(REQUEST_TEXTURE, r, sizeof *r, NULL, 0, handle, sizeof *handle, NULL);
  if (status != CUDA_SUCCESS) return status;
  struct Object *o = calloc(1, sizeof *o);
  if (o == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  o->handle = *handle;
  o->resource = *resource;
  if (sampler != NULL) o->sampler = *sampler;
  pthread_mutex_lock(&lock);
  o->next = objects;
  objects = o;
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}

API CUresult cuTexObjectCreate(uint64_t *handle, const struct Resource *resource, const struct Sampler *sampler, const void *view) {
  if (handle == NULL || resource == NULL || sampler == NULL) return CUDA_ERROR_INVALID_VALUE;
  if (view != NULL) return unsupported("a texture with a view of its resource");
  if (sampler->flags & kSRGB) return unsupported("a texture with sRGB colours");
  struct TextureRequest r = {.filter = sampler->filter == 1, .normalised = (sampler->flags & kNormalisedCoordinates) != 0,
                             .scaled = (sampler->flags & kReadAsInteger) == 0};
  for (int i = 0; i < 3; i++) r.modes[i] = (uint32_t)sampler->modes[i];
  memcpy(r.border, sampler->border, sizeof r.border);
  return create(handle, &r, resource, sampler);
}

API CUresult cuSurfObjectCreate(uint64_t *handle, const struct Resource *resource) {
  if (handle == NULL || resource == NULL || resource->type != kResourceArray) return CUDA_ERROR_INVALID_VALUE;
  struct TextureRequest r = {.surface = 1};
  return create(handle, &r, resource, NULL);
}

static CUresult destroy(uint64_t handle) {
  pthread_mutex_lock(&lock);
  struct Object **at = &objects;
  while (*at != NULL && (*at)->handle != handle) at = &(*at)->next;
  struct Object *o = *at;
  if (o != NULL) *at = o->next;
  pthread_mutex_unlock(&lock);
  free(o);
  return handle == 0 ? CUDA_SUCCESS : call(REQUEST_TEXTURE_FREE, &handle, sizeof handle, NULL, 0, NULL, 0, NULL);
}

API CUresult cuTexObjectDestroy(uint64_t handle) { return destroy(handle); }
API CUresult cuSurfObjectDestroy(uint64_t handle) { return destroy(handle); }

static const struct Object *object_of(uint64_t handle) {
  pthread_mutex_lock(&lock);
  const struct Object *o = objects;
  while (o != NULL && o->handle != handle) o = o->next;
  pthread_mutex_unlock(&lock);
  return o;
}

API CUresult cuTexObjectGetResourceDesc(struct Resource *resource, uint64_t handle) {
  const struct Object *o = object_of(handle);
  if (o == NULL) return CUDA_ERROR_INVALID_VALUE;
  *resource = o->resource;
  return CUDA_SUCCESS;
}

API CUresult cuSurfObjectGetResourceDesc(struct Resource *resource, uint64_t handle) { return cuTexObjectGetResourceDesc(resource, handle); }

API CUresult cuTexObjectGetTextureDesc(struct Sampler *sampler, uint64_t handle) {
  const struct Object *o = object_of(handle);
  if (o == NULL) return CUDA_ERROR_INVALID_VALUE;
  *sampler = o->sampler;
  return CUDA_SUCCESS;
}
