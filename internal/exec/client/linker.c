// The linker of the driver: it joins PTX. The result is a container of the texts, which the server links
// when the program loads it.

#include "client.h"

#include <stdlib.h>
#include <string.h>

// ContainerHeader and ImageHeader are those of a fat binary.
struct ContainerHeader {
  uint32_t magic;
  uint16_t version, bytes;
  uint64_t images;
};

struct ImageHeader {
  uint16_t kind, version;
  uint32_t bytes;
  uint64_t payload;
  uint32_t packed, unused[2], architecture;
  uint32_t rest[2];
  uint64_t flags, more, size;
};

_Static_assert(sizeof(struct ImageHeader) == 64, "the header of an image");

// Kinds of input, the version of a container whose images are parts of one module (fatbin.go), and an
// architecture that every device has.
enum { kInputFatbin = 2, kContainerMagic = (int)0xba55ed50, kElf = 0x464c457f, kPartsVersion = 0x4154, kAnyArchitecture = 50 };

// Link is a container that grows.
struct Link {
  struct ContainerHeader *image;
  size_t bytes;
};

static CUresult append(struct Link *link, const void *data, size_t bytes) {
  char *grown = realloc(link->image, link->bytes + bytes);
  if (grown == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  link->image = (struct ContainerHeader *)grown;
  memcpy(grown + link->bytes, data, bytes);
  link->bytes += bytes;
  link->image->images = link->bytes - sizeof *link->image;
  return CUDA_SUCCESS;
}

API CUresult cuLinkCreate_v2(unsigned count, int *options, void **values, struct Link **link) {
  (void)count, (void)options, (void)values;
  const struct ContainerHeader header = {(uint32_t)kContainerMagic, kPartsVersion, sizeof header, 0};
  *link = calloc(1, sizeof **link);
  return *link == NULL ? CUDA_ERROR_OUT_OF_MEMORY : append(*link, &header, sizeof header);
}

static CUresult append_ptx(struct Link *link, const char *text, size_t bytes) {
  const size_t padded = (bytes + 7) / 8 * 8;
  const struct ImageHeader header = {.kind = 1, .version = 0x101, .bytes = sizeof header, .payload = padded, .architecture = kAnyArchitecture, .size = bytes};
  char *body = calloc(1, padded + 1);
  if (body == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  memcpy(body, text, bytes);
  CUresult status = append(link, &header, sizeof header);
  if (status == CUDA_SUCCESS) status = append(link, body, padded);
  free(body);
  return status;
}

API CUresult cuLinkAddData_v2(struct Link *link, int kind, void *data, size_t bytes, const char *name, unsigned count, int *options,
                              void **values) {
  (void)name, (void)count, (void)options, (void)values;
  if (link == NULL || data == NULL) return CUDA_ERROR_INVALID_VALUE;
  uint32_t magic = 0;
  memcpy(&magic, data, bytes < 4 ? bytes : 4);
  if (kind == kInputFatbin || magic == (uint32_t)kContainerMagic) {  // the images of a container
    const struct ContainerHeader *from = data;
    return append(link, (const char *)data + from->bytes, from->images);
  }
  if (magic == (uint32_t)kElf) return unsupported("cuLinkAddData of machine code");
  return append_ptx(link, data, strnlen(data, bytes));
}

API CUresult cuLinkAddFile_v2(struct Link *link, int kind, const char *path, unsigned count, int *options, void **values) {
  size_t bytes;
  char *data = read_file(path, &bytes);
  if (data == NULL) return CUDA_ERROR_FILE_NOT_FOUND;
  const CUresult status = cuLinkAddData_v2(link, kind, data, bytes, path, count, options, values);
  free(data);
  return status;
}

API CUresult cuLinkComplete(struct Link *link, void **image, size_t *bytes) {
  if (link == NULL || link->image == NULL) return CUDA_ERROR_INVALID_VALUE;
  *image = link->image;
  if (bytes != NULL) *bytes = link->bytes;
  return CUDA_SUCCESS;
}

API CUresult cuLinkDestroy(struct Link *link) {
  if (link != NULL) free(link->image);
  free(link);
  return CUDA_SUCCESS;
}
