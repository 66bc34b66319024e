// Texts and comments are skipped as TOML 1.0 ends them.
#include "loader/api/toml_text.hpp"

#include <algorithm>

namespace rlk::loader {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Behind a text whose first delimiter is at `begin`, or at the line's end where it does not end.
size_t behind_text(std::string_view toml, size_t begin) {
  const char quote = toml[begin];
  const std::string_view three = quote == '"' ? "\"\"\"" : "'''";
  const bool is_long = toml.substr(begin, 3) == three;
  size_t at = begin + (is_long ? 3 : 1);
  while (at < toml.size()) {
    if (toml[at] == '\\' && quote == '"') {
      at += 2;
    } else if (is_long && toml.substr(at, 3) == three) {
      at += 3;
      for (int more = 0; more < 2 && at < toml.size() && toml[at] == quote; ++more) ++at;  // they belong to the text
      return at;
    } else if (!is_long && (toml[at] == quote || toml[at] == '\n')) {
      return at + (toml[at] == quote ? 1 : 0);
    } else {
      ++at;
    }
  }
  return toml.size();
}

}  // namespace

size_t first_beyond_ascii(std::string_view toml) {
  size_t at = toml.substr(0, 3) == kByteOrderMark ? 3 : 0;
  while (at < toml.size()) {
    if (toml[at] == '#') {
      at = std::min(toml.find('\n', at), toml.size());
    } else if (toml[at] == '"' || toml[at] == '\'') {
      at = behind_text(toml, at);
    } else if (static_cast<unsigned char>(toml[at]) >= 0x80) {
      return 1 + static_cast<size_t>(std::count(toml.begin(), toml.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
    } else {
      ++at;
    }
  }
  return 0;
}

}  // namespace rlk::loader
