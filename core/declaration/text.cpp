// What is shown of other people's text.
#include "core/declaration/text.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>

namespace rlk::core {
namespace {

struct Letter {
  uint32_t code = 0;
  size_t bytes = 1;
  bool valid = false;
};

// The first letter of a text that is not empty. What is not well-formed UTF-8 is one invalid byte.
Letter first_letter(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return {lead, 1, false};
  uint32_t code = lead & (0xFFu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {lead, 1, false};
    code = code << 6 | (byte(i) & 0x3F);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool valid = code >= kSmallest[bytes] && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
  return valid ? Letter{code, bytes, true} : Letter{lead, 1, false};
}

bool is_shown(uint32_t code) {
  if (code < 0x20 || (code >= 0x7F && code < 0xA0)) return false;               // controls of both sets
  if (code == 0xAD || code == 0x61C || code == 0x180E) return false;            // soft hyphen, marks of direction
  if (code >= 0x200B && code <= 0x200F) return false;                           // no width, marks of direction
  if (code >= 0x2028 && code <= 0x202E) return false;                           // line breaks, embeddings and overrides
  if (code >= 0x2060 && code <= 0x206F) return false;                           // joiners, isolates
  return code != 0xFEFF && (code < 0xFFF9 || code > 0xFFFB) && code < 0xE0000;  // tags are beyond
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Letter letter = first_letter(text);
    if (letter.valid && is_shown(letter.code)) {
      out += text.substr(0, letter.bytes);
    } else if (letter.code == '\n') {
      out += "\\n";
    } else if (letter.code == '\t') {
      out += "\\t";
    } else {
      char escape[16];
      std::snprintf(escape, sizeof(escape), !letter.valid || letter.code < 0x80 ? "\\x%02x" : "\\u%04x", letter.code);
      out += escape;
    }
    text.remove_prefix(letter.bytes);
  }
  return out;
}

void make_printable(rlk_error* error) noexcept {
  if (error == nullptr) return;
  const auto field = [&](char* text, size_t offset, size_t whole) {
    if (error->struct_size <= offset) return;
    const size_t size = std::min<size_t>(whole, error->struct_size - offset);
    text[size - 1] = '\0';
    std::string_view rest(text, strnlen(text, size));
    while (!rest.empty()) {
      const Letter letter = first_letter(rest);
      if (!letter.valid || !is_shown(letter.code)) {
        std::memset(const_cast<char*>(rest.data()), '?', letter.bytes);
      }
      rest.remove_prefix(letter.bytes);
    }
  };
  field(error->domain, offsetof(rlk_error, domain), sizeof(error->domain));
  field(error->text, offsetof(rlk_error, text), sizeof(error->text));
}

}  // namespace rlk::core
