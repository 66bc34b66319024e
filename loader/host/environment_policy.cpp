// The variables of this process, for the policy.
#include "loader/host/environment_policy.hpp"

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

namespace rlk::loader {

rlk_status policy_of_process(const std::vector<core::PolicyEntry>& entries, core::Policy* out, rlk_error* error) {
  std::vector<std::string> names;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    names.emplace_back(text.substr(0, text.find('=')));
  }
  return core::Policy::make([](const char* name) { return std::getenv(name); }, names, entries, out, error);
}

}  // namespace rlk::loader
