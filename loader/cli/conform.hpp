// One run of the conformance suite on one file: asked for by the verb, done in a child, or here under a debugger.
#pragma once

#include <functional>
#include <string>

#include "core/conformance/shown_case.hpp"
#include "loader/store/record.hpp"

namespace rlk::cli {

struct ConformanceRequest {
  std::string path;           // of the file; empty: the built-in plugin
  std::string built_in;       // its id
  std::string device_plugin;  // file of the plugin that lends its devices to an operators-only one; empty: search
  std::string op, dtype;      // empty: all
  std::string only;           // cases in whose title this is; empty: all
  int64_t most_elements = 0;  // that a case may have in its tensors; 0: as many as there are
  int64_t one_of = 1;         // so many cases one is tried, and the first of each kind
  int64_t random_calls = 0;   // of each operator and dtype, instead of the generated cases; 0: those
  int64_t seed = 1;           // of the random calls
  std::string dump;           // folder for cases to look at; empty: none
  bool full = false;
  bool one_thread = false;  // of a run in this process, for a debugger
  double seconds = 0;       // a step (loading, a case) may take; 0: as in a probe

  std::string to_json() const;
  static ConformanceRequest from_json(const std::string& text);
};

// What a run reports; may be empty.
struct ConformanceNews {
  std::function<void(const std::string& phase)> phase;
  std::function<void(const std::string& title)> activity;         // before each case
  std::function<void(const loader::PluginRecord& now)> progress;  // should the next step crash
};

// Screening, then the suite, in this process.
loader::PluginRecord run_conformance_here(const ConformanceRequest& request, const ConformanceNews& news);

struct ConformanceResult {
  loader::PluginRecord record;
  std::string during;  // the title of the case at which the child ended, empty when it came to its end
};

// The same in a child that may crash and hang. `on_case` gets how many were begun, and the title of the last one; not
// for every case, but often. Throws Failure for what is not the plugin's fault.
ConformanceResult run_conformance_in_child(const ConformanceRequest& request,
                                           const std::function<void(int, const std::string&)>& on_case = {});
// The child's side: `send` delivers a message to the parent, false when the parent no longer reads.
std::string serve_conformance(const std::string& request, const ConformanceNews& news,
                              const std::function<bool(const std::string&)>& send);

}  // namespace rlk::cli
