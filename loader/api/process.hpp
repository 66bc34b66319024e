// What all runtimes of a process share: the plugins that were found and loaded, their records, the registry.
#pragma once

#include <rlk/rlk.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/dispatch/call/registry.hpp"
#include "loader/api/config.hpp"
#include "loader/discover/discover.hpp"
#include "loader/host/services.hpp"
#include "loader/probe/probe.hpp"
#include "loader/register/first_use.hpp"
#include "loader/register/register.hpp"
#include "loader/store/compared.hpp"
#include "loader/store/store.hpp"

namespace rlk::loader {

// What happened to a plugin after it was registered.
struct RuntimeEvidence {
  core::Quarantined unit;
  bool only_suspected = false;  // not switched off: other code may be to blame
  int64_t unix_us = 0;
};

class Process {
public:
  // The one of this process, made by the first runtime; plugins stay loaded when the last runtime ends, because
  // unloading vendor runtimes is what crashes processes at exit. A later runtime that names another plugin path or
  // policy file is refused.
  static rlk_status get(const rlk_runtime_options& options, std::shared_ptr<Process>* out, rlk_error* error);
  // False when a runtime was made already: plugins may hold memory.
  static bool set_host_allocator(const HostAllocator& allocator);
  ~Process() = default;

  core::Registry& registry() { return registry_; }
  const Config& config() const { return config_; }
  // One more runtime. The CPU is published when this returns; with wait, every plugin has its verdict, and of those
  // with many operators some may wait for their trial (RLK_VERIFY=lazy, the default). [thread-safe]
  void start(bool wait);
  // One runtime less. After the last one a search in the background is ended; the next runtime searches again.
  // [thread-safe]
  void release();
  // Searches again beside what serves (rlk_runtime_reload) and returns when every plugin has its verdict. [thread-safe:
  // one call at a time, other calls wait]
  rlk_status reload(std::vector<Registrar::Change>* changes, rlk_error* error);
  // Present records, the built-in CPU first. [thread-safe]
  std::vector<PluginRecord> records() const;
  // What RLK_REQUIRE names, as require() has it, without a limit of time.
  rlk_status check_required(rlk_error* error);
  // "cuda:logp,attention,rocm": backends, and operators of the backend before them. RLK_NOT_FOUND with the plugin's
  // stored reason when a backend has no device; for an operator that it lacks, or that was not verified,
  // RLK_UNSUPPORTED. Waits until what is named has been tried, RLK_TIMEOUT when that takes longer than `seconds` (0: no
  // limit). `who` stands in the messages. [thread-safe]
  rlk_status require(const std::string& wanted, const std::string& who, double seconds, rlk_error* error);

private:
  // The one of this process, under the mutex. Never destroyed: see above.
  static std::mutex& its_mutex();
  static std::shared_ptr<Process>& the_one();
  explicit Process(Environment environment, Config config, const char* plugin_path, std::string config_path);
  // The kernel cache and the tracer of all plugins. Under the mutex of this process's one.
  void serve_plugins();
  void wait_for_search();
  bool wait_for_search_until(std::chrono::steady_clock::time_point deadline);
  void search();
  ProbeOptions how_to_probe();
  SearchOptions where_to_look() const;
  void find(TrialScope trial);
  void find_again();
  std::vector<PluginRecord> publish_found();
  bool try_more_operators();
  bool want(const std::string& plugin, const std::string& op);
  rlk_status require_operator(const std::string& backend, const std::string& op, const std::string& who,
                              std::chrono::steady_clock::time_point deadline, rlk_error* error);
  // A fork of the process that made this one. A search that was under way is not in it, nor is another begun: what the
  // fork finds in the registry serves it.
  bool is_forked() const;

  const Environment environment_;
  const Config config_;
  const std::string plugin_path_;  // of the options; RLK_PLUGIN_PATH when empty
  const std::string config_path_;  // of the options, or RLK_CONFIG; empty: none, or the machine's
  Store store_;
  core::Registry registry_;
  ComparedClasses compared_;
  FirstUses first_uses_;
  Registrar registrar_;
  const pid_t pid_;
  bool has_kernel_cache_ = false, has_tracer_ = false, hears_the_end_ = false;
  Demand demand_;
  std::mutex find_mutex_;               // of found_ and the registrar: the search and a reload hold it while they work
  std::vector<ProbedPlugin> found_;     // as they were found, before they were published
  std::atomic<int> waiting_{0};         // callers that the search keeps
  std::atomic<bool> interrupt_{false};  // the search is to let a reload go first
  mutable std::mutex mutex_;            // of what follows
  std::condition_variable searched_;    // one of these changed
  int runtimes_ = 0;
  bool looked_ = false;  // every plugin has its verdict
  bool done_ = false;    // and no operator waits that this process will try
  bool ending_ = false;  // release waits for the search that it cancelled
  std::vector<PluginRecord> records_;
  std::vector<RuntimeEvidence> evidence_;
  std::thread search_;
  std::atomic<bool> cancel_{false};
};

}  // namespace rlk::loader
