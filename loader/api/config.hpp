// The policy (RLK_CONFIG, or /etc/rlk): where plugins are, and which implementation should serve which operator.
#pragma once

#include <rlk/abi/status.h>

#include <map>
#include <string>
#include <vector>

#include "core/dispatch/call/policy.hpp"
#include "loader/discover/discover.hpp"
#include "loader/discover/environment.hpp"
#include "loader/store/known_bad.hpp"

namespace rlk::loader {

// What RLK_REQUIRE names: "cuda:logp,attention,rocm" is two operators of cuda's devices, and rocm's devices.
struct Required {
  std::string backend;
  std::vector<std::string> operators;
};
// A word behind a backend with a colon is an operator of it if there is one of that name, else the next backend.
std::vector<Required> required_of(const std::string& text);

struct Config {
  std::vector<SearchEntry> plugin_path;
  std::vector<core::PolicyEntry> policy;
  std::string probe_retry;  // seconds; "" is unset
  std::string allow;        // off, warn or require, as RLK_ALLOW; "" is unset
  std::string allow_list;   // a path, as RLK_ALLOW_LIST
  std::string require;      // backends, separated by commas, as RLK_REQUIRE
  std::string counters;     // what is written at the end, as RLK_COUNTERS
  std::vector<KnownBad> known_bad;
  // Of probe_retry, allow, allow_list, require and counters: by the variable's name, what sets it ("rlk.toml:3:
  // require").
  std::map<std::string, std::string, std::less<>> origins;
  std::vector<std::string> use_known_bad;  // plugins that are used whatever known_bad says: ids or backends, globs

  // The environment with what the file says where no variable does.
  Environment complete(Environment environment) const;
};

// Reads TOML:
//
//   include = ["site.toml"]            # relative to this file; read first, so that this file's lines win
//   plugin_path = ["/opt/acme/rlk"]
//   probe_retry = 300                  # seconds for which a time-out of a probe is believed, as RLK_PROBE_RETRY
//   require = ["cuda"]                 # backends without which nothing starts, as RLK_REQUIRE
//   counters = "/run/rlk-%p.prom"      # what is written at the end of a process, as RLK_COUNTERS
//   allow = "require"                  # plugins that allow_list does not name: off, warn, require, as RLK_ALLOW
//   allow_list = "plugins.sha256"      # relative to this file; lines as sha256sum writes them, as RLK_ALLOW_LIST
//   use_known_bad = ["acme"]           # plugins (globs) that are used although a [[known_bad]] takes them out
//   [[known_bad]]                      # a version of a runtime or driver that computes wrong
//   plugin = "acme"                    # id or backend, with globs
//   seen = { runtime_version = "7.1*" }  # what the plugin saw, as `rlk-plugins inspect` shows its evidence; globs
//   operators = ["logp:fused"]         # "logp", or one implementation of it; all when it is absent
//   reason = "wrong in bf16: https://..."
//   [off]                              # implementations on devices that a call must ask for, and why
//   linear_logp = "wrong in bf16"      # or "linear_logp:fused" for one of them
//   [dispatch]
//   fallback = "strict"                # as RLK_FALLBACK
//   call_timeout = 60                  # as RLK_CALL_TIMEOUT; watch is a number too, or a text
//   attention = "cuda:cudnn"           # "all" is every operator
//   numerics = ["accurate"]            # classes that every call demands; refused if no implementation has them
//
// or plain lines `op = backend`, `include = file`, `probe_retry = 300`, `require = cuda`, `counters = 1`,
// `allow_list = FILE`, with # comments. At most 64 regular files and 1 MiB with all that is included. INVALID_ARGUMENT
// with file and line for anything else, and for a name that is nearly that of a setting or, in known_bad, of no
// operator. An empty path gives an empty configuration.
rlk_status read_config(const std::string& path, Config* out, rlk_error* error);
// Several files as one policy: later ones are stronger.
rlk_status read_config(const std::vector<std::string>& paths, Config* out, rlk_error* error);
// The same, and what [[known_bad]] says of operators that there are not goes to `misnamed` instead of being wrong.
rlk_status read_config(const std::vector<std::string>& paths, std::vector<std::string>* misnamed, Config* out,
                       rlk_error* error);

// What the policy names and the plugins in use do not have: an implementation that is off under a name like that of
// another one, evidence that a plugin of [[known_bad]] does not show. Both have no effect here. [off] of a name that is
// like none may be meant for another machine, and is not reported.
std::vector<std::string> doubts_of(const Config& config, const std::vector<PluginRecord>& records);

}  // namespace rlk::loader
