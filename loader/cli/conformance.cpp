// `rlk-plugins conformance`: what is wrong with a plugin that is being written, or with the built-in one.

#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "loader/cli/call.hpp"
#include "loader/cli/child.hpp"
#include "loader/cli/conform.hpp"
#include "loader/cli/dump.hpp"
#include "loader/cli/junit.hpp"
#include "loader/cli/output.hpp"
#include "loader/cli/place.hpp"
#include "loader/cli/report.hpp"
#include "loader/cli/verbs.hpp"
#include "loader/discover/builtin.hpp"
#include "loader/host/progress.hpp"
#include "loader/store/report.hpp"
#include "loader/store/sha256.hpp"
#include "loader/store/store.hpp"

namespace rlk::cli {
namespace {

using loader::PluginRecord;

std::string absolute_path(const std::string& path) {
  char real[PATH_MAX];
  if (realpath(path.c_str(), real) == nullptr)
    throw UsageError(path + ": there is no such file, and the built-in plugin is cpu");
  return real;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  gmtime_r(&now, &utc);
  char text[16];
  std::strftime(text, sizeof(text), "%F", &utc);
  return text;
}

void write_report(const std::string& path, const PluginRecord& record, bool full) {
  if (record.units.empty())
    throw Failure(fmt::format("there is nothing to report: {} is {}", record.id, reason_text(record)));
  loader::Store nowhere("");
  const std::string sha256 = record.path.empty() ? "" : sha256_of(&nowhere, record.path).value_or("");
  write_whole(path, {report_to_json(host_identity(), record, sha256, full, today())});
  const std::string objection = objection_to(record);
  std::fprintf(
      stderr, "%s\n",
      objection.empty()
          ? fmt::format("{}: makes {} {} active", path, printable(record.id), printable(record.version)).c_str()
          : fmt::format("{}: does not make {} active: {}", path, printable(record.id), printable(objection)).c_str());
}

// The command that tries one case of this run again in a debugger.
std::string again(const Arguments& arguments, const std::string& title) {
  std::string command = "rlk-plugins conformance " + shell_word(arguments.operand(0));
  for (const char* name : {"op", "dtype", "at-most", "random", "seed", "device-plugin"}) {
    if (arguments.has(name)) command += fmt::format(" --{} {}", name, shell_word(arguments.value(name)));
  }
  if (arguments.has("full")) command += " --full";
  if (!title.empty()) command += " --case " + shell_word(title);
  return command + " --debug";
}

// The title that begins a unit's reason: "logp simd f32 N=5,V=37 (variant x): got ...".
std::string title_of(const core::UnitResult& unit) {
  const std::string begin = fmt::format("{} {} ", unit.op, unit.implementation);
  if (unit.reason.compare(0, begin.size(), begin) != 0) return {};
  const std::string title = unit.reason.substr(0, unit.reason.find(": "));
  return title.substr(0, title.find(" (variant "));
}

// What a plugin's author does next with the file that was named; hints of records speak of installed plugins.
std::string hint_of(const PluginRecord& record, const std::string& under_way, const Arguments& arguments) {
  const std::string& code = record.reason_code;
  // Of several threads' cases each may be the one: under a debugger, on one thread, the run finds which.
  const std::string during = under_way.find(", or ") == std::string::npos ? under_way : std::string();
  if (code == loader::reason::kTimedOut.code && !during.empty())
    return "raise --timeout if the case is only slow; it alone, without a time limit: " + again(arguments, during);
  if (code == loader::reason::kTimedOut.code || code == loader::reason::kCrashed.code ||
      code == loader::reason::kExited.code)
    return "under a debugger: " + again(arguments, during);
  for (const core::UnitResult& unit : record.units) {
    if (unit.verdict != core::UnitResult::Verdict::failed) continue;
    const std::string title = title_of(unit);
    if (!title.empty())
      return "the first failing case alone, with --dump FOLDER for its tensors: " + again(arguments, title);
  }
  return record.hint;
}

// The number of an option that takes 1 or more; `otherwise` where it was not given.
int64_t number_of(const Arguments& arguments, const char* option, const char* what, int64_t otherwise) {
  if (!arguments.has(option)) return otherwise;
  const std::string text = arguments.value(option);
  char* end = nullptr;
  const int64_t number = std::strtoll(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || number < 1)
    throw UsageError(fmt::format("--{} {}: expected a number{}, 1 or more", option, text, what));
  return number;
}

ConformanceRequest request_of(const Arguments& arguments) {
  ConformanceRequest request;
  const std::string subject = arguments.operand(0);
  if (subject.empty()) throw UsageError("'' is no file; expected that of a plugin, or cpu, which is built in");
  (loader::built_in_entry(subject) != nullptr ? request.built_in : request.path) = subject;
  if (!request.path.empty()) request.path = absolute_path(request.path);
  request.op = arguments.value("op");
  request.dtype = arguments.value("dtype");
  request.only = arguments.value("case");
  request.full = arguments.has("full");
  request.most_elements = number_of(arguments, "at-most", " of elements", 0);
  request.one_of = number_of(arguments, "one-of", "", 1);
  request.random_calls = number_of(arguments, "random", " of calls", 0);
  request.seed = number_of(arguments, "seed", "", 1);
  if (arguments.has("seed") && request.random_calls == 0)
    throw UsageError("--seed is that of random calls: give --random N, too");
  if (arguments.has("device-plugin")) request.device_plugin = absolute_path(arguments.value("device-plugin"));
  if (!request.op.empty()) find_op(request.op);
  core::Dtype dtype = core::Dtype::f32;
  if (!request.dtype.empty() && !core::dtype_from(request.dtype, dtype))
    throw UsageError("--dtype " + request.dtype + ": expected f32, bf16, f16 or f64");
  if (const std::string text = arguments.value("timeout"); arguments.has("timeout")) {
    char* end = nullptr;
    request.seconds = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0' || !(request.seconds > 0 && request.seconds < 1e6))
      throw UsageError("--timeout " + text + ": expected seconds, more than 0");
  }
  if (arguments.has("dump")) {
    require_folder(arguments.value("dump"));
    request.dump = absolute_path(arguments.value("dump"));
  }
  return request;
}

// Here, so that a debugger sees it; the last line that is printed names what crashed or hangs.
PluginRecord run_under_debugger(const ConformanceRequest& request) {
  std::string words;
  std::ifstream line("/proc/self/cmdline");
  for (std::string word; std::getline(line, word, '\0');) words += " " + shell_word(word);
  std::fprintf(stderr, "in this process, without a time limit. Under gdb:\n  gdb -ex run --args%s\n", words.c_str());
  ConformanceNews news;
  news.phase = [](const std::string& phase) { std::fprintf(stderr, "phase %s\n", printable(phase).c_str()); };
  std::string last;
  news.activity = [last](const std::string& title) mutable {
    if (title != last) std::fprintf(stderr, "%s\n", printable(title).c_str());
    last = title;
  };
  return run_conformance_here(request, news);
}

std::string nothing_tested(const ConformanceRequest& request, const PluginRecord& record) {
  std::string text = "nothing was tested: " + record.id;
  if (!request.only.empty()) {
    return fmt::format("{} has no case '{}'{}; give a case as a failure names it, or a part of it", text, request.only,
                       request.full ? "" : " in the smoke test (--full has more)");
  }
  if (request.most_elements > 0)
    return fmt::format("{} has no case of {} elements at most{}{}", text, request.most_elements,
                       request.op.empty() ? "" : " of " + request.op,
                       request.dtype.empty() ? "" : " for " + request.dtype);
  return fmt::format("{} has no implementation{}{}", text, request.op.empty() ? "" : " of " + request.op,
                     request.dtype.empty() ? "" : " for " + request.dtype);
}

int run_conformance_verb(const Arguments& arguments) {
  ConformanceRequest request = request_of(arguments);
  const std::string report = arguments.value("report");
  const std::string junit = arguments.value("junit");
  if (!report.empty()) {
    if (!request.op.empty() || !request.dtype.empty() || !request.only.empty() || request.most_elements > 0 ||
        request.one_of > 1 || request.random_calls > 0 || request.path.empty())
      throw UsageError(
          "--report is of everything that a plugin's file has: without --op, --dtype, --case, --at-most, --one-of and "
          "--random, and not of " +
          (request.path.empty() ? arguments.operand(0) : "a part"));
    require_place(report);
  }
  if (!junit.empty()) require_place(junit);

  const auto begin = std::chrono::steady_clock::now();
  ConformanceResult result;
  if (arguments.has("debug")) {
    request.one_thread = true;
    result.record = run_under_debugger(request);
  } else {
    loader::Progress progress("starting");
    result = run_conformance_in_child(request, [&](int number, const std::string& title) {
      progress.say(fmt::format("case {}: {}", number, title));
    });
  }
  PluginRecord& record = result.record;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  int cases = 0;
  for (const core::UnitResult& unit : record.units) cases += unit.cases;
  if (record.units.empty() && record.reason_code.empty()) throw Failure(nothing_tested(request, record));
  if (!record.reason_code.empty()) record.hint = hint_of(record, result.during, arguments);
  // A machine without the hardware is fine, unless the user passed --require-cases.
  const bool untried = cases == 0 && arguments.has("require-cases");
  const int code = record.broken || untried ? kBroken : kFine;
  if (!report.empty()) write_report(report, record, request.full);
  if (!junit.empty()) {
    if (untried && !record.broken) record.broken = true;
    write_whole(junit, {junit_of(record, seconds)});
  }
  if (untried)
    std::fprintf(stderr, "rlk-plugins conformance: no case was tried, and --require-cases wants some: %s\n",
                 record.reason_code.empty() ? "every unit was declined" : printable(reason_text(record)).c_str());
  if (arguments.json()) {
    const loader::OperatorCounts counts = count_operators(record);
    nlohmann::ordered_json out = {{"schema", 1}, {"full", request.full}, {"cases", cases}};
    out["plugin"] = nlohmann::ordered_json::parse(record_to_json(record));
    out["ops"] = {{"verified", counts.verified}, {"partial", counts.partial}, {"unsupported", counts.unsupported}};
    std::fprintf(output(), "%s\n", out.dump().c_str());
    return code;
  }
  if (!record.backend.empty()) {
    std::fprintf(output(), "%s %s, backend %s, %s\n\n", printable(record.id).c_str(), printable(record.version).c_str(),
                 printable(record.backend).c_str(),
                 !request.only.empty()       ? "the cases named"
                 : request.random_calls > 0  ? "random calls"
                 : request.one_of > 1        ? "a sample of cases"
                 : request.most_elements > 0 ? "the small cases"
                 : request.full              ? "all cases"
                                             : "the cases of the smoke test");
  }
  print_operators(record);
  print_failures(record);
  for (const std::string& note : record.notes) std::fprintf(output(), "note: %s\n", printable(note).c_str());
  if (!record.reason_code.empty()) {
    std::fprintf(output(), "%s\n", coloured(printable(reason_text(record)), tone_of(record)).c_str());
    // A command to copy stays on one line.
    if (!record.hint.empty()) std::fprintf(output(), "hint: %s\n", printable(record.hint).c_str());
  } else if (!untried) {
    std::fprintf(output(), "\n%s\n", coloured("passed", Tone::good).c_str());
  }
  if (!request.dump.empty()) std::fprintf(output(), "tensors of cases: in %s\n", printable(request.dump).c_str());
  if (!record.output.empty()) std::fprintf(output(), "\nit printed:\n%s", wrapped(record.output, 4).c_str());
  return code;
}

int run_and_end(const Arguments& arguments) {
  const int code = run_conformance_verb(arguments);
  if (!arguments.has("debug")) return code;
  // The plugin is in this process: what vendors' runtimes do at exit must not hide what was found.
  const bool arrived = std::fflush(nullptr) == 0;
  _exit(arrived || code != kFine ? code : kBroken);
}

}  // namespace

Verb verb_conformance() {
  return {
      "conformance",
      "Runs the conformance suite on a plugin file and says what fails, where, and what was expected.",
      "The file need not be installed; `cpu` is the built-in plugin. Hardware that is not here leaves\n"
      "nothing to run, and is no failure unless --require-cases is given. The suite runs in a child process, which\n"
      "may crash and hang; --debug runs it in this one.",
      "rlk-plugins conformance ./librlk_plugin_acme.so --op logp --full",
      {{"FILE.so|cpu", true}},
      {{"op", "OP", "only this operator"},
       {"dtype", "D", "only this dtype of the first dtype variable"},
       {"case", "WORDS", "only cases that have these words in their title, as a failure prints it"},
       {"at-most", "N", "only cases with N elements in their tensors at most, as on a simulator"},
       {"one-of", "N", "one of N cases, the same ones each time, and the first of each kind"},
       {"random", "N", "N calls of each operator and dtype drawn at random, instead of the suite's cases"},
       {"seed", "S", "other random calls than those of seed 1"},
       {"dump", "FOLDER", "write the tensors of failing cases, and of those --case names, as .npy"},
       {"timeout", "S", "seconds that loading, creating or one case may take (60; 240 with --full)"},
       {"debug", nullptr, "in this process, no child, no time limit; prints the line for gdb and every case"},
       {"device-plugin", "FILE", "the plugin whose devices one that only brings operators uses"},
       {"require-cases", nullptr, "exit 1 when not a single case was tried"},
       {"junit", "FILE", "write the result as JUnit XML"},
       {"report", "FILE", "write the report that a support tier rests on (plugins/REPORTS.md)"},
       {"full", nullptr, "all shapes, pairs of features, algorithm switches, replay from graphs"}},
      run_and_end};
}

}  // namespace rlk::cli
