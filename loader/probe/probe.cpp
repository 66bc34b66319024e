// Remembered verdicts first; the others are probed side by side, as turns.hpp lets them.
#include "loader/probe/probe.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "core/dispatch/log.hpp"
#include "loader/discover/builtin.hpp"
#include "loader/host/processors.hpp"
#include "loader/probe/child_probe.hpp"
#include "loader/probe/examine.hpp"
#include "loader/probe/examine_here.hpp"
#include "loader/probe/standing_report.hpp"
#include "loader/probe/turns.hpp"
#include "loader/probe/verdict_keys.hpp"
#include "loader/screen/allow.hpp"
#include "loader/screen/library.hpp"
#include "loader/screen/note.hpp"
#include "loader/store/cache.hpp"
#include "loader/store/file.hpp"
#include "loader/store/limits.hpp"
#include "loader/store/sha256.hpp"

namespace rlk::loader {
namespace {

// For the operators of a plugin at the first start: all of a small one. Scaled, as the phases are.
constexpr double kFirstLookSeconds = 1.5;
// How often what another process found out becomes this one's, where no call waits for it.
constexpr int64_t kSecondsToPublish = 10;
using Clock = std::chrono::steady_clock;
constexpr auto kBetweenQuestions = std::chrono::milliseconds(100);  // whether an operator is wanted now
constexpr auto kBetweenLooks = std::chrono::milliseconds(250);      // for what another process has found out

class Pipeline {
public:
  Pipeline(std::vector<ProbedPlugin>* plugins, const ProbeOptions& options)
      : plugins_(*plugins),
        options_(options),
        screen_(options.screen),
        allowed_(AllowList::of(options.environment, screen_.identity)),
        reports_(options.environment, screen_.identity, allowed_, options.store),
        cache_(options.store, {}, retry_seconds(options.environment)) {
    screen_.libraries = LibrarySearch::of_system(options.environment);
    if (allowed_.mode == AllowMode::require)
      screen_.refuse = [this](const PluginRecord& record) { return refuse(record); };
    if (!allowed_.problem.empty()) core::log_line(RLK_LOG_WARN, "allow-list", allowed_.problem);
    screen_.host_abi = {options.host->abi_major, options.host->abi_minor, options.host->abi_draft};
  }

  void run() {
    for (ProbedPlugin& plugin : plugins_) {
      if (plugin.record.state != State::discovered || plugin.record.path.empty()) continue;
      if (auto screened = screen(&plugin.record, screen_)) plugin.screened = std::move(*screened);
    }
    std::map<std::string, Group> by_backend;
    for (ProbedPlugin& plugin : plugins_) {
      if (!can_be_probed(plugin.record)) {
        finished(plugin);
        continue;
      }
      // Settled before the first probe begins, since probes change records.
      Group& group = by_backend[plugin.record.backend];
      group.plugins.push_back(&plugin);
      group.members.push_back({plugin.record.id, plugin.record.path});
    }
    if (by_backend.empty()) return;
    prepare();
    std::vector<Group> groups;
    for (auto& [backend, group] : by_backend) {
      recall(&group);
      groups.push_back(std::move(group));
    }
    // The built-in's probe takes longest: a caller that waits for all waits for the others meanwhile.
    std::stable_partition(groups.begin(), groups.end(),
                          [](const Group& group) { return group.plugins.front()->record.source == kBuiltInSource; });
    std::vector<Group*> unknown;
    for (Group& group : groups)
      if (!group.unknown.empty()) unknown.push_back(&group);
    if (!unknown.empty()) {
      tell_probing(unknown);
      run_groups(unknown);
    }
    // After the verdicts: they are remembered, and this is today's list.
    if (allowed_.mode != AllowMode::warn) return;
    for (const Group& group : groups)
      for (ProbedPlugin* plugin : group.plugins) warn_unless_allowed(&plugin->record);
  }

private:
  // The plugins of one backend. Any other of them may lend devices to an operators-only plugin: which one does, only
  // the probe finds out.
  struct Group {
    std::vector<ProbedPlugin*> plugins;
    std::vector<OwnerCandidate> members;  // of the plugins, in search order
    std::string identity;                 // of all files; a verdict depends on them
    std::vector<ProbedPlugin*> unknown;   // those of which nothing was remembered
  };
  struct Job {
    ProbedPlugin* plugin;
    const Group& group;
    bool is_again =
        false;  // its verdict was found beside other probes, and is not good: what is stored is not believed

    std::vector<OwnerCandidate> owners() const {
      std::vector<OwnerCandidate> others;
      for (const OwnerCandidate& member : group.members)
        if (member.id != plugin->record.id) others.push_back(member);
      return others;
    }
  };

  static int64_t retry_seconds(const Environment& environment) {
    int64_t seconds = 0;
    retry_seconds_of(environment, &seconds);
    return seconds;
  }

  static bool can_be_probed(const PluginRecord& record) {
    return record.state == State::screened || (record.state == State::discovered && record.source == kBuiltInSource);
  }

  std::optional<std::string> refuse(const PluginRecord& record) const {
    if (record.path.empty()) return std::nullopt;  // built in
    return allowed_.refuse(record.path, sha256_of(options_.store, record.path));
  }

  void warn_unless_allowed(PluginRecord* record) const {
    const auto why = refuse(*record);
    if (!why) return;
    record->notes.push_back(*why + "; it is used all the same (RLK_ALLOW is warn)");
    core::log_line(RLK_LOG_WARN, "plugin " + record->id, record->notes.back());
  }

  // What is the same for all plugins.
  void prepare() {
    prober_ = options_.prober.empty() ? find_prober(options_.environment) : options_.prober;
    keys_.emplace(options_, screen_, reports_, prober_);
  }

  // What is remembered takes no thread: a warm start has nothing else.
  void recall(Group* group) {
    std::vector<std::string> files;
    for (const OwnerCandidate& member : group->members) files.push_back(member.path);
    std::string all;
    for (const std::string& identity : identities_of(files)) all += identity + '\n';
    group->identity = hash_bytes(all);
    for (ProbedPlugin* plugin : group->plugins) {
      const Job job = {plugin, *group};
      if (options_.trial == TrialScope::more && options_.waiting.count(plugin->record.id) == 0) continue;
      if (is_asked_for() && Verdict(this, job).remembered()) {
        finished(*plugin);
      } else {
        group->unknown.push_back(plugin);
      }
    }
  }

  void run_groups(const std::vector<Group*>& groups) {
    const size_t limit =
        options_.max_children > 0 ? options_.max_children : static_cast<size_t>(std::max(processors().count, 1));
    std::vector<size_t> sizes;
    size_t count = 0;
    for (const Group* group : groups) count += sizes.emplace_back(group->unknown.size());
    // What is tried in the background, while calls are served, is not in a hurry.
    Turns turns(sizes, options_.trial != TrialScope::more);
    for (size_t i = 0; i < groups.size(); ++i) {
      for (const ProbedPlugin* plugin : groups[i]->plugins)
        if (plugin->record.from_cache) turns.know(i, plugin->record);
    }
    std::exception_ptr thrown;  // guarded by finished_mutex_
    const auto work = [&] {
      try {
        while (const auto turn = turns.next()) {
          const Group& group = *groups[turn->group];
          ProbedPlugin* const plugin = group.unknown[turn->plugin];
          PluginRecord as_screened = plugin->record;
          bool again = false;
          probe(
              {plugin, group, turn->is_again}, [&](const PluginRecord& now) { turns.know(turn->group, now); },
              [&] {
                again = !turns.stands(*turn, plugin->record);
                return !again;
              });
          turns.end(*turn, plugin->record, again);
          if (again) {
            plugin->record = std::move(as_screened);
          } else {
            finished(*plugin);
          }
        }
      } catch (...) {  // no memory, or the caller's function; a thread that let it out would end the process
        turns.stop();
        const std::lock_guard lock(finished_mutex_);
        if (!thrown) thrown = std::current_exception();
      }
    };
    // In this process one at a time: plugins need not expect each other's initialisation on other threads.
    const size_t workers = options_.mode == ProbeMode::inprocess ? 1 : std::min(limit, count);
    std::vector<std::thread> threads;
    try {
      for (size_t i = 1; i < workers; ++i) threads.emplace_back(work);
    } catch (const std::system_error&) {
      // No further thread can be started: the existing ones do the work.
    }
    work();
    for (std::thread& thread : threads) thread.join();
    if (thrown) std::rethrow_exception(thrown);
  }

  void tell_probing(const std::vector<Group*>& groups) const {
    if (!options_.on_probing) return;
    std::vector<std::string> ids;
    for (const Group* group : groups)
      for (const ProbedPlugin* plugin : group->unknown) ids.push_back(plugin->record.id);
    options_.on_probing(ids);
  }

  void finished(const ProbedPlugin& plugin) {
    if (!options_.on_finished) return;
    const std::lock_guard lock(finished_mutex_);
    options_.on_finished(plugin.record);
  }

  bool cancelled() const { return options_.cancel != nullptr && options_.cancel->load(std::memory_order_relaxed); }

  bool is_asked_for() const { return options_.mode != ProbeMode::off && !options_.fresh && !cancelled(); }

  // Which verdict a plugin needs, and whether it is there.
  struct Verdict {
    Verdict(const Pipeline* its, const Job& job)
        : pipeline(*its),
          record(job.plugin->record),
          key(its->keys_->key_of(job.plugin, job.group.identity)),
          whole(key),
          is_again(job.is_again) {
      // The built-in's code is rlk's own, and the build's tests have tried it: a canary is enough, unless the caller
      // wants everything tried, or it was once tried here. What that found is not left to a canary when it is out
      // of date.
      canary = record.path.empty() && !is_fresh() && !its->cache_.was_judged(whole);
      if (canary) key.tried = kTriedCanary;
    }

    bool is_fresh() const {
      return is_again || (pipeline.options_.fresh && (!record.path.empty() || pipeline.options_.fresh_builtin));
    }

    // Takes it over, if it says what is asked for.
    bool remembered() {
      const ResultCache& cache = pipeline.cache_;
      known = is_fresh() ? std::nullopt : cache.find(key, waited_since);
      if (!known && canary) known = cache.find(whole, waited_since);  // another process's canary failed
      if (!known || !says_enough()) return false;
      take(std::move(*known), &record);
      pipeline.log_verdict(record, "remembered", key);
      return true;
    }

    bool says_enough() const {
      const std::vector<std::string> waiting = waiting_operators(*known);
      const TrialScope trial = pipeline.trial_of(record);
      if (waiting.empty() || trial == TrialScope::first_look) return true;
      if (trial == TrialScope::all) return false;
      const auto seen = pipeline.options_.waiting.find(record.id);
      if (seen == pipeline.options_.waiting.end()) return true;
      // Another process tries it. Each answer is a new generation for every call, so one of few operators is worth it
      // only for those that are wanted, and now and then.
      const size_t tried = seen->second.size() - std::min(seen->second.size(), waiting.size());
      if (tried == 0) return false;
      const std::vector<std::string> wanted = pipeline.wanted_of(record.id, seen->second);
      const bool has_wanted = std::any_of(wanted.begin(), wanted.end(), [&](const std::string& op) {
        return std::find(waiting.begin(), waiting.end(), op) == waiting.end();
      });
      return has_wanted || !waited_since || pipeline.cache_.seconds_now() - *waited_since >= kSecondsToPublish;
    }

    const Pipeline& pipeline;
    PluginRecord& record;
    ResultKey key;
    const ResultKey whole;
    const bool is_again;
    bool canary = false;
    std::optional<int64_t> waited_since;
    std::optional<PluginRecord> known;  // what was found last, and does not say enough
  };

  std::vector<std::string> wanted_of(const std::string& id, const std::vector<std::string>& waiting) const {
    return options_.demand != nullptr ? options_.demand->wanted_of(id, waiting) : std::vector<std::string>();
  }

  bool is_wanted_elsewhere(const std::string& id) const {
    return options_.yields_to_wanted &&
           std::any_of(options_.waiting.begin(), options_.waiting.end(), [&](const auto& other) {
             return other.first != id && !wanted_of(other.first, other.second).empty();
           });
  }

  // Tells on_devices of the plugin's devices as soon as a child knows them. Asks `stands` once it has found a verdict,
  // and does not store one that does not stand.
  void probe(const Job& job, const std::function<void(const PluginRecord&)>& on_devices,
             const std::function<bool()>& stands) {
    PluginRecord& record = job.plugin->record;
    if (options_.mode == ProbeMode::off)
      return record.stop(State::rejected, Place::host, reason::kProbeOff, "RLK_PROBE=off: the plugin was not probed");
    if (cancelled())
      return record.stop(State::deferred, Place::host, reason::kCancelled, "stopped before the probe began");
    Verdict verdict(this, job);
    ResultKey& key = verdict.key;
    const bool canary = verdict.canary;
    if (verdict.remembered()) return;
    if (options_.mode == ProbeMode::inprocess) {
      ExamineOptions how;
      how.host = options_.host;
      how.owners = job.owners();
      how.suite.canary = canary;
      return examine_here(std::move(how), {timeout_scale_of(options_.environment), options_.cancel}, &record);
    }
    if (prober_.empty())
      return record.stop(State::rejected, Place::host, reason::kSpawnFailed, "rlk-prober was not found");
    // Of ranks that start together one probes; the others wait here and take its result.
    const int64_t begin = cache_.seconds_now();
    Clock::time_point looked;
    const auto waiting = [&] {
      verdict.waited_since = begin;  // not before: a caller that gets the lock at once has not waited
      if (Clock::now() - looked < kBetweenLooks) return false;
      looked = Clock::now();
      const bool is_interrupted = options_.interrupt != nullptr && options_.interrupt->load(std::memory_order_relaxed);
      return verdict.remembered() || is_interrupted || is_wanted_elsewhere(record.id);
    };
    const double wait_seconds = total_seconds();
    const auto lock = FileLock::acquire(lock_path(*options_.store, record.id), wait_seconds, options_.cancel, waiting);
    if (!lock) {
      if (record.from_cache) return;
      return record.stop(State::deferred, Place::host, cancelled() ? reason::kCancelled : reason::kProbeBusy,
                         "another process probes " + record.id);
    }
    if (verdict.remembered()) return;
    ChildProbe child;
    child.prober = prober_;
    child.environment = options_.environment;
    child.scale = timeout_scale_of(options_.environment);
    child.owners = job.owners();
    if (!verdict.is_fresh()) child.reports = reports_.reports_of(record, host_of_reports(), &record.notes);
    child.canary = canary;
    child.cancel = options_.cancel;
    child.on_devices = on_devices;
    const PluginRecord as_screened = record;
    int64_t stored_at = 0;
    child.on_tried = [&](const PluginRecord& now) {
      if (cache_.seconds_now() == stored_at) return;
      stored_at = cache_.seconds_now();
      cache_.store(key, now);  // other processes wait for it, and this one may end
    };
    for (;;) {
      try_by_operator(verdict, &child);
      if (child.by_operator && verdict.known) {
        record.units = verdict.known->units;
        record.loaded_files = verdict.known->loaded_files;
      }
      if (!probe_in_child(child, &record) && verdict.known) {
        // It was stopped before it had tried anything, or it fails by now: one process alone may use the card, say, and
        // this one does. What was known stands.
        const bool was_stopped = record.reason_code == reason::kCancelled.code;
        job.plugin->was_not_tried = !was_stopped;
        core::log_line(was_stopped ? RLK_LOG_DEBUG : RLK_LOG_WARN, "plugin " + record.id,
                       fmt::format("{} of its operators are not tried now: {}: {}", child.operators.size(),
                                   record.reason_code, record.reason));
        record = as_screened;
        take(std::move(*verdict.known), &record);
        break;
      }
      if (canary || trial_of(record) != TrialScope::all || !has_moved(verdict.known, record)) break;
      verdict.known = std::exchange(record, as_screened);
    }
    if (!stands()) {
      core::log_line(RLK_LOG_DEBUG, "plugin " + record.id,
                     fmt::format("{} while others of the backend {} were probed: {}: {}; probed again alone",
                                 to_string(record.state), record.backend, record.reason_code, record.reason));
      return;
    }
    const std::string tight = describe_tight_limits(key.limits);
    if (record.broken && !tight.empty())
      record.notes.push_back("the probe ran under limits that may explain this: " + tight);
    // A file that was replaced meanwhile is not the one that the key names.
    if (record.path.empty() || identity_of(record.path) == job.plugin->screened.identity) {
      if (!record.tried.empty()) key.tried = record.tried;  // a canary that fails has everything tried
      cache_.store(key, record);
    }
    log_verdict(record, "probed now", key);
  }

  TrialScope trial_of(const PluginRecord& record) const {
    const bool is_known = options_.waiting.count(record.id) > 0;
    return options_.trial == TrialScope::all && is_known ? TrialScope::first_look : options_.trial;
  }

  // Some operators wait still, and fewer than before.
  static bool has_moved(const std::optional<PluginRecord>& before, const PluginRecord& now) {
    if (!may_run(now)) return false;
    const size_t left = waiting_operators(now).size();
    return left > 0 && (!before || left < waiting_operators(*before).size());
  }

  // What the child is to try, and when it has done enough.
  void try_by_operator(const Verdict& verdict, ChildProbe* child) const {
    const PluginRecord& record = verdict.record;
    if (verdict.canary) return;
    child->by_operator = true;
    if (!verdict.known) {
      if (trial_of(record) != TrialScope::all) child->smoke_seconds = kFirstLookSeconds;
      if (options_.demand != nullptr) child->wanted = options_.demand->all_of(record.id);
      return;
    }
    std::vector<std::string> waiting = waiting_operators(*verdict.known);
    // One that was put off is tried when no other waits.
    const auto is_put_off = [&](const std::string& op) { return core::is_put_off(verdict.known->units, op); };
    if (!std::all_of(waiting.begin(), waiting.end(), is_put_off)) std::erase_if(waiting, is_put_off);
    child->operators = wanted_of(record.id, waiting);
    const bool are_wanted = !child->operators.empty();
    if (!are_wanted) child->operators = waiting;
    if (options_.trial != TrialScope::more) return;
    // Wanted while others are tried: those can wait.
    child->enough = [this, are_wanted, id = record.id, waiting, asked = Clock::now()]() mutable {
      if (options_.interrupt != nullptr && options_.interrupt->load(std::memory_order_relaxed)) return true;
      if (are_wanted || Clock::now() - asked < kBetweenQuestions) return false;
      asked = Clock::now();
      return !wanted_of(id, waiting).empty() || is_wanted_elsewhere(id);
    };
  }

  void log_verdict(const PluginRecord& record, const char* how, const ResultKey& key) const {
    core::log_line(RLK_LOG_DEBUG, "plugin " + record.id,
                   fmt::format("{}: {}{}; key {}{}", how, to_string(record.state),
                               record.reason_code.empty() ? "" : ", " + record.reason_code, key.name(),
                               options_.store->folder().empty() ? " in memory" : " in " + options_.store->folder()));
  }

  HostIdentity host_of_reports() const { return {options_.host->version, abi_text(screen_.host_abi)}; }

  double total_seconds() const {
    double total = 0.0;
    for (const PhaseBudget& budget : phase_budgets(timeout_scale_of(options_.environment))) total += budget.seconds;
    return total;
  }

  // A remembered verdict about a file that was found again, perhaps in another way.
  static void take(PluginRecord known, PluginRecord* record) {
    known.path = record->path;
    known.source = record->source;
    *record = std::move(known);
  }

  std::vector<ProbedPlugin>& plugins_;
  const ProbeOptions& options_;
  ScreenOptions screen_;
  const AllowList allowed_;
  const ReportShelf reports_;
  ResultCache cache_;
  std::string prober_;
  std::optional<VerdictKeys> keys_;
  std::mutex finished_mutex_;
};

}  // namespace

std::vector<ProbedPlugin> probe_plugins(std::vector<PluginRecord> records, const ProbeOptions& options) {
  std::vector<ProbedPlugin> plugins;
  for (PluginRecord& record : records) plugins.push_back({std::move(record), {}});
  Pipeline(&plugins, options).run();
  return plugins;
}

}  // namespace rlk::loader
