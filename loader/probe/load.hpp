// From a file to a live plugin, one step per function: load, negotiate, create, probe, describe and open its devices.
// Used in the prober's child process and again in the host, which repeats the steps for what the child found good.
#pragma once

#include <rlk/abi.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/dispatch/device/plugin_device.hpp"
#include "loader/store/record.hpp"

namespace rlk::loader {

// Why a step failed. `code` overrides the reason's code: a plugin may bring its own word for absent hardware.
struct Failure {
  const Reason* why = nullptr;
  std::string text;
  std::string hint;
  std::string code;
};
void reject(const Failure& failure, Place place, PluginRecord* record);

// Loads the file RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE and looks the entry up. The path is absolute. The code stays
// mapped for the life of the process: vendor runtimes leave threads and exit handlers behind that a real unload would
// pull the ground from. A file that took the place of a loaded one is loaded beside it.
std::optional<Failure> load_entry(const std::string& path, rlk_plugin_entry_v1_fn* entry);

// Calls the entry and settles the version window from both sides, then checks the tables (slots.hpp).
std::optional<Failure> negotiate(rlk_plugin_entry_v1_fn entry, const rlk_host& host, const rlk_plugin** api);

// The first call that may touch the vendor runtime.
std::optional<Failure> create(const rlk_plugin& api, const rlk_host& host, rlk_plugin_instance** instance);

// Asks whether the hardware is the plugin's own; evidence is passed on as it is reported.
std::optional<Failure> ask_probe(const rlk_plugin& api, rlk_plugin_instance* instance,
                                 const std::function<void(Evidence)>& on_evidence);

using Devices = std::vector<std::shared_ptr<core::PluginDevice>>;

// Describes every device of a plugin that owns devices. Opens none.
std::optional<Failure> describe_devices(const rlk_plugin& api, rlk_plugin_instance* instance, Devices* devices);

// The owner's devices as those of an operators-only plugin. Attaches to none.
Devices borrow_devices(const rlk_plugin& api, rlk_plugin_instance* instance, const Devices& owners);

// Opens one of them, or attaches to it, if that was not done yet.
std::optional<Failure> open_device(core::PluginDevice& device, rlk_plugin_device** out);

// What records tell of a device.
DeviceInfo info_of(const core::PluginDevice& device);

// Closes the devices that are open and destroys the instance (which may be null); the plugin's code stays mapped.
void close_plugin(const rlk_plugin& api, rlk_plugin_instance* instance, const Devices& devices);

// What the two sides say for themselves: "BACKEND_ERROR (cuda 100): no device".
std::string describe(rlk_status status, const rlk_error& error);
std::string status_name(rlk_status status);
// A plugin's string, cut at 4096 bytes; "" for NULL.
std::string text_of(const char* text);

}  // namespace rlk::loader
