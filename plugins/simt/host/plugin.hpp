// What the plugins of SIMT vendors have in common; a vendor derives, probes, and lists its implementations.
#pragma once

#include "operators.hpp"

#include <vector>

namespace rlk::simt::host {

// Devices that the driver shows, 0 when there is no usable driver. Initialises the driver.
int device_count();

// Device nodes of which one must be there: each that is speaks for the vendor's hardware. With none, the first is
// named.
void report_nodes(sdk::Evidence& evidence, const std::vector<const char*>& nodes);

class Plugin : public sdk::Plugin {
public:
  using Device = host::Device;
  using Stream = host::Stream;
  using Event = host::Event;

  uint32_t device_count() override { return static_cast<uint32_t>(host::device_count()); }
  void describe_device(uint32_t ordinal, rlk_device_properties& out) override;
  std::unique_ptr<sdk::Device> open_device(uint32_t ordinal) override;
  const void* extension(const char* id) override;

private:
  void require(uint32_t ordinal);
};

}  // namespace rlk::simt::host
