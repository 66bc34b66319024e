// Who should serve an operator, as the environment and the policy file wish it.
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
struct Wish {
  std::string who;
  bool plugin_only = false;
  std::string implementation;  // "" is any
  std::string source;          // "RLK_OP_LOGP", "the call's pin", "/etc/rlk.toml:12"
  std::string text() const { return who + (plugin_only ? "/" : implementation.empty() ? "" : ":") + implementation; }
  bool matches(const Candidate& candidate) const;
};
// False when the text has none of the three forms.
bool parse_wish(std::string_view text, std::string source, Wish* out);

// One line of the policy file, as the loader read it.
struct PolicyEntry {
  // "" is every operator; "numerics": the value is classes that every call demands; "watch", "fallback": as the
  // variables.
  std::string op;
  std::string value;  // "cuda:fused"; "accurate,deterministic"
  std::string source;
};

enum class Fallback { allow, warn, strict };

// Immutable once made. [thread-safe]
class Policy {
public:
  using Environment = std::function<const char*(const char* name)>;  // nullptr when unset

  Policy();
  // Reads RLK_OP_<NAME>, RLK_BACKEND, RLK_FALLBACK and RLK_LOG_DISPATCH. names: every variable that is set, so that a
  // misspelt operator is noticed. What is not understood is a warning, and with RLK_FALLBACK=strict
  // RLK_INVALID_ARGUMENT with a text.
  static rlk_status make(const Environment& environment, const std::vector<std::string>& names,
                         const std::vector<PolicyEntry>& entries, Policy* out, rlk_error* error);
  static rlk_status of_process(const std::vector<PolicyEntry>& entries, Policy* out, rlk_error* error);

  // For an operator, the strongest first.
  const std::vector<Wish>& wishes(const OpDecl& decl) const {
    return wishes_[static_cast<size_t>(&decl - declarations().data())];
  }
  Fallback fallback() const { return fallback_; }
  // The classes that every call demands beside its own, RLK_NUMERICS_*.
  uint32_t numerics() const { return numerics_; }
  const std::string& numerics_source() const { return numerics_source_; }
  bool logs_dispatch() const { return logs_dispatch_; }
  // RLK_WATCH: whether first uses of a class of sizes are compared with the reference, and which share of later calls.
  bool watches_first_uses() const { return watches_first_uses_; }
  double watch_rate() const { return watch_rate_; }

private:
  std::vector<std::vector<Wish>> wishes_;  // by declaration
  Fallback fallback_ = Fallback::warn;
  uint32_t numerics_ = 0;
  std::string numerics_source_;
  bool logs_dispatch_ = false;
  bool watches_first_uses_ = false;  // make() turns it on
  double watch_rate_ = 0;
};

}  // namespace rlk::core
