// One line each for the processor, accelerators on the PCI bus, their kernel modules and device nodes; hashed.
#include "loader/store/fingerprint.hpp"

#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <climits>
#include <set>
#include <string_view>

#include "loader/store/file.hpp"

namespace rlk::loader {
namespace {

std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  const Folder handle = open_folder(folder);
  while (const dirent* item = handle == nullptr ? nullptr : readdir(handle.get()))
    if (item->d_name[0] != '.') names.insert(item->d_name);
  return names;
}

std::string line_of(const std::string& file) {
  std::string text = read_file(file, 1 << 16).value_or("");
  return text.substr(0, text.find('\n'));
}

// Display controllers, processing accelerators and co-processors, by PCI class.
bool is_accelerator(std::string_view pci_class) {
  return pci_class.starts_with("0x03") || pci_class.starts_with("0x12") || pci_class.starts_with("0x0b40");
}

void add_processor(const std::string& root, std::string* out) {
  const std::string text = read_file(root + "/proc/cpuinfo", 16 << 20).value_or("");
  for (const char* key : {"model name", "flags", "CPU implementer", "CPU part", "Features"}) {
    const size_t at = text.find(key);  // of the first processor: the others are alike
    if (at != std::string::npos) *out += text.substr(at, text.find('\n', at) - at) + "\n";
  }
}

void add_pci_devices(const std::string& root, std::string* out) {
  const std::string base = root + "/sys/bus/pci/devices/";
  std::set<std::string> modules;
  for (const std::string& address : names_in(base)) {
    const std::string device = base + address + "/";
    if (!is_accelerator(line_of(device + "class"))) continue;
    *out += "pci " + address;
    for (const char* field : {"class", "vendor", "device", "subsystem_vendor", "subsystem_device", "revision"})
      *out += " " + line_of(device + field);
    char target[PATH_MAX];
    const ssize_t length = readlink((device + "driver/module").c_str(), target, sizeof(target));
    if (length > 0) {
      const std::string path(target, static_cast<size_t>(length));
      modules.insert(path.substr(path.find_last_of('/') + 1));
      *out += " " + path.substr(path.find_last_of('/') + 1);
    }
    *out += "\n";
  }
  for (const std::string& module : modules) {
    const std::string folder = fmt::format("{}/sys/module/{}/", root, module);
    *out += fmt::format("module {} {} {}\n", module, line_of(folder + "version"), line_of(folder + "srcversion"));
  }
}

// A container may see fewer devices than the machine has.
void add_device_nodes(const std::string& root, std::string* out) {
  for (const char* folder : {"/dev/", "/dev/dri/", "/dev/accel/"}) {
    for (const std::string& name : names_in(root + folder)) {
      // Consoles and plugged-in gadgets come and go and compute nothing.
      static constexpr std::string_view kNoise[] = {"tty", "vcs", "hidraw", "usb", "pt", "loop", "input", "snd"};
      bool noise = false;
      for (const std::string_view prefix : kNoise) noise = noise || name.starts_with(prefix);
      struct stat status = {};
      if (noise || stat((root + folder + name).c_str(), &status) != 0 || S_ISDIR(status.st_mode)) continue;
      *out += fmt::format("node {}{}\n", folder, name);
    }
  }
}

}  // namespace

std::string device_fingerprint(const std::string& root) {
  std::string out;
  utsname system = {};
  if (uname(&system) == 0) out += fmt::format("{} {} {}\n", system.sysname, system.release, system.machine);
  add_processor(root, &out);
  add_pci_devices(root, &out);
  add_device_nodes(root, &out);
  return hash_bytes(out);
}

}  // namespace rlk::loader
