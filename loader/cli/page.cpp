// The page's sections, from the documents of the verbs. Every text of theirs may be a plugin's: all of it is escaped.
#include "loader/cli/page.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "core/declaration/text.hpp"
#include "loader/cli/page_style.hpp"
#include "loader/cli/table.hpp"

namespace rlk::cli {
namespace {

using nlohmann::ordered_json;

// A member's text as it stands in the page; numbers too. "" where there is none.
std::string text_of(const ordered_json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return "";
  return html_text(found->is_string() ? found->get<std::string>() : found->dump());
}

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g", value);
  return text;
}

std::string time_text(int64_t unix_seconds) {
  const auto time = static_cast<std::time_t>(unix_seconds);
  std::tm parts{};
  char text[32] = "?";
  if (gmtime_r(&time, &parts) != nullptr) std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M UTC", &parts);
  return text;
}

std::string word(const char* tone, const std::string& text) {
  return fmt::format("<span class=\"word {}\">{}</span>", tone, text);
}

const char* tone_of_state(const ordered_json& plugin) {
  const std::string state = plugin.value("state", "");
  if (plugin.value("broken", false)) return "bad";
  if (state == "registered" || state == "smoke_tested") return "good";
  return state == "absent" || state == "shadowed" || state == "rejected" ? "off" : "wait";
}

// ---- plugins ------------------------------------------------------------------------------------------------------

void line(std::string* out, const char* name, const std::string& value) {
  if (!value.empty()) *out += fmt::format("<dt>{}</dt><dd>{}</dd>\n", name, value);
}

std::string reason_of(const ordered_json& object) {
  const std::string code = text_of(object, "reason_code"), reason = text_of(object, "reason");
  return (code.empty() ? "" : "<code>" + code + "</code> ") + reason;
}

// Operators that failed and of which nothing is verified: the list counts them as partial.
int64_t failed_operators(const ordered_json& scopes, const std::string& id) {
  std::map<std::string, std::pair<bool, bool>> seen;  // failed; verified or switched off
  for (const ordered_json& scope : scopes) {
    if (scope.value("id", "") != id) continue;
    for (const ordered_json& unit : scope.at("units")) {
      auto& [failed, otherwise] = seen[unit.value("op", "")];
      failed |= unit.value("verdict", "") == "failed";
      otherwise |= unit.value("verdict", "") == "verified" || unit.value("reason_code", "") == "QUARANTINED";
    }
  }
  return std::count_if(seen.begin(), seen.end(),
                       [](const auto& entry) { return entry.second.first && !entry.second.second; });
}

void add_plugin(std::string* out, const ordered_json& plugin, const ordered_json& scopes) {
  *out += fmt::format("<li><h3>{} {}</h3>\n<dl>", text_of(plugin, "id"),
                      word(tone_of_state(plugin), text_of(plugin, "state")));
  line(out, "reason", reason_of(plugin));
  line(out, "what to do", text_of(plugin, "reason_code").empty() ? "" : text_of(plugin, "hint"));
  std::string devices;
  for (const ordered_json& device : plugin.value("devices", ordered_json::array())) {
    const double gib = device.value("memory_bytes", 0.0) / (1024.0 * 1024.0 * 1024.0);
    devices +=
        (devices.empty() ? "" : "<br>") + fmt::format("{}, {}{}", text_of(device, "name"), text_of(device, "arch"),
                                                      gib > 0 ? ", " + number_text(gib) + " GiB" : "");
  }
  line(out, "devices", devices);
  const ordered_json ops = plugin.value("ops", ordered_json::object());
  std::map<std::string_view, int64_t> counts;
  for (const char* kind : {"verified", "partial", "unsupported", "quarantined", "waiting"})
    counts[kind] = ops.value(kind, int64_t{0});
  counts["failed"] = std::min(counts["partial"], failed_operators(scopes, plugin.value("id", "")));
  counts["partial"] -= counts["failed"];
  std::string operators;
  for (const char* kind : {"verified", "partial", "failed", "unsupported", "quarantined", "waiting"}) {
    const int64_t count = counts[kind];
    if (count > 0) operators += (operators.empty() ? "" : ", ") + fmt::format("{} {}", count, kind);
  }
  line(out, "operators", operators);
  line(out, "backend", text_of(plugin, "backend"));
  line(out, "version",
       text_of(plugin, "version") + (text_of(plugin, "abi").empty() ? "" : ", ABI " + text_of(plugin, "abi")));
  line(out, "support",
       text_of(plugin, "tier") + (text_of(plugin, "tier_reason").empty() ? "" : ": " + text_of(plugin, "tier_reason")));
  line(out, "found by", text_of(plugin, "source"));
  line(out, "file", text_of(plugin, "path"));
  *out += "</dl></li>\n";
}

// ---- verdicts -----------------------------------------------------------------------------------------------------

struct Sum {
  int verified = 0, failed = 0, declined = 0;
  double ratio = -1, ulp = -1;  // the worst that was measured; -1: nothing was
};

std::string cell(const Sum& sum) {
  const char* tone = sum.failed > 0 ? "bad" : sum.verified > 0 ? "good" : "off";
  std::string text;
  const auto add = [&text](int count, const char* what) {
    if (count > 0) text += (text.empty() ? "" : ", ") + fmt::format("{} {}", count, what);
  };
  add(sum.verified, "verified");
  add(sum.failed, "failed");
  add(sum.declined, "declined");
  if (sum.ratio >= 0)
    text += fmt::format("<small>{} of the bound, {} ulp</small>", number_text(sum.ratio), number_text(sum.ulp));
  return fmt::format("<td class=\"{}\">{}</td>", tone, text);
}

// Floating types first, as people ask for them.
std::vector<std::string> in_order(const std::map<std::string, bool>& dtypes) {
  static constexpr const char* kFirst[] = {"f32", "bf16", "f16", "f64"};
  std::vector<std::string> out;
  for (const char* name : kFirst)
    if (dtypes.count(name) > 0) out.emplace_back(name);
  for (const auto& [name, seen] : dtypes)
    if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
  return out;
}

void add_failures(std::string* out, const ordered_json& units) {
  std::string rows;
  for (const ordered_json& unit : units) {
    if (unit.value("verdict", "") != "failed") continue;
    rows +=
        fmt::format("<tr><th scope=\"row\">{} {} {} {}</th><td>{}</td></tr>\n", text_of(unit, "op"),
                    text_of(unit, "implementation"), text_of(unit, "dtype"), text_of(unit, "feature"), reason_of(unit));
  }
  if (rows.empty()) return;
  *out +=
      "<table class=\"findings\"><caption class=\"soft\">What failed, and the first case of each</caption><thead><tr>"
      "<th scope=\"col\">unit</th><th scope=\"col\">why</th></tr></thead><tbody>\n" +
      rows + "</tbody></table>\n";
}

void add_scope(std::string* out, const ordered_json& scope) {
  std::map<std::pair<std::string, std::string>, std::map<std::string, Sum>> rows;
  std::map<std::string, bool> dtypes;
  Sum all;
  for (const ordered_json& unit : scope.at("units")) {
    const std::string verdict = unit.value("verdict", ""), dtype = text_of(unit, "dtype");
    dtypes[dtype] = true;
    Sum& sum = rows[{text_of(unit, "op"), text_of(unit, "implementation")}][dtype];
    for (Sum* each : {&sum, &all}) {
      each->verified += verdict == "verified";
      each->failed += verdict == "failed";
      each->declined += verdict == "declined";
    }
    const auto number = [&unit](const char* name) {
      const auto found = unit.find(name);
      return found != unit.end() && found->is_number() ? found->get<double>() : -1.0;
    };
    if (verdict != "verified") continue;
    sum.ratio = std::max(sum.ratio, number("worst_error_ratio"));
    sum.ulp = std::max(sum.ulp, number("worst_error_ulp"));
  }
  const std::string id = text_of(scope, "id");
  *out += fmt::format("<details{}><summary>{}: {} verified, {} failed, {} declined</summary>\n",
                      all.failed > 0 || scope.value("id", "") != "cpu" ? " open" : "", id, all.verified, all.failed,
                      all.declined);
  if (scope.value("tried", "") == "canary")
    *out +=
        "<p class=\"soft\">Tried on this machine: a canary, one call of each operator and dtype; the rest when rlk was "
        "built. <code>rlk-plugins probe --fresh " +
        html_text(shell_word(scope.value("id", ""))) + "</code> tries everything here.</p>\n";
  add_failures(out, scope.at("units"));
  *out += "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"Verdicts of " + id +
          "\"><table class=\"matrix\"><thead><tr><th scope=\"col\">operator</th>";
  const std::vector<std::string> columns = in_order(dtypes);
  for (const std::string& dtype : columns) *out += "<th scope=\"col\">" + dtype + "</th>";
  *out += "</tr></thead><tbody>\n";
  for (const auto& [key, cells] : rows) {
    *out += fmt::format("<tr><th scope=\"row\">{} <span class=\"soft\">{}</span></th>", key.first, key.second);
    for (const std::string& dtype : columns) {
      const auto found = cells.find(dtype);
      *out += found == cells.end() ? "<td class=\"off\">not tried</td>" : cell(found->second);
    }
    *out += "</tr>\n";
  }
  *out += "</tbody></table></div></details>\n";
}

// ---- the rest -----------------------------------------------------------------------------------------------------

void add_checks(std::string* out, const ordered_json& checks) {
  *out +=
      "<table class=\"findings\"><thead><tr><th scope=\"col\">status</th><th scope=\"col\">subject</th>"
      "<th scope=\"col\">finding</th></tr></thead><tbody>\n";
  for (const ordered_json& check : checks) {
    const std::string status = check.value("status", "");
    const char* tone = status == "problem" ? "bad" : status == "warning" ? "wait" : status == "ok" ? "good" : "off";
    *out += fmt::format("<tr><td>{}</td><th scope=\"row\">{}</th><td>{}", word(tone, text_of(check, "status")),
                        text_of(check, "subject"), text_of(check, "text"));
    for (const char* more : {"reason", "hint"})
      if (const std::string text = text_of(check, more); !text.empty()) *out += "<small>" + text + "</small>";
    *out += "</td></tr>\n";
  }
  *out += "</tbody></table>\n";
}

void add_quarantine(std::string* out, const ordered_json& entries) {
  if (entries.empty()) {
    *out += "<p>Nothing is switched off.</p>\n";
    return;
  }
  *out +=
      "<table class=\"findings\"><thead><tr><th scope=\"col\">switched off</th><th scope=\"col\">why</th>"
      "<th scope=\"col\">since, until</th></tr></thead><tbody>\n";
  for (const ordered_json& entry : entries) {
    *out += fmt::format("<tr><th scope=\"row\">{} {} {} {}</th><td>{}</td><td>{}<small>{}</small></td></tr>\n",
                        text_of(entry, "plugin"), text_of(entry, "op"), text_of(entry, "implementation"),
                        text_of(entry, "dtype"), reason_of(entry), time_text(entry.value("since_unix", int64_t{0})),
                        time_text(entry.value("until_unix", int64_t{0})));
  }
  *out += "</tbody></table>\n";
}

void add_operators(std::string* out, const ordered_json& ops) {
  std::map<std::string, std::vector<const ordered_json*>> families;
  for (const ordered_json& op : ops) families[text_of(op, "family")].push_back(&op);
  for (const auto& [family, members] : families) {
    *out += fmt::format("<details><summary>{} ({})</summary>\n<dl>", family, members.size());
    for (const ordered_json* op : members) {
      std::string dtypes;
      for (const ordered_json& variable : op->value("dtypes", ordered_json::array())) {
        std::string choices;
        for (const ordered_json& choice : variable.at("choices"))
          choices += (choices.empty() ? "" : " ") + html_text(choice.get<std::string>());
        dtypes += (dtypes.empty() ? "" : "; ") + text_of(variable, "name") + ": " + choices;
      }
      const std::string backward = text_of(*op, "backward");
      *out +=
          fmt::format("<dt><code>{}</code></dt><dd>{}<br><span class=\"soft\">{}{}</span></dd>\n", text_of(*op, "name"),
                      text_of(*op, "summary"), dtypes, backward.empty() ? "" : "; gradient: " + backward);
    }
    *out += "</dl></details>\n";
  }
}

}  // namespace

std::string html_text(const std::string& text) {
  // Control characters and bytes that are not UTF-8 become visible, as in every other answer; line breaks stay.
  std::string shown;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    shown += (begin == 0 ? "" : "\n") + core::printable(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
  }
  std::string out;
  for (const char c : shown) {
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
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string html_page(const ordered_json& document) {
  const ordered_json& list = document.at("list");
  int in_use = 0, broken = 0, problems = 0;
  for (const ordered_json& plugin : list.at("plugins")) {
    const std::string state = plugin.value("state", "");
    in_use += state == "registered" || state == "partial";
    broken += plugin.value("broken", false);
  }
  for (const ordered_json& check : document.at("doctor").at("checks"))
    problems += check.value("status", "") == "problem";
  const std::string machine = text_of(document, "machine");

  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
      "<title>rlk on {}</title>\n<style>{}</style></head><body>\n",
      machine, kPageStyle);
  out += fmt::format(
      "<header><h1>rlk on {}</h1>\n<p class=\"soft\">rlk {}, plugin ABI {}, {}</p>\n<p>{} {} {}</p>\n", machine,
      text_of(list.at("host"), "version"), text_of(list.at("host"), "abi"),
      time_text(document.value("made_unix", int64_t{0})), word("good", fmt::format("{} in use", in_use)),
      word(broken > 0 ? "bad" : "off", fmt::format("{} broken", broken)),
      word(problems > 0 ? "bad" : "good", fmt::format("{} {}", problems, problems == 1 ? "problem" : "problems")));
  out +=
      "<nav aria-label=\"Sections\"><ul><li><a href=\"#plugins\">Plugins</a></li>"
      "<li><a href=\"#verdicts\">Verdicts</a></li><li><a href=\"#quarantine\">Quarantine</a></li>"
      "<li><a href=\"#checks\">Checks and environment</a></li><li><a href=\"#operators\">Operators</a></li></ul></nav>"
      "</header>\n<main>\n";
  out += "<section id=\"plugins\"><h2>Plugins</h2>\n<ul class=\"cards\">\n";
  for (const ordered_json& plugin : list.at("plugins")) add_plugin(&out, plugin, document.at("scopes"));
  out +=
      "</ul></section>\n<section id=\"verdicts\"><h2>Verdicts</h2>\n<p class=\"soft\">A unit is an operator, a dtype "
      "and an "
      "option of it. Errors are the worst ones against the fp64 reference: 1 of the bound is the limit. What failed or "
      "was "
      "declined is never called: calls go to the next implementation, at last to the CPU.</p>\n";
  for (const ordered_json& scope : document.at("scopes")) add_scope(&out, scope);
  out += "</section>\n<section id=\"quarantine\"><h2>Quarantine</h2>\n";
  add_quarantine(&out, document.at("quarantine").at("entries"));
  out += "</section>\n<section id=\"checks\"><h2>Checks and environment</h2>\n";
  add_checks(&out, document.at("doctor").at("checks"));
  out += "</section>\n<section id=\"operators\"><h2>Operators</h2>\n";
  add_operators(&out, document.at("ops").at("ops"));
  return out + "</section>\n</main></body></html>\n";
}

}  // namespace rlk::cli
