// Each step through the plugin's own tables, and what is said when one fails.
#include "loader/probe/load.hpp"

#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#define BOOST_DLL_USE_STD_FS  // std::filesystem::path: no Boost library to link
#include <boost/dll/shared_library.hpp>

#include "core/declaration/error.hpp"
#include "core/declaration/text.hpp"
#include "core/dispatch/trust/release.hpp"
#include "loader/probe/slots.hpp"
#include "loader/screen/screen.hpp"

namespace rlk::loader {
namespace {

constexpr size_t kMaxText = 4096;
constexpr uint32_t kMaxDevices = 1024;

template <size_t N>
std::string text_of_array(const char (&text)[N]) {
  return core::text_of(text);
}

// "GPU-8f1a..." is the vendor's spelling; here the 16 bytes in the usual form of a UUID, "" for a card without one.
std::string uuid_text(const uint8_t (&uuid)[16]) {
  std::string text;
  bool any = false;
  for (size_t i = 0; i < sizeof(uuid); ++i) {
    char digits[4];
    std::snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned>(uuid[i]));
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits;
    any = any || uuid[i] != 0;
  }
  return any ? text : "";
}

}  // namespace

void reject(const Failure& failure, Place place, PluginRecord* record) {
  const bool tried_again = failure.why == &reason::kTimedOut || failure.why == &reason::kCancelled;
  record->stop(tried_again ? State::deferred : State::rejected, place, *failure.why, failure.text, failure.hint);
  if (failure.code.empty()) return;
  record->reason_code = failure.code;
  record->history.back().reason_code = failure.code;
}

std::string text_of(const char* text) {
  return text == nullptr ? "" : core::printable({text, strnlen(text, kMaxText)});
}

std::string status_name(rlk_status status) {
  const std::string name = core::name_of_status(status);
  return name == "UNKNOWN" ? fmt::format("status {}", status) : name;
}

std::string describe(rlk_status status, const rlk_error& error) {
  std::string out = status_name(status);
  if (error.native_code != 0) out += fmt::format(" ({} {})", text_of_array(error.domain), error.native_code);
  const std::string text = text_of_array(error.text);
  return out + (text.empty() ? ", without a text" : ": " + text);
}

namespace {

// The linker takes a name that it has seen for the file that it loaded then, whatever has the name now. So each file
// that a path has stood for in this process gets a spelling of its own: /x/./a.so leads where /x/a.so leads, and
// $ORIGIN is the same folder. The number is written in two kinds of steps, short for any number of files.
std::string name_for_linker(const std::string& path) {
  static std::mutex mutex;
  static auto* const files = new std::map<std::string, std::vector<std::pair<uint64_t, uint64_t>>>;
  const auto identity = identity_of(path);
  if (!identity) return path;
  const std::lock_guard lock(mutex);
  auto& seen = (*files)[path];
  const std::pair file(identity->device, identity->inode);
  auto number = static_cast<size_t>(std::find(seen.begin(), seen.end(), file) - seen.begin());
  if (number == seen.size()) seen.push_back(file);
  std::string steps;
  for (; number > 0; number /= 2) steps += number % 2 == 0 ? "/." : "//.";
  return std::string(path).insert(path.find_last_of('/'), steps);
}

}  // namespace

std::optional<Failure> load_entry(const std::string& path, rlk_plugin_entry_v1_fn* entry) {
  // Boost.DLL looks for a bare name in the current folder, and its default is lazy binding: hence the full path and
  // the explicit mode. It has no name for NODELETE, but passes the flag on.
  if (path.empty() || path.front() != '/') return Failure{&reason::kPathNotAbsolute, "\"" + path + "\"", {}, {}};
  const core::KeepFloatControl keep;  // a library built with -ffast-math flushes denormals from its constructors
  try {
    const auto mode = static_cast<boost::dll::load_mode::type>(RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    boost::dll::shared_library library;
    library.load(name_for_linker(path), mode);  // the overload that throws: only its text holds what the linker said
    *entry = &library.get<std::remove_pointer_t<rlk_plugin_entry_v1_fn>>(std::string(kEntrySymbol));
    return std::nullopt;
  } catch (const std::exception& error) {
    return Failure{&reason::kLoadFailed, error.what(), {}, {}};
  }
}

std::optional<Failure> negotiate(rlk_plugin_entry_v1_fn entry, const rlk_host& host, const rlk_plugin** api) {
  rlk_error error = core::fresh_error();
  const rlk_plugin* found = core::call_plugin(entry, &host, &error);
  if (found == nullptr) {
    const Reason& why = error.status == RLK_ABI_MISMATCH ? reason::kAbiMismatch : reason::kEntryFailed;
    return Failure{&why, "the entry returned nothing: " + describe(error.status, error), {}, {}};
  }
  // Only these fields may be read before the versions are known to fit.
  if (found->struct_size < offsetof(rlk_plugin, flags))
    return Failure{
        &reason::kAbiMismatch, fmt::format("the plugin's table states a size of {} bytes", found->struct_size), {}, {}};
  const auto version = [](uint32_t major, uint32_t minor, uint32_t draft) {
    return fmt::format("{}.{}{}", major, minor, draft == 0 ? "" : fmt::format(" draft {}", draft));
  };
  const std::string theirs = version(found->abi_major, found->abi_minor, found->abi_draft);
  const std::string ours = version(host.abi_major, host.abi_minor, host.abi_draft);
  std::string mismatch;
  if (found->abi_major != host.abi_major || found->abi_draft != host.abi_draft)
    mismatch = fmt::format("the plugin is built for ABI {}, this host speaks {}", theirs, ours);
  else if (found->abi_minor < host.min_plugin_minor)
    mismatch = fmt::format("the plugin is built for ABI {}, this host accepts plugins from {}", theirs,
                           version(host.abi_major, host.min_plugin_minor, host.abi_draft));
  else if (found->min_host_minor > host.abi_minor)
    mismatch = fmt::format("the plugin asks for a host of ABI {} or newer, this one speaks {}",
                           version(found->abi_major, found->min_host_minor, found->abi_draft), ours);
  if (!mismatch.empty()) return Failure{&reason::kAbiMismatch, std::move(mismatch), {}, {}};
  std::string problems = check_slots(*found);
  if (!problems.empty()) return Failure{&reason::kSlotMissing, std::move(problems), {}, {}};
  *api = found;
  return std::nullopt;
}

std::optional<Failure> create(const rlk_plugin& api, const rlk_host& host, rlk_plugin_instance** instance) {
  rlk_error error = core::fresh_error();
  const rlk_status status = core::call_plugin(api.create, &host, instance, &error);
  if (status == RLK_ABSENT) return Failure{&reason::kNoDevice, "create: " + describe(status, error), {}, {}};
  if (status != RLK_OK) return Failure{&reason::kCreateFailed, "create: " + describe(status, error), {}, {}};
  if (*instance == nullptr) return Failure{&reason::kCreateFailed, "create: OK, but no instance was returned", {}, {}};
  return std::nullopt;
}

std::optional<Failure> ask_probe(const rlk_plugin& api, rlk_plugin_instance* instance,
                                 const std::function<void(Evidence)>& on_evidence) {
  rlk_evidence_sink sink = {};
  sink.struct_size = sizeof(sink);
  sink.context = const_cast<void*>(static_cast<const void*>(&on_evidence));
  sink.add = [](void* context, const rlk_evidence* item) {
    if (item == nullptr) return;
    const auto& sink_function = *static_cast<const std::function<void(Evidence)>*>(context);
    sink_function({text_of(item->kind), text_of(item->value), item->supports});
  };
  rlk_probe_result result = {};
  result.struct_size = sizeof(result);
  rlk_error error = core::fresh_error();
  const rlk_status status = core::call_plugin(api.probe, instance, &sink, &result, &error);
  if (status == RLK_ABSENT) return Failure{&reason::kNoDevice, "probe: " + describe(status, error), {}, {}};
  if (status != RLK_OK) return Failure{&reason::kCreateFailed, "probe: " + describe(status, error), {}, {}};
  const std::string fingerprint = text_of_array(result.runtime_fingerprint);
  if (!fingerprint.empty()) on_evidence({"runtime_fingerprint", fingerprint, -1});
  const auto negative = [&](const Reason& why) {
    std::string text = text_of_array(result.reason);
    if (text.empty()) text = "the plugin gave no reason";
    return Failure{&why, std::move(text), text_of_array(result.hint), text_of_array(result.reason_code)};
  };
  switch (result.verdict) {
    case RLK_PROBE_MINE:
      return std::nullopt;
    case RLK_PROBE_NOT_MINE:
      return negative(reason::kNotMine);
    case RLK_PROBE_ABSENT:
      return negative(reason::kNoDevice);
    case RLK_PROBE_BROKEN:
      return negative(reason::kCreateFailed);
    default:
      return Failure{&reason::kCreateFailed,
                     fmt::format("probe: OK, but the verdict {} is none of the known ones", result.verdict),
                     {},
                     {}};
  }
}

std::optional<Failure> describe_devices(const rlk_plugin& api, rlk_plugin_instance* instance, Devices* devices) {
  rlk_error error = core::fresh_error();
  uint32_t count = 0;
  const rlk_status status = core::call_plugin(api.device_count, instance, &count, &error);
  if (status != RLK_OK) return Failure{&reason::kEnumerateFailed, "device_count: " + describe(status, error), {}, {}};
  if (count == 0) return Failure{&reason::kNoDevice, "the plugin counts no devices", {}, {}};
  if (count > kMaxDevices)
    return Failure{&reason::kEnumerateFailed, fmt::format("the plugin counts {} devices", count), {}, {}};
  for (uint32_t ordinal = 0; ordinal < count; ++ordinal) {
    rlk_device_properties properties = {};
    properties.struct_size = sizeof(properties);
    properties.numa_node = -1;
    error = core::fresh_error();
    const rlk_status described = core::call_plugin(api.device_describe, instance, ordinal, &properties, &error);
    if (described != RLK_OK)
      return Failure{&reason::kEnumerateFailed,
                     fmt::format("device_describe of device {}: {}", ordinal, describe(described, error)),
                     {},
                     {}};
    devices->push_back(std::make_shared<core::PluginDevice>(&api, instance, ordinal, properties));
  }
  return std::nullopt;
}

Devices borrow_devices(const rlk_plugin& api, rlk_plugin_instance* instance, const Devices& owners) {
  Devices borrowed;
  for (const auto& owner : owners) borrowed.push_back(std::make_shared<core::PluginDevice>(&api, instance, owner));
  return borrowed;
}

std::optional<Failure> open_device(core::PluginDevice& device, rlk_plugin_device** out) {
  rlk_error error = core::fresh_error();
  if (device.open(out, &error) == RLK_OK) return std::nullopt;
  return Failure{&reason::kEnumerateFailed, text_of_array(error.text), {}, {}};
}

DeviceInfo info_of(const core::PluginDevice& device) {
  const rlk_device_properties& properties = device.properties();
  return {device.ordinal(),        text_of_array(properties.name), text_of_array(properties.arch),
          properties.memory_bytes, uuid_text(properties.uuid),     text_of_array(properties.pci_bus_id),
          properties.numa_node};
}

void close_plugin(const rlk_plugin& api, rlk_plugin_instance* instance, const Devices& devices) {
  if (instance == nullptr) return;
  for (const auto& device : devices) device->close();
  core::release_by(api, "destroy", api.destroy, instance);
}

}  // namespace rlk::loader
