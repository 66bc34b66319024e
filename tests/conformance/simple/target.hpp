// The simple plugin, opened as a target of the conformance engine.
#pragma once

#include <cstdlib>
#include <memory>

#include "conformance/simple/implementations.hpp"
#include "core/conformance/conformance.hpp"

namespace rlk::simple {

// Opens any linked-in plugin that owns its device 0.
class OpenTarget {
public:
  explicit OpenTarget(const rlk_plugin* plugin, const rlk_host* host) : plugin_(plugin) {
    plugin->create(host, &instance_, nullptr);
    properties_.struct_size = sizeof(properties_);
    plugin->device_describe(instance_, 0, &properties_, nullptr);
    plugin->device_open(instance_, 0, &device_, nullptr);
  }
  ~OpenTarget() {
    plugin_->device_close(device_, nullptr);
    plugin_->destroy(instance_, nullptr);
  }
  OpenTarget(const OpenTarget&) = delete;
  OpenTarget& operator=(const OpenTarget&) = delete;
  core::Target target() const { return {plugin_, device_, plugin_, device_, instance_, properties_.flags}; }

private:
  const rlk_plugin* plugin_;
  rlk_plugin_instance* instance_ = nullptr;
  rlk_plugin_device* device_ = nullptr;
  rlk_device_properties properties_{};
};

// A host without services: the simple plugin needs none.
inline const rlk_host* bare_host() {
  static const rlk_host host = {sizeof(rlk_host),
                                RLK_ABI_MAJOR,
                                RLK_ABI_MINOR,
                                RLK_ABI_DRAFT,
                                0,
                                0,
                                "test",
                                "0",
                                nullptr,
                                [](void*, const char*) -> const void* { return nullptr; }};
  return &host;
}

}  // namespace rlk::simple
