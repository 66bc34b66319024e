// Which implementations could serve a call, in which order, and why not the others.
#pragma once

#include <rlk/abi.h>

#include <string>
#include <string_view>
#include <vector>

#include "core/dispatch/call/call_description.hpp"
#include "core/dispatch/call/policy.hpp"
#include "core/dispatch/call/registry.hpp"

namespace rlk::core {

enum class Verdict { willing, taken, declined, failed, filtered };
const char* name_of(Verdict verdict);

// One candidate's part in the decision.
struct Option {
  std::shared_ptr<const Candidate> candidate;  // nullptr: a plugin that is not registered, or not on this device
  std::string plugin;
  std::string implementation;
  bool staged = false;  // the CPU's, for a stream of another device
  Verdict verdict = Verdict::declined;
  std::string reason_code;
  std::string reason;
  std::string variant;
  uint32_t numerics = 0;
  double cost_us = 0;      // what it states; 0: nothing
  double measured_us = 0;  // what a call like this one took; 0: none was timed
  int32_t level = RLK_SUPPORT_NO;
  uint64_t preferences = 0;  // bit set of those it meets, the strongest highest
};

class Watchdog;

struct CallRequest {
  const BoundCall& call;
  const CallDescription& description;
  const std::vector<std::string>& features;  // features_of
  uint32_t numerics = 0;                     // demanded
  std::string_view pin;                      // "" is none
  const DeviceEntry* on = nullptr;           // the stream's device
  std::string_view required_plugin = {};     // by private parameters; "" is none
  Watchdog* watchdog = nullptr;              // of the implementations that are asked
};

// Why the decision is not what the policy prefers, or not on the stream's device. Empty code: it is.
struct FallbackReason {
  std::string code;
  std::string text;
};

struct Selection {
  std::string platform;         // the backend of the call's device
  std::vector<Option> options;  // the willing first, best first; then the others
  bool by_time = false;         // of every willing one of the device a call like this one was timed
  bool by_cost = false;         // every willing one of the device states a cost
  // Why `first` stands before `second`, both willing: "a plugin of the call's device comes before the CPU".
  std::string rule_between(const Policy& policy, const OpDecl& decl, const Option& first, const Option& second) const;
  FallbackReason why_not_first(const Policy& policy, const CallRequest& request, const Option& taken) const;
};

// Asks every candidate of the stream's device and of the CPU (query is pure and takes microseconds). Order among the
// willing: the call's pin (the others are filtered), the preferences of the policy, the device before the staged CPU,
// not slow before slow, the time where such calls of each were timed, else the cost where each states one and else the
// level, order of registration. A pin that cannot be
// read is RLK_INVALID_ARGUMENT. [thread-safe]
rlk_status select(const Snapshot& snapshot, const Policy& policy, const CallRequest& request, Selection* out,
                  rlk_error* error);

// "logp: no implementation takes this call on cuda:0. cuda/fused: DTYPE, ...; cpu/vector: ..."
std::string describe_refusals(const CallRequest& request, const Selection& selection);

}  // namespace rlk::core
