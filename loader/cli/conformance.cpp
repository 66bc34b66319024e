// `rlk-plugins conformance`: what is wrong with a plugin that is being written, or with the built-in one.

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>

#include "loader/cli/call.hpp"
#include "loader/cli/child.hpp"
#include "loader/cli/output.hpp"
#include "loader/cli/place.hpp"
#include "loader/cli/report.hpp"
#include "loader/cli/verbs.hpp"
#include "loader/discover/builtin.hpp"
#include "loader/store/support.hpp"

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
  if (record.units.empty()) throw Failure("there is nothing to report: " + record.id + " is " + reason_text(record));
  write_whole(path, {report_to_json(host_identity(), record, full, today())});
  const std::string objection = objection_to(record);
  std::fprintf(stderr, "%s\n",
               objection.empty()
                   ? (path + ": makes " + printable(record.id) + " " + printable(record.version) + " active").c_str()
                   : (path + ": does not make " + printable(record.id) + " active: " + printable(objection)).c_str());
}

int run_verb(const Arguments& arguments) {
  ConformanceRequest request;
  const std::string subject = arguments.operand(0);
  (loader::built_in_entry(subject) != nullptr ? request.built_in : request.path) = subject;
  if (!request.path.empty()) request.path = absolute_path(request.path);
  request.op = arguments.value("op");
  request.dtype = arguments.value("dtype");
  request.full = arguments.has("full");
  const std::string report = arguments.value("report");
  if (!report.empty()) {
    if (!request.op.empty() || !request.dtype.empty() || request.path.empty())
      throw UsageError("--report is of everything that a plugin's file has: without --op and --dtype, and not of " +
                       (request.path.empty() ? subject : "a part"));
    require_place(report);
  }
  if (!request.op.empty()) find_op(request.op);
  core::Dtype dtype = core::Dtype::f32;
  if (!request.dtype.empty() && !core::dtype_from(request.dtype, dtype))
    throw UsageError("--dtype " + request.dtype + ": expected f32, bf16, f16 or f64");

  const PluginRecord record = run_conformance_in_child(request);
  if (record.units.empty() && record.reason_code.empty()) {
    throw Failure("nothing was tested: " + record.id + " has no implementation" +
                  (request.op.empty() ? "" : " of " + request.op) +
                  (request.dtype.empty() ? "" : " for " + request.dtype));
  }
  const int code = record.broken ? kBroken : kFine;
  if (!report.empty()) write_report(report, record, request.full);
  if (arguments.json()) {
    const loader::OperatorCounts counts = count_operators(record);
    nlohmann::ordered_json out = {{"schema", 1}, {"full", request.full}};
    out["plugin"] = nlohmann::ordered_json::parse(record_to_json(record));
    out["ops"] = {{"verified", counts.verified}, {"partial", counts.partial}, {"unsupported", counts.unsupported}};
    std::fprintf(output(), "%s\n", out.dump().c_str());
    return code;
  }
  if (!record.backend.empty()) {
    std::fprintf(output(), "%s %s, backend %s, %s\n\n", printable(record.id).c_str(), printable(record.version).c_str(),
                 printable(record.backend).c_str(), request.full ? "all cases" : "the cases of the smoke test");
  }
  print_operators(record);
  print_failures(record);
  if (!record.reason_code.empty()) {
    std::fprintf(output(), "%s\n", coloured(printable(reason_text(record)), tone_of(record)).c_str());
    if (!record.hint.empty()) std::fprintf(output(), "hint: %s\n", printable(record.hint).c_str());
  } else {
    std::fprintf(output(), "\n%s\n", coloured("passed", Tone::good).c_str());
  }
  if (!record.output.empty()) std::fprintf(output(), "\nit printed:\n%s", wrapped(record.output, 4).c_str());
  return code;
}

}  // namespace

Verb verb_conformance() {
  return {"conformance",
          "Runs the conformance suite on a plugin file and says what fails, where, and what was expected.",
          "The file need not be installed; `cpu` is the built-in plugin. Hardware that is not here leaves\n"
          "nothing to run, and is no failure.",
          "rlk-plugins conformance ./librlk_plugin_acme.so --op logp --full",
          {{"FILE.so|cpu", true}},
          {{"op", "OP", "only this operator"},
           {"dtype", "D", "only this dtype of the first dtype variable"},
           {"report", "FILE", "write the report that a support tier rests on (plugins/REPORTS.md)"},
           {"full", nullptr, "all shapes, pairs of features, algorithm switches, replay from graphs"}},
          run_verb};
}

}  // namespace rlk::cli
