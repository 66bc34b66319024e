// Calls whose shape differs between vendors: each takes what any of them needs and makes the call that the table has.
// A function that a runtime may lack altogether throws RLK_UNSUPPORTED.
#pragma once

#include "driver.hpp"

namespace rlk::simt::host {

// Where a thread's calls go: a context, or a device of a runtime without contexts (context is nullptr then).
struct Place {
  ContextHandle context = nullptr;
  int device = 0;
  bool operator!=(const Place& other) const noexcept { return context != other.context || device != other.device; }
};

// The vendor's number of a device.
int device_of(int ordinal);
// 0 for an attribute that this driver does not know.
int attribute(int device, int which);
// One that nothing works without: the driver's error, with `what`, where it does not tell it.
int needed_attribute(int device, int which, const char* what);

// The device's place, kept until it is released. Only a runtime with contexts has anything to keep.
Place retain_place(int device);
void release_place(int device) noexcept;

void* allocate_pinned(uint64_t bytes);
StreamHandle create_stream(int priority);
bool has_peer_copies() noexcept;

// For a stream of the current place. kind: RLK_COPY_*.
void copy(void* to, const void* from, uint64_t bytes, int32_t kind, StreamHandle stream);
void copy_peer(void* to, const Place& to_place, const void* from, const Place& from_place, uint64_t bytes,
               StreamHandle stream);
void fill(void* to, uint8_t value, uint64_t bytes, StreamHandle stream);
GraphExecHandle instantiate(GraphHandle graph);

// How the driver keeps a thread's place: a stack of contexts, or one device.
struct ThreadPlace {
  using Handle = Place;
  static Handle current();
  static void enter(Handle wanted);
  static void leave(Handle previous) noexcept;
};
using PlaceScope = sdk::CurrentScope<ThreadPlace>;

// While a thread captures in global mode, the driver refuses allocations, queries, creations and the like to every
// other thread, and the refusal breaks the capture. In relaxed mode, which is this thread's own for a scope, it does
// not.
class RelaxedMode {
public:
  RelaxedMode();
  ~RelaxedMode();
  RelaxedMode(const RelaxedMode&) = delete;
  RelaxedMode& operator=(const RelaxedMode&) = delete;

private:
  int mode_ = kCaptureRelaxed;
};

// Both: what everything but enqueueing runs in.
class RelaxedScope {
public:
  explicit RelaxedScope(const Place& place) : place_(place) {}

private:
  PlaceScope place_;
  RelaxedMode mode_;
};

}  // namespace rlk::simt::host
