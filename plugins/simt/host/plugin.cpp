// Which devices there are, and how they are described and opened.
#include "plugin.hpp"

#include <unistd.h>

#include <cstring>

namespace rlk::simt::host {

int device_count() {
  const Driver& table = driver();
  int count = 0;
  if (!table.usable() || table.init(0) != kSuccess || table.device_count(&count) != kSuccess) return 0;
  return count;
}

void report_nodes(sdk::Evidence& evidence, const std::vector<const char*>& nodes) {
  bool any = false;
  for (const char* node : nodes) {
    if (access(node, F_OK) != 0) continue;
    any = true;
    if (access(node, R_OK | W_OK) == 0) {
      evidence.supports("device_node", node);
    } else {
      evidence.neutral("device_node", std::string(node) + " (this user may not open it)");
    }
  }
  if (!any) evidence.contradicts("device_node", std::string("no ") + nodes.front());
}

void Plugin::describe_device(uint32_t ordinal, rlk_device_properties& out) {
  require(ordinal);
  describe(static_cast<int>(ordinal), out);
}

std::unique_ptr<sdk::Device> Plugin::open_device(uint32_t ordinal) {
  require(ordinal);
  return std::make_unique<Device>(static_cast<int>(ordinal));
}

const void* Plugin::extension(const char* id) {
  const bool has_graphs = driver().usable() && driver().has_graphs();
  return has_graphs && std::strcmp(id, RLK_EXT_GRAPH) == 0 ? &sdk::graph_api<Stream> : nullptr;
}

void Plugin::require(uint32_t ordinal) {
  const Driver& table = driver();
  if (!table.usable()) throw sdk::Error(RLK_ABSENT, std::string("no ") + table.name + " device: " + table.problem());
  const uint32_t count = device_count();
  if (ordinal >= count) {
    throw sdk::Error(count == 0 ? RLK_ABSENT : RLK_INVALID_ARGUMENT,
                     sdk::format("device %u was asked for; the driver shows %u", ordinal, count));
  }
}

}  // namespace rlk::simt::host
