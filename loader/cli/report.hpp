// How records of plugins are shown to people, in one form for every verb.
#pragma once

#include <string>
#include <vector>

#include "loader/cli/table.hpp"
#include "loader/store/record.hpp"

namespace rlk::cli {

// The table of `list`: a line per plugin, its reason and hint below it.
// `store` as support_of() takes it.
void print_list(const std::vector<loader::PluginRecord>& records, loader::Store* store);

// Units of one plugin that failed, with the first failing case of each. Nothing when none did.
void print_failures(const loader::PluginRecord& record);

// Per operator and implementation: units verified, failed, declined, cases, the worst error over the allowed one,
// classes of its plain units.
void print_operators(const loader::PluginRecord& record);

Tone tone_of(const loader::PluginRecord& record);
// That only a canary was tried, in words; "" otherwise.
std::string tried_text(const loader::PluginRecord& record);
std::string reason_text(const loader::PluginRecord& record);  // "CODE: text", "" without a reason
std::string unit_name(const core::UnitResult& unit);          // "logp fused bf16 softcap, variant online"
std::string number_text(double value);                        // three significant digits

}  // namespace rlk::cli
