// Entry points for attune's Python package, which the driver does not have.

#include "client.h"

#include <string.h>

// attuneAllocate allocates memory that findings call by a name.
API CUresult attuneAllocate(CUdeviceptr *address, size_t bytes, uint32_t kind, const char *name) {
  const uint64_t request[2] = {bytes, kind};
  return call(REQUEST_ALLOC, request, sizeof request, name, strlen(name), address, sizeof *address, NULL);
}

// attuneReports writes what the server has reported since a place, as JSON.
API CUresult attuneReports(uint64_t first, char *text, size_t capacity, size_t *bytes) {
  return call(REQUEST_REPORTS, &first, sizeof first, NULL, 0, text, capacity, bytes);
}
