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

// The entries of a plugin. With anything of its state changed nothing was proved.
std::string compared_entry(const std::string& state) {
  return "compared-" + state;
}
std::string uncompared_entry(const std::string& state) {
  return "uncompared-" + state;
}

std::string line_of(const core::ComparedClass& compared) {
  return fmt::format("{}\t{}\t{}\t{}\t{}\n", compared.op, compared.implementation, compared.dtype, compared.variant,
                     compared.size_class);
}

// Beside what a line of a compared class has: the sizes, the code and the reason.
constexpr size_t kCompared = 5, kUncompared = 8;

std::string line_of(const core::UncomparedClass& uncompared) {
  std::string line = line_of(uncompared.unit);
  line.pop_back();
  for (std::string field : {uncompared.sizes, uncompared.reason_code, uncompared.reason}) {
    std::replace_if(
        field.begin(), field.end(), [](char c) { return c == '\t' || c == '\n'; }, ' ');
    line += '\t' + field;
  }
  return line + '\n';
}

// Of each line with so many fields. What is damaged is left out.
template <class Use>
void each_line(const std::string& text, size_t count, Use&& use) {
  std::istringstream lines(text);
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
    if (fields.size() != count) continue;
    const std::string& number = fields[4];
    if (std::from_chars(number.data(), number.data() + number.size(), size_class).ec != std::errc()) continue;
    use(fields, size_class);
  }
}

}  // namespace

void ComparedClasses::know(const rlk_plugin* api, const PluginRecord& record) {
  std::string state = state_of_plugin(record, &store_);
  const std::lock_guard lock(mutex_);
  for (const core::UncomparedClass& uncompared : early_) {
    if (uncompared.unit.api == api) keep(state, uncompared);
  }
  std::erase_if(early_, [api](const core::UncomparedClass& one) { return one.unit.api == api; });
  states_[api] = std::move(state);
}

void ComparedClasses::add_to(PluginRecord* record) const {
  const std::string text = store_.get(compared_entry(state_of_plugin(*record, &store_))).value_or("");
  each_line(text, kCompared, [&](const std::vector<std::string>& fields, uint32_t size_class) {
    for (core::UnitResult& unit : record->units) {
      if (!unit.feature.empty() || unit.op != fields[0] || unit.implementation != fields[1]) continue;
      if (unit.dtype == fields[2] && unit.variant == fields[3]) unit.size_classes.push_back(size_class);
    }
  });
}

void ComparedClasses::note(const core::ComparedClass& compared) {
  const std::lock_guard lock(mutex_);
  const auto state = states_.find(compared.api);
  if (state == states_.end()) return;
  const std::string entry = compared_entry(state->second);
  std::string lines = store_.get(entry).value_or("");
  const std::string line = line_of(compared);
  if (lines.size() + line.size() > kMaxBytes || lines.find(line) != std::string::npos) return;
  store_.put(entry, lines + line);
}

void ComparedClasses::note_uncompared(const core::UncomparedClass& uncompared) {
  const std::lock_guard lock(mutex_);
  const auto state = states_.find(uncompared.unit.api);
  if (state == states_.end()) {
    early_.push_back(uncompared);
  } else {
    keep(state->second, uncompared);
  }
}

// A class has one line for each reason, whatever sizes were seen first. [locked]
void ComparedClasses::keep(const std::string& state, const core::UncomparedClass& uncompared) {
  const std::string entry = uncompared_entry(state);
  const std::string lines = store_.get(entry).value_or("");
  const std::string line = line_of(uncompared);
  bool is_known = false;
  each_line(lines, kUncompared, [&](const std::vector<std::string>& fields, uint32_t size_class) {
    const core::ComparedClass& unit = uncompared.unit;
    is_known |= size_class == unit.size_class && fields[0] == unit.op && fields[1] == unit.implementation &&
                fields[2] == unit.dtype && fields[3] == unit.variant && fields[6] == uncompared.reason_code;
  });
  if (is_known || lines.size() + line.size() > kMaxBytes) return;
  store_.put(entry, lines + line);
}

std::vector<core::UncomparedClass> ComparedClasses::uncompared_of(const PluginRecord& record) const {
  const std::string state = state_of_plugin(record, &store_);
  const std::string compared = store_.get(compared_entry(state)).value_or("");
  std::vector<core::UncomparedClass> list;
  each_line(store_.get(uncompared_entry(state)).value_or(""), kUncompared,
            [&](const std::vector<std::string>& fields, uint32_t size_class) {
              core::UncomparedClass one;
              one.unit = {nullptr, record.id, fields[0], fields[1], fields[2], fields[3], size_class};
              one.sizes = fields[5];
              one.reason_code = fields[6];
              one.reason = fields[7];
              if (compared.find(line_of(one.unit)) == std::string::npos) list.push_back(std::move(one));
            });
  return list;
}

}  // namespace rlk::loader
