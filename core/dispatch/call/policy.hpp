// Which implementation should serve an operator, by the preferences of the environment and the policy file.
#pragma once

#include <rlk/abi/status.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/declaration/declaration.hpp"

namespace rlk::core {

struct Candidate;

// "cuda", "cuda:fused" (a backend or a plugin's id), or "acme/fused" (a plugin's id).
struct Preference {
  std::string who;
  bool plugin_only = false;
  std::string implementation;  // "" is any
  std::string source;          // "RLK_OP_LOGP", "the call's pin", "/etc/rlk.toml:12"
  std::string platform;        // the backend whose devices' calls it is for, "" is every one
  bool of_operator = false;    // names this operator, not all of them
  std::string text() const { return who + (plugin_only ? "/" : implementation.empty() ? "" : ":") + implementation; }
  bool matches(const Candidate& candidate) const;
};
// False when the text has none of the three forms.
bool parse_preference(std::string_view text, std::string source, Preference* out);

// One line of the policy file, as the loader read it.
struct PolicyEntry {
  // "" is every operator; "numerics": the value is classes that every call demands; "watch", "fallback",
  // "call_timeout": as the variables.
  std::string op;
  std::string value;  // "cuda:fused"; "accurate,deterministic"
  std::string source;
  std::string platform = {};  // the backend whose devices' calls it is for, "" is every one
  // Not empty: why implementations of `op` on devices are off; `value` is the one's name, "" is all.
  std::string off = {};
};

// What is off until the caller or a policy asks for it by the operator's name.
struct Exclusion {
  std::string implementation, platform, reason, source;
};

enum class Fallback { allow, warn, strict };

// Immutable once made. [thread-safe]
class Policy {
public:
  using Environment = std::function<const char*(const char* name)>;  // nullptr when unset

  Policy();
  // Reads RLK_OP_<NAME>, RLK_BACKEND, RLK_FALLBACK and RLK_LOG_DISPATCH. names: every variable that is set, so that a
  // misspelt operator is noticed. A value that rlk does not understand is a warning, and with RLK_FALLBACK=strict
  // RLK_INVALID_ARGUMENT with a text.
  static rlk_status make(const Environment& environment, const std::vector<std::string>& names,
                         const std::vector<PolicyEntry>& entries, Policy* out, rlk_error* error);

  // For an operator, the strongest first.
  const std::vector<Preference>& preferences(const OpDecl& decl) const { return preferences_[index_of(decl)]; }
  // Of these the ones for calls on a backend's devices.
  std::vector<Preference> preferences(const OpDecl& decl, std::string_view platform) const;
  // Why the implementation is off; nullptr when it is not, or when a preference turns it on.
  const Exclusion* exclusion(const Candidate& candidate) const;
  Fallback fallback() const { return fallback_; }
  // The classes that every call demands beside its own, RLK_NUMERICS_*.
  uint32_t numerics() const { return numerics_; }
  const std::string& numerics_source() const { return numerics_source_; }
  bool logs_dispatch() const { return logs_dispatch_; }
  // RLK_WATCH: whether first uses of a class of sizes are compared with the reference, and which share of later calls.
  bool shadow_checks_first_uses() const { return shadow_checks_first_uses_; }
  double shadow_check_rate() const { return shadow_check_rate_; }
  // RLK_CALL_TIMEOUT: after that long inside a plugin a call hangs; 0 is never.
  double call_timeout_seconds() const { return call_timeout_seconds_; }

private:
  static size_t index_of(const OpDecl& decl) { return static_cast<size_t>(&decl - declarations().data()); }
  std::vector<std::vector<Preference>> preferences_;  // by declaration
  std::vector<std::vector<Exclusion>> exclusions_;    // by declaration
  Fallback fallback_ = Fallback::warn;
  uint32_t numerics_ = 0;
  std::string numerics_source_;
  bool logs_dispatch_ = false;
  bool shadow_checks_first_uses_ = false;  // make() turns it on
  double shadow_check_rate_ = 0;
  double call_timeout_seconds_ = 0;  // make() sets it
};

}  // namespace rlk::core
