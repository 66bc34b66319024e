// `rlk-plugins report`: everything that the other verbs know of this machine, as a page to read and to send.
#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "loader/cli/documents.hpp"
#include "loader/cli/output.hpp"
#include "loader/cli/page.hpp"
#include "loader/cli/place.hpp"
#include "loader/cli/session.hpp"
#include "loader/cli/verbs.hpp"

namespace rlk::cli {
namespace {

using nlohmann::ordered_json;

ordered_json ops_document() {
  rlk_error error = RLK_ERROR_INIT;
  char* text = nullptr;
  check(rlk_ops_json(&text, &error), error);
  return ordered_json::parse(take_text(text));
}

std::string machine_name() {
  char name[256] = "";
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

ordered_json whole_document(Judgement* judgement) {
  ordered_json out = {{"schema", 1}, {"machine", machine_name()}, {"made_unix", std::time(nullptr)}};
  out["doctor"] = doctor_document(judgement);
  out["list"] = ordered_json::parse(list_to_json(host_identity(), judgement->records));
  out["scopes"] = ordered_json::array();
  for (const loader::PluginRecord& record : judgement->records)
    if (!record.units.empty()) out["scopes"].push_back(scope_document(record));
  out["quarantine"] = quarantine_document();
  out["ops"] = ops_document();
  return out;
}

int run_report(const Arguments& arguments) {
  const std::string path = arguments.value("html");
  if (arguments.json() && !path.empty()) throw UsageError("--html and --json are two forms of one report; choose one");
  if (!path.empty()) require_place(path);
  Judgement judgement;
  const ordered_json document = whole_document(&judgement);
  const int code = exit_code_of(judgement);
  if (arguments.json()) {
    print_document(document);
    return code;
  }
  const std::string page = html_page(document);
  if (path.empty()) {
    std::fprintf(output(), "%s", page.c_str());
  } else {
    write_whole(path, {page});
    std::fprintf(output(), "%s: %zu KiB\n", path.c_str(), (page.size() + 1023) / 1024);
  }
  return code;
}

}  // namespace

void print_document(const ordered_json& document) {
  std::fprintf(output(), "%s\n", document.dump(-1, ' ', false, ordered_json::error_handler_t::replace).c_str());
}

Verb verb_report() {
  return {
      "report",
      "A page of this machine: plugins, verdicts of every operator and dtype, quarantine, environment.",
      "HTML in one file, with nothing from elsewhere: for a browser, a ticket, an archive. --json is the same data:\n"
      "the documents of doctor, list, quarantine and ops, and of scope for every plugin that was tried.",
      "rlk-plugins report --html rlk.html",
      {},
      {{"html", "FILE", "write the page there; standard output without it"}},
      run_report};
}

}  // namespace rlk::cli
