// The framework's functions in the libraries that have no state of their own.
#include <cstdlib>

#include "bridge.hpp"

namespace fake {

int enter(const char* call, Needs needs) {
  return fakeBridge()->enter(call, needs);
}
void violation(const char* rule, const std::string& text) {
  fakeBridge()->violation(rule, text);
  std::abort();
}
int enqueue(void* handle, const char* call, Command command) {
  return fakeBridge()->enqueue(handle, call, std::move(command));
}
void require_device(const void* pointer, size_t bytes, const Argument& what) {
  fakeBridge()->require_device(pointer, bytes, what);
}
void require_aligned(const void* pointer, size_t alignment, const Argument& what) {
  fakeBridge()->require_aligned(pointer, alignment, what);
}
std::byte* bytes_at(const void* pointer) {
  return fakeBridge()->bytes_at(pointer);
}
int current_device() {
  return fakeBridge()->current_device();
}
int device_count() {
  return fakeBridge()->device_count();
}
int lost() {
  return fakeBridge()->lost();
}
std::string recorded_with(const void* handle) {
  return fakeBridge()->recorded_with(handle);
}

}  // namespace fake
