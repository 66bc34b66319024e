// The dialect that Jenkins, GitLab and GitHub's actions read.
#include "loader/cli/junit.hpp"

#include <fmt/core.h>

#include <cstdio>

#include "loader/cli/report.hpp"
#include "loader/cli/table.hpp"

namespace rlk::cli {
namespace {

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : printable(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\n':
        out += "&#10;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string attribute(const char* name, const std::string& value) {
  return fmt::format(" {}=\"{}\"", name, escaped(value));
}

}  // namespace

std::string junit_of(const loader::PluginRecord& record, double seconds) {
  using Verdict = core::UnitResult::Verdict;
  size_t tests = 0, failures = 0, skipped = 0;
  std::string cases;
  const auto add = [&](const std::string& class_name, const std::string& name, const char* child,
                       const std::string& code, const std::string& text) {
    ++tests;
    cases += "    <testcase" + attribute("classname", class_name) + attribute("name", name);
    if (child == nullptr) {
      cases += "/>\n";
      return;
    }
    cases += fmt::format(">\n      <{}{}{}/>\n    </testcase>\n", child, attribute("type", code),
                         attribute("message", code + ": " + text));
  };
  for (const core::UnitResult& unit : record.units) {
    const char* child = unit.verdict == Verdict::failed     ? "failure"
                        : unit.verdict == Verdict::declined ? "skipped"
                                                            : nullptr;
    failures += unit.verdict == Verdict::failed;
    skipped += unit.verdict == Verdict::declined;
    add(fmt::format("{}.{}.{}", record.id, unit.op, unit.implementation), unit_name(unit), child, unit.reason_code,
        unit.reason);
  }
  // Units say what is wrong with them; a reason without failed units is about the plugin itself.
  if (!record.reason_code.empty() && failures == 0) {
    (record.broken ? failures : skipped) += 1;
    add(record.id, "plugin", record.broken ? "failure" : "skipped", record.reason_code, record.reason);
  }
  char time[32];
  std::snprintf(time, sizeof(time), "%.3f", seconds);
  const std::string counts = attribute("name", "rlk-plugins conformance " + record.id) +
                             attribute("tests", std::to_string(tests)) +
                             attribute("failures", std::to_string(failures)) +
                             attribute("skipped", std::to_string(skipped)) + attribute("time", time);
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite{}>\n"
      "{}  </testsuite>\n</testsuites>\n",
      counts, cases);
}

}  // namespace rlk::cli
