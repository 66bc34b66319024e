// The list of limits that count.
#include "loader/store/limits.hpp"

#include <fmt/core.h>
#include <sys/resource.h>

#include <cstddef>
#include <iterator>

namespace rlk::loader {
namespace {

// usual: below it a plugin that works elsewhere may fail. Stacks and locked memory have no usual size that is safe to
// name, so that they are compared and not described.
constexpr struct {
  int resource;
  const char* name;
  const char* option;
  uint64_t usual;
} kLimits[] = {{RLIMIT_NOFILE, "open files", "-n", 1024},
               {RLIMIT_AS, "bytes of address space", "-v", RLIM_INFINITY},
               {RLIMIT_DATA, "bytes of data", "-d", RLIM_INFINITY},
               {RLIMIT_NPROC, "threads of the user", "-u", 1024},
               {RLIMIT_FSIZE, "bytes of a file", "-f", RLIM_INFINITY},
               {RLIMIT_CPU, "seconds of processor time", "-t", RLIM_INFINITY},
               {RLIMIT_STACK, "bytes of stack", "-s", 0},
               {RLIMIT_MEMLOCK, "bytes of locked memory", "-l", 0}};

}  // namespace

std::vector<uint64_t> resource_limits() {
  std::vector<uint64_t> limits;
  for (const auto& limit : kLimits) {
    struct rlimit now = {RLIM_INFINITY, RLIM_INFINITY};
    getrlimit(static_cast<__rlimit_resource_t>(limit.resource), &now);
    limits.push_back(now.rlim_cur);
  }
  return limits;
}

bool may_have_more(const std::vector<uint64_t>& mine, const std::vector<uint64_t>& theirs) {
  if (mine.size() != theirs.size()) return true;
  for (size_t i = 0; i < mine.size(); ++i)
    if (mine[i] > theirs[i]) return true;
  return false;
}

std::string describe_tight_limits(const std::vector<uint64_t>& limits) {
  std::string text;
  for (size_t i = 0; i < limits.size() && i < std::size(kLimits); ++i) {
    if (limits[i] >= kLimits[i].usual) continue;
    text +=
        (text.empty() ? "" : ", ") + fmt::format("{} {} (ulimit {})", kLimits[i].name, limits[i], kLimits[i].option);
  }
  return text;
}

}  // namespace rlk::loader
