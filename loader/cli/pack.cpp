// `rlk-plugins pack`: kernels of third parties, taken up with a lock of what every file holds (plugins/tvmffi).
#include "loader/cli/pack.hpp"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "loader/cli/documents.hpp"
#include "loader/cli/output.hpp"
#include "loader/cli/table.hpp"
#include "loader/cli/verbs.hpp"
#include "loader/discover/discover.hpp"
#include "loader/discover/environment.hpp"
#include "loader/store/cache.hpp"
#include "loader/store/record.hpp"
#include "loader/store/store.hpp"

namespace rlk::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using tvmffi::Pack;

constexpr const char* kManifestVariable = "RLK_TVMFFI_MANIFEST";

std::string whole_path(const std::string& path) {
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(path, error);
  return error ? fs::absolute(path).string() : whole.string();
}

// The folder of the plugins that take packs: installed, or of the build.
std::string folder_of_plugins() {
  std::vector<std::string> places;
  for (const loader::SearchEntry& entry : loader::default_folders()) places.push_back(entry.path + "/tvmffi");
  std::error_code error;
  const fs::path prefix = fs::read_symlink("/proc/self/exe", error).parent_path().parent_path();
  places.push_back((prefix / "lib/tvmffi").string());
  for (const std::string& place : places)
    if (fs::exists(place + "/librlk_plugin_tvmffi_cpu.so", error)) return place;
  return {};
}

// Where the plugins look: the folder that the variable names, else the one beside them.
std::string packs_folder(const Arguments& arguments) {
  for (const char* option : {"to", "in"})
    if (arguments.has(option)) return whole_path(arguments.value(option));
  const std::string named = loader::Environment::of_process().path(kManifestVariable).value_or("");
  std::error_code error;
  if (!named.empty() && fs::is_directory(named, error)) return whole_path(named);
  if (!named.empty())
    throw UsageError(
        fmt::format("{} is {}, which is no folder of packs: name one with --to or --in, or let the "
                    "variable name it",
                    kManifestVariable, named));
  const std::string plugins = folder_of_plugins();
  if (plugins.empty())
    throw Failure(
        "the plugins that take packs (tvmffi) are not installed beside this command; name a folder with --to");
  return plugins + "/" + tvmffi::kPacksFolder;
}

// ---- what is there ------------------------------------------------------------------------------------------------

struct Verdict {
  std::string word = "not tried";  // verified, partial, failed, declined
  std::string reason;
};

struct PackRow {
  Pack pack;
  std::string state;  // ok, changed, missing, unlocked
  std::vector<std::string> problems;
  std::vector<PackKernel> kernels;
};

// What was remembered of plugins for packs, the newest first. Nothing is tried for it.
std::vector<loader::PluginRecord> remembered_records() {
  loader::Store store = loader::open_store(loader::Environment::of_process(), loader::Identity::of_process(),
                                           [](bool, const std::string&) {});
  std::vector<loader::StoreEntry> entries = store.list(loader::kVerdictPrefix);
  std::sort(entries.begin(), entries.end(),
            [](const loader::StoreEntry& a, const loader::StoreEntry& b) { return a.modified_unix > b.modified_unix; });
  std::vector<loader::PluginRecord> records;
  for (const loader::StoreEntry& entry : entries) {
    const std::string text = store.get(entry.name).value_or("");
    const size_t head = text.find('\n');
    loader::PluginRecord record;
    std::string ignored;
    // Not parsed whole where the id stands nowhere: the built-in's verdict has megabytes.
    if (head == std::string::npos || text.find("tvmffi_") == std::string::npos) continue;
    if (loader::record_from_text(text.substr(head + 1), &record, &ignored) && record.id.starts_with("tvmffi_"))
      records.push_back(std::move(record));
  }
  return records;
}

// By the newest verdict of the kernel's plugin for which this very file was loaded: a pack's folder is named after its
// content.
Verdict verdict_of(const PackKernel& kernel, const std::vector<loader::PluginRecord>& records) {
  using Of = core::UnitResult::Verdict;
  for (const loader::PluginRecord& record : records) {
    const auto& loaded = record.loaded_files;
    if (record.id != "tvmffi_" + kernel.device) continue;
    if (std::find(loaded.begin(), loaded.end(), kernel.library) == loaded.end()) continue;
    size_t verified = 0, failed = 0, seen = 0;
    std::string reason;
    for (const core::UnitResult& unit : record.units) {
      if (unit.op != kernel.op || unit.implementation != kernel.implementation) continue;
      ++seen;
      verified += unit.verdict == Of::verified;
      if (unit.verdict == Of::failed && failed++ == 0)
        reason = fmt::format("{}{}{}: {}: {}", unit.dtype, unit.feature.empty() ? "" : " ", unit.feature,
                             unit.reason_code, unit.reason);
    }
    if (seen == 0) continue;
    if (failed > 0) return {verified > 0 ? "partial" : "failed", reason};
    return {verified > 0 ? "verified" : "declined", {}};
  }
  return {};
}

PackRow row_of(const std::string& packs, const Pack& pack) {
  PackRow row = {pack, "ok", {}, {}};
  const std::string folder = packs + "/" + pack.folder;
  try {
    if (!fs::is_directory(folder)) {
      row.state = "missing";
    } else if (row.problems = tvmffi::differences(packs, pack, tvmffi::sha256_of_file); !row.problems.empty()) {
      row.state = "changed";
    }
    if (row.state != "missing") row.kernels = kernels_of(folder);
  } catch (const std::exception& error) {
    row.state = "changed";
    // The lock's difference names a missing file already, and the manifest may name it again.
    if (row.problems.empty()) row.problems.emplace_back(error.what());
  }
  return row;
}

std::vector<PackRow> rows_of(const std::string& packs) {
  std::vector<PackRow> rows;
  if (!fs::is_directory(packs)) return rows;
  const std::vector<Pack> lock = lock_or_none(packs);
  for (const Pack& pack : lock) rows.push_back(row_of(packs, pack));
  for (const std::string& folder : tvmffi::unlocked_folders(packs, lock)) {
    PackRow row = {{}, "unlocked", {}, {}};
    row.pack.name = row.pack.folder = folder;
    try {
      row.kernels = kernels_of(packs + "/" + folder);
    } catch (const std::exception& error) {
      row.problems.emplace_back(error.what());
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string what_to_do(const PackRow& row) {
  const Pack& pack = row.pack;
  if (row.state == "unlocked")
    return fmt::format("it is not in {}, and no process uses it: move it elsewhere and add it from there, or remove it",
                       tvmffi::kLockName);
  return fmt::format("no process uses it: rlk-plugins pack add --replace {}, or rlk-plugins pack rm {}",
                     shell_word(pack.source), shell_word(pack.name));
}

std::string on_devices(const std::vector<PackKernel>& kernels) {
  std::map<std::string, std::set<std::string>> ops;
  for (const PackKernel& kernel : kernels) ops[kernel.device].insert(kernel.op);
  std::string out;
  for (const auto& [device, names] : ops) {
    std::string list;
    for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
    out += fmt::format("{}{}: {}", out.empty() ? "" : "; ", device, list);
  }
  return out;
}

// ---- actions ------------------------------------------------------------------------------------------------------

ordered_json document_of(const std::string& packs, const std::vector<PackRow>& rows,
                         const std::vector<loader::PluginRecord>& records) {
  ordered_json list = ordered_json::array();
  for (const PackRow& row : rows) {
    ordered_json kernels = ordered_json::array(), files = ordered_json::array();
    for (const PackKernel& kernel : row.kernels) {
      const Verdict verdict = row.state == "ok" ? verdict_of(kernel, records) : Verdict();
      kernels.push_back({{"op", kernel.op},
                         {"implementation", kernel.implementation},
                         {"device", kernel.device},
                         {"verdict", verdict.word},
                         {"reason", verdict.reason}});
    }
    for (const tvmffi::PackFile& file : row.pack.files) files.push_back({{"path", file.path}, {"sha256", file.sha256}});
    list.push_back({{"name", row.pack.name},
                    {"version", row.pack.version},
                    {"source", row.pack.source},
                    {"folder", row.pack.folder},
                    {"runtime", row.pack.runtime},
                    {"state", row.state},
                    {"problems", row.problems},
                    {"kernels", std::move(kernels)},
                    {"files", std::move(files)}});
  }
  return {{"schema", 1}, {"folder", packs}, {"packs", std::move(list)}};
}

int list(const std::string& packs, bool json) {
  const std::vector<PackRow> rows = rows_of(packs);
  const std::vector<loader::PluginRecord> records = remembered_records();
  const bool is_fine = std::all_of(rows.begin(), rows.end(), [](const PackRow& row) { return row.state == "ok"; });
  if (json) {
    print_document(document_of(packs, rows, records));
    return is_fine ? kFine : kBroken;
  }
  Table table({"pack", "version", "lock", "kernel", "verdict"});
  for (const PackRow& row : rows) {
    const bool is_ok = row.state == "ok";
    const Cell state = {row.state == "unlocked" ? "not in it" : row.state, is_ok ? Tone::good : Tone::bad};
    bool is_first = true;
    const auto add = [&](const std::string& kernel, const Cell& verdict) {
      table.row({is_first ? printable(row.pack.name) : "", is_first ? printable(row.pack.version) : "",
                 is_first ? state : Cell(""), kernel, verdict});
      is_first = false;
    };
    for (const PackKernel& kernel : row.kernels) {
      const Verdict verdict = is_ok ? verdict_of(kernel, records) : Verdict{"not used", {}};
      const Tone tone = verdict.word == "verified" ? Tone::good : verdict.word == "failed" ? Tone::bad : Tone::plain;
      add(fmt::format("{} {} {}", kernel.device, kernel.op, kernel.implementation), {verdict.word, tone});
      if (!verdict.reason.empty()) table.note(verdict.reason, Tone::bad);
    }
    if (is_first) add("", "not used");
    for (const std::string& problem : row.problems) table.note(problem, Tone::bad);
    if (!is_ok) table.note(what_to_do(row), Tone::caution);
  }
  if (table.empty()) {
    std::fprintf(output(), "no packs in %s\n", printable(packs).c_str());
    return kFine;
  }
  table.print();
  std::fprintf(output(), "\nin %s\n", printable(packs).c_str());
  return is_fine ? kFine : kBroken;
}

int add(const std::string& packs, const Arguments& arguments) {
  const std::string source = arguments.operand(1);
  struct stat status = {};
  if (stat(source.c_str(), &status) != 0 || (!S_ISDIR(status.st_mode) && !S_ISREG(status.st_mode)))
    throw UsageError(
        fmt::format("pack add {}: expected a folder with {}, or an archive of one", source, tvmffi::kPackManifest));
  std::string runtime = arguments.value("runtime");
  if (!runtime.empty()) {
    if (stat(runtime.c_str(), &status) != 0 || !S_ISREG(status.st_mode))
      throw UsageError("--runtime " + runtime + ": expected the file libtvm_ffi.so");
    runtime = whole_path(runtime);
  }
  const PackAdded added = add_pack({whole_path(source), packs, runtime, arguments.has("replace")});
  const Pack& pack = added.pack;
  if (arguments.json()) {
    ordered_json document = document_of(packs, {{pack, "ok", {}, added.kernels}}, {});
    document["replaced"] = added.replaced;
    print_document(document);
    return kFine;
  }
  std::fprintf(output(), "%s %s: %zu files with their SHA-256 in %s/%s\n  %s\n", pack.name.c_str(),
               pack.version.c_str(), pack.files.size(), printable(packs).c_str(), tvmffi::kLockName,
               on_devices(added.kernels).c_str());
  if (!added.replaced.empty()) std::fprintf(output(), "  in place of %s\n", added.replaced.c_str());
  const std::string plugins = folder_of_plugins();
  std::string next = plugins.empty() ? "" : fmt::format("  export RLK_ADD_PLUGIN_PATH={}\n", shell_word(plugins));
  if (packs != plugins + "/" + tvmffi::kPacksFolder)
    next += fmt::format("  export {}={}\n", kManifestVariable, shell_word(packs));
  std::set<std::string> devices;
  for (const PackKernel& kernel : added.kernels) devices.insert(kernel.device);
  for (const std::string& device : devices) next += fmt::format("  rlk-plugins scope tvmffi_{}\n", device);
  std::fprintf(output(), "rlk verifies its kernels before it uses them:\n%s", next.c_str());
  return kFine;
}

int remove(const std::string& packs, const std::string& name, bool json) {
  const Pack pack = remove_pack(packs, name);
  if (json) {
    print_document({{"schema", 1}, {"folder", packs}, {"removed", pack.name}, {"version", pack.version}});
  } else {
    std::fprintf(output(), "%s %s is removed from %s\n", pack.name.c_str(), pack.version.c_str(),
                 printable(packs).c_str());
  }
  return kFine;
}

int run_pack(const Arguments& arguments) {
  const std::string action = arguments.operand(0), what = arguments.operand(1);
  if (action != "add" && action != "ls" && action != "rm")
    throw UsageError("pack " + action + ": expected add, ls or rm");
  if ((action == "ls") != what.empty())
    throw UsageError(action == "ls"    ? "pack ls takes no NAME; it lists all"
                     : action == "add" ? "pack add needs the FILE: a folder or an archive"
                                       : "pack rm needs the NAME of a pack; rlk-plugins pack ls lists them");
  for (const char* option : {"to", "runtime", "replace"})
    if (action != "add" && arguments.has(option)) throw UsageError(fmt::format("--{} goes with pack add", option));
  if (action == "add" && arguments.has("in")) throw UsageError("pack add takes the folder of packs as --to");
  const std::string packs = packs_folder(arguments);
  if (action == "add") return add(packs, arguments);
  return action == "ls" ? list(packs, arguments.json()) : remove(packs, what, arguments.json());
}

}  // namespace

Verb verb_pack() {
  return {
      "pack",
      "Takes up kernels that others ship (packs), lists them with their hashes' state, or removes them.",
      "A pack is a folder, or an archive of one, with kernels.toml and the libraries that it names: kernels with\n"
      "tvm-ffi's ABI. `add` checks the manifest, copies the pack and writes the SHA-256 of each file into packs.lock;\n"
      "no code of it runs. A pack that differs from the lock is refused by every process, and `ls` says what differs:\n"
      "its exit code is 1 then. The plugins of the folder tvmffi use the packs, each kernel once it is verified.",
      "rlk-plugins pack add acme-norms-1.0.0.tar.gz --to /opt/rlk/packs",
      {{"add|ls|rm", true}, {"FILE|NAME", false}},
      {{"to", "DIR",
        "add: the folder of packs; default: RLK_TVMFFI_MANIFEST where it is a folder, else packs beside the "
        "plugins"},
       {"in", "DIR", "ls, rm: the folder of packs, the same by default"},
       {"replace", nullptr, "add: in place of the pack of this name"},
       {"runtime", "FILE", "add: the libtvm_ffi.so of this machine, for a pack that neither brings nor names one"}},
      run_pack};
}

}  // namespace rlk::cli
