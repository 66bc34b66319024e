// One small call of each implementation in this very process, before it serves its first: a plugin can be right in the
// process of its probe and wrong here, beside other libraries.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

#include "core/dispatch/call/registry.hpp"

namespace rlk::core {

class Canaries {
public:
  // longest_seconds: of each of a canary's calls, which is then left behind on its thread; 0: as long as opening a
  // device may take. Its plans may take as long as any plan.
  Canaries(Registry& registry, bool enabled, double longest_seconds)
      : registry_(registry), enabled_(enabled), longest_seconds_(longest_seconds) {}

  // Tries the plugins' implementations of the operator that are verified for the dtype on the device and were not tried
  // yet. What fails is switched off; true then: the registry has another generation. Not while a stream captures.
  // [thread-safe: calls of the same operator and dtype wait, other calls do not]
  bool find_wrong(const Snapshot& snapshot, const DeviceEntry& device, const OpDecl& decl, const std::string& dtype);

private:
  using Key = std::tuple<const rlk_plugin*, const DeviceEntry*, const OpDecl*, std::string>;
  struct Attempt {
    std::mutex mutex;  // held while it is tried
    bool is_over = false;
  };
  std::shared_ptr<Attempt> attempt_of(Key key);
  // Its plugin and the device. *is_over becomes false when it is to be tried again.
  bool try_one(const PluginBinding& plugin, const DeviceEntry& on, PluginDevice& device, const OpDecl& decl,
               const std::string& dtype, bool* is_over);

  Registry& registry_;
  const bool enabled_;
  const double longest_seconds_;
  std::mutex mutex_;  // of what follows
  std::map<Key, std::shared_ptr<Attempt>> attempts_;
};

}  // namespace rlk::core
