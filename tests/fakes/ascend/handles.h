// How does the simulator notice a destroyed or foreign handle? By the framework's tables. Here a violation may return,
// in a test of the rules: get() then gives null.
#pragma once

#include <memory>
#include <string>

#include "state.h"
#include "tests/fakes/runtime/handles.hpp"

namespace fake_ascend {

template <typename T>
class HandleTable : public fake::Handles<T> {
public:
  using fake::Handles<T>::Handles;

  // Null and one violation when the handle is not live.
  std::shared_ptr<T> get(const void* handle, const char* call) {
    if (auto object = this->find(handle)) return object;
    const bool was_ours = this->was_live(handle);
    violation(was_ours ? "DESTROYED_HANDLE" : "INVALID_HANDLE",
              std::string(call) + ": " + (was_ours ? "a destroyed " : "not a ") + this->noun() + " " +
                  std::to_string(reinterpret_cast<uint64_t>(handle)));
    return nullptr;
  }

  template <typename Visit>
  void for_each(Visit visit) {
    for (const auto& object : this->all()) visit(object);
  }
};

}  // namespace fake_ascend
