// Reading the list, and the words of a refusal.
#include "loader/screen/allow.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <climits>
#include <cstdlib>

#include "loader/store/file.hpp"

namespace rlk::loader {
namespace {

constexpr size_t kMaxListBytes = size_t{1} << 20;
constexpr size_t kHashDigits = 64;

std::string read_list(const std::string& path, const Identity& identity, std::set<std::string>* files) {
  char canonical[PATH_MAX];
  if (path.front() != '/') return "its path is relative; write it from the root, starting with /";
  if (realpath(path.c_str(), canonical) == nullptr) return errno_text(errno);
  if (const TrustResult trust = check_trust(canonical, identity); trust.problem != nullptr) return trust.text;
  const auto text = read_file(canonical, kMaxListBytes);
  if (!text) return "it cannot be read, or is larger than 1 MiB";
  if (size_t line = 0; !parse_allow_list(*text, files, &line)) {
    files->clear();
    return fmt::format("line {} is not a SHA-256 of 64 digits and a name, as sha256sum writes it", line);
  }
  return {};
}

}  // namespace

bool parse_allow_mode(std::string_view text, AllowMode* mode) {
  if (text == "off") return *mode = AllowMode::off, true;
  if (text == "warn") return *mode = AllowMode::warn, true;
  if (text == "require") return *mode = AllowMode::require, true;
  return false;
}

bool parse_allow_list(std::string_view text, std::set<std::string>* files, size_t* line) {
  *line = 0;
  while (!text.empty()) {
    ++*line;
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view words = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    while (!words.empty() && (words.back() == '\r' || words.back() == ' ')) words.remove_suffix(1);
    if (words.empty() || words.front() == '#') continue;
    if (words.front() == '\\') words.remove_prefix(1);  // sha256sum's word for a name with a backslash in it
    std::string hash(words.substr(0, kHashDigits));
    std::transform(hash.begin(), hash.end(), hash.begin(),
                   [](char c) { return c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c; });
    const bool whole = hash.size() == kHashDigits && hash.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (!whole || (words.size() > kHashDigits && words[kHashDigits] != ' ')) return false;
    files->insert(hash);
  }
  return true;
}

AllowList AllowList::of(const Environment& environment, const Identity& identity) {
  AllowList list;
  list.path = environment.path("RLK_ALLOW_LIST").value_or("");
  const auto word = environment.get("RLK_ALLOW");
  list.mode = list.path.empty() ? AllowMode::off : AllowMode::require;
  if (word && !parse_allow_mode(*word, &list.mode)) {
    list.mode = AllowMode::require;
    list.problem = "RLK_ALLOW is \"" + *word + "\"; expected off, warn or require. Using require";
  }
  if (list.mode == AllowMode::off) return list;
  const std::string wrong =
      list.path.empty() ? "RLK_ALLOW_LIST names no list" : read_list(list.path, identity, &list.files);
  if (!wrong.empty())
    list.problem += (list.problem.empty() ? "" : "; ") + (list.path.empty() ? wrong : list.path + ": " + wrong);
  return list;
}

std::optional<std::string> AllowList::refuse(const std::string& file, const std::optional<std::string>& sha256) const {
  if (mode == AllowMode::off || (sha256 && files.count(*sha256) > 0)) return std::nullopt;
  if (!sha256) return file + " cannot be read for its SHA-256";
  std::string text = fmt::format("{} has the SHA-256 {}, which ", file, *sha256);
  if (path.empty()) return text + "no list allows: " + problem;
  text += "the allow-list " + path + " does not name";
  return problem.empty() ? text : fmt::format("{} ({})", text, problem);
}

}  // namespace rlk::loader
