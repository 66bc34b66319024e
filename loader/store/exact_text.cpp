// The JSON library knows what UTF-8 is.
#include "loader/store/exact_text.hpp"

#include <nlohmann/json.hpp>

#include "core/declaration/text.hpp"

namespace rlk::loader {
namespace {

using nlohmann::json;

bool is_utf8(const std::string& text) {
  try {
    return !json(text).dump().empty();
  } catch (const json::type_error&) {
    return false;
  }
}

}  // namespace

json exact_json(const std::string& text) {
  if (is_utf8(text)) return text;
  json bytes = json::array();
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  return {{"bytes", std::move(bytes)}};
}

std::string exact_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  std::string text;
  if (!value.is_object() || !value.contains("bytes")) return text;
  for (const json& byte : value["bytes"]) {
    if (!byte.is_number_unsigned()) return {};
    text += static_cast<char>(byte.get<unsigned>());
  }
  return text;
}

std::string shown(const std::string& text) {
  return is_utf8(text) ? text : core::printable(text);
}

}  // namespace rlk::loader
