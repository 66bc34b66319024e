// Runtimes that answer to another vendor's names. A plugin takes a device only where it sees the hardware of the vendor
// whose names are used; any other stack is foreign and needs a key of its own (plugins/simt/README.md, "A stack that
// looks like CUDA"). A line here lets the refusal name the vendor.
#pragma once

#include <string>
#include <vector>

namespace rlk::simt::host {

struct Lookalike {
  const char* key;         // the backend of its own plugin, "" while there is none
  const char* vendor;      // "MetaX"
  const char* looks_like;  // "CUDA", "HIP"
  // Parts of its libraries' paths, in lower case. With both slashes, or where no user's name stands: one may be called
  // maca.
  std::vector<const char*> folders;
  std::vector<const char*> variables;  // that name the folder above its libraries
  std::vector<const char*> devices;    // parts of its devices' names, in lower case
};
const std::vector<Lookalike>& lookalikes();

// The one whose library or device this is; nullptr when it is none that is known.
const Lookalike* lookalike_of_library(const std::string& path, const char* looks_like);
const Lookalike* lookalike_of_device(const std::string& name, const char* looks_like);

// "MetaX's: use the plugin maca", or that there is none.
std::string advice(const Lookalike* found);

// "0x74a1 at 0000:c1:00.0" for each accelerator or display controller of these PCI vendors.
std::vector<std::string> cards(const std::vector<const char*>& vendors);

}  // namespace rlk::simt::host
