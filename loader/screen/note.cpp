// Parsing the text of the note, field by field; what is wrong with it is said in words.
#include "loader/screen/note.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "loader/discover/environment.hpp"

namespace rlk::loader {
namespace {

constexpr uint32_t kNoteType = 1;
constexpr size_t kMaxNoteText = 4096;

bool is_identifier(std::string_view text) {
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

bool is_file_name(std::string_view text) {
  return text.find('/') == std::string_view::npos && text.front() != '.';
}

bool parse_number(std::string_view text, uint32_t* value) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return code == std::errc() && end == text.data() + text.size();
}

bool parse_abi(std::string_view text, AbiVersion* abi) {
  const size_t dot = text.find('.');
  return dot != std::string_view::npos && parse_number(text.substr(0, dot), &abi->major) &&
         parse_number(text.substr(dot + 1), &abi->minor);
}

}  // namespace

const std::string* find_abi_note(const ElfInfo& info) {
  for (const ElfNote& note : info.notes)
    if (note.name == "rlk" && note.type == kNoteType) return &note.description;
  return nullptr;
}

std::optional<AbiNote> parse_abi_note(std::string_view description, std::string* error) {
  while (!description.empty() && description.back() == '\0') description.remove_suffix(1);
  const bool printable =
      std::all_of(description.begin(), description.end(), [](char c) { return c >= ' ' && c <= '~'; });
  if (description.size() > kMaxNoteText || !printable) {
    *error = "the note is not a line of at most 4096 printable ASCII characters";
    return std::nullopt;
  }
  AbiNote note;
  bool has_abi = false;
  std::set<std::string> keys;
  for (const std::string& piece : split(description, ';')) {
    const size_t equals = piece.find('=');
    const std::string key = piece.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : piece.substr(equals + 1);
    bool good = equals != std::string::npos;
    if (!keys.insert(key).second) {  // which of two counts must not depend on the reader
      *error = "the note says \"" + key + "=\" twice";
      return std::nullopt;
    }
    if (key == "abi") {
      has_abi = good = good && parse_abi(value, &note.abi);
    } else if (key == "draft") {
      good = good && parse_number(value, &note.abi.draft);
    } else if (key == "id") {
      good = is_identifier(note.id = value);
    } else if (key == "backend") {
      good = is_identifier(note.backend = value);
    } else if (key == "version") {
      note.version = value;
    } else if (key == "env") {
      note.env = split(value, ',');
    } else if (key == "files") {
      note.files = split(value, ',');
      for (const std::string& name : note.files) good = good && is_file_name(name);
    }
    if (!good) {
      *error = "the note's piece \"" + piece + "\" is not of the form key=value with a value its key allows";
      return std::nullopt;
    }
  }
  if (!has_abi || note.id.empty() || note.backend.empty()) {
    *error = "the note reads \"" + std::string(description) + "\"; expected at least abi=, id= and backend=";
    return std::nullopt;
  }
  return note;
}

std::string abi_text(const AbiVersion& abi) {
  return fmt::format("{}.{}", abi.major, abi.minor);
}

}  // namespace rlk::loader
