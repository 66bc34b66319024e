// `rlk-plugins cache`: what is remembered between processes, and forgetting it.
#include <fmt/core.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>

#include "loader/cli/child.hpp"
#include "loader/cli/documents.hpp"
#include "loader/cli/output.hpp"
#include "loader/cli/place.hpp"
#include "loader/cli/table.hpp"
#include "loader/cli/verbs.hpp"
#include "loader/discover/environment.hpp"
#include "loader/store/cache.hpp"
#include "loader/store/file.hpp"
#include "loader/store/record.hpp"
#include "loader/store/report.hpp"
#include "loader/store/store.hpp"

namespace rlk::cli {
namespace {

using nlohmann::ordered_json;

std::string age_text(int64_t modified_unix) {
  const int64_t seconds = std::time(nullptr) - modified_unix;
  if (seconds < 120) return fmt::format("{} s", seconds);
  if (seconds < 7200) return fmt::format("{} min", seconds / 60);
  if (seconds < 172800) return fmt::format("{} h", seconds / 3600);
  return fmt::format("{} d", seconds / 86400);
}

// Whose entries are: names are hashes, and verdicts and what is off say it inside.
std::map<std::string, std::string> plugins_of(const loader::Store& store) {
  std::map<std::string, std::string> plugins;
  for (const loader::StoreEntry& entry : store.list(loader::kVerdictPrefix)) {
    const std::string text = store.get(entry.name).value_or("");
    const size_t head = text.find('\n');
    loader::PluginRecord record;
    std::string ignored;
    if (head == std::string::npos || !loader::record_from_text(text.substr(head + 1), &record, &ignored)) continue;
    plugins[entry.name] = record.id;
  }
  for (const loader::StoreEntry& entry : store.list(loader::kQuarantinePrefix)) {
    const auto kept = nlohmann::json::parse(store.get(entry.name).value_or(""), nullptr, false);
    if (kept.is_object() && kept.value("id", nlohmann::json()).is_string()) plugins[entry.name] = kept.at("id");
  }
  return plugins;
}

int list(const loader::Store& store, bool json) {
  uint64_t total = 0;
  ordered_json entries = ordered_json::array();
  const std::map<std::string, std::string> plugins = plugins_of(store);
  Table table({"entry", "plugin", "bytes", "age"});
  for (const loader::StoreEntry& entry : store.list("")) {
    total += entry.bytes;
    const auto plugin = plugins.find(entry.name);
    const bool is_known = plugin != plugins.end();
    entries.push_back({{"name", entry.name},
                       {"plugin", is_known ? ordered_json(plugin->second) : ordered_json()},
                       {"bytes", entry.bytes},
                       {"modified_unix", entry.modified_unix}});
    table.row({entry.name, is_known ? plugin->second : "", std::to_string(entry.bytes), age_text(entry.modified_unix)});
  }
  if (json) {
    ordered_json document = {{"schema", 1}, {"folder", store.folder()}, {"entries", entries}};
    if (store.seed() != nullptr) document["seed"] = {{"path", store.seed()->path()}, {"entries", store.seed()->size()}};
    print_document(document);
    return kFine;
  }
  if (!table.empty()) table.print();
  std::fprintf(output(), "%zu entries, %s in %s\n", entries.size(), bytes_text(total).c_str(), store.folder().c_str());
  if (store.seed() != nullptr)
    std::fprintf(output(), "%zu entries in the seed %s\n", store.seed()->size(),
                 printable(store.seed()->path()).c_str());
  return kFine;
}

// The entries that the plugins found now need, and lasting entries of earlier processes.
int write_seed(loader::Store& store, const std::string& path, const std::string& report, bool json) {
  require_place(path);
  loader::Seed::Entries entries;
  if (!report.empty()) {
    const auto read = loader::read_report(report);
    if (!read) throw Failure(report + " is no report of `rlk-plugins conformance --report`");
    if (const std::string objection = objection_to(read->record); !objection.empty())
      throw Failure(fmt::format("{} stands for nothing: {}", report, objection));
    if (read->plugin_sha256.empty()) throw Failure(report + " does not name the file that was tried; make it anew");
    entries.emplace(fmt::format("{}{}-{}", loader::kReportPrefix, read->record.id, read->plugin_sha256.substr(0, 16)),
                    loader::read_file(report, SIZE_MAX).value());
  }
  const Judgement judgement = judge_plugins({});
  for (const loader::StoreEntry& entry : store.list("")) {
    auto bytes = store.get(entry.name);
    if (bytes && loader::may_travel(entry.name, *bytes)) entries.emplace(entry.name, std::move(*bytes));
  }
  const std::string seed = loader::Seed::write(entries);
  write_whole(path, {seed});
  if (json) {
    print_document({{"schema", 1}, {"seed", path}, {"bytes", seed.size()}, {"entries", entries.size()}});
  } else {
    std::fprintf(output(), "%s: %zu entries, %s. Processes on machines like this one read it as RLK_CACHE_SEED.\n",
                 printable(path).c_str(), entries.size(), bytes_text(seed.size()).c_str());
  }
  return exit_code_of(judgement);
}

// A user that names a folder means no other. The store logged at its opening why it passes over the folder. The store
// calls its folder by the canonical path: one may be named through a link, or with a slash at its end.
void require_named_folder(const loader::Store& store) {
  const std::string named = loader::Environment::of_process().get("RLK_CACHE_DIR").value_or("");
  char real[PATH_MAX];
  if (named.empty() || named == store.folder()) return;
  if (realpath(named.c_str(), real) != nullptr && real == store.folder()) return;
  throw Failure(
      fmt::format("RLK_CACHE_DIR is '{}', which is passed over for {}: nothing was removed. Let RLK_CACHE_DIR name a "
                  "folder that is "
                  "yours, that you and no other user can write, and that has room; or unset it to empty {}",
                  named, store.folder(), store.folder()));
}

int run_cache(const Arguments& arguments) {
  const std::string action = arguments.operand(0), file = arguments.operand(1);
  if (action != "ls" && action != "clear" && action != "export")
    throw UsageError("cache " + action + ": expected ls, clear or export");
  if (action != "export" && arguments.has("report")) throw UsageError("--report goes with cache export");
  if ((action == "export") == file.empty())
    throw UsageError(action == "export" ? "cache export needs the FILE to write"
                                        : "cache " + action + " takes no FILE");
  loader::Store store = loader::open_store(
      loader::Environment::of_process(), loader::Identity::of_process(),
      [](bool, const std::string& text) { std::fprintf(stderr, "rlk-plugins: %s\n", printable(text).c_str()); });
  if (store.folder().empty()) throw Failure("there is no cache folder; set RLK_CACHE_DIR to a folder of your own");
  if (action == "export") return write_seed(store, file, arguments.value("report"), arguments.json());
  if (action == "ls") return list(store, arguments.json());
  require_named_folder(store);
  size_t removed = 0;
  for (const loader::StoreEntry& entry : store.list(""))
    if (!entry.name.starts_with(loader::kQuarantinePrefix)) removed += store.clear(entry.name);
  if (arguments.json()) {
    print_document({{"schema", 1}, {"folder", store.folder()}, {"removed", removed}});
  } else {
    std::fprintf(output(), "removed %zu entries from %s\n", removed, store.folder().c_str());
    if (store.seed() != nullptr)
      std::fprintf(output(), "the seed %s stays and is read\n", printable(store.seed()->path()).c_str());
  }
  return kFine;
}

}  // namespace

Verb verb_cache() {
  return {
      "cache",
      "Lists or clears what is remembered: verdicts (probe-*), times (costs-*), contents of files, kernels.",
      "What failed at run time stays switched off; `rlk-plugins quarantine clear` forgets that.\n"
      "`cache export FILE` writes a seed: verdicts, times and kernels in one file that an image carries. Processes "
      "read it\n"
      "where RLK_CACHE_SEED names it, or as share/rlk/cache.seed of the installation. It serves the machines and\n"
      "containers that look as this one does: the same processor and accelerators, drivers, kernel, and files\n"
      "at the same paths. It must belong to root or the user, and no other user may write it. --report puts a\n"
      "report of `rlk-plugins conformance` in it, which stands for the smoke test of that file on every machine with\n"
      "such a card.",
      "rlk-plugins cache export /opt/rlk/cache.seed",
      {{"ls|clear|export", true}, {"FILE", false}},
      {{"report", "REPORT", "export: a conformance report to take along"}},
      run_cache};
}

}  // namespace rlk::cli
