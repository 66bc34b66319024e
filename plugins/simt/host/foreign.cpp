// Whose a library or a device is, and what is on the PCI bus.
#include "foreign.hpp"

#include <dirent.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace rlk::simt::host {
namespace {

bool has_one_of(const std::string& text, const std::vector<const char*>& words) {
  std::string lower;
  for (const char c : text) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return std::any_of(words.begin(), words.end(),
                     [&](const char* word) { return lower.find(word) != std::string::npos; });
}

std::string first_word(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

bool is_below_one_of(const std::string& path, const std::vector<const char*>& variables) {
  for (const char* variable : variables) {
    const char* folder = std::getenv(variable);
    char* const real = folder != nullptr && folder[0] == '/' ? realpath(folder, nullptr) : nullptr;
    const std::string below = real != nullptr ? std::string(real) + "/" : "";
    std::free(real);
    if (below.size() > 1 && path.rfind(below, 0) == 0) return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> cards(const std::vector<const char*>& vendors) {
  const std::string root = "/sys/bus/pci/devices/";
  std::vector<std::string> found;
  DIR* folder = opendir(root.c_str());
  if (folder == nullptr) return found;
  while (const dirent* entry = readdir(folder)) {
    const std::string card = root + entry->d_name;
    const std::string type = first_word(card + "/class").substr(0, 4);
    if (entry->d_name[0] == '.' || (type != "0x03" && type != "0x12")) continue;
    const std::string vendor = first_word(card + "/vendor");
    if (std::find(vendors.begin(), vendors.end(), vendor) == vendors.end()) continue;
    found.push_back(vendor + ":" + first_word(card + "/device") + " at " + entry->d_name);
  }
  closedir(folder);
  std::sort(found.begin(), found.end());
  return found;
}

const std::vector<Lookalike>& lookalikes() {
  static const std::vector<Lookalike> all = {
      // The folders are from published code.
      {"maca",
       "MetaX",
       "CUDA",
       {"/cu-bridge/", "/opt/maca/", "/opt/maca-", "/opt/mxdriver/"},
       {"MACA_PATH"},
       {"metax"}},
      // Not verified: no such machine was available.
      {"", "Iluvatar", "CUDA", {"/corex/", "/corex-"}, {}, {"iluvatar"}},
      {"", "Hygon", "HIP", {"/dtk/", "/dtk-"}, {}, {"hygon"}},
  };
  return all;
}

const Lookalike* lookalike_of_library(const std::string& path, const char* looks_like) {
  for (const Lookalike& one : lookalikes()) {
    if (std::strcmp(one.looks_like, looks_like) != 0) continue;
    if (has_one_of(path, one.folders) || is_below_one_of(path, one.variables)) return &one;
  }
  return nullptr;
}

const Lookalike* lookalike_of_device(const std::string& name, const char* looks_like) {
  for (const Lookalike& one : lookalikes()) {
    if (std::strcmp(one.looks_like, looks_like) == 0 && has_one_of(name, one.devices)) return &one;
  }
  return nullptr;
}

std::string advice(const Lookalike* found) {
  if (found != nullptr && *found->key != 0) {
    return std::string("use the plugin ") + found->key + ", which drives " + found->vendor + "'s devices";
  }
  return "there is no plugin for this vendor: it needs a vendor key of its own, and its devices are never guessed at "
         "(plugins/simt/README.md, \"A stack that looks like CUDA\")";
}

}  // namespace rlk::simt::host
