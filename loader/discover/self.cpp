// The dynamic linker is asked where this function lies.
#include "loader/discover/self.hpp"

#include <dlfcn.h>
#include <link.h>

#include <climits>
#include <cstdlib>

namespace rlk::loader {

std::string own_folder() {
  Dl_info info = {};
  link_map* map = nullptr;
  if (dladdr1(reinterpret_cast<const void*>(&own_folder), &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0)
    return {};
  // The program itself has no name there, and what dladdr says instead is argv[0], a word that need not be a path.
  const bool program = map == nullptr || map->l_name == nullptr || *map->l_name == '\0';
  char real[PATH_MAX];
  if (realpath(program ? "/proc/self/exe" : map->l_name, real) == nullptr) return {};
  const std::string self = real;
  return self.substr(0, self.find_last_of('/'));
}

}  // namespace rlk::loader
