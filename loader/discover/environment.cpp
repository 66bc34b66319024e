// Reading the process's variables, and splitting lists.
#include "loader/discover/environment.hpp"

#include <sys/auxv.h>
#include <unistd.h>

#include <cstring>

namespace rlk::loader {

Environment Environment::of_process() {
  Environment out;
  out.privileged = getauxval(AT_SECURE) != 0;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const char* equals = std::strchr(*entry, '=');
    if (equals == nullptr) continue;
    out.values.emplace(std::string(*entry, static_cast<size_t>(equals - *entry)),
                       equals + 1);  // the first of two wins, as in getenv
  }
  return out;
}

std::optional<std::string> Environment::get(std::string_view name) const {
  auto it = values.find(name);
  if (it == values.end() || it->second.empty()) return std::nullopt;
  return it->second;
}

std::optional<std::string> Environment::path(std::string_view name) const {
  return privileged && origins.count(name) == 0 ? std::nullopt : get(name);
}

std::string Environment::origin(std::string_view name) const {
  const auto it = origins.find(name);
  return it == origins.end() ? std::string(name) : it->second;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> pieces;
  size_t begin = 0;
  while (begin <= text.size()) {
    size_t end = text.find(separator, begin);
    if (end == std::string_view::npos) end = text.size();
    if (end > begin) pieces.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return pieces;
}

}  // namespace rlk::loader
