// The phases in their order, then the verdicts of the plugin's devices as one.
#include "loader/probe/examine.hpp"

#include <fmt/core.h>
#include <link.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "core/conformance/answers.hpp"
#include "core/conformance/conformance.hpp"
#include "core/declaration/declaration.hpp"
#include "loader/discover/builtin.hpp"
#include "loader/probe/load.hpp"

namespace rlk::loader {
namespace {

using core::UnitResult;

constexpr size_t kGroup = 8;  // operators that are tried at the same time

// A plugin that has come as far as its described devices.
struct Live {
  const rlk_plugin* api = nullptr;
  rlk_plugin_instance* instance = nullptr;
  Devices devices;
};

std::optional<Failure> find_entry(const std::string& id, const std::string& path, rlk_plugin_entry_v1_fn* entry) {
  if (!path.empty()) return load_entry(path, entry);
  *entry = built_in_entry(id);
  if (*entry != nullptr) return std::nullopt;
  return Failure{&reason::kLoadFailed, "there is no built-in plugin \"" + id + "\"", {}, {}};
}

std::vector<std::string> loaded_files() {
  std::vector<std::string> files;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        if (info->dlpi_name != nullptr && info->dlpi_name[0] == '/')
          static_cast<std::vector<std::string>*>(out)->push_back(info->dlpi_name);
        return 0;
      },
      &files);
  std::sort(files.begin(), files.end());
  return files;
}

class Examination {
public:
  Examination(PluginRecord* record, const ExamineOptions& options) : record_(*record), options_(options) {}

  void run() {
    if (step(load(), State::loaded) && step(negotiate_versions(), State::negotiated) && step(ask(), State::probed) &&
        step(check_capabilities(), State::capability_checked)) {
      smoke();
    }
    record_.loaded_files = loaded_files();
    // A child ends at once instead, with its result safely delivered: no plugin's clean-up can spoil that.
    if (options_.place != Place::host) return;
    for (const Live* live : {&live_, &owner_})
      if (live->api != nullptr) close_plugin(*live->api, live->instance, live->devices);
  }

private:
  void enter(const char* phase) {
    if (options_.on_phase) options_.on_phase(phase);
  }
  // What is reported may be the last word of this process, and is valid while what is loaded is what it is.
  void report() {
    record_.loaded_files = loaded_files();
    if (options_.on_progress) options_.on_progress(record_);
  }
  bool step(const std::optional<Failure>& failure, State reached) {
    if (failure) {
      reject(*failure, options_.place, &record_);
    } else {
      record_.advance(reached, options_.place);
    }
    report();
    return !failure;
  }

  std::optional<Failure> load() {
    enter("load");
    return find_entry(record_.id, record_.path, &entry_);
  }

  std::optional<Failure> negotiate_versions() {
    enter("negotiate");
    if (auto failure = negotiate(entry_, *options_.host, &live_.api)) return failure;
    const rlk_plugin& api = *live_.api;
    const std::string id = text_of(api.id);
    const std::string backend = text_of(api.backend);
    // A built-in has no note to compare with.
    if (!record_.path.empty() && (id != record_.id || backend != record_.backend))
      return Failure{&reason::kIdentityMismatch,
                     fmt::format("the file's note says id {}, backend {}; the plugin says id {}, backend {}",
                                 record_.id, record_.backend, id, backend),
                     {},
                     {}};
    record_.backend = backend;
    record_.version = text_of(api.version);
    record_.abi = fmt::format("{}.{}", api.abi_major, api.abi_minor);
    return std::nullopt;
  }

  std::optional<Failure> ask() {
    enter("create");
    if (auto failure = create(*live_.api, *options_.host, &live_.instance)) return failure;
    enter("probe");
    return ask_probe(*live_.api, live_.instance, [this](Evidence item) {
      record_.evidence.push_back(std::move(item));
      report();
    });
  }

  std::optional<Failure> check_capabilities() {
    const bool operators_only = (live_.api->flags & RLK_PLUGIN_OPERATORS_ONLY) != 0;
    if (auto failure = operators_only ? attach_to_owner() : enumerate()) return failure;
    enter("query");
    std::set<std::string> unknown;
    for (uint32_t i = 0; i < live_.api->n_implementations; ++i) {
      const std::string op = text_of(live_.api->implementations[i]->op);
      if (core::find_declaration(op) == nullptr) unknown.insert(op);
    }
    // A plugin may know operators that this host does not: they stay unused, the others count.
    for (const std::string& op : unknown) record_.notes.push_back("this host has no operator \"" + op + "\"");
    if (!unknown.empty() &&
        std::all_of(live_.api->implementations, live_.api->implementations + live_.api->n_implementations,
                    [&](const auto* row) { return unknown.count(text_of(row->op)) > 0; }))
      return Failure{&reason::kOperatorsInvalid, "this host has none of the plugin's operators", {}, {}};
    return std::nullopt;
  }

  std::optional<Failure> enumerate() {
    enter("enumerate");
    if (auto failure = describe_devices(*live_.api, live_.instance, &live_.devices)) return failure;
    return open_one_of_each_kind();
  }

  // Equal devices give equal answers: one of each kind is opened and tested.
  std::optional<Failure> open_one_of_each_kind() {
    std::set<std::pair<std::string, std::string>> kinds;
    for (const auto& device : live_.devices) {
      const DeviceInfo& info = record_.devices.emplace_back(info_of(*device));
      rlk_plugin_device* opened = nullptr;
      if (!kinds.insert({info.name, info.arch}).second) continue;
      if (auto failure = open_device(*device, &opened)) return failure;
    }
    return std::nullopt;
  }

  std::optional<Failure> attach_to_owner() {
    enter("owner");
    std::string tried;
    for (const OwnerCandidate& candidate : options_.owners) {
      if (auto failure = open_owner(candidate)) {
        tried += (tried.empty() ? "" : "; ") + candidate.id + ": " + failure->text;
        continue;
      }
      enter("enumerate");
      live_.devices = borrow_devices(*live_.api, live_.instance, owner_.devices);
      return open_one_of_each_kind();
    }
    return Failure{&reason::kNoDevice,
                   fmt::format("no plugin offers devices of the backend {} to attach to{}", record_.backend,
                               tried.empty() ? "" : " (" + tried + ")"),
                   "install the plugin that owns the backend's devices",
                   {}};
  }

  std::optional<Failure> open_owner(const OwnerCandidate& candidate) {
    owner_ = {};
    rlk_plugin_entry_v1_fn entry = nullptr;
    if (auto failure = find_entry(candidate.id, candidate.path, &entry)) return failure;
    if (auto failure = negotiate(entry, *options_.host, &owner_.api)) return failure;
    if ((owner_.api->flags & RLK_PLUGIN_OPERATORS_ONLY) != 0)
      return Failure{&reason::kNoDevice, "has no devices of its own", {}, {}};
    if (auto failure = create(*owner_.api, *options_.host, &owner_.instance)) return failure;
    if (auto failure = ask_probe(*owner_.api, owner_.instance, [](const Evidence&) {})) return failure;
    return describe_devices(*owner_.api, owner_.instance, &owner_.devices);
  }

  void smoke() {
    core::ConformanceOptions suite = options_.suite;
    suite.canary &= record_.path.empty();  // no build of rlk has tried a file
    if (options_.by_operator && !suite.canary) {
      try_by_operator(suite);
      order_units();
      return conclude(&record_, options_.place);
    }
    record_.units = tried(suite, options_.smoke_seconds);
    if (suite.canary) {
      std::vector<UnitResult> failed;
      for (const UnitResult& unit : record_.units)
        if (unit.verdict == UnitResult::Verdict::failed) failed.push_back(unit);
      if (!failed.empty()) try_everything(failed);
    }
    conclude(&record_, options_.place);
  }

  // Used after a failed canary. Its findings stay even if the full test does not reproduce them.
  void try_everything(const std::vector<UnitResult>& failed) {
    record_.notes.push_back(fmt::format("the canary failed ({}, {}): everything was tried", failed.front().reason_code,
                                        failed.front().reason));
    core::ConformanceOptions everything = options_.suite;
    everything.canary = false;
    record_.units = merge_units({failed, tried(everything, options_.smoke_seconds)});
  }

  // What is known so far is reported after each operator: a parent that ends this process has it.
  void try_by_operator(core::ConformanceOptions suite) {
    using Clock = std::chrono::steady_clock;
    const bool is_first_look = options_.operators.empty();
    const auto is_wanted = [&](const std::string& op) {
      return std::find(options_.wanted.begin(), options_.wanted.end(), op) != options_.wanted.end();
    };
    std::vector<std::string> order = options_.operators;
    if (is_first_look) {
      suite.ops = {"device"};  // no operator has this name: the device alone is tried
      record_.units = tried(suite, options_.smoke_seconds);
      if (!record_.units.empty()) {  // it is broken, and so is every operator
        record_.units = tried(options_.suite, options_.smoke_seconds);
        return;
      }
      order = let_all_wait();
      std::stable_partition(order.begin(), order.end(), is_wanted);
    }
    suite.device = false;
    has_begun_operators_ = true;
    choose_report();
    report();
    const auto begin = Clock::now();
    for (size_t at = 0; at < order.size();) {
      double left = options_.smoke_seconds - std::chrono::duration<double>(Clock::now() - begin).count();
      const bool must_be = is_first_look && is_wanted(order[at]);
      if (options_.smoke_seconds > 0 && left <= 0 && !must_be) return;
      if (is_first_look) left += options_.smoke_seconds;  // one that has begun may end
      suite.ops.assign(order.begin() + static_cast<std::ptrdiff_t>(at),
                       order.begin() + static_cast<std::ptrdiff_t>(is_first_look ? at + 1 : end_of_group(order, at)));
      at += suite.ops.size();
      if (suite.ops.size() > 1) {
        if (!try_group(suite, left)) return;
        continue;
      }
      const std::string& op = suite.ops.front();
      std::vector<UnitResult> units = confirmed(suite);
      if (units.empty()) units = tried(suite, options_.smoke_seconds > 0 && !must_be ? left : 0);
      // Half a test is none. One that had the whole time and was cut has its verdict.
      if (is_cut(units) && (is_first_look || op != order.front())) return;
      if (!failed_canary_.empty()) units = merge_units({std::exchange(failed_canary_, {}), units});
      take(op, std::move(units));
      report();
    }
  }

  // Operators whose dtypes the engine's threads share: an operator alone keeps few of them busy. In a group all others
  // end before a hang shows, so that the first that waits is the one that hangs, which is how the parent finds it.
  // Alone are the first of all, which has the whole time; one that was put off; each where a report stands, whose
  // canaries are short; and each of several kinds of cards.
  size_t end_of_group(const std::vector<std::string>& order, size_t begin) const {
    size_t end = begin + 1;
    if (begin == 0 || report_of_file_ != nullptr || live_.devices.size() != 1) return end;
    const auto is_put_off = [&](size_t at) { return core::is_put_off(record_.units, order[at]); };
    if (is_put_off(begin)) return end;
    while (end < std::min(begin + kGroup, order.size()) && !is_put_off(end)) ++end;
    return end;
  }

  // False when the time has passed before all were tried: those that were not wait still.
  bool try_group(core::ConformanceOptions suite, double seconds) {
    suite.tried = [this](const std::string& op, std::vector<UnitResult> units) {
      if (is_cut(units)) return;
      enter("operators");
      take(op, std::move(units));
      report();
    };
    const std::vector<UnitResult> all = tried(suite, options_.smoke_seconds > 0 ? seconds : 0);
    std::map<std::string, std::vector<UnitResult>> by_op;
    for (const std::string& op : suite.ops) by_op[op];
    for (const UnitResult& unit : all) by_op[unit.op].push_back(unit);  // "engine" is one, where that has ended
    bool are_whole = true;
    for (auto& [op, units] : by_op) {
      if (is_cut(units)) {
        are_whole = false;
      } else {
        take(op, std::move(units));
      }
    }
    report();
    return are_whole;
  }

  static bool is_cut(const std::vector<UnitResult>& units) {
    return std::any_of(units.begin(), units.end(),
                       [](const UnitResult& unit) { return unit.reason_code == kUnitNotReached; });
  }

  // Of an operator that was tried.
  void take(const std::string& op, std::vector<UnitResult> units) {
    std::erase_if(record_.units, [&](const UnitResult& unit) { return unit.op == op; });
    record_.units.insert(record_.units.end(), std::make_move_iterator(units.begin()),
                         std::make_move_iterator(units.end()));
  }

  // Nothing of the plugin may have failed: a report has seen no failure, and so it is not about this machine.
  void choose_report() {
    const bool has_failed = std::any_of(record_.units.begin(), record_.units.end(), [](const UnitResult& unit) {
      return unit.verdict == UnitResult::Verdict::failed;
    });
    report_of_file_ = has_failed ? nullptr : find_standing(options_.reports, record_);
    if (report_of_file_ != nullptr)
      note("the report " + report_of_file_->name +
           " stands for the trial of its operators; a canary of each confirms it");
  }

  // The report's units of the operator, if one stands and a canary confirms it; none otherwise.
  std::vector<UnitResult> confirmed(core::ConformanceOptions suite) {
    if (report_of_file_ == nullptr) return {};
    suite.canary = true;
    const std::vector<UnitResult> canary = tried(suite, 0);
    record_.tried = kTriedEverything;
    const auto failed = std::find_if(canary.begin(), canary.end(), [](const UnitResult& unit) {
      return unit.verdict == UnitResult::Verdict::failed;
    });
    if (failed == canary.end()) return units_confirmed(*report_of_file_, suite.ops.front(), canary);
    note(fmt::format("a canary failed ({}, {}): the report {} stands for nothing here, and everything is tried",
                     failed->reason_code, failed->reason, report_of_file_->name));
    report_of_file_ = nullptr;
    std::set<std::string> rested;
    for (const UnitResult& unit : record_.units)
      if (unit.reason_code == core::kReported) rested.insert(unit.op);
    std::erase_if(record_.units, [&](const UnitResult& unit) { return rested.count(unit.op) > 0; });
    for_each_implementation([&](const rlk_implementation& implementation) {
      if (rested.count(text_of(implementation.op)) > 0) record_.units.push_back(waiting_unit(implementation));
    });
    failed_canary_ = {*failed};  // stays, even if the whole test does not find it again
    return {};
  }

  void note(const std::string& text) {
    if (std::find(record_.notes.begin(), record_.notes.end(), text) == record_.notes.end())
      record_.notes.push_back(text);
  }

  // As a trial of everything at once has them. Before, their order is that in which operators are tried.
  void order_units() {
    if (!waiting_operators(record_).empty()) return;
    const auto before = [](const UnitResult& a, const UnitResult& b) {
      return core::find_declaration(a.op) < core::find_declaration(b.op);  // in one table
    };
    std::stable_sort(record_.units.begin(), record_.units.end(), before);
  }

  // A unit for each implementation. Returns their operators, in the plugin's order.
  std::vector<std::string> let_all_wait() {
    for_each_implementation([this](const rlk_implementation& one) { record_.units.push_back(waiting_unit(one)); });
    return waiting_operators(record_);
  }

  template <class Function>
  void for_each_implementation(Function&& function) const {
    for (uint32_t i = 0; i < live_.api->n_implementations; ++i) function(*live_.api->implementations[i]);
  }

  static UnitResult waiting_unit(const rlk_implementation& implementation) {
    UnitResult unit;
    unit.op = text_of(implementation.op);
    unit.implementation = text_of(implementation.name);
    unit.reason_code = core::kWaiting;
    unit.reason = "not tried yet";
    return unit;
  }

  std::vector<UnitResult> tried(const core::ConformanceOptions& suite, double seconds) {
    record_.tried = suite.canary ? kTriedCanary : kTriedEverything;
    const bool attached = owner_.api != nullptr;
    const Live& owner = attached ? owner_ : live_;
    std::vector<std::vector<UnitResult>> results;
    const auto answers = std::make_shared<core::conformance::Answers>();  // the same for every device
    for (size_t i = 0; i < live_.devices.size(); ++i) {
      if (live_.devices[i]->handle() == nullptr) continue;
      enter(has_begun_operators_ ? "operators" : "smoke");  // each kind has the whole time
      core::Target target;
      target.plugin = live_.api;
      target.device = live_.devices[i]->handle();
      target.owner = owner.api;
      target.owner_device = owner.devices[i]->handle();
      target.owner_instance = owner.instance;
      target.owner_flags = owner.devices[i]->properties().flags;
      target.owner_memory_bytes = owner.devices[i]->properties().memory_bytes;
      core::ConformanceOptions conformance = suite;
      conformance.budget_s = seconds;
      conformance.progress = options_.on_activity;
      conformance.answers = answers;
      results.push_back(core::run_conformance(target, conformance));
    }
    return merge_units(results);
  }

  PluginRecord& record_;
  const ExamineOptions& options_;
  rlk_plugin_entry_v1_fn entry_ = nullptr;
  Live live_;
  Live owner_;
  bool has_begun_operators_ = false;  // one after another
  const StandingReport* report_of_file_ = nullptr;
  std::vector<UnitResult> failed_canary_;  // of the operator that is tried now
};

}  // namespace

void examine(PluginRecord* record, const ExamineOptions& options) {
  Examination(record, options).run();
}

}  // namespace rlk::loader
