// Start-up: the CPU at once, the plugins as soon as they are judged.
#include "loader/api/process.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <system_error>

#include <unistd.h>

#include "core/declaration/declaration.hpp"
#include "core/declaration/error.hpp"
#include "core/dispatch/log.hpp"
#include "core/dispatch/trust/process_end.hpp"
#include "core/dispatch/trust/timeout.hpp"
#include "loader/api/counters.hpp"
#include "loader/api/lost_operators.hpp"
#include "loader/api/policy_files.hpp"
#include "loader/api/search_news.hpp"
#include "loader/host/services.hpp"
#include "loader/loader.hpp"
#include "loader/probe/child_probe.hpp"
#include "loader/screen/trust.hpp"
#include "loader/store/costs.hpp"
#include "loader/store/kernel_cache.hpp"

namespace rlk::loader {
namespace {

Environment with_plugin_path(Environment environment, const std::string& plugin_path) {
  if (!plugin_path.empty()) environment.values["RLK_PLUGIN_PATH"] = plugin_path;
  return environment;
}

int64_t unix_us_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

// What was verified at the start and failed since: its units count as failed. What is only suspected is a note.
void note_evidence(const RuntimeEvidence& evidence, PluginRecord* record) {
  const core::Quarantined& off = evidence.unit;
  const std::string who = off.who();
  const std::string why = fmt::format(" ({}): {}", off.reason_code, off.reason);
  record->history.push_back(
      {evidence.only_suspected ? record->state : State::quarantined, Place::host, evidence.unix_us, off.reason_code});
  if (evidence.only_suspected) {
    record->notes.push_back(fmt::format(
        "{} was among the calls before a failure, and is not switched off because others may have caused it{}", who,
        why));
    return;
  }
  const auto fail_unit = [&](core::UnitResult& unit) {
    unit.verdict = core::UnitResult::Verdict::failed;
    unit.reason_code = reason::kQuarantined.code;
    unit.reason = fmt::format("{} at run time: {}", off.reason_code, off.reason);
  };
  bool found = false;
  for (core::UnitResult& unit : record->units) {
    if (!off.concerns(unit.op, unit.implementation)) continue;
    if (!off.dtype.empty() && unit.dtype != off.dtype) continue;
    found = true;
    fail_unit(unit);
  }
  if (!found && !off.op.empty()) {
    core::UnitResult& unit = record->units.emplace_back();
    unit.op = off.op;
    unit.implementation = off.implementation;
    unit.dtype = off.dtype;
    fail_unit(unit);
  }
  record->notes.push_back(fmt::format("{} was switched off at run time{}", who, why));
}

void log_of_store(bool is_warning, const std::string& text) {
  core::log_line(is_warning ? RLK_LOG_WARN : RLK_LOG_INFO, "rlk", text);
}

}  // namespace

namespace {

// The caller did not require the plugin and nothing fails: without this warning it would only be missing.
void warn_of_time_out(const PluginRecord& record) {
  if (record.reason_code != reason::kTimedOut.code) return;
  core::log_line(RLK_LOG_WARN, "probe",
                 fmt::format("plugin {} is {}: {}: {}. Hint: {}", record.id,
                             record.state == State::deferred ? "not used" : "used in part", record.reason_code,
                             record.reason, record.hint));
}

// Of several records of one id: that of the file that is published.
void log_change(const Registrar::Change& change) {
  using Kind = Registrar::Change::Kind;
  const PluginRecord& record = change.record;
  std::string text = fmt::format("{}, version {}", record.path, record.version);
  switch (change.kind) {
    case Kind::added:
      text += ", serves from now on";
      break;
    case Kind::replaced:
      text += ", takes the place of the file that was loaded before";
      break;
    case Kind::refused:
      text = fmt::format("{} is refused, and what was loaded before goes on: {}: {}", record.path, record.reason_code,
                         record.reason);
      break;
    case Kind::retired:
      text += ", is retired";
      break;
  }
  core::log_line(change.kind == Kind::refused ? RLK_LOG_WARN : RLK_LOG_INFO, "plugin " + record.id, text);
}

// One more caller that the search keeps.
class Waiting {
public:
  explicit Waiting(std::atomic<int>* count) : count_(*count) { ++count_; }
  ~Waiting() { --count_; }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

private:
  std::atomic<int>& count_;
};

void warn_of_lost(const std::string& plugin, const std::vector<std::string>& lost) {
  if (lost.empty()) return;
  std::string names;
  for (const std::string& op : lost) names += (names.empty() ? "" : ", ") + op;
  core::log_line(
      RLK_LOG_WARN, "plugin " + plugin,
      fmt::format("the reload lost {} verified {} of it: {}; calls go to the next implementation, mostly the "
                  "CPU's. `rlk-plugins scope {}` says why",
                  lost.size(), lost.size() == 1 ? "operator" : "operators", names, plugin));
}

}  // namespace

Process::Process(Environment environment, Config config, const char* plugin_path, std::string config_path)
    : environment_(
          with_plugin_path(config.complete(std::move(environment)), plugin_path != nullptr ? plugin_path : "")),
      config_(std::move(config)),
      plugin_path_(plugin_path != nullptr ? plugin_path : ""),
      config_path_(std::move(config_path)),
      store_(open_store(environment_, Identity::of_process(), log_of_store)),
      compared_(&store_),
      first_uses_(&store_),
      registrar_(&registry_, host_services()),
      pid_(getpid()),
      demand_(&store_) {
  registry_.on_want([this](const std::string& plugin, const std::string& op) { return want(plugin, op); });
  registry_.on_compared([this](const core::ComparedClass& compared) { compared_.note(compared); });
  registry_.on_uncompared([this](const core::UncomparedClass& one) { compared_.note_uncompared(one); });
  registry_.on_quarantine([this](const core::Quarantined& unit, bool only_suspected) {
    const std::lock_guard lock(mutex_);
    evidence_.push_back({unit, only_suspected, unix_us_now()});
    if (!only_suspected) first_uses_.keep(unit);
  });
  // The prober tries first what the start waits for. Of a plugin whose id is not its backend's, require() asks later.
  for (const Required& required : required_of(environment_.get("RLK_REQUIRE").value_or("")))
    for (const std::string& op : required.operators) demand_.want(required.backend, op);
  core::set_patience(timeout_scale_of(environment_));
  tell_counters_at_exit(environment_);
}

void Process::serve_plugins() {
  if (!has_kernel_cache_) set_kernel_cache(kernel_cache(&store_));
  has_kernel_cache_ = true;
  if (!hears_the_end_) {
    core::when_the_end_begins([this] {
      if (!is_forked()) first_uses_.end_with_the_process();
    });
  }
  hears_the_end_ = true;
  core::watch_for_the_end();
  if (!has_tracer_) core::set_tracer([this](const core::FirstUse& use) { return first_uses_.leave(use); });
  has_tracer_ = true;
}

std::mutex& Process::its_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::shared_ptr<Process>& Process::the_one() {
  static auto* const process = new std::shared_ptr<Process>();
  return *process;
}

bool Process::set_host_allocator(const HostAllocator& allocator) {
  const std::lock_guard lock(its_mutex());
  if (the_one() != nullptr) return false;
  loader::set_host_allocator(allocator);
  return true;
}

rlk_status Process::get(const rlk_runtime_options& options, std::shared_ptr<Process>* out, rlk_error* error) {
  const std::lock_guard lock(its_mutex());
  std::shared_ptr<Process>* const process = &the_one();
  if (*process == nullptr) {
    Environment environment = Environment::of_process();
    const std::string path =
        options.config_path != nullptr ? options.config_path : environment.path("RLK_CONFIG").value_or("");
    Config config;
    const rlk_status status = options.config_path != nullptr ? read_config(path, &config, error)
                                                             : read_config(policy_files(environment), &config, error);
    if (status != RLK_OK) return status;
    const Environment where = with_plugin_path(environment, options.plugin_path != nullptr ? options.plugin_path : "");
    add_platform_policies(where, default_folders(), &config);
    process->reset(new Process(std::move(environment), std::move(config), options.plugin_path, path));
  } else if (options.plugin_path != nullptr && (*process)->plugin_path_ != options.plugin_path) {
    return core::failf(
        error, RLK_UNSUPPORTED,
        "rlk_runtime_create: this process has loaded its plugins already, from '%s'; another plugin_path "
        "('%s') needs another process",
        (*process)->plugin_path_.c_str(), options.plugin_path);
  } else if (options.config_path != nullptr && (*process)->config_path_ != options.config_path) {
    return core::failf(error, RLK_UNSUPPORTED,
                       "rlk_runtime_create: this process has read its policy already, from '%s'; another config_path "
                       "('%s') needs another process",
                       (*process)->config_path_.c_str(), options.config_path);
  }
  // Only of a process that stays: what is set there is never taken back.
  (*process)->serve_plugins();
  *out = *process;
  return RLK_OK;
}

void Process::start(bool wait) {
  bool search_here = false;
  {
    std::unique_lock lock(mutex_);
    // The registrar serves one search at a time, and the search that ends must not take this start for a call to go on.
    searched_.wait(lock, [this] { return !ending_ || is_forked(); });
    if (!done_ && !search_.joinable() && !is_forked()) {
      PluginRecord cpu = built_in_record("cpu");
      registrar_.publish_built_in(&cpu);
      records_ = {cpu};
      cancel_ = false;
      try {
        search_ = std::thread([this] { search(); });
      } catch (const std::system_error&) {  // no thread can be started: this one searches
        search_here = true;
      }
    }
    ++runtimes_;
  }
  if (search_here) search();
  if (wait) wait_for_search();
}

void Process::wait_for_search() {
  wait_for_search_until(std::chrono::steady_clock::time_point::max());
}

bool Process::wait_for_search_until(std::chrono::steady_clock::time_point deadline) {
  const Waiting waiting(&waiting_);
  std::unique_lock lock(mutex_);
  const auto is_over = [this] { return looked_ || is_forked(); };
  if (deadline != std::chrono::steady_clock::time_point::max()) return searched_.wait_until(lock, deadline, is_over);
  searched_.wait(lock, is_over);
  return true;
}

bool Process::is_forked() const {
  return getpid() != pid_;
}

void Process::release() {
  std::thread ended;
  {
    const std::lock_guard lock(mutex_);
    if (--runtimes_ > 0 || !search_.joinable()) return;
    if (is_forked()) return search_.detach();
    cancel_ = !done_;
    ending_ = true;
    ended = std::move(search_);
  }
  ended.join();
  const std::lock_guard lock(mutex_);
  ending_ = false;
  searched_.notify_all();
}

ProbeOptions Process::how_to_probe() {
  ProbeOptions how;
  how.environment = environment_;
  how.host = host_services();
  how.store = &store_;
  how.cancel = &cancel_;
  how.known_bad = config_.known_bad;
  how.use_known_bad = config_.use_known_bad;
  how.demand = &demand_;
  return how;
}

SearchOptions Process::where_to_look() const {
  return {config_.plugin_path, default_folders()};
}

void Process::find(TrialScope trial) {
  ProbeOptions how = how_to_probe();
  how.trial = trial;
  SearchNews news([this] { return waiting_ > 0; }, store_.folder());
  news.listen(&how);
  found_ = find_plugins(where_to_look(), how);
}

// A new file takes an old one's place by what it does right, not by what has not been tried: all of it is. What was
// there before goes on as it was, with what waits.
void Process::find_again() {
  const std::vector<ProbedPlugin> before = std::move(found_);
  find(is_eager(environment_) ? TrialScope::all : TrialScope::first_look);
  ProbeOptions how = how_to_probe();
  bool is_new_one_waiting = false;
  for (const ProbedPlugin& plugin : found_) {
    std::vector<std::string> waiting = waiting_operators(plugin.record);
    if (waiting.empty()) continue;
    const bool was_there = std::any_of(before.begin(), before.end(), [&](const ProbedPlugin& old) {
      return old.record.id == plugin.record.id && !old.content.empty() && old.content == plugin.content;
    });
    if (was_there) how.waiting[plugin.record.id] = std::move(waiting);
    is_new_one_waiting |= !was_there;
  }
  if (!is_new_one_waiting) return;
  how.trial = TrialScope::all;
  SearchNews news([this] { return waiting_ > 0; }, store_.folder());
  news.listen(&how);
  found_ = find_plugins(where_to_look(), how);
}

std::vector<PluginRecord> Process::publish_found() {
  std::vector<ProbedPlugin> plugins = found_;
  for (ProbedPlugin& plugin : plugins) {
    compared_.add_to(&plugin.record);
    plugin.record.costs = read_costs(&store_, plugin.record);
  }
  first_uses_.know(plugins);
  registrar_.publish(&plugins, {timeout_scale_of(environment_), &cancel_});
  // What could not be loaded here is not loaded again when more operators of other plugins were tried.
  for (size_t i = 0; i < found_.size(); ++i)
    if (!serves(plugins[i].record)) found_[i].record = plugins[i].record;
  std::vector<PluginRecord> records;
  for (ProbedPlugin& plugin : plugins) records.push_back(std::move(plugin.record));
  const auto now = registry_.current();
  for (const auto& binding : now->plugins) {
    for (const PluginRecord& record : records)
      if (serves(record) && record.id == binding->id) compared_.know(binding->api, record);
  }
  return records;
}

void Process::search() {
  std::vector<PluginRecord> records;
  try {
    const std::lock_guard alone(find_mutex_);
    find(is_eager(environment_) ? TrialScope::all : TrialScope::first_look);
    records = publish_found();
    for (const PluginRecord& record : records) warn_of_time_out(record);
    for (const std::string& doubt : doubts_of(config_, records)) core::log_line(RLK_LOG_WARN, "policy", doubt);
  } catch (const std::exception& e) {
    // Memory ran out while looking for plugins; the CPU serves.
    char text[256];
    std::snprintf(text, sizeof(text), "the search for plugins ended early: %s", e.what());
    core::log_line(RLK_LOG_ERROR, "rlk", text);
  }
  {
    const std::lock_guard lock(mutex_);
    if (!records.empty()) records_ = std::move(records);
    looked_ = !cancel_;
    searched_.notify_all();
  }
  while (!cancel_ && try_more_operators()) {
  }
  const std::lock_guard lock(mutex_);
  done_ = !cancel_;
  searched_.notify_all();
}

// False when nothing waits any more, or nothing more comes of it.
bool Process::try_more_operators() {
  try {
    const std::lock_guard alone(find_mutex_);
    bool some_wait = false;
    for (const ProbedPlugin& plugin : found_) {
      const bool waits = !waiting_operators(plugin.record).empty();
      some_wait |= waits && may_run(plugin.record);
      if (!waits) demand_.forget(plugin.record.id);
    }
    if (!some_wait) return false;
    ProbeOptions how = how_to_probe();
    how.interrupt = &interrupt_;
    const bool go_on = try_more(&found_, how);
    if (cancel_) return false;
    std::vector<PluginRecord> records = publish_found();
    const std::lock_guard lock(mutex_);
    records_ = std::move(records);
    searched_.notify_all();
    return go_on;
  } catch (const std::exception& e) {
    char text[256];
    std::snprintf(text, sizeof(text), "the trial of operators ended early: %s", e.what());
    core::log_line(RLK_LOG_ERROR, "rlk", text);
    return false;
  }
}

bool Process::want(const std::string& plugin, const std::string& op) {
  if (is_forked()) return false;
  {
    const std::lock_guard lock(mutex_);
    if (done_ || cancel_) return false;
  }
  demand_.want(plugin, op);
  return true;
}

rlk_status Process::reload(std::vector<Registrar::Change>* changes, rlk_error* error) {
  if (is_forked()) {
    return core::fail(error, RLK_UNSUPPORTED,
                      "rlk_runtime_reload: this process is a fork of the one that loaded the plugins, and loads none");
  }
  const Waiting waiting(&waiting_);
  wait_for_search();
  interrupt_ = true;
  const std::lock_guard alone(find_mutex_);
  interrupt_ = false;
  find_again();
  std::vector<PluginRecord> records = publish_found();
  for (const PluginRecord& record : records) warn_of_time_out(record);
  for (const std::string& doubt : doubts_of(config_, records)) core::log_line(RLK_LOG_WARN, "policy", doubt);
  *changes = registrar_.changes();
  const std::lock_guard lock(mutex_);
  for (const Registrar::Change& change : *changes) {
    log_change(change);
    warn_of_lost(change.record.id, lost_operators(records_, records, change.record.id));
  }
  records_ = std::move(records);
  return RLK_OK;
}

std::vector<PluginRecord> Process::records() const {
  std::vector<PluginRecord> records;
  std::vector<RuntimeEvidence> evidence;
  {
    const std::lock_guard lock(mutex_);
    records = records_;
    evidence = evidence_;
  }
  const auto now = registry_.current();
  for (const RuntimeEvidence& one : evidence) {
    const bool is_of_now = std::any_of(now->plugins.begin(), now->plugins.end(),
                                       [&](const auto& binding) { return binding->api == one.unit.api; });
    for (PluginRecord& record : records) {
      if (record.id == one.unit.plugin && serves(record) && is_of_now) note_evidence(one, &record);
    }
  }
  return records;
}

}  // namespace rlk::loader
