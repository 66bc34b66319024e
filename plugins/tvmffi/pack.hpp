// Packs: kernels of third parties. A pack is a folder with kernels.toml (a manifest with a name and a version) and the
// libraries that it names. Packs stand side by side in one folder, with packs.lock, which `rlk-plugins pack` writes: it
// has the SHA-256 of every file as it was when the pack was added. What differs from it is refused.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/tvmffi/manifest.hpp"

namespace rlk::tvmffi {

inline constexpr const char* kPackManifest = "kernels.toml";
inline constexpr const char* kLockName = "packs.lock";
// Beside the plugins: where packs are looked for without RLK_TVMFFI_MANIFEST.
inline constexpr const char* kPacksFolder = "packs";

struct PackFile {
  std::string path;  // from the pack's folder
  std::string sha256;
};

// What the lock says of a pack.
struct Pack {
  std::string name, version;
  std::string source;           // what the pack was added from
  std::string folder;           // its own, in the folder of packs; the name ends in a digest of the files
  std::string runtime;          // libtvm_ffi.so of this machine, "" where the manifest names it or none is needed
  std::vector<PackFile> files;  // sorted by path
};

// May a pack, or a version, be called so? Letters, digits, "." "_" "-" "+", 64 at most.
bool is_pack_word(std::string_view text);

// Of a file's content, as sha256sum prints it. Throws sdk::Error where the file cannot be read.
std::string sha256_of_file(const std::string& path);

// The paths of all files below the folder, from there, sorted. Throws for what is neither a file nor a folder (a link
// may lead out of the pack) and for names that a lock cannot hold.
std::vector<std::string> files_below(const std::string& folder);

// The lock's text: packs sorted by name, files by path, one file a line.
std::string lock_text(std::vector<Pack> packs);
// Throws sdk::Error with the number of the first line that lock_text() would not have written.
std::vector<Pack> parse_lock(std::string_view text, const std::string& path);
// Of a folder of packs. Throws where the lock is missing, or another user could replace it.
std::vector<Pack> read_lock(const std::string& packs);

// The manifest of a pack's folder. Throws also where it has no name or version, or leads out of the folder.
Manifest read_pack(const std::string& folder, const std::string& backend);

using Hash = std::function<std::string(const std::string& path)>;  // SHA-256 of a file

// What is not as the lock says, a text for each file: what was seen and what was expected. Empty: nothing.
std::vector<std::string> differences(const std::string& packs, const Pack& pack, const Hash& hash);

// Folders with a manifest that the lock does not name: another program than `rlk-plugins pack` put them there.
std::vector<std::string> unlocked_folders(const std::string& packs, const std::vector<Pack>& lock);

// What RLK_TVMFFI_MANIFEST leads to: a manifest, or a folder of packs.
struct Kernels {
  Manifest manifest;
  std::vector<std::string> refused;  // a text for each pack, or part of one, that is not used
};
// For one backend. Of several packs one that is refused does not stand in the way of the others: its kernels are left
// out, or have a `problem` where the manifest is as it was. Throws where nothing can be read, and for a manifest inside
// of a folder of packs that is not as the lock says.
Kernels read_kernels(const std::string& path, const std::string& backend, const Hash& hash);

}  // namespace rlk::tvmffi
