// Handles. Those of streams, events, graphs and functions are addresses, and programs use handles that
// they have destroyed: each call asks here first whether a handle is one that exists.

#include "client.h"

#include <stdlib.h>

// Slot is a place in a hash table. A kind of 0 ends a search, and a slot of a destroyed handle does not.
struct Slot {
  const void *handle;
  int kind;
};

enum { kDestroyed = -1 };

static struct Slot *slots;
static size_t room, used;  // room is a power of two; used are those with a kind
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// slot_of returns the slot of a handle, or the first that ends the search for it.
static struct Slot *slot_of(const void *handle) {
  size_t i = ((uintptr_t)handle >> 4) * 0x9e3779b97f4a7c15u & (room - 1);
  while (slots[i].kind != 0 && slots[i].handle != handle) i = (i + 1) & (room - 1);
  return &slots[i];
}

// make_room makes another table, without the handles that are destroyed.
static bool make_room(void) {
  struct Slot *const old = slots;
  const size_t before = room;
  size_t live = 0, wanted = 64;
  for (size_t i = 0; i < before; i++) live += old[i].kind > 0;
  while (wanted < 4 * live) wanted *= 2;
  struct Slot *const made = calloc(wanted, sizeof *made);
  if (made == NULL) return false;
  slots = made;
  room = wanted;
  used = live;
  for (size_t i = 0; i < before; i++) {
    if (old[i].kind > 0) *slot_of(old[i].handle) = old[i];
  }
  free(old);
  return true;
}

bool add_handle(enum HandleKind kind, const void *handle) {
  pthread_mutex_lock(&lock);
  const bool fits = 2 * used < room || make_room();
  if (fits) {
    struct Slot *const s = slot_of(handle);
    if (s->kind == 0) used++;
    *s = (struct Slot){handle, (int)kind};
  }
  pthread_mutex_unlock(&lock);
  return fits;
}

bool remove_handle(enum HandleKind kind, const void *handle) {
  pthread_mutex_lock(&lock);
  struct Slot *const s = room == 0 ? NULL : slot_of(handle);
  const bool known = s != NULL && s->kind == (int)kind;
  if (known) s->kind = kDestroyed;
  pthread_mutex_unlock(&lock);
  return known;
}

bool is_handle(enum HandleKind kind, const void *handle) {
  pthread_mutex_lock(&lock);
  const bool known = room != 0 && slot_of(handle)->kind == (int)kind;
  pthread_mutex_unlock(&lock);
  return known;
}

// attuneIsFunction is is_handle for the runtime library.
API bool attuneIsFunction(const void *handle) { return is_handle(HANDLE_FUNCTION, handle); }
