// `rlk-plugins cache`: what is remembered between processes, and forgetting it.
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "loader/cli/output.hpp"
#include "loader/cli/table.hpp"
#include "loader/cli/verbs.hpp"
#include "loader/discover/environment.hpp"
#include "loader/store/store.hpp"

namespace rlk::cli {
namespace {

using nlohmann::ordered_json;

void print(const ordered_json& value) {
  std::fprintf(output(), "%s\n", value.dump().c_str());
}

std::string age_text(int64_t modified_unix) {
  const int64_t seconds = std::time(nullptr) - modified_unix;
  if (seconds < 120) return std::to_string(seconds) + " s";
  if (seconds < 7200) return std::to_string(seconds / 60) + " min";
  if (seconds < 172800) return std::to_string(seconds / 3600) + " h";
  return std::to_string(seconds / 86400) + " d";
}

int list(const loader::Store& store, bool json) {
  uint64_t total = 0;
  ordered_json entries = ordered_json::array();
  Table table({"entry", "bytes", "age"});
  for (const loader::StoreEntry& entry : store.list("")) {
    total += entry.bytes;
    entries.push_back({{"name", entry.name}, {"bytes", entry.bytes}, {"modified_unix", entry.modified_unix}});
    table.row({entry.name, std::to_string(entry.bytes), age_text(entry.modified_unix)});
  }
  if (json) {
    print({{"schema", 1}, {"folder", store.folder()}, {"entries", entries}});
    return kFine;
  }
  if (!table.empty()) table.print();
  std::fprintf(output(), "%zu entries, %s in %s\n", entries.size(), bytes_text(total).c_str(), store.folder().c_str());
  return kFine;
}

int run_verb(const Arguments& arguments) {
  const std::string action = arguments.operand(0);
  if (action != "ls" && action != "clear") throw UsageError("cache " + action + ": expected ls or clear");
  std::vector<std::string> notes;
  loader::Store store(
      loader::choose_cache_folder(loader::Environment::of_process(), loader::Identity::of_process(), &notes));
  for (const std::string& note : notes) std::fprintf(stderr, "rlk-plugins: %s\n", note.c_str());
  if (store.folder().empty()) throw Failure("there is no cache folder; set RLK_CACHE_DIR to a folder of your own");
  if (action == "ls") return list(store, arguments.json());
  size_t removed = 0;
  for (const loader::StoreEntry& entry : store.list(""))
    if (!entry.name.starts_with(loader::kQuarantinePrefix)) removed += store.clear(entry.name);
  if (arguments.json()) {
    print({{"schema", 1}, {"folder", store.folder()}, {"removed", removed}});
  } else {
    std::fprintf(output(), "removed %zu entries from %s\n", removed, store.folder().c_str());
  }
  return kFine;
}

}  // namespace

Verb verb_cache() {
  return {"cache",
          "Lists or clears what is remembered: verdicts (probe-*), contents of files, compiled kernels.",
          "What failed at run time stays switched off; `rlk-plugins quarantine clear` forgets that.",
          "rlk-plugins cache clear",
          {{"ls|clear", true}},
          {},
          run_verb};
}

}  // namespace rlk::cli
