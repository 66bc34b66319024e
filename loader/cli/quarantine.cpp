// `rlk-plugins quarantine`: what failed at run time and is switched off, with its evidence; and using it again.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "loader/cli/documents.hpp"
#include "loader/cli/output.hpp"
#include "loader/cli/table.hpp"
#include "loader/cli/verbs.hpp"
#include "loader/discover/discover.hpp"
#include "loader/discover/environment.hpp"
#include "loader/store/quarantine.hpp"

namespace rlk::cli {
namespace {

using loader::QuarantineEntry;
using nlohmann::ordered_json;

std::string time_text(int64_t unix) {
  const auto time = static_cast<std::time_t>(unix);
  std::tm parts{};
  char text[32] = "?";
  if (localtime_r(&time, &parts) != nullptr) std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &parts);
  return text;
}

ordered_json document_of(const loader::Store& store, const std::vector<QuarantineEntry>& entries) {
  ordered_json rows = ordered_json::array();
  for (const QuarantineEntry& entry : entries) {
    rows.push_back({{"plugin", entry.id},
                    {"path", entry.path},
                    {"op", entry.op},
                    {"implementation", entry.implementation},
                    {"dtype", entry.dtype},
                    {"reason_code", entry.reason_code},
                    {"reason", entry.reason},
                    {"since_unix", entry.since_unix},
                    {"until_unix", entry.until_unix},
                    {"times", entry.times},
                    {"process", {{"pid", entry.pid}, {"program", entry.program}, {"machine", entry.machine}}}});
  }
  return {{"schema", 1}, {"folder", store.folder()}, {"entries", rows}};
}

int list(const loader::Store& store, const std::vector<QuarantineEntry>& entries, bool json) {
  if (json) {
    print_document(document_of(store, entries));
    return kFine;
  }
  Table table({"plugin", "switched off", "since", "until", "times", "seen by"});
  for (const QuarantineEntry& entry : entries) {
    table.row({entry.id, entry.who(), time_text(entry.since_unix), time_text(entry.until_unix),
               std::to_string(entry.times), fmt::format("{} {}", entry.program, entry.pid)});
    table.note(entry.reason_code + ": " + entry.reason, Tone::bad);
    table.note(entry.path, Tone::faint);
  }
  if (table.empty()) {
    std::fprintf(output(), "nothing is quarantined (%s)\n", store.folder().c_str());
    return kFine;
  }
  table.print();
  std::fprintf(output(), "\nuse one again: rlk-plugins quarantine clear ID\n");
  return kFine;
}

loader::Store store_of_process() {
  return loader::open_store(
      loader::Environment::of_process(), loader::Identity::of_process(),
      [](bool, const std::string& text) { std::fprintf(stderr, "rlk-plugins: %s\n", printable(text).c_str()); });
}

// Throws where neither an entry nor a file has that id.
void require_known(const std::string& id, const std::vector<QuarantineEntry>& entries) {
  std::vector<std::string> ids = {"cpu"};
  for (const QuarantineEntry& entry : entries) ids.push_back(entry.id);
  for (const auto& record : loader::discover(loader::Environment::of_process(), {{}, loader::default_folders()}))
    if (!record.is_place) ids.push_back(record.id);
  if (std::find(ids.begin(), ids.end(), id) != ids.end()) return;
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  throw UsageError(fmt::format("quarantine clear {}: no plugin is called so{}", id, suggestion(id, ids)));
}

int run_quarantine(const Arguments& arguments) {
  const std::string action = arguments.operand(0), id = arguments.operand(1);
  if (action != "ls" && action != "clear") throw UsageError("quarantine " + action + ": expected ls or clear");
  if (action == "ls" && !id.empty()) throw UsageError("quarantine ls takes no ID; it lists all");
  loader::Store store = store_of_process();
  if (store.folder().empty()) throw Failure("there is no cache folder; set RLK_CACHE_DIR to a folder of your own");
  loader::QuarantineList quarantine(&store);
  quarantine.add_breadcrumbs();
  if (action == "ls") return list(store, quarantine.in_force(), arguments.json());
  if (!id.empty()) require_known(id, quarantine.in_force());
  std::vector<std::string> staying;
  const size_t cleared = quarantine.clear(id, &staying);
  if (arguments.json()) {
    print_document({{"schema", 1}, {"folder", store.folder()}, {"cleared", cleared}, {"staying", staying}});
  } else {
    std::fprintf(output(), "%zu %s used again\n", cleared, cleared == 1 ? "entry is" : "entries are");
    if (cleared == 0 && staying.empty() && !id.empty())
      std::fprintf(output(), "nothing of '%s' is quarantined; rlk-plugins quarantine ls lists what is\n",
                   printable(id).c_str());
  }
  for (const std::string& file : staying)
    std::fprintf(stderr,
                 "rlk-plugins: %s stays in force: this user cannot remove it; remove it as the owner of its folder\n",
                 printable(file).c_str());
  return staying.empty() ? kFine : kBroken;
}

}  // namespace

ordered_json quarantine_document() {
  loader::Store store = store_of_process();
  loader::QuarantineList quarantine(&store);
  if (!store.folder().empty()) quarantine.add_breadcrumbs();
  return document_of(store, quarantine.in_force());
}

Verb verb_quarantine() {
  return {
      "quarantine",
      "Lists what failed at run time and is switched off, or uses it again.",
      "An implementation, or a whole plugin, that failed in a running process stays off in later ones: a day, a week\n"
      "when it fails again, an hour where a card or a user who ended the process may be at fault. It is known by\n"
      "the content of its file, its libraries and its devices: another build is not concerned.",
      "rlk-plugins quarantine ls",
      {{"ls|clear", true}, {"ID", false}},
      {},
      run_quarantine};
}

}  // namespace rlk::cli
