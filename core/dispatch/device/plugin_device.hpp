// A plugin's handle of a device: described at once, opened when it is first used.
#pragma once

#include <rlk/abi.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

namespace rlk::core {

// The owner's handle comes from device_open, that of a plugin which only brings operators from device_attach. Either is
// asked for once; a failure is remembered and told to every later caller.
class PluginDevice {
public:
  // Of the plugin that owns the device.
  PluginDevice(const rlk_plugin* api, rlk_plugin_instance* instance, uint32_t ordinal,
               const rlk_device_properties& properties);
  // Of a plugin that brings operators for the owner's device.
  PluginDevice(const rlk_plugin* api, rlk_plugin_instance* instance, std::shared_ptr<PluginDevice> owner);
  PluginDevice(const PluginDevice&) = delete;
  PluginDevice& operator=(const PluginDevice&) = delete;

  // Opens it unless it is open. [thread-safe]
  rlk_status open(rlk_plugin_device** out, rlk_error* error);
  // nullptr until it is open. [thread-safe, wait-free]
  rlk_plugin_device* handle() const { return handle_.load(std::memory_order_acquire); }
  // Nothing uses it any more.
  void close();

  const rlk_device_properties& properties() const { return properties_; }
  uint32_t ordinal() const { return ordinal_; }
  std::string name() const;  // "cuda:0"
  // That very device: its owner's handle, or one that was attached to it.
  bool is_of(const PluginDevice& owners) const { return this == &owners || owner_.get() == &owners; }

private:
  rlk_status make(rlk_plugin_device** out, rlk_error* error);

  const rlk_plugin& api_;
  rlk_plugin_instance* const instance_;
  const uint32_t ordinal_;
  const rlk_device_properties properties_;
  const std::shared_ptr<PluginDevice> owner_;  // nullptr: this is the owner's
  rlk_native_device native_{};                 // what the plugin was attached with; lives as long as the device
  std::atomic<rlk_plugin_device*> handle_{nullptr};
  std::mutex mutex_;  // of what follows
  bool tried_ = false;
  rlk_error failure_{};
};

// Whether two plugins describe one card: by its UUID, else by its PCI address. Cards with neither look alike.
bool is_same_card(const rlk_device_properties& a, const rlk_device_properties& b);

}  // namespace rlk::core
