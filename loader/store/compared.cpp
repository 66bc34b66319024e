// One entry of the store per plugin as it is now, a line per class. Two processes that write at once may lose a line of
// one another: that class is then compared once more.
#include "loader/store/compared.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "loader/store/quarantine.hpp"

namespace rlk::loader {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 20;

// With anything of the plugin's state changed nothing was proved.
std::string entry_of(const PluginRecord& record, Store* store) {
  return "compared-" + state_of_plugin(record, store);
}

std::string line_of(const core::ComparedClass& compared) {
  return fmt::format("{}\t{}\t{}\t{}\t{}\n", compared.op, compared.implementation, compared.dtype, compared.variant,
                     compared.size_class);
}

}  // namespace

void ComparedClasses::know(const rlk_plugin* api, const PluginRecord& record) {
  std::string entry = entry_of(record, &store_);
  const std::lock_guard lock(mutex_);
  entries_[api] = std::move(entry);
}

void ComparedClasses::add_to(PluginRecord* record) const {
  std::istringstream lines(store_.get(entry_of(*record, &store_)).value_or(""));
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> fields = {""};
    for (const char c : line) {
      if (c == '\t') {
        fields.emplace_back();
      } else {
        fields.back() += c;
      }
    }
    uint32_t size_class = 0;
    if (fields.size() != 5) continue;
    const std::string& number = fields[4];
    if (std::from_chars(number.data(), number.data() + number.size(), size_class).ec != std::errc()) continue;
    for (core::UnitResult& unit : record->units) {
      if (!unit.feature.empty() || unit.op != fields[0] || unit.implementation != fields[1]) continue;
      if (unit.dtype == fields[2] && unit.variant == fields[3]) unit.size_classes.push_back(size_class);
    }
  }
}

void ComparedClasses::note(const core::ComparedClass& compared) {
  const std::lock_guard lock(mutex_);
  const auto entry = entries_.find(compared.api);
  if (entry == entries_.end()) return;
  std::string lines = store_.get(entry->second).value_or("");
  const std::string line = line_of(compared);
  if (lines.size() + line.size() > kMaxBytes || lines.find(line) != std::string::npos) return;
  store_.put(entry->second, lines + line);
}

}  // namespace rlk::loader
