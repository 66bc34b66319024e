// A line for each operator and process that wanted it, appended whole.
#include "loader/probe/demand.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "loader/discover/environment.hpp"
#include "loader/store/cache.hpp"
#include "loader/store/file.hpp"

namespace rlk::loader {
namespace {

constexpr size_t kMostWanted = size_t{1} << 20;  // bytes of a file that is read

}  // namespace

// Beside the plugin's lock, which is of this machine too.
std::string Demand::path_of(const std::string& plugin) const {
  const std::string lock = lock_path(store_, plugin);
  return lock.empty() ? lock : lock + ".wanted";
}

void Demand::want(const std::string& plugin, const std::string& op) {
  {
    const std::lock_guard lock(mutex_);
    if (!own_[plugin].insert(op).second) return;
  }
  const std::string path = path_of(plugin);
  if (path.empty()) return;
  const UniqueFd fd = open_private(path, O_RDWR | O_APPEND);
  const std::string line = op + "\n";
  // A line that a full disk does not take is known here.
  if (fd) static_cast<void>(!write(fd.get(), line.data(), line.size()));
}

std::map<std::string, size_t> Demand::counts_of(const std::string& plugin) const {
  std::map<std::string, size_t> counts;
  if (const std::string path = path_of(plugin); !path.empty())
    for (const std::string& op : split(read_file(path, kMostWanted).value_or(""), '\n')) ++counts[op];
  const std::lock_guard lock(mutex_);
  if (const auto own = own_.find(plugin); own != own_.end())
    for (const std::string& op : own->second) counts.emplace(op, 1);
  return counts;
}

std::vector<std::string> Demand::all_of(const std::string& plugin) const {
  std::vector<std::string> all;
  for (const auto& [op, count] : counts_of(plugin)) all.push_back(op);
  return all;
}

std::vector<std::string> Demand::wanted_of(const std::string& plugin, const std::vector<std::string>& waiting) const {
  std::map<std::string, size_t> counts = counts_of(plugin);
  std::vector<std::string> wanted;
  for (const std::string& op : waiting)
    if (counts.count(op) > 0) wanted.push_back(op);
  std::stable_sort(wanted.begin(), wanted.end(),
                   [&](const std::string& a, const std::string& b) { return counts[a] > counts[b]; });
  return wanted;
}

void Demand::forget(const std::string& plugin) {
  {
    const std::lock_guard lock(mutex_);
    own_.erase(plugin);
  }
  if (const std::string path = path_of(plugin); !path.empty()) unlink(path.c_str());
}

}  // namespace rlk::loader
