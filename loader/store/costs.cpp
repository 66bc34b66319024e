#include "loader/store/costs.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "loader/store/quarantine.hpp"

namespace rlk::loader {
namespace {

constexpr size_t kMost = 4096;  // of a plugin; the oldest are forgotten

std::string entry_of(const PluginRecord& record, Store* store) {
  return std::string(kCostPrefix) + state_of_plugin(record, store);
}

bool is_same_call(const core::MeasuredCost& a, const core::MeasuredCost& b) {
  return a.op == b.op && a.implementation == b.implementation && a.device == b.device && a.kind == b.kind &&
         a.sizes == b.sizes;
}

}  // namespace

std::vector<core::MeasuredCost> read_costs(Store* store, const PluginRecord& record) {
  std::vector<core::MeasuredCost> costs;
  const auto document = nlohmann::json::parse(store->get(entry_of(record, store)).value_or(""), nullptr, false);
  if (!document.is_array()) return costs;
  for (const auto& one : document) {
    try {
      costs.push_back({one.at("op"), one.at("implementation"), one.at("device"), one.at("kind"), one.at("sizes"),
                       one.at("stated_us"), one.at("measured_us")});
    } catch (const nlohmann::json::exception&) {  // of another version, or damaged: it is timed again
      continue;
    }
  }
  return costs;
}

bool remember_costs(Store* store, const PluginRecord& record, const std::vector<core::MeasuredCost>& costs) {
  std::vector<core::MeasuredCost> all = read_costs(store, record);
  std::erase_if(all, [&](const core::MeasuredCost& old) {
    return std::any_of(costs.begin(), costs.end(),
                       [&](const core::MeasuredCost& one) { return is_same_call(old, one); });
  });
  all.insert(all.end(), costs.begin(), costs.end());
  nlohmann::ordered_json document = nlohmann::ordered_json::array();
  for (size_t i = all.size() > kMost ? all.size() - kMost : 0; i < all.size(); ++i) {
    const core::MeasuredCost& one = all[i];
    document.push_back({{"op", one.op},
                        {"implementation", one.implementation},
                        {"device", one.device},
                        {"kind", one.kind},
                        {"sizes", one.sizes},
                        {"stated_us", one.stated_us},
                        {"measured_us", one.measured_us}});
  }
  return store->put(entry_of(record, store), document.dump());
}

}  // namespace rlk::loader
