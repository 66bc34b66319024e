// Where a card sits in the machine.
#pragma once

#include <rlk/sdk/descriptor.hpp>

#include <cctype>
#include <cstdint>
#include <sstream>
#include <string>

namespace rlk::sdk {

// Of the card at "0000:01:00.0", in either case; -1 when the system does not tell.
inline int32_t numa_node_of(std::string pci_bus_id) {
  for (char& c : pci_bus_id) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  std::istringstream file(read_text("/sys/bus/pci/devices/" + pci_bus_id + "/numa_node"));
  int32_t node = -1;
  return file >> node ? node : -1;
}

}  // namespace rlk::sdk
