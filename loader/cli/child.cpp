// The parent's side: requests, answers, and what a child's end means.
#include "loader/cli/child.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/dispatch/call/policy_check.hpp"
#include "loader/api/config.hpp"
#include "loader/api/policy_files.hpp"
#include "loader/cli/table.hpp"
#include "loader/cli/verb.hpp"
#include "loader/discover/environment.hpp"
#include "loader/host/progress.hpp"
#include "loader/host/services.hpp"
#include "loader/probe/child_probe.hpp"
#include "loader/probe/guard.hpp"
#include "loader/screen/note.hpp"

namespace rlk::cli {
namespace {

using loader::PluginRecord;
using loader::State;
using nlohmann::json;

constexpr double kFindSeconds = 3600.0;  // the child bounds each probe itself; there may be many
constexpr double kRegisterSeconds = 300.0;

std::string own_path() {
  char path[PATH_MAX] = {};
  if (readlink("/proc/self/exe", path, sizeof(path) - 1) <= 0) throw Failure("/proc/self/exe cannot be read");
  return path;
}

// What the child, the host library and the plugins in it wrote for people, line by line.
void pass_on(std::string_view output) {
  while (!output.empty()) {
    const size_t end = std::min(output.find('\n'), output.size());
    std::fprintf(stderr, "%s\n", printable(output.substr(0, end)).c_str());
    output.remove_prefix(std::min(end + 1, output.size()));
  }
}

PluginRecord record_of(std::string_view text) {
  PluginRecord record;
  std::string error;
  if (!loader::record_from_text(text, &record, &error)) throw Failure(error);
  return record;
}

// What registration made of the records that were found.
void take_changes(const json& changes, std::vector<PluginRecord>* records) {
  if (!changes.is_array() || changes.size() != records->size())
    throw Failure("the child's answer is not of this version");
  for (size_t i = 0; i < records->size(); ++i) {
    PluginRecord now = record_of(changes[i].get<std::string>());
    now.units = std::move((*records)[i].units);
    (*records)[i] = std::move(now);
  }
}

}  // namespace

loader::ChildCommand child_command(const loader::Environment& environment, const std::string& request) {
  loader::ChildCommand command;
  command.program = own_path();
  command.arguments = {kChildWord};
  for (std::string& word : loader::parent_words()) command.arguments.push_back(std::move(word));
  for (const auto& [name, value] : environment.values) command.environment.push_back(name + "=" + value);
  command.request = request;
  return command;
}

std::string config_problem() {
  loader::Config config;
  rlk_error error{};
  error.struct_size = sizeof(error);
  const auto files = loader::policy_files(loader::Environment::of_process());
  return loader::read_config(files, &config, &error) == RLK_OK ? "" : error.text;
}

std::vector<std::string> policy_problems() {
  loader::Config config;
  if (loader::read_config(loader::policy_files(loader::Environment::of_process()), &config, nullptr) != RLK_OK)
    return {};
  return core::problems_of(config.policy);
}

Judgement judge_plugins(const JudgeRequest& request, const std::function<void(const PluginRecord&)>& on_verdict) {
  loader::Environment environment = loader::Environment::of_process();
  if (request.ignore_config) {
    environment.values["RLK_CONFIG"] = "/dev/null";
  } else if (const std::string problem = config_problem(); !problem.empty()) {
    throw Failure("RLK_CONFIG: " + problem);
  }
  if (!request.select.empty()) environment.values["RLK_PLUGINS_SELECT"] = request.select;
  loader::ChildCommand command = child_command(environment, json({{"do", "judge"},
                                                                  {"all", request.all},
                                                                  {"fresh", request.fresh},
                                                                  {"builtin", request.builtin},
                                                                  {"remember", request.remember},
                                                                  {"in_short", request.in_short},
                                                                  {"verdicts", static_cast<bool>(on_verdict)}})
                                                                .dump());
  const double scale = loader::timeout_scale_of(environment);
  command.budgets = {{kFindPhase, kFindSeconds * scale}, {kRegisterPhase, kRegisterSeconds * scale}};

  Judgement judgement;
  loader::Progress progress("looking for plugins");
  size_t probing = 0, judged = 0;
  bool found = false;
  std::string entered;  // the plugin whose code ran last in the child, after it was found
  const loader::ChildOutcome outcome = loader::run_child(command, [&](std::string_view text) {
    if (!text.empty() && text[0] == kRecordMark) {
      judgement.records.push_back(record_of(text.substr(1)));
      return;
    }
    const json message = json::parse(text, nullptr, false);
    found = found || message.contains("found");
    if (message.contains("enters")) entered = message.value("enters", "");
    if (message.contains("probing")) probing = message.value("probing", size_t{0});
    if (!message.contains("judged")) return;
    progress.say(fmt::format("looking for plugins, {} judged{}, last: {} {}", ++judged,
                             probing > 0 ? fmt::format(", {} to be probed", probing) : "", message.value("judged", ""),
                             message.value("state", "")));
    if (on_verdict && message.contains("verdict")) on_verdict(record_of(message["verdict"].get<std::string>()));
  });
  pass_on(outcome.output);
  if (!found) throw Failure("the plugins could not be judged: " + outcome.text);
  if (outcome.end == loader::ChildEnd::finished) {
    take_changes(json::parse(outcome.result), &judgement.records);
    return judgement;
  }
  judgement.trouble = fmt::format("{} passed its probe and broke the process it was then loaded into: {}",
                                  entered.empty() ? "a plugin" : "plugin " + entered, outcome.text);
  if (!entered.empty())
    judgement.trouble +=
        fmt::format(". Leave it out with RLK_PLUGINS_DISABLE={}, and report this to its vendor", entered);
  return judgement;
}

// Of several files of one id the one that has it: a file that was refused stands before another that took its place.
const PluginRecord& find_record(const std::vector<PluginRecord>& records, const std::string& id) {
  std::vector<std::string> ids;
  const PluginRecord* first = nullptr;
  for (const PluginRecord& record : records) {
    if (record.is_place) continue;
    ids.push_back(record.id);
    if (record.id != id) continue;
    if (record.state != State::rejected && record.state != State::shadowed && record.state != State::retired)
      return record;
    if (first == nullptr) first = &record;
  }
  if (first != nullptr) return *first;
  throw UsageError(fmt::format("no plugin is called '{}'{}", id, suggestion(id, ids)));
}

int exit_code_of(const Judgement& judgement) {
  if (!judgement.trouble.empty()) {
    std::fprintf(stderr, "rlk-plugins: %s\n", judgement.trouble.c_str());
    return kBroken;
  }
  return std::any_of(judgement.records.begin(), judgement.records.end(), [](const auto& r) { return r.broken; })
             ? kBroken
             : kFine;
}

loader::HostIdentity host_identity() {
  const rlk_host* host = loader::host_services();
  return {host->version, loader::abi_text({host->abi_major, host->abi_minor, host->abi_draft})};
}

}  // namespace rlk::cli
