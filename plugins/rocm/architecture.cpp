// Which instruction set a card has. hipDeviceProp_t would tell, but its layout moves between releases.
#include <dirent.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "hip.hpp"

namespace rlk::rocm {
namespace {

std::string name_of(int major, int minor, int stepping) {
  if (major < 7 || major > 99 || minor < 0 || minor > 15 || stepping < 0 || stepping > 15) return {};
  return sdk::format("gfx%d%x%x", major, static_cast<unsigned>(minor), static_cast<unsigned>(stepping));
}

// "key value" lines of a node of the topology.
long value_of(const std::string& file, const std::string& wanted) {
  std::ifstream lines(file);
  std::string key;
  long value = -1;
  while (lines >> key >> value) {
    if (key == wanted) return value;
  }
  return -1;
}

}  // namespace

std::string architecture_of_override(const std::string& version) {
  int major = 0, minor = 0, stepping = 0;
  char rest = 0;
  if (std::sscanf(version.c_str(), "%d.%d.%d%c", &major, &minor, &stepping, &rest) != 3) return {};
  return name_of(major, minor, stepping);
}

std::string architecture_of_number(long number) {
  if (number <= 0) return {};
  return name_of(static_cast<int>(number / 10000), static_cast<int>(number / 100 % 100),
                 static_cast<int>(number % 100));
}

std::string architecture(const std::string& pci, const std::string& topology) {
  if (const char* version = std::getenv("HSA_OVERRIDE_GFX_VERSION")) {
    if (std::string name = architecture_of_override(version); !name.empty()) return name;
  }
  unsigned domain = 0, bus = 0, device = 0, function = 0;
  if (std::sscanf(pci.c_str(), "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4) return {};
  const long location = static_cast<long>(bus << 8 | device << 3 | function);
  std::string found;
  DIR* folder = opendir(topology.c_str());
  if (folder == nullptr) return {};
  while (const dirent* entry = readdir(folder)) {
    // The keys are those of the kernel's driver (from memory: no such machine was at hand).
    const std::string file = topology + "/" + entry->d_name + "/properties";
    if (value_of(file, "location_id") != location) continue;
    const long in_domain = value_of(file, "domain");
    if (in_domain >= 0 && in_domain != static_cast<long>(domain)) continue;
    found = architecture_of_number(value_of(file, "gfx_target_version"));
    if (!found.empty()) break;
  }
  closedir(folder);
  return found;
}

}  // namespace rlk::rocm
