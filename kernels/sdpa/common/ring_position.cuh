// Where a role is in a ring of slots that are filled and emptied again and again.
#pragma once

#include <cstdint>

// It goes round and round, slot after slot; the parity is that of the slot's phase. A slot is full in phase 0 when it has been filled once; it is empty before
// that, in the phase before.
template <int kSlots>
struct RingPosition {
  int slot = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void advance() {
    if (++slot == kSlots) slot = 0, parity ^= 1;
  }
};
