// A built-in's key has less than a file's: it asks for nothing but the processor.
#include "loader/probe/verdict_keys.hpp"

#include <fmt/core.h>

#include <sys/stat.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "loader/probe/child_probe.hpp"
#include "loader/screen/library.hpp"
#include "loader/store/file.hpp"
#include "loader/store/fingerprint.hpp"
#include "loader/store/limits.hpp"
#include "loader/store/store.hpp"

namespace rlk::loader {
namespace {

// Those that it would be linked with in this environment.
std::vector<std::string> libraries_of(const std::string& prober, const LibrarySearch& libraries) {
  std::error_code none;
  const std::string path = std::filesystem::canonical(prober, none);
  struct stat status = {};
  const UniqueFd fd = open_regular(path, &status);
  if (!fd) return {};
  return identities_of(resolve_closure(path, read_library(fd.get(), status)->info, libraries).found);
}

}  // namespace

VerdictKeys::VerdictKeys(const ProbeOptions& options, const ScreenOptions& screen, const ReportShelf& reports,
                         const std::string& prober)
    : options_(options),
      reports_(reports),
      fingerprint_(device_fingerprint()),
      host_(fmt::format("{} {}.{} draft {}", options.host->version, options.host->abi_major, options.host->abi_minor,
                        options.host->abi_draft)),
      libraries_of_prober_(libraries_of(prober, screen.libraries)) {
  // The verdict is the prober's, by its checks and its reference: another build of it may judge differently.
  if (!prober.empty()) host_ += " " + content_hash(options.store, prober).value_or("");
}

ResultKey VerdictKeys::key_of(ProbedPlugin* plugin, const std::string& backend) const {
  const PluginRecord& record = plugin->record;
  ResultKey key;
  key.id = record.id;
  if (record.path.empty()) {
    // A built-in is part of the prober, whose content is in the host's name. Of the environment counts which libraries
    // are found, and ranks with one card each share its verdict.
    key.dependencies = libraries_of_prober_;
    if (const auto preloaded = options_.environment.get("LD_PRELOAD"))
      key.environment.push_back("LD_PRELOAD=" + *preloaded);
  } else {
    key.content = content_hash(options_.store, record.path).value_or("");
    key.dependencies = identities_of(plugin->screened.dependencies);
    key.environment = relevant_environment(options_.environment, plugin->screened.declared_env);
    const std::string folder = record.path.substr(0, record.path.rfind('/') + 1);
    for (const std::string& name : plugin->screened.declared_files) {
      const auto named = name.front() == '$' ? options_.environment.path(name.substr(1)) : folder + name;
      const std::string state = named ? state_of(*named) : "";
      if (!state.empty()) key.environment.push_back("files " + name + state);
    }
  }
  plugin->content = key.content;
  key.dependencies.push_back("backend " + backend);
  for (std::string& report : reports_.identities(record)) key.dependencies.push_back(std::move(report));
  key.host = host_;
  key.device_fingerprint = fingerprint_;
  key.time_scale = timeout_scale_of(options_.environment);
  key.limits = resource_limits();
  return key;
}

}  // namespace rlk::loader
