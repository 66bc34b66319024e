// What the actions of `rlk-plugins pack` share.
#pragma once

#include <string>
#include <vector>

#include "plugins/tvmffi/pack.hpp"

namespace rlk::cli {

// The backends that have a plugin for packs, which is called "tvmffi_" and the backend.
inline constexpr const char* kPackBackends[] = {"cpu", "cuda", "rocm"};

struct PackKernel {
  std::string op, implementation, device;
  std::string library;  // its path
};
// The kernels of all backends, in the manifest's order for each. Throws where the manifest cannot be used.
std::vector<PackKernel> kernels_of(const std::string& folder);

// The lock of a folder of packs; empty where there is none yet.
std::vector<tvmffi::Pack> lock_or_none(const std::string& packs);
// Replaces the lock whole.
void write_lock(const std::string& packs, const std::vector<tvmffi::Pack>& lock);

struct PackToAdd {
  std::string source;   // a folder, or an archive that tar unpacks
  std::string packs;    // the folder of packs, which is made
  std::string runtime;  // may be ""
  bool replace = false;
};
struct PackAdded {
  tvmffi::Pack pack;
  std::vector<PackKernel> kernels;
  std::string replaced;  // the version that was there, "" where none was
};
// Copies, checks the copy, and names it in the lock: until then no process uses it, and a pack that it replaces stays
// whole. Throws Failure.
PackAdded add_pack(const PackToAdd& what);
// Takes the pack out of the lock, then away; returns what it was. Throws UsageError that names the packs there are.
tvmffi::Pack remove_pack(const std::string& packs, const std::string& name);

}  // namespace rlk::cli
