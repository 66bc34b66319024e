// Which plugins, devices and verified implementations this process has: an immutable snapshot, swapped atomically.
#pragma once

#include <rlk/abi.h>

#include <cstddef>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/conformance/conformance.hpp"
#include "core/declaration/declaration.hpp"
#include "core/dispatch/call/measured_cost.hpp"
#include "core/dispatch/device/plugin_device.hpp"

namespace rlk::core {

// A plugin that was loaded in this process, as the loader hands it over. Everything lives as long as the process.
struct PluginBinding {
  std::string id;
  std::string backend;
  const rlk_plugin* api = nullptr;
  rlk_plugin_instance* instance = nullptr;
  // By ordinal, described and not yet opened; of an operators-only plugin by the owner's ordinal.
  std::vector<std::shared_ptr<PluginDevice>> devices;
  std::vector<UnitResult> units;    // what the probe found
  std::vector<MeasuredCost> costs;  // that were timed on this machine or one like it
  bool built_in = false;            // serves class tolerance before it is verified
};

bool owns_devices(const PluginBinding& plugin);
// Of plugins that own devices of one backend the first keeps what a later one describes too: the later one's operators
// were not tested on the first one's streams. Returns the one in `before` that has the plugin's device, or nullptr.
const PluginBinding* find_holder(const std::vector<const PluginBinding*>& before, const PluginBinding& plugin,
                                 uint32_t ordinal);

// A plugin that is not available, so that asking for it by name returns its stored reason.
struct RejectedPlugin {
  std::string id;
  std::string backend;
  std::string reason_code;
  std::string reason;
  bool operator==(const RejectedPlugin&) const = default;
};

// A device and its address for the life of the process: generations share the entries.
struct DeviceEntry {
  std::string backend;
  uint32_t ordinal = 0;  // of the address; a second owner of a backend counts its own devices from 0
  std::shared_ptr<const PluginBinding> owner;
  std::shared_ptr<PluginDevice> device;

  const rlk_device_properties& properties() const { return device->properties(); }
  bool has(uint32_t flag) const { return (properties().flags & flag) != 0; }
  std::string name() const { return backend + ":" + std::to_string(ordinal); }
};

// Switched off after a run-time failure. It stays off through later generations.
struct Quarantined {
  std::string plugin;
  std::string op;  // "" is everything of the plugin
  std::string implementation;
  std::string dtype;  // of the first dtype variable; "" is all
  std::string reason_code;
  std::string reason;
  const rlk_plugin* api = nullptr;  // the plugin's generation; nullptr: of every one

  bool concerns(std::string_view its_op, std::string_view its_implementation) const {
    return op.empty() || (op == its_op && implementation == its_implementation);
  }
  std::string who() const;  // "add/simple for dtype f32"
};

// A class of sizes (conformance/sample.hpp) that a unit served for the first time, and served right.
struct ComparedClass {
  const rlk_plugin* api = nullptr;  // the plugin's generation
  std::string plugin;
  std::string op;
  std::string implementation;
  std::string dtype;
  std::string variant;
  uint32_t size_class = 0;
};

// A class of calls of which rlk compared no call, and why. rlk logs a later comparison as one.
struct UncomparedClass {
  ComparedClass unit;
  std::string sizes;        // of the call that was looked at last: "f32 N=5,V=37"
  std::string reason_code;  // core/dispatch/trust/uncompared.hpp
  std::string reason;
  uint64_t calls = 0;  // that were looked at
};

// One (operator, implementation) on one device. Code that keeps one longer than a call shares it.
struct Candidate : std::enable_shared_from_this<Candidate> {
  Candidate(const OpDecl& declaration, const rlk_implementation& made_by, std::shared_ptr<const PluginBinding> owner,
            const DeviceEntry& entry, PluginDevice& handle)
      : decl(&declaration), implementation(&made_by), plugin(std::move(owner)), on(&entry), device(&handle) {}

  const OpDecl* decl = nullptr;
  const rlk_implementation* implementation = nullptr;
  std::shared_ptr<const PluginBinding> plugin;
  const DeviceEntry* on = nullptr;         // memory and streams
  PluginDevice* device = nullptr;          // whose handle the implementation's slots take
  std::vector<const UnitResult*> units;    // of the plugin
  std::vector<const MeasuredCost*> costs;  // of it, on this kind of device
  std::vector<std::shared_ptr<const Quarantined>> quarantined;
};

// Generations share those that they have in common.
class Candidates {
public:
  class Iterator {
  public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = const Candidate;
    using difference_type = std::ptrdiff_t;
    using pointer = const Candidate*;
    using reference = const Candidate&;
    Iterator() = default;
    explicit Iterator(const std::shared_ptr<const Candidate>* at) : at_(at) {}
    const Candidate& operator*() const { return **at_; }
    const Candidate* operator->() const { return at_->get(); }
    Iterator& operator++() { return ++at_, *this; }
    Iterator operator++(int) { return Iterator(at_++); }
    bool operator==(const Iterator&) const = default;

  private:
    const std::shared_ptr<const Candidate>* at_ = nullptr;
  };
  Iterator begin() const { return Iterator(all_.data()); }
  Iterator end() const { return Iterator(all_.data() + all_.size()); }
  size_t size() const { return all_.size(); }
  void push_back(std::shared_ptr<const Candidate> candidate) { all_.push_back(std::move(candidate)); }
  // One that is equal, or nullptr.
  std::shared_ptr<const Candidate> find(const Candidate& like) const;

private:
  std::vector<std::shared_ptr<const Candidate>> all_;
};

struct Snapshot {
  uint64_t generation = 0;
  std::vector<std::shared_ptr<const PluginBinding>> plugins;
  // Replaced or gone, the newest first: they serve the streams that live on their devices, which have no address now.
  std::vector<std::shared_ptr<const PluginBinding>> retired;
  std::vector<const DeviceEntry*> devices;  // the CPU is always first; they live as long as the registry
  std::vector<RejectedPlugin> rejected;
  std::vector<std::shared_ptr<const Quarantined>> quarantined;
  std::vector<std::shared_ptr<const Quarantined>> suspected;  // evidence alone: they are candidates as before
  Candidates candidates;

  // nullptr when there is none. [all: thread-safe]
  const DeviceEntry* find_device(std::string_view backend, uint32_t ordinal) const;
  // A registered plugin of that id or backend.
  bool knows(std::string_view id_or_backend) const;
  // For a name that it does not know: ", did you mean cpu?", or where to look.
  std::string meant_plugin(std::string_view id_or_backend) const;
  const RejectedPlugin* find_rejected(std::string_view id_or_backend) const;
  // The device has an address: new streams may be made on it.
  bool is_current(const DeviceEntry& device) const;
};

// A snapshot lives as long as a thread reads it. Every thread keeps the last one that it read until it reads another.
class Registry {
public:
  Registry();
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // [thread-safe; locks once per thread and generation]
  std::shared_ptr<const Snapshot> current() const;
  // Builds and swaps in the next generation. Implementations of operators that this host does not declare are left out.
  // A plugin whose devices are not in it any more is retired. The same again is no new generation. [thread-safe]
  void publish(std::vector<PluginBinding> plugins, std::vector<RejectedPlugin> rejected);
  // Removes an implementation for a dtype ("" = all) after a run-time failure; the next generation lacks it. The same
  // again is no new generation. Once the end of the process has begun no listener is told. [thread-safe]
  void quarantine(const PluginBinding& plugin, const std::string& op, const std::string& implementation,
                  const std::string& dtype, const std::string& reason_code, const std::string& reason);
  void quarantine(Quarantined failed);
  // Everything of a plugin whose own clean-up failed, in each registry that has it: `what` is the slot. [thread-safe]
  static void switch_off(const rlk_plugin& plugin, const char* what, const rlk_error& error) noexcept;
  // Each may have caused one failure; rlk cannot tell which. Kept as evidence, none is switched off. The same again is
  // no new generation. [thread-safe]
  void suspect(std::vector<Quarantined> suspects);
  // The listener gets every new quarantine and suspicion, outside any lock, so as to keep evidence. [before the first
  // call]
  void on_quarantine(std::function<void(const Quarantined&, bool only_suspected)> listener);
  // The listener gets what running calls proved beyond the tests, and remembers it. [thread-safe]
  void note_compared(const ComparedClass& compared);
  void on_compared(std::function<void(const ComparedClass&)> listener);
  // The same for a class that running calls cannot prove, once. [thread-safe]
  void note_uncompared(const UncomparedClass& uncompared);
  void on_uncompared(std::function<void(const UncomparedClass&)> listener);

  // A call asked for an implementation whose operator has not been tried yet. False when it will not be tried for this
  // process. [thread-safe]
  bool want(const Candidate& untried);
  void on_want(std::function<bool(const std::string& plugin, const std::string& op)> listener);

private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rlk::core
