// The major version of a library that the host computes.

#include "../client.h"

const int attune_major = RUNTIME;
