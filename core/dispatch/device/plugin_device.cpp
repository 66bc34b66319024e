// A plugin's handle of a device, opened once.
#include "core/dispatch/device/plugin_device.hpp"

#include <fmt/core.h>

#include <cstring>

#include "core/declaration/error.hpp"
#include "core/dispatch/trust/process_end.hpp"
#include "core/dispatch/trust/release.hpp"
#include "core/dispatch/trust/trace.hpp"

namespace rlk::core {
namespace {

rlk_device_properties with_ends(rlk_device_properties properties) {
  properties.struct_size = sizeof(properties);
  const auto end = [](auto& text) { text[sizeof(text) - 1] = '\0'; };
  end(properties.name), end(properties.arch), end(properties.pci_bus_id);
  end(properties.driver_version), end(properties.runtime_version);
  return properties;
}

}  // namespace

PluginDevice::PluginDevice(const rlk_plugin* api, rlk_plugin_instance* instance, uint32_t ordinal,
                           const rlk_device_properties& properties)
    : api_(*api), instance_(instance), ordinal_(ordinal), properties_(with_ends(properties)) {}

PluginDevice::PluginDevice(const rlk_plugin* api, rlk_plugin_instance* instance, std::shared_ptr<PluginDevice> owner)
    : api_(*api),
      instance_(instance),
      ordinal_(owner->ordinal_),
      properties_(owner->properties_),
      owner_(std::move(owner)) {}

std::string PluginDevice::name() const {
  return fmt::format("{}:{}", api_.backend, ordinal_);
}

rlk_status PluginDevice::open(rlk_plugin_device** out, rlk_error* error) {
  *out = handle();
  if (*out != nullptr) return RLK_OK;
  const std::lock_guard lock(mutex_);
  *out = handle();
  if (*out != nullptr) return RLK_OK;
  if (!tried_) {
    rlk_error said{};
    said.struct_size = sizeof(said);
    Trace first = trace({api_.id, {}, {}, {}, owner_ == nullptr ? "device_open" : "device_attach", &api_});
    rlk_status status = make(out, &said);
    first.reset();
    watch_for_the_end();
    if (status > 0 || (status == RLK_OK && *out == nullptr)) status = RLK_INTERNAL;
    if (status == RLK_OK) {
      handle_.store(*out, std::memory_order_release);
      return RLK_OK;
    }
    // Memory may be there the next time; every other answer stays.
    tried_ = status != RLK_OUT_OF_MEMORY;
    said.text[sizeof(said.text) - 1] = said.domain[sizeof(said.domain) - 1] = '\0';
    failure_.struct_size = sizeof(failure_);
    fail(&failure_, status,
         fmt::format("{} of {} by plugin {} failed: {}, {}{}{}", owner_ == nullptr ? "device_open" : "device_attach",
                     name(), api_.id, name_of_status(status), said.text[0] != '\0' ? "" : "without a text", said.text,
                     tried_ ? ". It is asked only once in a process" : ""),
         said.native_code, said.domain);
  }
  *out = nullptr;
  return fail(error, failure_.status, failure_.text, failure_.native_code, failure_.domain);
}

namespace {

struct Opening : TimedCall {
  rlk_plugin_device* handle = nullptr;
  rlk_attach_info info{};
};

}  // namespace

rlk_status PluginDevice::make(rlk_plugin_device** out, rlk_error* error) {
  *out = nullptr;
  const auto opening = std::make_shared<Opening>();
  const char* what = "device_open";
  std::function<void()> work = [opening, &api = api_, instance = instance_, ordinal = ordinal_] {
    opening->status =
        call_of(api, "device_open", api.device_open, instance, ordinal, &opening->handle, &opening->error);
  };
  if (owner_ != nullptr) {
    rlk_plugin_device* theirs = nullptr;
    if (const rlk_status status = owner_->open(&theirs, error); status != RLK_OK) return status;
    rlk_attach_info& info = opening->info;
    info.struct_size = sizeof(info);
    info.ordinal = ordinal_;
    info.backend = owner_->api_.backend;
    info.properties = &properties_;
    const rlk_device_api& device = *owner_->api_.device;
    if (device.native != nullptr) {
      native_.struct_size = sizeof(native_);
      // A device that cannot say (UNSUPPORTED, or any failure of the question) lends itself without.
      if (call_plugin(device.native, theirs, &native_, nullptr) == RLK_OK) info.native = &native_;
    }
    what = "device_attach";
    work = [opening, &api = api_, instance = instance_] {
      opening->status =
          call_of(api, "device_attach", api.device_attach, instance, &opening->info, &opening->handle, &opening->error);
    };
  }
  const rlk_status status = call_with_timeout(kOpenSeconds, api_, what, opening, std::move(work), error);
  if (status == RLK_OK) *out = opening->handle;
  return status;
}

void PluginDevice::close() {
  const std::lock_guard lock(mutex_);
  rlk_plugin_device* handle = handle_.exchange(nullptr);
  if (handle != nullptr) release_by(api_, "device close", api_.device_close, handle);
}

bool is_same_card(const rlk_device_properties& a, const rlk_device_properties& b) {
  static constexpr uint8_t kNone[sizeof(a.uuid)] = {};
  const auto has_uuid = [](const rlk_device_properties& p) { return std::memcmp(p.uuid, kNone, sizeof(kNone)) != 0; };
  if (has_uuid(a) && has_uuid(b)) return std::memcmp(a.uuid, b.uuid, sizeof(a.uuid)) == 0;
  if (a.pci_bus_id[0] != '\0' && b.pci_bus_id[0] != '\0') return std::strcmp(a.pci_bus_id, b.pci_bus_id) == 0;
  return true;
}

}  // namespace rlk::core
