// packs.lock: TOML, written by `rlk-plugins pack` alone, so that its reader takes nothing but what its writer writes.
#include <sys/stat.h>
#include <rlk/sdk/descriptor.hpp>
#include <rlk/sdk/error.hpp>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>

#include "plugins/tvmffi/pack.hpp"

namespace rlk::tvmffi {
namespace {

constexpr const char* kHead =
    "# The packs of kernels in this folder and what their files hold. rlk-plugins pack writes this file;\n"
    "# a pack that differs from it is refused.\n"
    "schema = 1\n";
constexpr size_t kMaxLockBytes = size_t{16} << 20;

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') {
      char code[8];
      std::snprintf(code, sizeof(code), "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
      out += code;
    } else {
      out += c;
    }
  }
  return out + '"';
}

// The text between quotes that `line` is; nothing where it is none.
std::optional<std::string> unquoted(std::string_view line) {
  if (line.size() < 2 || line.front() != '"' || line.back() != '"') return std::nullopt;
  line = line.substr(1, line.size() - 2);
  std::string out;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') return std::nullopt;
    if (line[i] != '\\') {
      out += line[i];
    } else if (i + 1 < line.size() && (line[i + 1] == '"' || line[i + 1] == '\\')) {
      out += line[++i];
    } else if (line.substr(i, 4) == "\\u00" && i + 5 < line.size()) {
      const std::string digits(line.substr(i + 4, 2));
      if (digits.find_first_not_of("0123456789abcdef") != std::string::npos) return std::nullopt;
      out += static_cast<char>(std::stoi(digits, nullptr, 16));
      i += 5;
    } else {
      return std::nullopt;
    }
  }
  return out;
}

// A path from a folder that stays in it.
bool stays_inside(const std::string& path) {
  std::string rest = path + "/";
  for (size_t slash = 0; (slash = rest.find('/')) != std::string::npos; rest.erase(0, slash + 1)) {
    const std::string part = rest.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
  }
  return true;
}

bool is_sha256(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

class Reader {
public:
  Reader(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  std::vector<Pack> packs() {
    if (text_.substr(0, std::string_view(kHead).size()) != kHead) {
      // Which of the first lines it is matters less than that another program, or another version, wrote it.
      throw sdk::Error(RLK_INVALID_ARGUMENT,
                       path_ + " does not begin as rlk-plugins pack of this version writes it; " + kWhatToDo);
    }
    for (std::string_view head = kHead; !head.empty(); head.remove_prefix(head.find('\n') + 1)) line();
    std::vector<Pack> out;
    std::set<std::string> names, folders;
    while (!text_.empty()) {
      expect("");
      expect("[[pack]]");
      out.push_back(pack());
      if (!names.insert(out.back().name).second || !folders.insert(out.back().folder).second)
        fail("the second pack of this name or folder");
    }
    return out;
  }

private:
  static constexpr const char* kWhatToDo = "restore it, or remove it and add the packs again";

  [[noreturn]] void fail(const std::string& expected) const {
    throw sdk::Error(RLK_INVALID_ARGUMENT, path_ + ":" + std::to_string(number_) +
                                               ": not as rlk-plugins pack writes it: " + expected + "; " + kWhatToDo);
  }
  std::string_view line() {
    ++number_;
    const size_t end = text_.find('\n');
    if (end == std::string_view::npos) fail("the file ends here, expected more");
    const std::string_view out = text_.substr(0, end);
    text_.remove_prefix(end + 1);
    return out;
  }
  void expect(std::string_view what) {
    if (line() != what) fail("expected \"" + std::string(what) + "\"");
  }
  bool next_begins_with(std::string_view what) const { return text_.substr(0, what.size()) == what; }
  std::string value(const std::string& key) {
    std::string_view rest = line();
    const std::string begin = key + " = ";
    if (rest.substr(0, begin.size()) != begin) fail("expected " + key + " = \"...\"");
    rest.remove_prefix(begin.size());
    const auto text = unquoted(rest);
    if (!text) fail(key + " is no text in quotes");
    return *text;
  }
  Pack pack() {
    Pack out;
    out.name = value("name");
    out.version = value("version");
    if (!is_pack_word(out.name) || !is_pack_word(out.version)) fail("a name or version that packs cannot have");
    out.source = value("source");
    out.folder = value("folder");
    // Of a pack's letters there is none that leads elsewhere.
    if (out.folder.size() < out.name.size() || out.folder.compare(0, out.name.size(), out.name) != 0 ||
        !is_pack_word("f" + out.folder.substr(out.name.size())))
      fail("folder does not begin with the pack's name, or is no name of a folder");
    if (next_begins_with("runtime = ")) out.runtime = value("runtime");
    expect("files = [");
    while (!next_begins_with("]")) out.files.push_back(file());
    expect("]");
    return out;
  }
  PackFile file() {
    std::string_view rest = line();
    constexpr std::string_view kBegin = "  { path = ", kMiddle = ", sha256 = ", kEnd = " },";
    const size_t middle = rest.rfind(kMiddle);
    const bool is_whole = rest.substr(0, kBegin.size()) == kBegin && middle != std::string_view::npos &&
                          middle >= kBegin.size() && rest.size() >= middle + kMiddle.size() + kEnd.size() &&
                          rest.substr(rest.size() - kEnd.size()) == kEnd;
    if (!is_whole) fail("expected { path = \"...\", sha256 = \"...\" },");
    const auto path = unquoted(rest.substr(kBegin.size(), middle - kBegin.size()));
    rest.remove_prefix(middle + kMiddle.size());
    const auto sha256 = unquoted(rest.substr(0, rest.size() - kEnd.size()));
    if (!path || !sha256 || !is_sha256(*sha256)) fail("sha256 is no SHA-256 of 64 digits");
    if (!stays_inside(*path)) fail("the path leads out of the pack");
    return {*path, *sha256};
  }

  std::string_view text_;
  const std::string& path_;
  int number_ = 0;
};

}  // namespace

std::string lock_text(std::vector<Pack> packs) {
  std::sort(packs.begin(), packs.end(), [](const Pack& a, const Pack& b) { return a.name < b.name; });
  std::string out = kHead;
  for (Pack& pack : packs) {
    std::sort(pack.files.begin(), pack.files.end(),
              [](const PackFile& a, const PackFile& b) { return a.path < b.path; });
    out += "\n[[pack]]\nname = " + quoted(pack.name) + "\nversion = " + quoted(pack.version) +
           "\nsource = " + quoted(pack.source) + "\nfolder = " + quoted(pack.folder) + "\n";
    if (!pack.runtime.empty()) out += "runtime = " + quoted(pack.runtime) + "\n";
    out += "files = [\n";
    for (const PackFile& file : pack.files)
      out += "  { path = " + quoted(file.path) + ", sha256 = " + quoted(file.sha256) + " },\n";
    out += "]\n";
  }
  return out;
}

std::vector<Pack> parse_lock(std::string_view text, const std::string& path) {
  return Reader(text, path).packs();
}

std::vector<Pack> read_lock(const std::string& packs) {
  const std::string path = packs + "/" + kLockName;
  struct stat status = {};
  if (lstat(path.c_str(), &status) != 0)
    throw sdk::Error(RLK_NOT_FOUND, packs + " has no " + kLockName + "; rlk-plugins pack add makes it");
  const std::string text = sdk::read_text(trusted_path(path), kMaxLockBytes);
  return parse_lock(text, path);
}

}  // namespace rlk::tvmffi
