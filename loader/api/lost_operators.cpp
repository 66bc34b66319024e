#include "loader/api/lost_operators.hpp"

#include <algorithm>
#include <iterator>
#include <set>

namespace rlk::loader {
namespace {

std::set<std::string> verified_of(const std::vector<PluginRecord>& records, const std::string& plugin) {
  std::set<std::string> names;
  for (const PluginRecord& record : records) {
    if (record.id != plugin || !serves(record)) continue;
    for (const core::UnitResult& unit : record.units)
      if (unit.verdict == core::UnitResult::Verdict::verified) names.insert(unit.op);
  }
  return names;
}

}  // namespace

std::vector<std::string> lost_operators(const std::vector<PluginRecord>& before, const std::vector<PluginRecord>& now,
                                        const std::string& plugin) {
  const std::set<std::string> had = verified_of(before, plugin), has = verified_of(now, plugin);
  std::vector<std::string> lost;
  std::set_difference(had.begin(), had.end(), has.begin(), has.end(), std::back_inserter(lost));
  return lost;
}

}  // namespace rlk::loader
