// Every function of a plugin's tables is called through here. What it throws (a raw C++ plugin's exception, which the
// SDK would have caught) becomes a status, and the floating-point environment that it leaves behind is undone.
#pragma once

#include <rlk/abi/status.h>

#include <exception>  // and with it the library's own macros
#if defined(__GLIBCXX__)
#include <cxxabi.h>
#endif

#include "core/declaration/float_environment.hpp"

namespace rlk::core {

namespace detail {

// What is being handled, in words. [inside a catch block]
rlk_status fail_with_exception(rlk_error* error) noexcept;

inline rlk_error* as_error(rlk_error* error) {
  return error;
}
template <class T>
rlk_error* as_error(const T&) {
  return nullptr;
}
// The caller's error is the last argument; nullptr where there is none.
template <class... A>
rlk_error* error_of(const A&... arguments) {
  rlk_error* last = nullptr;
  (static_cast<void>(last = as_error(arguments)), ...);
  return last;
}

}  // namespace detail

// If a plugin ends its thread (pthread_exit), glibc unwinds the thread with this exception: it must pass.
#ifdef __GLIBCXX__
#define RLK_LET_THREAD_END              \
  catch (const abi::__forced_unwind&) { \
    throw;                              \
  }
#else
#define RLK_LET_THREAD_END
#endif

template <class... P, class... A>
rlk_status call_plugin(rlk_status (*slot)(P...), A... arguments) {
  const KeepFloatControl keep;
  try {
    return slot(arguments...);
  }
  RLK_LET_THREAD_END
  catch (...) {
    return detail::fail_with_exception(detail::error_of(arguments...));
  }
}

// Slots that return a pointer: nullptr after an exception, which is then in the error, where there is one.
template <class R, class... P, class... A>
R* call_plugin(R* (*slot)(P...), A... arguments) {
  const KeepFloatControl keep;
  try {
    return slot(arguments...);
  }
  RLK_LET_THREAD_END
  catch (...) {
    detail::fail_with_exception(detail::error_of(arguments...));
    return nullptr;
  }
}

#undef RLK_LET_THREAD_END

// `status` of a plugin's function that made something, unless it answered OK and made nothing: a null handle would be
// given to its other functions. `what` is "stream create".
rlk_status check_made(rlk_status status, const void* handle, const char* what, rlk_error* error);

}  // namespace rlk::core
