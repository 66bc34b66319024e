// Takes discovered plugins to their verdict: screen, remembered result or child process, one record each.
#pragma once

#include <rlk/abi.h>

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "loader/discover/environment.hpp"
#include "loader/probe/demand.hpp"
#include "loader/screen/screen.hpp"
#include "loader/store/known_bad.hpp"
#include "loader/store/record.hpp"
#include "loader/store/store.hpp"

namespace rlk::loader {

enum class ProbeMode : uint8_t {
  isolated,   // a child process per plugin
  inprocess,  // in this process, for a debugger: a plugin's crash is then ours. Results are not remembered
  off,        // nothing is probed, so no plugin is used
};
// RLK_PROBE; isolated when it is unset. False, with `mode` isolated, when the value is none of the three.
bool probe_mode_of(const Environment& environment, ProbeMode* mode);

// Which operators of a plugin's file are tried before its verdict stands. The others wait; their turn comes with
// `more`.
enum class TrialScope : uint8_t {
  all,         // every one
  first_look,  // those that a short time allows: all of a small plugin, few of one with a hundred
  more         // of those that wait some more: the wanted ones, where there are such
};

struct ProbeOptions {
  Environment environment = Environment::of_process();
  const rlk_host* host = nullptr;  // what plugins are given; also names the versions
  Store* store = nullptr;          // remembered results and locks; outlives the call
  ScreenOptions screen;            // host_abi and libraries are filled in by probe_plugins
  ProbeMode mode = ProbeMode::isolated;
  std::string prober;               // find_prober() when empty
  std::vector<KnownBad> known_bad;  // applied to the verdicts, remembered or not
  std::vector<std::string> use_known_bad;
  // Do not believe remembered results (new ones are stored), and try everything of the built-in too, unless it is
  // only another plugin's probe that is to be fresh.
  bool fresh = false, fresh_builtin = true;
  TrialScope trial = TrialScope::all;
  Demand* demand = nullptr;  // which operators are wanted of which plugins; `first_look` and `more` look at it
  // The plugins that the caller has verdicts of, with the operators that wait. `more` tries no other, and of `all`
  // these are left out: a first look is enough for them.
  std::map<std::string, std::vector<std::string>> waiting;
  bool yields_to_wanted = false;  // `more`: stops as soon as an operator of another plugin in `waiting` is wanted
  unsigned max_children = 0;      // at the same time; 0: as many as processors() says
  const std::atomic<bool>* cancel = nullptr;     // ends what is running; undone records become deferred
  const std::atomic<bool>* interrupt = nullptr;  // `more`: enough was tried for now
  // Once, before the first probe: the ids of those of which nothing is remembered. Not called without any.
  std::function<void(const std::vector<std::string>&)> on_probing;
  std::function<void(const PluginRecord&)> on_finished;  // per plugin, from any thread, one at a time
};

// A record with what the host needs to load the very file that was probed.
struct ProbedPlugin {
  PluginRecord record;
  Screened screened;           // empty for a built-in
  std::string content{};       // hash of the file; empty for a built-in, and where nothing was read of it
  bool was_not_tried = false;  // nothing more could be tried of it: the verdict is the one before
};

// RLK_VERIFY: "eager", and a start has every operator of every plugin tried before it goes on; "lazy", which is the
// default: few are, and the others when a call wants them, and in the background. False, with `eager` false, when
// the value is neither.
bool is_eager_of(const Environment& environment, bool* eager);
bool is_eager(const Environment& environment);

// The record of a plugin that is linked in, to be probed like a discovered one.
PluginRecord built_in_record(std::string_view id);

// `records` come from discover() and built_in_record(); those that are not `discovered` pass through. Order is kept.
// They are probed side by side; those of one backend, whose runtimes contend for the same devices, as turns.hpp says.
// Every returned record is in a final state: smoke_tested, partial, rejected, deferred or shadowed. Blocks. Throws
// nothing but bad_alloc.
std::vector<ProbedPlugin> probe_plugins(std::vector<PluginRecord> records, const ProbeOptions& options);

}  // namespace rlk::loader
