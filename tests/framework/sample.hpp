// What takes minutes whole is tried in part: whole with RLK_TEST_LONG=1.
#pragma once

#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>

namespace rlk::test {

inline bool is_long() {
  const char* wanted = std::getenv("RLK_TEST_LONG");
  return wanted != nullptr && std::string_view(wanted) == "1";
}

// Every case in the long run; else one of so many, the same ones each time, whatever their kind.
inline bool is_in_sample(const std::string& title, size_t one_of = 18) {
  return is_long() || std::hash<std::string>{}(title) % one_of == 0;
}

}  // namespace rlk::test
