// The checklist that a platform's issue begins with, filled with what is known of a plugin on this machine.
#pragma once

#include <string>

#include "loader/store/record.hpp"

namespace rlk::cli {

// Markdown, ready to be pasted; what only a person knows says so.
std::string filled_template(const loader::PluginRecord& record);

}  // namespace rlk::cli
