// What hardware and drivers this machine has, as a text that changes when they do. Vendor-neutral and cheap: it is read
// at every start, before anything of a plugin runs.
#pragma once

#include <string>

namespace rlk::loader {

// Kernel, processor, graphics and accelerator devices on PCI with the modules that drive them and their versions, and
// the device nodes that this process can see. `root` is put before every path (tests stage a machine below it).
std::string device_fingerprint(const std::string& root = {});

}  // namespace rlk::loader
