// Texts in JSON that are bytes and need not be UTF-8: paths, above all. JSON has no way to say them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace rlk::loader {

// For rlk itself: the text, or {"bytes": [...]} for one that is not UTF-8.
nlohmann::json exact_json(const std::string& text);
// The text again; "" for anything else.
std::string exact_text(const nlohmann::json& value);

// For people and other programs: bytes that are not UTF-8 become visible, "\\xff".
std::string shown(const std::string& text);

}  // namespace rlk::loader
