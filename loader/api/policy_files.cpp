// The machine's files by their places, and the vendors' beside their plugins.
#include "loader/api/policy_files.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/dispatch/log.hpp"
#include "loader/api/policy_words.hpp"
#include "loader/screen/trust.hpp"
#include "loader/store/file.hpp"

namespace rlk::loader {

namespace fs = std::filesystem;

std::vector<std::string> policy_files(const Environment& environment, const std::string& root) {
  if (const auto named = environment.path("RLK_CONFIG")) return {*named};
  const fs::path folder = root + "/etc/rlk";
  // A folder that cannot be listed is not there; the reader reports a file that it cannot read.
  std::error_code failed;
  std::vector<std::string> files;
  for (fs::directory_iterator item(folder / "policy.d", failed), end; !failed && item != end; item.increment(failed))
    if (item->path().extension() == ".toml") files.push_back(item->path().string());
  std::sort(files.begin(), files.end());
  if (const fs::path main = folder / "policy.toml"; fs::exists(main, failed))
    files.insert(files.begin(), main.string());
  return files;
}

namespace {

constexpr std::string_view kPlatformPrefix = "rlk_policy_", kPlatformSuffix = ".toml";

// "/x/rlk_policy_maca.toml" -> "maca", "" for any other name.
std::string platform_of(const fs::path& path) {
  const std::string name = path.filename().string();
  if (name.size() <= kPlatformPrefix.size() + kPlatformSuffix.size()) return {};
  if (!name.starts_with(kPlatformPrefix) || !name.ends_with(kPlatformSuffix)) return {};
  return name.substr(kPlatformPrefix.size(), name.size() - kPlatformPrefix.size() - kPlatformSuffix.size());
}

// The entries of one file; false with what is wrong with it.
bool read_platform(const fs::path& path, const std::string& platform, Config* out, std::string* problem) {
  std::error_code failed;
  const fs::path real = fs::canonical(path, failed);
  const TrustResult trust = failed ? TrustResult{} : check_trust(real.string(), Identity::of_process());
  if (failed || trust.problem != nullptr) return *problem = failed ? failed.message() : trust.text, false;
  Config config;
  rlk_error error{};
  error.struct_size = sizeof(error);
  // A vendor's file may know operators that this rlk does not have: what it says of the others holds.
  std::vector<std::string> misnamed;
  if (read_config({real.string()}, &misnamed, &config, &error) != RLK_OK) return *problem = error.text, false;
  if (!config.plugin_path.empty() || !config.probe_retry.empty() || !config.require.empty() ||
      !config.counters.empty() || !config.allow.empty() || !config.allow_list.empty() ||
      !config.use_known_bad.empty()) {
    return *problem = "a platform's policy has [off], [dispatch] and [[known_bad]] alone", false;
  }
  for (core::PolicyEntry& entry : config.policy) {
    if (entry.op == "numerics" || entry.op == "fallback" || entry.op == "watch" || entry.op == "call_timeout") {
      return *problem = fmt::format("{}: {} is not a platform's to say", entry.source, entry.op), false;
    }
    entry.platform = platform;
  }
  for (const std::string& wrong : misnamed)
    core::log_line(RLK_LOG_WARN, "policy", fmt::format("{}: known_bad {}", real.string(), wrong));
  out->policy.insert(out->policy.end(), config.policy.begin(), config.policy.end());
  out->known_bad.insert(out->known_bad.end(), config.known_bad.begin(), config.known_bad.end());
  return true;
}

}  // namespace

void add_platform_policies(const Environment& environment, const std::vector<SearchEntry>& defaults, Config* config) {
  std::vector<std::string> places;
  for (const char* variable : {"RLK_ADD_PLUGIN_PATH", "RLK_PLUGIN_PATH"}) {
    for (std::string& place : split(environment.path(variable).value_or(""), ':')) places.push_back(std::move(place));
  }
  if (!environment.path("RLK_PLUGIN_PATH")) {
    for (const auto* entries : {&std::as_const(config->plugin_path), &defaults}) {
      for (const SearchEntry& entry : *entries) places.push_back(entry.path);
    }
  }
  std::set<std::string> seen;
  for (const std::string& place : places) {
    std::error_code failed;
    if (place.empty() || place[0] != '/') continue;
    // A plugin that is named itself has its policy beside it.
    const fs::path folder = fs::is_directory(place, failed) ? fs::path(place) : fs::path(place).parent_path();
    std::set<fs::path> files;
    const Folder names = open_folder(folder);
    while (const dirent* item = names == nullptr ? nullptr : readdir(names.get())) {
      if (!platform_of(folder / item->d_name).empty()) files.insert(folder / item->d_name);
    }
    for (const fs::path& file : files) {
      const std::string platform = platform_of(file);
      if (!seen.insert(platform).second) continue;
      std::string problem;
      if (read_platform(file, platform, config, &problem)) continue;
      core::log_line(RLK_LOG_WARN, "policy", fmt::format("{} is not used: {}", file.string(), problem));
    }
  }
}

}  // namespace rlk::loader
