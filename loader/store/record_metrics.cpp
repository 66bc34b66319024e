#include "loader/store/record_metrics.hpp"

#include <fmt/core.h>

#include <cstdint>
#include <utility>

#include "core/declaration/text.hpp"

namespace rlk::loader {

std::string label_text(std::string_view value) {
  std::string out;
  for (const char c : core::printable(value)) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

std::string prometheus_of_plugins(const std::vector<PluginRecord>& records) {
  std::string plugins =
      "# HELP rlk_plugin_info A plugin that was found, how far it came, and the code of what stopped it.\n"
      "# TYPE rlk_plugin_info gauge\n";
  std::string operators =
      "# HELP rlk_operators Operators of a plugin that is in use, by what is known of them.\n"
      "# TYPE rlk_operators gauge\n";
  for (const PluginRecord& record : records) {
    if (record.is_place) continue;
    const std::string id = label_text(record.id);
    plugins +=
        fmt::format("rlk_plugin_info{{plugin=\"{}\",backend=\"{}\",version=\"{}\",state=\"{}\",reason=\"{}\"}} 1\n", id,
                    label_text(record.backend), label_text(record.version), to_string(record.state),
                    label_text(record.reason_code));
    if (record.state != State::registered && record.state != State::partial) continue;
    const OperatorCounts counts = count_operators(record);
    const std::pair<const char*, uint32_t> of_kind[] = {{"verified", counts.verified},
                                                        {"partial", counts.partial},
                                                        {"unsupported", counts.unsupported},
                                                        {"quarantined", counts.quarantined},
                                                        {"waiting", counts.waiting}};
    for (const auto& [kind, count] : of_kind)
      operators += fmt::format("rlk_operators{{plugin=\"{}\",verdict=\"{}\"}} {}\n", id, kind, count);
  }
  return plugins + operators;
}

}  // namespace rlk::loader
