// Entries of a store in one file that is only read: what a container image carries so that its processes start warm.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loader/discover/environment.hpp"
#include "loader/screen/trust.hpp"

namespace rlk::loader {

class Store;

// Whether an entry may travel: verdicts that hold as long as what they are about stays as it is, and compiled kernels.
// Failures and time-outs do not, nor what failed at run time, nor what is about this machine's files.
bool may_travel(const std::string& name, const std::string& bytes);

// Names of the entries that are conformance reports (`cache export --report`).
inline constexpr std::string_view kReportPrefix = "report-";

class Seed {
public:
  using Entries = std::map<std::string, std::string, std::less<>>;

  // Null, with a line in `notes`, when the file cannot be trusted or read, or is damaged. Trusted is a regular file of
  // root or the user that no other user can replace, like a plugin: what it says is believed.
  static std::shared_ptr<const Seed> open(const std::string& path, const Identity& identity,
                                          std::vector<std::string>* notes);
  static std::string write(const Entries& entries);

  const std::string* get(std::string_view name) const;
  Entries entries_of_prefix(std::string_view prefix) const;
  const std::string& path() const { return path_; }
  size_t size() const { return entries_.size(); }

private:
  std::string path_;
  Entries entries_;
};

// RLK_CACHE_SEED, else share/rlk/cache.seed of the installation that this code is part of, where there is one.
std::shared_ptr<const Seed> find_seed(const Environment& environment, const Identity& identity,
                                      std::vector<std::string>* notes);

}  // namespace rlk::loader
