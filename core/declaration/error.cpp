// How the host fills the caller's error.
#include "core/declaration/error.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "core/declaration/plugin_call.hpp"

namespace rlk::core {

namespace {

// What fits of the text, and a 0 byte. A text that is cut ends between two words, so that no name in a list is a part
// of one; a word as long as half of the room ends between two letters.
void put_cut(char* to, size_t room, std::string_view text) noexcept {
  constexpr std::string_view kMore = " ...";
  if (room == 0) return;
  size_t end = text.size();
  bool ends_between_words = false;
  if (end >= room) {
    end = room - 1;
    const size_t space = room > 2 * kMore.size() ? text.rfind(' ', end - kMore.size()) : std::string_view::npos;
    ends_between_words = space != std::string_view::npos && space >= room / 2;
    if (ends_between_words) end = space;
    while (!ends_between_words && end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  }
  std::memcpy(to, text.data(), end);
  if (ends_between_words) std::memcpy(to + std::exchange(end, end + kMore.size()), kMore.data(), kMore.size());
  to[end] = '\0';
}

}  // namespace

rlk_status fail(rlk_error* error, rlk_status status, std::string_view text, int64_t native_code,
                const char* domain) noexcept {
  constexpr size_t kHeader = sizeof(error->struct_size);
  if (error == nullptr || error->struct_size <= kHeader) return status;
  rlk_error filled{};
  filled.status = status;
  filled.native_code = native_code;
  std::snprintf(filled.domain, sizeof(filled.domain), "%s", domain);
  const size_t size = std::min<size_t>(error->struct_size, sizeof(filled));
  constexpr size_t kBeforeText = offsetof(rlk_error, text);
  put_cut(filled.text, size > kBeforeText ? size - kBeforeText : 0, text);
  std::memcpy(reinterpret_cast<char*>(error) + kHeader, reinterpret_cast<const char*>(&filled) + kHeader,
              size - kHeader);
  return status;
}

rlk_status failf(rlk_error* error, rlk_status status, const char* pattern, ...) noexcept {
  char text[4 * sizeof(rlk_error::text)];  // fail() cuts it
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(text, sizeof(text), pattern, arguments);
  va_end(arguments);
  return fail(error, status, text);
}

rlk_status detail::fail_with_exception(rlk_error* error) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return fail(error, RLK_OUT_OF_MEMORY, "the plugin found no host memory");
  } catch (const std::exception& e) {
    return failf(error, RLK_PLUGIN_EXCEPTION, "an exception left the plugin: %s", e.what());
  } catch (...) {
    return fail(error, RLK_PLUGIN_EXCEPTION, "an exception of unknown type left the plugin");
  }
}

rlk_status check_made(rlk_status status, const void* handle, const char* what, rlk_error* error) {
  if (status != RLK_OK || handle != nullptr) return status;
  return failf(error, RLK_INTERNAL, "%s answered OK without a handle; the plugin is wrong", what);
}

const char* name_of_status(rlk_status status) noexcept {
  switch (status) {
    case RLK_OK:
      return "OK";
    case RLK_NOT_READY:
      return "NOT_READY";
    case RLK_INVALID_ARGUMENT:
      return "INVALID_ARGUMENT";
    case RLK_UNSUPPORTED:
      return "UNSUPPORTED";
    case RLK_OUT_OF_MEMORY:
      return "OUT_OF_MEMORY";
    case RLK_DATA_ERROR:
      return "DATA_ERROR";
    case RLK_TIMEOUT:
      return "TIMEOUT";
    case RLK_DEVICE_LOST:
      return "DEVICE_LOST";
    case RLK_BACKEND_ERROR:
      return "BACKEND_ERROR";
    case RLK_ABI_MISMATCH:
      return "ABI_MISMATCH";
    case RLK_NOT_FOUND:
      return "NOT_FOUND";
    case RLK_ABSENT:
      return "ABSENT";
    case RLK_PLUGIN_EXCEPTION:
      return "PLUGIN_EXCEPTION";
    case RLK_CAPTURE_FORBIDS:
      return "CAPTURE_FORBIDS";
    case RLK_INTERNAL:
      return "INTERNAL";
    case RLK_WRONG_RESULT:
      return "WRONG_RESULT";
    default:
      return "UNKNOWN";
  }
}

}  // namespace rlk::core
