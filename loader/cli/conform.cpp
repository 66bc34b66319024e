// Both sides of the run: what is tried here, and what a child's end means.
#include "loader/cli/conform.hpp"

#include <fmt/core.h>

#include <chrono>
#include <exception>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "loader/api/config.hpp"
#include "loader/api/policy_files.hpp"
#include "loader/cli/child.hpp"
#include "loader/cli/dump.hpp"
#include "loader/cli/verb.hpp"
#include "loader/discover/builtin.hpp"
#include "loader/discover/discover.hpp"
#include "loader/discover/environment.hpp"
#include "loader/host/services.hpp"
#include "loader/probe/child_probe.hpp"
#include "loader/probe/examine.hpp"
#include "loader/screen/screen.hpp"
#include "loader/store/exact_text.hpp"

namespace rlk::cli {
namespace {

using loader::PluginRecord;
using nlohmann::json;

constexpr double kCaseSeconds = 60.0;        // a case of the smoke test, as in a probe
constexpr double kLargeCaseSeconds = 240.0;  // of the full suite
constexpr std::chrono::milliseconds kTellEvery(100);

// Plugins that may lend their devices to an operators-only plugin.
std::vector<loader::OwnerCandidate> owners_of(const PluginRecord& record, const ConformanceRequest& request,
                                              const loader::Environment& environment,
                                              const loader::ScreenOptions& screen) {
  if (!request.device_plugin.empty()) {
    PluginRecord owner;
    owner.path = request.device_plugin;
    owner.source = "command line";
    owner.id = loader::id_from_file_name(owner.path);
    owner.advance(loader::State::discovered, loader::Place::static_screen);
    if (!loader::screen(&owner, screen))
      throw Failure(fmt::format("--device-plugin {}: {}: {}", owner.path, owner.reason_code, owner.reason));
    if (owner.backend != record.backend)
      throw Failure(fmt::format("--device-plugin {} has devices of the backend {}, {} brings operators for {}",
                                owner.path, owner.backend, record.id, record.backend));
    return {{owner.id, owner.path}};
  }
  if (record.backend == "cpu") return {{"cpu", ""}};
  loader::Config config;  // the parent has reported one that cannot be read
  loader::read_config(loader::policy_files(environment), &config, nullptr);
  std::vector<loader::OwnerCandidate> owners;
  for (PluginRecord other : loader::discover(environment, {config.plugin_path, loader::default_folders()})) {
    if (other.state == loader::State::discovered && loader::screen(&other, screen) && other.id != record.id &&
        other.backend == record.backend)
      owners.push_back({other.id, other.path});
  }
  return owners;
}

std::vector<loader::PhaseBudget> budgets_of(const ConformanceRequest& request, double scale) {
  std::vector<loader::PhaseBudget> budgets = loader::phase_budgets(scale);
  for (loader::PhaseBudget& budget : budgets) {
    if (request.seconds > 0) budget.seconds = request.seconds;
    // The suite takes as long as it has cases; only standing still is a fault.
    if (budget.phase == "smoke") budget.seconds = 1e6;
  }
  return budgets;
}

// One of so many cases, by their titles, so that cases that follow each other are not always the same of every option;
// and whatever is drawn, the first in which an implementation meets a word (an option, a layout, a NaN, an error in the
// data).
class Sample {
public:
  explicit Sample(size_t one_of) : one_of_(one_of) {}

  bool operator()(const rlk_implementation&, const std::string& title) {
    const std::vector<std::string> words = words_of(title);
    bool is_first = false;
    // Operator, implementation and dtype stand before what is said of a case, its sizes behind it: by those an
    // implementation chooses among its variants.
    for (size_t i = 3; i < words.size(); ++i) {
      if (words[i].find_first_not_of("0123456789") == std::string::npos) continue;  // a row
      if (seen_.emplace(words[0] + " " + words[1] + " " + words[2], words[i]).second) is_first = true;
    }
    const bool is_plain = words.size() <= 4 && seen_.emplace(title.substr(0, title.rfind(' ')), "").second;
    return is_first || is_plain || std::hash<std::string>{}(title) % one_of_ == 0;
  }

private:
  static std::vector<std::string> words_of(const std::string& title) {
    std::istringstream text(title);
    return {std::istream_iterator<std::string>(text), std::istream_iterator<std::string>()};
  }

  size_t one_of_;
  std::set<std::pair<std::string, std::string>> seen_;
};

}  // namespace

std::string ConformanceRequest::to_json() const {
  const json all = {{"do", "conformance"},
                    {"path", loader::exact_json(path)},
                    {"built_in", built_in},
                    {"device_plugin", device_plugin},
                    {"op", op},
                    {"dtype", dtype},
                    {"only", only},
                    {"most_elements", most_elements},
                    {"one_of", one_of},
                    {"random_calls", random_calls},
                    {"seed", seed},
                    {"dump", dump},
                    {"full", full},
                    {"seconds", seconds}};
  return all.dump(-1, ' ', false, json::error_handler_t::replace);
}

ConformanceRequest ConformanceRequest::from_json(const std::string& text) {
  const json all = json::parse(text);
  ConformanceRequest request;
  request.path = loader::exact_text(all.at("path"));
  request.built_in = all.value("built_in", "");
  request.device_plugin = all.value("device_plugin", "");
  request.op = all.value("op", "");
  request.dtype = all.value("dtype", "");
  request.only = all.value("only", "");
  request.most_elements = all.value("most_elements", int64_t{0});
  request.one_of = all.value("one_of", int64_t{1});
  request.random_calls = all.value("random_calls", int64_t{0});
  request.seed = all.value("seed", int64_t{1});
  request.dump = all.value("dump", "");
  request.full = all.value("full", false);
  request.seconds = all.value("seconds", 0.0);
  return request;
}

PluginRecord run_conformance_here(const ConformanceRequest& request, const ConformanceNews& news) {
  const loader::Environment environment = loader::Environment::of_process();
  PluginRecord record;
  record.path = request.path;
  const bool is_file = !record.path.empty();
  record.source = is_file ? "command line" : loader::kBuiltInSource;
  record.id = is_file ? loader::id_from_file_name(record.path) : request.built_in;
  record.advance(loader::State::discovered, loader::Place::static_screen);

  const rlk_host* host = loader::host_services();
  loader::ScreenOptions screen;
  screen.libraries = loader::LibrarySearch::of_system(environment);
  screen.host_abi = {host->abi_major, host->abi_minor, host->abi_draft};
  if (is_file && !loader::screen(&record, screen)) return record;

  loader::ExamineOptions options;
  options.host = host;
  options.owners = owners_of(record, request, environment, screen);
  options.suite.smoke = !request.full;
  options.suite.graph_replay = request.full;
  options.suite.random_calls = request.random_calls;
  if (request.random_calls > 0) options.suite.seed = static_cast<uint64_t>(request.seed);
  options.suite.large_elements = request.full && request.random_calls == 0 ? int64_t{1} << 32 : 0;
  if (!request.op.empty()) options.suite.ops = {request.op};
  options.suite.dtype = request.dtype;
  options.suite.only = request.only;
  options.suite.most_elements = request.most_elements;
  if (request.one_of > 1) options.suite.picks = Sample(static_cast<size_t>(request.one_of));
  options.suite.threads = request.one_thread || !request.only.empty() ? 1 : 0;
  Dump dump(request.dump);
  std::string undumped;
  if (!request.dump.empty()) {
    options.suite.show = [&](const core::ShownCase& shown) {
      try {
        dump.add(shown);
      } catch (const std::exception& error) {  // the suite goes on: its verdict is worth more
        if (undumped.empty()) undumped = error.what();
      }
    };
  }
  options.on_phase = news.phase;
  options.on_activity = news.activity;
  options.on_progress = news.progress;
  loader::examine(&record, options);
  if (!undumped.empty()) record.notes.push_back("--dump: " + undumped);
  return record;
}

ConformanceResult run_conformance_in_child(const ConformanceRequest& request,
                                           const std::function<void(int, const std::string&)>& on_case) {
  const loader::Environment environment = loader::Environment::of_process();
  const double scale = loader::timeout_scale_of(environment);
  loader::ChildCommand command = child_command(environment, request.to_json());
  command.budgets = budgets_of(request, scale);
  command.silence_seconds =
      request.seconds > 0 ? request.seconds : (request.full ? kLargeCaseSeconds : kCaseSeconds) * scale;

  PluginRecord latest;
  std::string error;
  std::string failure;
  loader::ChildOutcome outcome = loader::run_child(command, [&](std::string_view text) {
    const json message = json::parse(text, nullptr, false);
    if (message.is_object() && message.contains("case")) {
      if (on_case) on_case(message.value("number", 0), message.value("case", ""));
    } else if (message.is_object() && message.contains("failure")) {
      failure = message.value("failure", "");
    } else {
      loader::record_from_json(text, &latest, &error);
    }
  });
  if (!failure.empty()) throw Failure(failure);
  if (outcome.end == loader::ChildEnd::finished && loader::record_from_json(outcome.result, &latest, &error)) {
    latest.output = std::move(outcome.output);
    return {std::move(latest), {}};
  }
  latest.output = std::move(outcome.output);
  const bool timed_out = outcome.end == loader::ChildEnd::timed_out;
  const bool exited = outcome.end == loader::ChildEnd::exited;
  latest.stop(loader::State::rejected, loader::Place::child,
              timed_out ? loader::reason::kTimedOut
              : exited  ? loader::reason::kExited
                        : loader::reason::kCrashed,
              outcome.text);
  return {std::move(latest), outcome.activity};
}

std::string serve_conformance(const std::string& request, const ConformanceNews& news,
                              const std::function<bool(const std::string&)>& send) {
  ConformanceNews all = news;
  int number = 0;
  auto told = std::chrono::steady_clock::now() - kTellEvery;
  all.activity = [&](const std::string& title) {
    news.activity(title);
    ++number;
    if (const auto now = std::chrono::steady_clock::now(); now - told >= kTellEvery) {
      told = now;
      send(json({{"case", title}, {"number", number}}).dump(-1, ' ', false, json::error_handler_t::replace));
    }
  };
  try {
    return record_to_json(run_conformance_here(ConformanceRequest::from_json(request), all));
  } catch (const std::exception& error) {
    send(json({{"failure", error.what()}}).dump(-1, ' ', false, json::error_handler_t::replace));
    throw;
  }
}

}  // namespace rlk::cli
