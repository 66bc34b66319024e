// Work that runs plugin code, done by a second rlk-plugins: what a plugin does there (crash, hang, exit) is an answer,
// not the end of the command. The loader's prober is one level further down and judges single plugins the same way.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "loader/discover/environment.hpp"
#include "loader/probe/process.hpp"
#include "loader/store/record.hpp"

namespace rlk::cli {

// The word behind `rlk-plugins` that makes it such a child.
inline constexpr const char* kChildWord = "--child";
// What it does when it judges plugins, as its messages name it.
inline constexpr const char* kFindPhase = "find";
inline constexpr const char* kRegisterPhase = "register";
// A message of it that is a record and nothing else begins with this, so that the parent reads no megabytes twice.
inline constexpr char kRecordMark = 'R';

// The child's side: reads one request from the parent, answers it, never returns.
[[noreturn]] void serve_as_child(int argc, char** argv);

struct Judgement {
  std::vector<loader::PluginRecord> records;  // in search order, the built-in CPU first
  std::string trouble;  // a plugin that was found good broke the process it was then loaded into: what is known of it
};

// Every plugin taken as far as it comes: probed (in children of the child), then registered in the child. What cannot
// be found out is `trouble`. on_verdict is called for each plugin as its probe ends.
struct JudgeRequest {
  bool all = false;     // every operator is tried, whatever RLK_VERIFY says
  bool fresh = false;   // probe anew, remembered results are not believed
  bool builtin = true;  // of the built-in CPU, too
  // That plugins with these verdicts were loaded into one process within the last hour is enough.
  bool remember = false;
  // Of the units only representative ones (record.hpp): thousands are not carried to a verb that counts operators.
  bool in_short = false;
  std::string select;  // replaces RLK_PLUGINS_SELECT when not empty
  bool ignore_config = false;
};
// What is wrong with the policy file that RLK_CONFIG names, "" when nothing is. judge_plugins throws it as Failure.
std::string config_problem();
// What a readable policy file says that rlk does not understand: unknown operators, unknown values.
std::vector<std::string> policy_problems();
Judgement judge_plugins(const JudgeRequest& request,
                        const std::function<void(const loader::PluginRecord&)>& on_verdict = {});

// A second rlk-plugins with this environment that will serve the request.
loader::ChildCommand child_command(const loader::Environment& environment, const std::string& request);

// The record with this id; throws UsageError that names the ids there are.
const loader::PluginRecord& find_record(const std::vector<loader::PluginRecord>& records, const std::string& id);

// What the exit code says of these records and the trouble, if any, which is also printed on standard error.
int exit_code_of(const Judgement& judgement);

loader::HostIdentity host_identity();

}  // namespace rlk::cli
