// The channels of arrays and textures.
#pragma once

#include "runtime.h"

struct Channels {
  int x, y, z, w, kind;
};

// format_of is the driver's format of an element: unsigned, signed or floating point of some bits.
int format_of(const struct Channels *c);
unsigned channels_of(const struct Channels *c);

// channels_from is the inverse.
struct Channels channels_from(int format, unsigned channels);
