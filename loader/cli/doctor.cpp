// `rlk-plugins doctor`: is this installation in order, and if not, what is to be done?
#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "loader/api/config.hpp"
#include "loader/cli/child.hpp"
#include "loader/cli/documents.hpp"
#include "loader/cli/output.hpp"
#include "loader/cli/report.hpp"
#include "loader/cli/variables.hpp"
#include "loader/cli/verbs.hpp"
#include "loader/discover/discover.hpp"
#include "loader/discover/environment.hpp"
#include "loader/host/parallel.hpp"
#include "loader/probe/child_probe.hpp"
#include "loader/probe/probe.hpp"
#include "loader/store/compared.hpp"
#include "loader/store/store.hpp"
#include "loader/store/support.hpp"

namespace rlk::cli {
namespace {

using loader::Environment;
using loader::PluginRecord;

enum class Status : uint8_t { ok, note, warning, problem };
constexpr const char* kStatusNames[] = {"ok", "note", "warning", "problem"};
constexpr Tone kStatusTones[] = {Tone::good, Tone::plain, Tone::caution, Tone::bad};

struct Check {
  Status status;
  std::string subject, text, hint;
  std::string reason = {};  // a longer text behind `text`
};
using Checks = std::vector<Check>;

void check_environment(const Environment& environment, Checks* checks) {
  const std::vector<std::string> known = variable_names();
  for (const auto& [name, value] : environment.values) {
    if (name.rfind("RLK_", 0) != 0) continue;
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      const std::string near = nearest(name, known);
      checks->push_back({Status::warning, name, "is set, but rlk reads no such variable",
                         near.empty() ? "unset it" : "did you mean " + near + "?"});
      continue;
    }
    const std::string problem = problem_of_value(name, value);
    if (problem.empty()) {
      checks->push_back({Status::note, name, "is '" + value + "'", ""});
    } else {
      checks->push_back({Status::problem, name, problem, "correct or unset it"});
    }
  }
  if (environment.privileged) {
    checks->push_back({Status::warning, "environment",
                       "this process gained privileges: variables that name paths are ignored",
                       "use the policy file or the default folder"});
  }
}

bool is_folder(const std::string& path) {
  struct stat status = {};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

// What to do about a seed that is not used. The store gives only a text about it.
std::string hint_of_seed(const Environment& environment, const std::string& note) {
  const auto says = [&note](const char* words) { return note.find(words) != std::string::npos; };
  const std::string path = environment.path("RLK_CACHE_SEED").value_or("");
  if (says("does not start with /")) return "give the whole path of the file";
  if (says("another user could replace it"))
    return "make root or yourself the owner of the file and its folders, and let no other user write them: chmod go-w";
  if (says("it is damaged")) return "write it anew: rlk-plugins cache export FILE";
  if (is_folder(path)) return "name the file in the folder, as rlk-plugins cache export FILE wrote it";
  struct stat status = {};
  if (!path.empty() && stat(path.c_str(), &status) != 0 && errno == ENOENT)
    return "correct or unset RLK_CACHE_SEED; rlk-plugins cache export FILE writes a seed";
  return "let this user read the file, or name another: rlk-plugins cache export FILE writes one";
}

void check_installation(const Environment& environment, Checks* checks) {
  const loader::HostIdentity host = host_identity();
  checks->push_back({Status::ok, "rlk", fmt::format("version {}, plugin ABI {}", host.version, host.abi), ""});
  const loader::ThreadLimit threads = loader::thread_limit();
  checks->push_back(
      {Status::ok, "processor",
       fmt::format("loops run on {} thread{}: {}", threads.count, threads.count == 1 ? "" : "s", threads.why), ""});

  const std::string prober = loader::find_prober(environment);
  if (prober.empty()) {
    checks->push_back({Status::problem, "prober", "rlk-prober was not found: no plugin can be used",
                       std::string(loader::reason::kSpawnFailed.hint)});
  } else if (const auto named = environment.path("RLK_PROBER"); named && *named != prober) {
    checks->push_back({Status::problem, "RLK_PROBER",
                       fmt::format("is '{}', which cannot be run; {} serves", *named, prober), "correct or unset it"});
  } else {
    checks->push_back({Status::ok, "prober", prober, ""});
  }

  std::vector<std::string> notes;
  const auto seed = loader::find_seed(environment, loader::Identity::of_process(), &notes);
  for (const std::string& note : notes)
    checks->push_back({Status::problem, "RLK_CACHE_SEED", note, hint_of_seed(environment, note)});
  if (seed != nullptr)
    checks->push_back({Status::ok, "cache seed", fmt::format("{}, {} entries", seed->path(), seed->size()), ""});
  notes.clear();
  const std::string cache = loader::choose_cache_folder(environment, loader::Identity::of_process(), &notes);
  for (const std::string& note : notes) checks->push_back({Status::warning, "cache", note, ""});
  if (!cache.empty() && loader::has_no_room(cache)) {
    checks->push_back({Status::problem, "cache", cache + " has no room: every process probes every plugin anew",
                       "free some space there, or set RLK_CACHE_DIR to a folder with room"});
  } else if (cache.empty()) {
    checks->push_back({Status::warning, "cache", "no folder can be written: every process probes every plugin anew",
                       "set RLK_CACHE_DIR to a folder of your own"});
  } else {
    checks->push_back({Status::ok, "cache", cache, ""});
  }

  for (const loader::SearchEntry& entry : loader::default_folders()) {
    const std::string state = is_folder(entry.path) ? "" : ", which does not exist";
    checks->push_back({Status::note, "plugins", fmt::format("default folder {}{}", entry.path, state), ""});
  }
}

void check_plugins(const Environment& environment, const Judgement& judgement, Checks* checks) {
  for (const PluginRecord& record : judgement.records) {
    if (record.is_place) {
      const bool chosen = record.reason_code == loader::reason::kSearchReplaced.code;
      checks->push_back({record.broken ? Status::problem
                         : chosen      ? Status::note
                                       : Status::warning,
                         "search", record.path + ": " + record.reason_code, record.hint, record.reason});
      continue;
    }
    const loader::Support support = support_of(record);
    const std::string state = fmt::format("{}, {} ({})", to_string(record.state), support.tier(), support.reason);
    const std::string reason = reason_text(record);
    const Status status = record.broken ? Status::problem : reason.empty() ? Status::ok : Status::note;
    checks->push_back({status, "plugin " + record.id, state, reason.empty() ? "" : record.hint, reason});
    for (const std::string& note : record.notes) checks->push_back({Status::note, "plugin " + record.id, note, ""});
    // The plugin is in use with its other packs, and `list` has no line for a pack.
    for (const loader::Evidence& item : record.evidence) {
      if (item.kind == "pack" && item.supports == 0 && !record.broken)
        checks->push_back({Status::problem, "plugin " + record.id, item.value, "see rlk-plugins pack ls"});
    }
  }
  if (!judgement.trouble.empty()) {
    checks->push_back({Status::problem, "plugins", judgement.trouble,
                       "find the culprit by RLK_PLUGINS_DISABLE and report it to its vendor"});
  }
  const std::vector<std::string> variables = variable_names();
  for (const auto& [name, value] : environment.values) {
    if (value.empty() || (name != "RLK_BACKEND" && name.rfind("RLK_OP_", 0) != 0)) continue;
    // Of a variable that nothing reads check_environment says so, and no call goes anywhere by it.
    if (std::find(variables.begin(), variables.end(), name) == variables.end()) continue;
    std::vector<std::string> known;
    for (const PluginRecord& record : judgement.records) {
      for (const std::string& each : {record.backend, record.id})
        if (!each.empty() && std::find(known.begin(), known.end(), each) == known.end()) known.push_back(each);
    }
    const std::string who = value.substr(0, value.find_first_of(":/"));
    if (std::find(known.begin(), known.end(), who) != known.end()) continue;
    checks->push_back({Status::warning, name,
                       fmt::format("asks for '{}', which is no backend or plugin here{}", who, suggestion(who, known)),
                       "correct or unset it: the calls go elsewhere"});
  }
  for (const loader::Required& required : loader::required_of(environment.get("RLK_REQUIRE").value_or(""))) {
    const std::string& backend = required.backend;
    for (const std::string& op : required.operators) {
      if (core::find_declaration(op) != nullptr) continue;
      checks->push_back(
          {Status::problem, "RLK_REQUIRE", "there is no operator '" + op + "'", "rlk-plugins ops lists them"});
    }
    const bool there = std::any_of(judgement.records.begin(), judgement.records.end(), [&](const PluginRecord& record) {
      return record.backend == backend && serves(record);
    });
    if (there) continue;
    checks->push_back({Status::problem, "RLK_REQUIRE", "no usable plugin for the backend " + backend,
                       "see its plugin's reason above, or install one"});
  }
}

// What earlier runs of programs could not compare with the reference: a note for each unit and reason.
void check_comparisons(const Environment& environment, const Judgement& judgement, Checks* checks) {
  loader::Store store =
      loader::open_store(environment, loader::Identity::of_process(), [](bool, const std::string&) {});
  const loader::ComparedClasses classes(&store);
  for (const PluginRecord& record : judgement.records) {
    if (record.is_place) continue;
    std::map<std::array<std::string, 4>, std::pair<size_t, core::UncomparedClass>> groups;
    for (core::UncomparedClass& one : classes.uncompared_of(record)) {
      auto& [count, last] = groups[{one.unit.op, one.unit.implementation, one.unit.dtype, one.reason_code}];
      ++count;
      last = std::move(one);
    }
    for (const auto& [key, group] : groups) {
      const auto& [count, last] = group;
      checks->push_back(
          {Status::note, "plugin " + record.id,
           fmt::format("{}/{} ({}): {} {} of calls never compared with the reference: {}", last.unit.op,
                       last.unit.implementation, last.unit.dtype, count, count == 1 ? "class" : "classes",
                       last.reason_code),
           "their results rest on the tests before the first call; rlk-plugins conformance --op " + last.unit.op +
               " --full tries more of them",
           fmt::format("the last one{}: {}", last.sizes.empty() ? "" : " (" + last.sizes + ")", last.reason)});
    }
  }
}

Checks all_checks(Judgement* judgement) {
  const Environment environment = Environment::of_process();
  Checks checks;
  check_installation(environment, &checks);
  check_environment(environment, &checks);
  forget_misspelt_variables();
  JudgeRequest request;
  if (const std::string problem = config_problem(); !problem.empty()) {
    checks.push_back(
        {Status::problem, "RLK_CONFIG", problem, "correct or unset it; the checks below go on without it"});
    request.ignore_config = true;
  }
  for (const std::string& problem : policy_problems())
    checks.push_back({Status::problem, "RLK_CONFIG", problem, "correct the policy file: the line has no effect"});
  *judgement = judge_plugins(request);
  check_plugins(environment, *judgement, &checks);
  check_comparisons(environment, *judgement, &checks);
  return checks;
}

nlohmann::ordered_json document_of(const Checks& checks) {
  nlohmann::ordered_json document = {{"schema", 1}, {"checks", nlohmann::ordered_json::array()}};
  for (const Check& check : checks) {
    document["checks"].push_back({{"status", kStatusNames[static_cast<size_t>(check.status)]},
                                  {"subject", check.subject},
                                  {"text", check.text},
                                  {"reason", check.reason},
                                  {"hint", check.hint}});
  }
  return document;
}

int run_doctor(const Arguments& arguments) {
  Judgement judgement;
  const Checks checks = all_checks(&judgement);
  const auto problems =
      std::count_if(checks.begin(), checks.end(), [](const Check& check) { return check.status == Status::problem; });
  if (arguments.json()) {
    print_document(document_of(checks));
    return problems == 0 ? kFine : kBroken;
  }
  Table table({"", "subject", "finding"});
  for (const Check& check : checks) {
    const auto status = static_cast<size_t>(check.status);
    table.row({{kStatusNames[status], kStatusTones[status]}, check.subject, check.text});
    if (!check.reason.empty()) table.note(check.reason, kStatusTones[status]);
    if (!check.hint.empty()) table.note("hint: " + check.hint);
  }
  table.print();
  std::fprintf(output(), "\n%s\n", problems == 0 ? "no problems" : fmt::format("{} problem(s)", problems).c_str());
  return problems == 0 ? kFine : kBroken;
}

}  // namespace

nlohmann::ordered_json doctor_document(Judgement* judgement) {
  return document_of(all_checks(judgement));
}

Verb verb_doctor() {
  return {"doctor",  "Checks the installation, the environment variables and every plugin, and says what to do.",
          "",        "rlk-plugins doctor",
          {},        {},
          run_doctor};
}

}  // namespace rlk::cli
