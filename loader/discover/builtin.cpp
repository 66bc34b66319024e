// The list of them: the CPU backend.
#include "loader/discover/builtin.hpp"

extern "C" const rlk_plugin* rlk_cpu_entry_v1(const rlk_host* host, rlk_error* error);

namespace rlk::loader {

rlk_plugin_entry_v1_fn built_in_entry(std::string_view id) {
  return id == "cpu" ? &rlk_cpu_entry_v1 : nullptr;
}

}  // namespace rlk::loader
