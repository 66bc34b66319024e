// What speaks for and against a vendor's hardware on this machine.
#include "runtime_api.hpp"

#include "foreign.hpp"
#include "plugin.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace rlk::simt::host {
namespace {

sdk::Verdict absent_library(const Identity& identity, const Driver& table) {
  if (table.path.empty()) {
    return sdk::Verdict::absent("RUNTIME_LIBRARY_MISSING", table.problem(), identity.install_hint);
  }
  return sdk::Verdict::absent("RUNTIME_TOO_OLD", table.problem(),
                              std::string("install a release of ") + identity.runtime + " that has what is named here");
}

}  // namespace

std::vector<std::string> library_folders(std::initializer_list<const char*> variables,
                                         std::initializer_list<const char*> roots) {
  std::vector<std::string> folders;
  for (const char* variable : variables) {
    const char* root = std::getenv(variable);
    if (root != nullptr && root[0] == '/') folders.push_back(std::string(root) + "/lib");
  }
  for (const char* root : roots) folders.push_back(std::string(root) + "/lib");
  return folders;
}

std::string module_version(const char* module) {
  std::ifstream file(std::string("/sys/module/") + module + "/version");
  std::string version;
  file >> version;
  return version;
}

sdk::Verdict probe_runtime(const Identity& identity, sdk::Evidence& evidence) {
  report_nodes(evidence, identity.nodes);
  const std::vector<std::string> on_the_bus = cards(identity.pci_vendors);
  for (const std::string& card : on_the_bus) evidence.supports("pci_device", card);
  if (on_the_bus.empty()) {
    evidence.contradicts("pci_device", std::string("no card of vendor ") + identity.pci_vendors.front());
  }
  const Driver& table = driver();
  if (!table.usable()) {
    evidence.contradicts("runtime_library", table.problem());
    return absent_library(identity, table);
  }
  if (const Lookalike* foreign = lookalike_of_library(table.path, identity.runtime)) {
    evidence.contradicts("runtime_library", table.path);
    return sdk::Verdict::not_mine("FOREIGN_RUNTIME",
                                  table.path + " is " + foreign->vendor + "'s look-alike of " + identity.runtime,
                                  advice(foreign));
  }
  evidence.supports("runtime_library", table.path);
  const std::string version = identity.version();
  evidence.supports("runtime_version", version);

  int count = 0;
  Result code = table.init(0);
  if (code == kSuccess) code = table.device_count(&count);
  if (code != kSuccess || count == 0) {
    const std::string said = code != kSuccess ? table.describe(code) : "no error and no device";
    evidence.contradicts("device_count", said);
    return sdk::Verdict::absent("NO_DEVICE", "the runtime at " + table.path + " says " + said, identity.device_hint);
  }
  evidence.supports("device_count", std::to_string(count));
  std::string architectures;
  for (int i = 0; i < count; ++i) {
    char name[128] = "";
    check(table.device_name(name, sizeof(name), i), "asking for a device's name");
    if (const Lookalike* foreign = lookalike_of_device(name, identity.runtime)) {
      evidence.contradicts("device_name", name);
      return sdk::Verdict::not_mine("FOREIGN_RUNTIME", sdk::format("device %d is a %s, %s's", i, name, foreign->vendor),
                                    advice(foreign));
    }
    evidence.neutral("device_name", name);
    const int width = needed_attribute(i, table.attributes.warp_size, "asking for a device's SIMT width");
    if (std::find(identity.widths.begin(), identity.widths.end(), width) == identity.widths.end()) {
      evidence.contradicts("simt_width", std::to_string(width));
      return sdk::Verdict::not_mine("SIMT_WIDTH",
                                    sdk::format("device %d (%s) executes %d threads together; %s's execute %d", i, name,
                                                width, identity.vendor, identity.widths.front()),
                                    "use the plugin of that device's vendor");
    }
    evidence.supports("simt_width", std::to_string(width));
    architectures += ";" + table.profile(i).arch;
  }
  return sdk::Verdict::mine(version + ";" + std::to_string(count) + architectures);
}

}  // namespace rlk::simt::host
