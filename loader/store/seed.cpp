// "rlk-seed-1 HASH", then for each entry "NAME SIZE" on a line and its bytes; the hash is of all that follows it.
#include "loader/store/seed.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <charconv>
#include <climits>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "loader/discover/self.hpp"
#include "loader/store/costs.hpp"
#include "loader/store/file.hpp"
#include "loader/store/store.hpp"

namespace rlk::loader {
namespace {

constexpr std::string_view kMagic = "rlk-seed-1 ";
constexpr size_t kMaxBytes = size_t{1} << 30;

std::optional<Seed::Entries> entries_of(std::string_view text) {
  const size_t end = text.find('\n');
  if (!text.starts_with(kMagic) || end == std::string_view::npos) return std::nullopt;
  const std::string_view hash = text.substr(kMagic.size(), end - kMagic.size());
  text.remove_prefix(end + 1);
  if (hash != hash_bytes(text)) return std::nullopt;
  Seed::Entries entries;
  while (!text.empty()) {
    const size_t line = text.find('\n'), space = text.substr(0, line).find(' ');
    if (line == std::string_view::npos || space == std::string_view::npos) return std::nullopt;
    size_t size = 0;
    const auto [last, error] = std::from_chars(text.data() + space + 1, text.data() + line, size);
    if (error != std::errc() || last != text.data() + line || size > text.size() - line - 1) return std::nullopt;
    entries.emplace(text.substr(0, space), text.substr(line + 1, size));
    text.remove_prefix(line + 1 + size);
  }
  return entries;
}

std::string installed_seed() {
  const std::string beside = own_folder();
  if (beside.empty()) return {};
  for (const char* relative : {"/../share/rlk/cache.seed", "/../../share/rlk/cache.seed"}) {
    std::string path = beside + relative;
    if (access(path.c_str(), F_OK) == 0) return path;
  }
  return {};
}

}  // namespace

bool may_travel(const std::string& name, const std::string& bytes) {
  if (name.starts_with("kernel-") || name.starts_with(kCostPrefix)) return true;
  if (!name.starts_with("probe-")) return false;
  const nlohmann::json entry = nlohmann::json::parse(bytes.substr(0, bytes.find('\n')), nullptr, false);
  return entry.is_object() && entry.value("expires_unix", nlohmann::json()) == INT64_MAX;
}

std::shared_ptr<const Seed> Seed::open(const std::string& path, const Identity& identity,
                                       std::vector<std::string>* notes) {
  const auto refuse = [&](const std::string& why) {
    notes->push_back(fmt::format("cache seed {} is not used: {}", path, why));
    return nullptr;
  };
  if (path.empty() || path.front() != '/') return refuse("the path does not start with /");
  char real[PATH_MAX];
  if (realpath(path.c_str(), real) == nullptr) return refuse(errno_text(errno));
  if (const TrustResult trust = check_trust(real, identity); trust.problem != nullptr)
    return refuse("another user could replace it: " + trust.text);
  const auto bytes = read_file(real, kMaxBytes);
  if (!bytes) return refuse("it cannot be read: " + errno_text(errno));
  auto entries = entries_of(*bytes);
  if (!entries) return refuse("it is damaged, or not of this version; write it anew with `rlk-plugins cache export`");
  const auto seed = std::make_shared<Seed>();
  seed->path_ = real;
  seed->entries_ = std::move(*entries);
  return seed;
}

std::string Seed::write(const Entries& entries) {
  std::string body;
  for (const auto& [name, bytes] : entries) body += fmt::format("{} {}\n{}", name, bytes.size(), bytes);
  return fmt::format("{}{}\n{}", kMagic, hash_bytes(body), body);
}

const std::string* Seed::get(std::string_view name) const {
  const auto found = entries_.find(name);
  return found != entries_.end() ? &found->second : nullptr;
}

Seed::Entries Seed::entries_of_prefix(std::string_view prefix) const {
  Entries found;
  for (auto it = entries_.lower_bound(prefix); it != entries_.end() && it->first.starts_with(prefix); ++it)
    found.insert(*it);
  return found;
}

std::shared_ptr<const Seed> find_seed(const Environment& environment, const Identity& identity,
                                      std::vector<std::string>* notes) {
  const std::string path = environment.path("RLK_CACHE_SEED").value_or(installed_seed());
  return path.empty() ? nullptr : Seed::open(path, identity, notes);
}

}  // namespace rlk::loader
