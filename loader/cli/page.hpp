// The HTML page of `rlk-plugins report`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace rlk::cli {

// Text for between tags and for attributes in double quotes.
std::string html_text(const std::string& text);

// The document of `report --json` as one page: no scripts, nothing from elsewhere, readable without colours.
std::string html_page(const nlohmann::ordered_json& document);

}  // namespace rlk::cli
