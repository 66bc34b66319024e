// Statics that exit() does not destroy.
#pragma once

#include <new>
#include <utility>

namespace rlk::sdk {

// Around a static whose type has a destructor. exit() destroys statics while other threads go on: one that reads it
// then reads freed memory, and takes what is right for wrong. This one is left to the end of the process.
template <class T>
class Immortal {
public:
  template <class... Arguments>
  explicit Immortal(Arguments&&... arguments) {
    ::new (static_cast<void*>(memory_)) T(std::forward<Arguments>(arguments)...);
  }
  Immortal(const Immortal&) = delete;
  Immortal& operator=(const Immortal&) = delete;

  const T& operator*() const { return *std::launder(reinterpret_cast<const T*>(memory_)); }
  const T* operator->() const { return &**this; }

private:
  alignas(T) unsigned char memory_[sizeof(T)];
};

}  // namespace rlk::sdk
