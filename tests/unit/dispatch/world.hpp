// A registry with scripted plugins, a dispatcher over it, and calls whose memory is the fake device's.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/dispatch/call/data_error.hpp"
#include "core/dispatch/call/dispatcher.hpp"
#include "core/dispatch/device/graph.hpp"
#include "framework/op_call.hpp"
#include "loader/host/services.hpp"
#include "unit/dispatch/fake_device.hpp"
#include "unit/dispatch/script.hpp"

namespace rlk::test {

using core::Dispatcher;
using core::PluginBinding;
using core::Policy;
using core::Registry;
using core::Stream;
using core::UnitResult;

UnitResult unit(std::string op, std::string implementation, std::string dtype, std::string feature,
                std::string variant = "v1", uint32_t numerics = RLK_NUMERICS_TOLERANCE | RLK_NUMERICS_DETERMINISTIC,
                UnitResult::Verdict verdict = UnitResult::Verdict::verified);

// A world is made of plugins that live as long as the process, as in a real one.
struct World {
  enum Parts { kCpu = 1, kFake = 2, kPlain = 4, kGuest = 8, kAll = kCpu | kFake };

  using Environment = std::vector<std::pair<std::string, std::string>>;

  explicit World(int parts = kAll, const Environment& environment = {},
                 const std::vector<core::PolicyEntry>& entries = {}, size_t max_plans = 1024);
  void publish(std::vector<core::RejectedPlugin> rejected = {});
  void make_dispatcher(const Environment& environment, const std::vector<core::PolicyEntry>& entries,
                       size_t max_plans = 1024);
  static rlk_status make_policy(const Environment& environment, const std::vector<core::PolicyEntry>& entries,
                                Policy* out, rlk_error* error);

  std::unique_ptr<Stream> stream(const char* backend = "fake", uint32_t ordinal = 0);
  // A call whose memory lives as long as the world: streams, which die before it, may still be at work on it.
  OpCall& make(const char* op, int form = 0);
  // Their errors end up in `last`.
  rlk_status call(Stream& stream, OpCall& call, core::CallOptions options = {});
  rlk_status synchronize(Stream& stream);
  core::Explanation explain(Stream& stream, OpCall& call, core::CallOptions options = {});
  std::string text() const { return last.text; }
  // "fake/first", "cpu/first staged", or "" when no implementation takes it.
  static std::string taken(const core::Explanation& explanation);
  core::OpCounters& counters(const char* op) { return dispatcher->counters().of(*core::find_declaration(op)); }

  // Bindings with everything verified that the tests ask for; the CPU's is built in and unverified.
  static PluginBinding cpu();
  static PluginBinding fake();
  static PluginBinding plain();
  static PluginBinding guest();
  // A second plugin that owns a device of another plugin's backend: of the very card, or of one of its own.
  static PluginBinding rival(const char* backend, bool own_card);
  // The CPU, and new instances of fake and guest whose devices were not opened yet.
  static std::vector<PluginBinding> unopened(uint32_t devices);

  Registry registry;
  std::vector<PluginBinding> plugins;
  std::unique_ptr<Dispatcher> dispatcher;
  std::vector<std::unique_ptr<OpCall>> calls;
  rlk_error last{};
};

inline const core::OpDecl& op(const char* name) {
  return *core::find_declaration(name);
}

}  // namespace rlk::test
