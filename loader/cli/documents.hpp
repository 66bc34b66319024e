// The JSON documents of verbs, for verbs that show several of them at once.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "loader/cli/child.hpp"

namespace rlk::cli {

nlohmann::ordered_json doctor_document(Judgement* judgement);  // judges the plugins, which is told too
nlohmann::ordered_json scope_document(const loader::PluginRecord& record);
nlohmann::ordered_json quarantine_document();

// On the command's output, in one line. Text that is not UTF-8 is replaced.
void print_document(const nlohmann::ordered_json& document);

}  // namespace rlk::cli
