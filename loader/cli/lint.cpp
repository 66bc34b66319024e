// `rlk-plugins lint`: does a plugin file obey the rules that loading and living beside other plugins ask of it? No byte
// of it is run.

#include <fmt/core.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "loader/cli/output.hpp"
#include "loader/cli/report.hpp"
#include "loader/cli/verbs.hpp"
#include "loader/discover/discover.hpp"
#include "loader/host/services.hpp"
#include "loader/screen/screen.hpp"

namespace rlk::cli {
namespace {

struct Finding {
  bool error;  // the loader will refuse the file; else it loads, but should be fixed
  std::string code, text, hint;
};
using Findings = std::vector<Finding>;

std::string base_name(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);
}

void check_exports(const loader::ElfInfo& info, Findings* findings) {
  std::vector<std::string> extra;
  for (const std::string& name : info.exports)
    if (name != loader::kEntrySymbol) extra.push_back(name);
  if (extra.empty()) return;
  std::string names;
  for (size_t i = 0; i < extra.size() && i < 5; ++i) names += (i == 0 ? "" : ", ") + extra[i];
  if (extra.size() > 5) names += ", ...";
  findings->push_back({false, "EXTRA_EXPORTS",
                       fmt::format("exports {} names besides the entry: {}", extra.size(), names),
                       "link with rlk_add_plugin() or with its version script: other libraries in the process may "
                       "otherwise bind to these names"});
}

void check_dependencies(const loader::ElfInfo& info, Findings* findings) {
  std::vector<std::string> loaded = info.needed;
  loaded.insert(loaded.end(), info.auxiliary.begin(), info.auxiliary.end());
  for (const std::string& needed : loaded) {
    if (needed.rfind("librlk.so", 0) == 0) {
      findings->push_back({false, "LINKS_THE_HOST", "needs " + needed,
                           "a plugin gets everything through the host table; do not link librlk"});
    }
    if (needed.rfind("libtbb", 0) == 0 || needed.rfind("libgomp", 0) == 0 || needed.rfind("libomp", 0) == 0 ||
        needed.rfind("libiomp", 0) == 0) {
      findings->push_back({false, "OWN_THREAD_POOL", "needs " + needed,
                           "use the host service rlk.parallel/1: two pools in one process fight for the processor"});
    }
  }
  for (const std::string* path : {&info.rpath, &info.runpath}) {
    for (const std::string& folder : loader::split(*path, ':')) {
      const bool origin = folder.rfind("$ORIGIN", 0) == 0 || folder.rfind("${ORIGIN}", 0) == 0;
      if (!origin && folder.front() == '/') {
        findings->push_back({false, "FIXED_RUNPATH", "searches its libraries in " + folder,
                             "that is the machine it was built on; use $ORIGIN or none"});
      } else if (!origin) {
        findings->push_back({false, "RELATIVE_RUNPATH", "searches its libraries in '" + folder + "'",
                             "a relative folder depends on where the process was started; use $ORIGIN or none"});
      }
    }
  }
}

Findings lint(const std::string& path, loader::PluginRecord* record) {
  Findings findings;
  const rlk_host* host = loader::host_services();
  loader::ScreenOptions options;
  options.libraries = loader::LibrarySearch::of_system(loader::Environment::of_process());
  options.host_abi = {host->abi_major, host->abi_minor, host->abi_draft};
  record->path = path;
  record->source = "command line";
  record->id = loader::id_from_file_name(path);
  record->advance(loader::State::discovered, loader::Place::static_screen);
  if (!loader::screen(record, options)) {
    // A library that is missing here says something about this machine, not about the file.
    const bool missing = record->reason_code == loader::reason::kRuntimeLibraryMissing.code;
    findings.push_back({!missing, record->reason_code, record->reason, record->hint});
  }
  for (const std::string& note : record->notes) findings.push_back({false, "NOTE", note, ""});

  struct stat status = {};
  const loader::UniqueFd fd = loader::open_regular(path, &status);
  if (!fd) return findings;
  const loader::ElfResult elf = loader::read_elf(loader::source_of_fd(fd.get(), static_cast<uint64_t>(status.st_size)));
  if (elf.status != loader::ElfStatus::ok) return findings;
  check_exports(elf.info, &findings);
  check_dependencies(elf.info, &findings);
  if (elf.info.build_id.empty()) {
    findings.push_back({false, "NO_BUILD_ID", "has no build id", "link with -Wl,--build-id: bug reports can name it"});
  }
  const std::string* description = loader::find_abi_note(elf.info);
  std::string error;
  const auto note = description != nullptr ? loader::parse_abi_note(*description, &error) : std::nullopt;
  const std::string wanted = note ? "librlk_plugin_" + note->id + ".so" : "";
  if (note && base_name(path) != wanted) {
    findings.push_back({false, "FILE_NAME", fmt::format("is called {}, its id is {}", base_name(path), note->id),
                        "call it " + wanted + ": only librlk_plugin_*.so is found in a folder"});
  }
  return findings;
}

int run_lint(const Arguments& arguments) {
  char real[PATH_MAX];
  const std::string given = arguments.operand(0);
  if (realpath(given.c_str(), real) == nullptr) throw UsageError(given + ": there is no such file");
  loader::PluginRecord record;
  const Findings findings = lint(real, &record);
  const bool errors = std::any_of(findings.begin(), findings.end(), [](const Finding& f) { return f.error; });
  if (arguments.json()) {
    nlohmann::ordered_json out = {{"schema", 1},
                                  {"path", record.path},
                                  {"id", record.id},
                                  {"backend", record.backend},
                                  {"version", record.version},
                                  {"abi", record.abi},
                                  {"findings", nlohmann::ordered_json::array()}};
    for (const Finding& finding : findings) {
      out["findings"].push_back({{"severity", finding.error ? "error" : "warning"},
                                 {"code", finding.code},
                                 {"text", finding.text},
                                 {"hint", finding.hint}});
    }
    std::fprintf(output(), "%s\n", out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
    return errors ? kBroken : kFine;
  }
  // What the file's ABI note says of it; of a file without one the path is all that is known.
  std::string identity = record.path;
  if (!record.backend.empty())
    identity +=
        fmt::format(": plugin {} {}, backend {}, ABI {}", record.id, record.version, record.backend, record.abi);
  std::fprintf(output(), "%s\n", printable(identity).c_str());
  for (const Finding& finding : findings) {
    std::fprintf(output(), "%s %s\n%s",
                 coloured(finding.error ? "error" : "warning", finding.error ? Tone::bad : Tone::caution).c_str(),
                 finding.code.c_str(), wrapped(finding.text, 4).c_str());
    if (!finding.hint.empty()) std::fprintf(output(), "%s", wrapped("hint: " + finding.hint, 4).c_str());
  }
  if (findings.empty()) std::fprintf(output(), "%s\n", coloured("nothing to complain about", Tone::good).c_str());
  return errors ? kBroken : kFine;
}

}  // namespace

Verb verb_lint() {
  return {"lint",
          "Checks a plugin file without running it: ABI note, entry, exported names, dependencies, permissions.",
          "Errors keep the file from being loaded (exit code 1); warnings do not.",
          "rlk-plugins lint ./librlk_plugin_acme.so",
          {{"FILE.so", true}},
          {},
          run_lint};
}

}  // namespace rlk::cli
