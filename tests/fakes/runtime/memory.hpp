// Simulated device memory, closed to the host: following a device address faults. Fresh memory is 0xFF bytes, freed
// memory 0xDD, and a red zone around each allocation tells at its end whether a write went beside it.
#pragma once

#include "calls.hpp"

namespace fake {

struct Range {
  uintptr_t begin = 0, end = 0;
  bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
};

// An argument of a call, for what is said when it breaks a rule: "call: name 3". Made for every argument of every call,
// so it is put into words only then.
struct Argument {
  Argument(const char* of_call, const char* its_name = "", int its_number = 0)
      : call(of_call), name(its_name), number(its_number) {}
  std::string text() const {
    std::string words = call;
    if (*name != '\0') words += std::string(": ") + name;
    if (number != 0) words += " " + std::to_string(number);
    return words;
  }

  const char* call;
  const char* name;  // empty: the call itself
  int number;        // 0: none
};

int allocate(int device, size_t bytes, void** out);
int allocate_pinned(size_t bytes, void** out);
// Memory of the other kind, or freed before, is a violation; for commands that use it, see Runtime::free_waits.
void release(void* pointer, bool pinned, const char* call);
size_t memory_bytes();
size_t used_bytes(int device);

enum class Kind { kUnknown, kPinned, kDevice };  // kUnknown: host memory that the runtime has not given
Kind kind_of(const void* pointer);
// The device whose memory it is; -1.
int device_at(const void* pointer);

// Rules: [pointer, pointer + bytes) is inside one live allocation of device memory; an address is a multiple; every
// word of a kernel's arguments that looks like an address leads into a live allocation.
void require_device(const void* pointer, size_t bytes, const Argument& what);
void require_aligned(const void* pointer, size_t alignment, const Argument& what);
void require_addresses(const void* arguments, size_t bytes, const std::string& kernel);

// Where simulator code reads and writes: device memory through a second mapping, anything else as it is.
std::byte* bytes_at(const void* pointer);
template <class T>
T* at(const void* pointer) {
  return reinterpret_cast<T*>(bytes_at(pointer));
}
// While one lives, kernels may follow device addresses.
class OpenMemory {
public:
  OpenMemory();
  ~OpenMemory();
  OpenMemory(const OpenMemory&) = delete;
  OpenMemory& operator=(const OpenMemory&) = delete;
};

}  // namespace fake
