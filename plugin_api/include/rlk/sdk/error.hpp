// How a plugin written in C++ fails: it throws, and the thunks of this SDK turn what was thrown into a status inside
// the plugin. No exception reaches the host, whose C++ runtime may be another one.
#pragma once

#include <rlk/abi.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <utility>

namespace rlk::sdk {

class Error : public std::exception {
public:
  Error(rlk_status status, std::string text, int64_t native_code = 0, std::string domain = {})
      : status_(status), native_code_(native_code), domain_(std::move(domain)), text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }
  rlk_status status() const noexcept { return status_; }
  int64_t native_code() const noexcept { return native_code_; }
  const char* domain() const noexcept { return domain_.c_str(); }

private:
  rlk_status status_;
  int64_t native_code_;
  std::string domain_;
  std::string text_;
};

namespace detail {

// Copies text into a fixed array. What does not fit is cut; a text for people (the arrays that are long) ends between
// two words then, so that no name in a list is a part of one.
template <size_t Size>
void copy_text(char (&to)[Size], const char* from) noexcept {
  constexpr char kMore[] = " ...";
  size_t length = 0;
  for (; from != nullptr && length + 1 < Size && from[length] != 0; ++length) to[length] = from[length];
  to[length] = 0;
  if (Size < 200 || from == nullptr || from[length] == 0) return;
  size_t end = Size - sizeof(kMore);
  while (end > Size / 2 && to[end] != ' ') --end;
  if (to[end] == ' ') std::memcpy(to + end, kMore, sizeof(kMore));
}

// True when the caller's struct reaches up to and including the member.
#define RLK_SDK_REACHES(object, type, member) \
  ((object)->struct_size >= offsetof(type, member) + sizeof(static_cast<type*>(nullptr)->member))

// Copies the plugin's answer into the caller's struct, as far as that reaches; its struct_size stays.
template <class T>
void answer(const T& mine, T* out) noexcept {
  const uint32_t size = out->struct_size;
  std::memcpy(static_cast<void*>(out), &mine, size < sizeof(T) ? size : sizeof(T));
  out->struct_size = size;
}

inline rlk_status fail(rlk_error* error, rlk_status status, const char* text, int64_t native_code = 0,
                       const char* domain = "rlk") noexcept {
  if (error == nullptr || error->struct_size < sizeof(rlk_error)) return status;
  error->status = status;
  error->native_code = native_code;
  copy_text(error->domain, domain);
  copy_text(error->text, text);
  return status;
}

// What the exception that is being handled comes to.
inline rlk_status fail_with_current_exception(rlk_error* error) noexcept {
  try {
    throw;
  } catch (const Error& e) {
    return fail(error, e.status(), e.what(), e.native_code(), e.domain());
  } catch (const std::bad_alloc&) {
    return fail(error, RLK_OUT_OF_MEMORY, "host memory is exhausted");
  } catch (const std::exception& e) {
    return fail(error, RLK_PLUGIN_EXCEPTION, e.what());
  } catch (...) {
    return fail(error, RLK_PLUGIN_EXCEPTION, "an exception of unknown type");
  }
}

// Runs body, which returns a status or throws; nothing is thrown on.
template <class Body>
rlk_status guard(rlk_error* error, Body&& body) noexcept {
  try {
    return body();
  } catch (...) {
    return fail_with_current_exception(error);
  }
}

}  // namespace detail

// printf into a std::string, for texts of errors and reasons.
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
inline std::string
format(const char* pattern, ...) {
  char buffer[512];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(buffer, sizeof(buffer), pattern, arguments);
  va_end(arguments);
  return buffer;
}

}  // namespace rlk::sdk
