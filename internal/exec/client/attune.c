// Entry points for attune's Python package, which the driver does not have.

#include "client.h"

#include <string.h>

struct NamedAllocation {
  uint64_t bytes, kind;
  uint32_t index;
} __attribute__((packed));

// attuneAllocate allocates memory that findings call an argument, by its index and its name. The
// program may access it.
API CUresult attuneAllocate(CUdeviceptr *address, size_t bytes, uint32_t kind, uint32_t index, const char *name) {
  const struct NamedAllocation request = {bytes, kind, index};
  const CUresult status = call(REQUEST_ALLOC, &request, sizeof request, name, strlen(name), address, sizeof *address, NULL);
  if (status == CUDA_SUCCESS) attuneOpenMemory(*address, bytes);
  return status;
}

// attuneReports writes what the server has reported since a place, as JSON.
API CUresult attuneReports(uint64_t first, char *text, size_t capacity, size_t *bytes) {
  return call(REQUEST_REPORTS, &first, sizeof first, NULL, 0, text, capacity, bytes);
}
