// The sections of the checklist and where each answer comes from.
#include "loader/cli/template.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/declaration/numerics.hpp"
#include "loader/cli/output.hpp"
#include "loader/cli/report.hpp"
#include "loader/store/support.hpp"

namespace rlk::cli {
namespace {

using core::UnitResult;
using loader::PluginRecord;

constexpr const char* kPerson = "_please fill in_";

// All values of one kind of evidence.
std::string evidence_of(const PluginRecord& record, const std::string& kind, const std::string& otherwise) {
  std::string values;
  for (const loader::Evidence& item : record.evidence) {
    if (item.kind == kind && item.supports != 0) values += (values.empty() ? "" : ", ") + item.value;
  }
  return values.empty() ? otherwise : values;
}

struct Operator {
  std::set<std::string> verified, declined, failed, reasons, implementations;
  uint32_t numerics = ~0u;
  double worst = 0;
};
std::map<std::string, Operator> operators_of(const PluginRecord& record) {
  std::map<std::string, Operator> all;
  for (const UnitResult& unit : record.units) {
    Operator& op = all[unit.op];
    op.implementations.insert(unit.implementation);
    const std::string what = unit.dtype + (unit.feature.empty() ? "" : " " + unit.feature);
    if (unit.verdict == UnitResult::Verdict::verified) {
      if (unit.feature.empty()) op.numerics &= unit.numerics, op.worst = std::max(op.worst, unit.worst_error_ratio);
      op.verified.insert(unit.dtype);
    } else {
      (unit.verdict == UnitResult::Verdict::failed ? op.failed : op.declined).insert(what);
      op.reasons.insert(unit.reason);
    }
  }
  return all;
}
std::string joined(const std::set<std::string>& words, const char* separator = ", ") {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text.empty() ? "none" : text;
}

std::string line(const char* name, const std::string& value) {
  return fmt::format("- {}: {}\n", name, printable(value));
}

}  // namespace

std::string filled_template(const PluginRecord& record) {
  const loader::Support support = support_of(record);
  const bool has_device = !record.devices.empty();
  const std::string command = "rlk-plugins conformance " + shell_word(record.path.empty() ? record.id : record.path);
  std::string out = "## Platform\n";
  out += line("Vendor", fmt::format("{} (plugin {} {})", record.backend, record.id, record.version));
  out += line("Device model", has_device ? record.devices[0].name : "none here: " + reason_text(record));
  out += line("Number of cards", std::to_string(record.devices.size()));
  out += line("Driver/runtime version", fmt::format("{} / {} ({})", evidence_of(record, "driver_version", "not told"),
                                                    evidence_of(record, "runtime_version", "not told"),
                                                    evidence_of(record, "runtime_library", "no library")));
  for (const char* torch : {"PyTorch version", "`torch.version.cuda`", "`torch.version.hip`",
                            "Device name from `torch.cuda.get_device_name(0)`"})
    out += line(torch, std::string(kPerson) + " (rlk does not look at PyTorch)");
  out += line("Device capability", has_device ? record.devices[0].arch : "none");
  out += line("Warp/wave size if exposed", evidence_of(record, "simt_width", "not a SIMT device, or not told"));
  out += line("Compiler path", kPerson);

  out += "\n## Target Operator\n";
  for (const auto& [name, op] : operators_of(record)) {
    out += line("Operator", "`" + name + "`");
    out += "  - Current fallback: cpu, verified at its start\n";
    out += "  - Proposed optimized backend: " + printable(record.backend + ":" + joined(op.implementations)) + "\n";
    out += "  - Required dtype: verified " + printable(joined(op.verified)) + "\n";
    out += "  - Required shapes: any that the declaration allows (`rlk-plugins ops " + name + "`)\n";
    out += "  - Expected unsupported shapes: declined: " + printable(joined(op.declined));
    if (!op.failed.empty()) out += "; FAILED: " + printable(joined(op.failed));
    out +=
        op.reasons.empty() || op.reasons.begin()->empty() ? "\n" : " (" + printable(joined(op.reasons, "; ")) + ")\n";
  }
  if (record.units.empty()) out += line("Operator", "none was tried: " + reason_text(record));

  out += "\n## Correctness Baseline\n";
  out += line("Reference implementation", "rlk's golden reference in fp64, fed the rounded inputs");
  for (const auto& [name, op] : operators_of(record)) {
    if (op.verified.empty()) continue;
    out += line("Tolerance", fmt::format("{}: {}, worst error {} of what is allowed", name,
                                         core::text_of_numerics(op.numerics), number_text(op.worst)));
  }
  out += line("Test command", fmt::format("`{} --full --report {}`", command, shell_word(record.id + ".json")));
  out += line("Result", fmt::format("{}: {}", support.tier(), support.reason));

  out += "\n## Build / Runtime Notes\n";
  out += line("Extension compiler", kPerson);
  out += line("Required environment variables", evidence_of(record, "environment", "none is set"));
  out += line("Known compile blockers", kPerson);
  out += line("Known runtime blockers", record.reason_code.empty() ? "none met here" : reason_text(record));

  out += "\n## Dispatch Proposal\n";
  out += line("Platform key", "`" + record.backend + "`");
  out += line("Registry priority",
              "measured cost among verified implementations; `RLK_OP_<NAME>` and the policy file pin");
  out += line("Conditions for enabling optimized backend",
              "the probe says \"mine\" and the unit (operator, dtype, option) is verified on that machine");
  out += line("Conditions for falling back",
              "whatever is declined above, fails, or fails later at run time: the CPU, told and counted");

  out += "\n## Validation Hardware\n";
  for (const char* person : {"Who can run validation", "Hardware access constraints"}) out += line(person, kPerson);
  out += line("Reproducible command log",
              fmt::format("`rlk-plugins inspect {}`, `{} --full`; {}", shell_word(record.id), command, kPerson));
  return out;
}

}  // namespace rlk::cli
