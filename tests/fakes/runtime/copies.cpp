// Copies and fills.
#include "streams.hpp"

#include <cstring>

namespace fake {
namespace {

// What a copy or a fill is, once its arguments have been judged.
struct Prepared {
  Command command;
  bool from_pageable = false, to_pageable = false;  // host memory that the runtime has not given
};

void require_capacity(size_t bytes, size_t capacity, const char* call) {
  if (bytes <= capacity) return;
  violation("DEST_MAX", std::string(call) + ": " + std::to_string(bytes) +
                            " bytes into a destination that is said to have " + std::to_string(capacity));
}

Range range_of(const void* begin, size_t bytes) {
  const auto at = reinterpret_cast<uintptr_t>(begin);
  return {at, at + bytes};
}

void require_host(const void* pointer, const Argument& what) {
  if (kind_of(pointer) == Kind::kDevice) violation("NOT_HOST_MEMORY", what.text() + " is device memory");
}

Prepared prepare_copy(void* to, size_t capacity, const void* from, size_t bytes, Direction direction,
                      const char* call) {
  require_capacity(bytes, capacity, call);
  const bool to_device = direction == Direction::kToDevice || direction == Direction::kOnDevice;
  const bool from_device = direction == Direction::kToHost || direction == Direction::kOnDevice;
  if (to_device) require_device(to, capacity, {call, "the destination"});
  if (from_device) require_device(from, bytes, {call, "the source"});
  if (!to_device) require_host(to, {call, "the destination"});
  if (!from_device) require_host(from, {call, "the source"});
  Prepared prepared;
  prepared.from_pageable = kind_of(from) == Kind::kUnknown;
  prepared.to_pageable = kind_of(to) == Kind::kUnknown;
  prepared.command = {call,
                      [=] { return std::memmove(bytes_at(to), bytes_at(from), bytes), 0; },
                      {range_of(to, bytes), range_of(from, bytes)}};
  return prepared;
}

Command prepare_fill(void* to, size_t capacity, int value, size_t bytes, const char* call) {
  require_capacity(bytes, capacity, call);
  require_device(to, capacity, call);
  return {call, [=] { return std::memset(bytes_at(to), value & 0xff, bytes), 0; }, {range_of(to, bytes)}};
}

bool is_direction(Direction direction) {
  return direction >= Direction::kOnHost && direction <= Direction::kOnDevice;
}

}  // namespace

int copy_within(void* to, size_t capacity, const void* from, size_t bytes, Direction direction, void* handle,
                const char* call) {
  if (!is_direction(direction)) return runtime().invalid_value;
  if (bytes == 0) return 0;
  Prepared prepared = prepare_copy(to, capacity, from, bytes, direction, call);
  const auto stream = stream_of(handle, call);
  if ((prepared.from_pageable || prepared.to_pageable) && stream->capture != nullptr) {
    violation("PAGEABLE_IN_CAPTURE",
              std::string(call) + " of host memory that is not pinned while the stream captures");
  }
  const bool waits = prepared.to_pageable || (prepared.from_pageable && runtime().pageable_waits);
  if (prepared.from_pageable && !waits) {
    const auto* const first = static_cast<const std::byte*>(from);
    const auto staged = std::make_shared<std::vector<std::byte>>(first, first + bytes);
    prepared.command.run = [=] { return std::memcpy(bytes_at(to), staged->data(), bytes), 0; };
  }
  if (const int code = enqueue(handle, call, std::move(prepared.command))) return code;
  return waits ? stream->wait() : 0;
}

int fill_within(void* to, size_t capacity, int value, size_t bytes, void* stream, const char* call) {
  return bytes == 0 ? 0 : enqueue(stream, call, prepare_fill(to, capacity, value, bytes, call));
}

int copy_now(void* to, size_t capacity, const void* from, size_t bytes, Direction direction, const char* call) {
  if (!is_direction(direction)) return runtime().invalid_value;
  return bytes == 0 ? 0 : prepare_copy(to, capacity, from, bytes, direction, call).command.run();
}

int fill_now(void* to, size_t capacity, int value, size_t bytes, const char* call) {
  return bytes == 0 ? 0 : prepare_fill(to, capacity, value, bytes, call).run();
}

}  // namespace fake
