// What every thread has one of, such as memory that it keeps for its next call.
#pragma once

#include <pthread.h>

#include <memory>
#include <new>

namespace rlk::sdk {

// The thread's own T, made when it is first asked for. A `thread_local T` would be gone while the thread's other
// thread_local objects are destroyed, and their destructors may well call: a stream that is kept in one ends there.
// This one outlives them all; where it is asked for after that, it is made again. The main thread's is left to the end
// of the process. The library that uses it must not be unloaded. std::bad_alloc. [thread-safe]
template <class T>
T& thread_own() {
  static thread_local T* own = nullptr;
  if (own != nullptr) return *own;
  struct Key {
    Key() {
      const auto end = [](void* ended) {
        own = nullptr;  // first: it may be asked for while it ends
        delete static_cast<T*>(ended);
      };
      if (pthread_key_create(&key, end) != 0) throw std::bad_alloc();
    }
    pthread_key_t key{};
  };
  static const Key one;
  auto made = std::make_unique<T>();
  if (pthread_setspecific(one.key, made.get()) != 0) throw std::bad_alloc();
  own = made.release();
  return *own;
}

}  // namespace rlk::sdk
