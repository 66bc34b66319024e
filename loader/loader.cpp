// Discovery, then probing, with the built-in plugin first.
#include "loader/loader.hpp"

#include <utility>

namespace rlk::loader {

std::vector<ProbedPlugin> find_plugins(const SearchOptions& search, ProbeOptions options) {
  if (!probe_mode_of(options.environment, &options.mode)) {
    // An unknown value must not switch the isolation off.
    options.mode = ProbeMode::isolated;
  }
  std::vector<PluginRecord> records = {built_in_record("cpu")};
  for (PluginRecord& record : discover(options.environment, search)) records.push_back(std::move(record));
  return probe_plugins(std::move(records), options);
}

}  // namespace rlk::loader
