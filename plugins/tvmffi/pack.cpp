// The folder of packs: which files there are, whether they are those of the lock, and the manifests as one.
#include "plugins/tvmffi/pack.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <rlk/sdk/descriptor.hpp>
#include <rlk/sdk/error.hpp>
#include <rlk/sdk/sha256.hpp>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <system_error>

namespace rlk::tvmffi {
namespace {

constexpr size_t kMaxFiles = 4096;
constexpr int kMaxDepth = 16;

[[noreturn]] void refuse(const std::string& text) {
  throw sdk::Error(RLK_INVALID_ARGUMENT, text);
}

std::string why(int code) {
  return std::generic_category().message(code);
}

std::vector<std::string> names_in(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(folder.c_str()), &closedir);
  if (open == nullptr) refuse(folder + " cannot be read: " + why(errno));
  std::vector<std::string> names;
  while (const dirent* entry = readdir(open.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool can_be_locked(const std::string& name) {
  return std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; });
}

void add_files(const std::string& folder, const std::string& below, int depth, std::vector<std::string>* files) {
  if (depth > kMaxDepth) refuse(folder + below + " is deeper than " + std::to_string(kMaxDepth) + " folders");
  for (const std::string& name : names_in(folder + "/" + below)) {
    const std::string path = below + name;
    struct stat status = {};
    if (lstat((folder + "/" + path).c_str(), &status) != 0) refuse(folder + "/" + path + ": " + why(errno));
    if (!can_be_locked(name)) refuse(folder + ": a name with letters beyond ASCII, quotes or backslashes; rename it");
    if (S_ISDIR(status.st_mode)) {
      add_files(folder, path + "/", depth + 1, files);
      continue;
    }
    if (!S_ISREG(status.st_mode))
      refuse(folder + "/" + path +
             (S_ISLNK(status.st_mode) ? " is a link, which may lead out of the pack" : " is no file") +
             "; put the file itself there");
    files->push_back(path);
    if (files->size() > kMaxFiles) refuse(folder + " has more than " + std::to_string(kMaxFiles) + " files");
  }
}

bool is_folder(const std::string& path) {
  struct stat status = {};
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

bool is_there(const std::string& path) {
  struct stat status = {};
  return lstat(path.c_str(), &status) == 0;
}

std::string real_path(const std::string& path) {
  char real[PATH_MAX];
  if (realpath(path.c_str(), real) == nullptr) refuse(path + ": " + why(errno));
  return real;
}

std::string parent_of(const std::string& path) {
  return path.substr(0, std::max<size_t>(path.rfind('/'), 1));
}

std::string joined(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) out += (out.empty() ? "" : "; ") + text;
  return out;
}

// The words of a refusal: whose pack, what was seen and expected, what to do.
std::string refusal(const Pack& pack, const std::vector<std::string>& problems) {
  return "pack " + pack.name + " " + pack.version + " is refused: " + joined(problems) +
         ". Add it again (rlk-plugins pack " + "add --replace " + pack.source + ") or remove it (rlk-plugins pack rm " +
         pack.name + ")";
}

// A file's difference, or "".
std::string difference(const std::string& folder, const PackFile& file, const Hash& hash) {
  const std::string path = folder + "/" + file.path;
  if (!is_there(path)) return file.path + " is missing; packs.lock has it with the SHA-256 " + file.sha256;
  const std::string seen = hash(trusted_path(path));
  return seen == file.sha256 ? "" : file.path + " has the SHA-256 " + seen + ", packs.lock expects " + file.sha256;
}

void add_pack(const std::string& packs, const Pack& pack, const std::string& backend, const Hash& hash, Kernels* out) {
  const std::string folder = packs + "/" + pack.folder;
  const auto is_manifest = [](const PackFile& file) { return file.path == kPackManifest; };
  const auto manifest_file = std::find_if(pack.files.begin(), pack.files.end(), is_manifest);
  if (!is_folder(folder)) return out->refused.push_back(refusal(pack, {folder + " is missing"}));
  if (manifest_file == pack.files.end())
    return out->refused.push_back(refusal(pack, {std::string("packs.lock names no ") + kPackManifest}));
  // First the manifest alone: the libraries of packs for other backends are not read.
  if (const std::string changed = difference(folder, *manifest_file, hash); !changed.empty())
    return out->refused.push_back(refusal(pack, {changed}));
  Manifest manifest = read_pack(folder, backend);
  if (manifest.kernels.empty()) return;
  std::string problem;
  if (const std::vector<std::string> changed = differences(packs, pack, hash); !changed.empty())
    out->refused.push_back(problem = refusal(pack, changed));
  const std::string& runtime = pack.runtime.empty() ? manifest.runtime : pack.runtime;
  if (out->manifest.runtime.empty() && problem.empty()) out->manifest.runtime = runtime;
  for (Kernel& kernel : manifest.kernels) {
    const auto same = [&](const Kernel& other) { return other.op == kernel.op && other.name == kernel.name; };
    if (std::any_of(out->manifest.kernels.begin(), out->manifest.kernels.end(), same)) {
      out->refused.push_back("pack " + pack.name + ": another pack has the kernel " + kernel.name + " of " +
                             kernel.op->name + "; remove one of them, or give the kernel another name");
      continue;
    }
    kernel.problem = problem;
    out->manifest.kernels.push_back(std::move(kernel));
  }
}

Kernels read_packs(const std::string& packs, const std::string& backend, const Hash& hash) {
  Kernels out;
  const std::vector<Pack> lock = read_lock(packs);
  for (const Pack& pack : lock) {
    try {
      add_pack(packs, pack, backend, hash, &out);
    } catch (const sdk::Error& error) {
      // A library that is missing is an error of the manifest's reader too: the lock has the better words.
      std::vector<std::string> problems = {error.what()};
      try {
        if (const std::vector<std::string> changed = differences(packs, pack, hash); !changed.empty())
          problems = changed;
      } catch (const sdk::Error&) {  // what the reader said stands
      }
      out.refused.push_back(refusal(pack, problems));
    }
  }
  for (const std::string& folder : unlocked_folders(packs, lock))
    out.refused.push_back(packs + "/" + folder +
                          " is refused: packs.lock does not name it; move it elsewhere and add it " +
                          "from there (rlk-plugins pack add), or remove it");
  return out;
}

// A manifest that a user names inside of a folder of packs is the lock's business too.
void check_lock_above(const std::string& manifest, const Hash& hash) {
  const std::string folder = parent_of(manifest), packs = parent_of(folder);
  if (!is_there(packs + "/" + kLockName)) return;
  const std::string name = folder.substr(folder.rfind('/') + 1);
  for (const Pack& pack : read_lock(packs)) {
    if (pack.folder != name) continue;
    if (const std::vector<std::string> changed = differences(packs, pack, hash); !changed.empty())
      refuse(refusal(pack, changed));
    return;
  }
  refuse(manifest + " is refused: " + packs + "/" + kLockName + " does not name " + name +
         "; rlk-plugins pack add takes it up");
}

}  // namespace

bool is_pack_word(std::string_view text) {
  const auto is_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  return !text.empty() && text.size() <= 64 && is_word(text.front()) &&
         std::all_of(text.begin(), text.end(),
                     [&](char c) { return is_word(c) || std::string_view("._-+").find(c) != std::string_view::npos; });
}

std::string sha256_of_file(const std::string& path) {
  const int fd = sdk::above_standard(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (fd < 0) refuse(path + " cannot be read: " + why(errno));
  sdk::Sha256 hash;
  std::vector<char> piece(size_t{1} << 20);
  ssize_t got = 0;
  while ((got = read(fd, piece.data(), piece.size())) != 0) {
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) break;
    hash.add({piece.data(), static_cast<size_t>(got)});
  }
  const int code = errno;
  close(fd);
  if (got < 0) refuse(path + " cannot be read: " + why(code));
  return hash.finish();
}

std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> files;
  add_files(folder, "", 0, &files);
  std::sort(files.begin(), files.end());
  return files;
}

Manifest read_pack(const std::string& folder, const std::string& backend) {
  const std::string path = folder + "/" + kPackManifest;
  if (!is_there(path)) refuse(folder + " is no pack: it has no " + kPackManifest);
  Manifest manifest = read_manifest(path, backend);
  if (!is_pack_word(manifest.name) || !is_pack_word(manifest.version))
    refuse(path +
           ": a pack needs a name and a version of letters, digits, \".\", \"_\", \"-\" and \"+\", as in name = " +
           "\"acme-norms\", version = \"1.0.0\"; seen: name = \"" + manifest.name + "\", version = \"" +
           manifest.version + "\"");
  const std::string inside = real_path(folder) + "/";
  for (const Kernel& kernel : manifest.kernels) {
    if (real_path(kernel.library).compare(0, inside.size(), inside) != 0)
      refuse(path + ": the library " + kernel.library + " of " + kernel.name +
             " is outside of the pack; put it in and name it from there");
  }
  // From / it is this machine's; else the pack brings it.
  const bool is_brought = manifest.runtime.compare(0, folder.size() + 1, folder + "/") == 0;
  if (is_brought && real_path(manifest.runtime).compare(0, inside.size(), inside) != 0)
    refuse(path + ": the runtime " + manifest.runtime + " is outside of the pack");
  return manifest;
}

std::vector<std::string> differences(const std::string& packs, const Pack& pack, const Hash& hash) {
  const std::string folder = packs + "/" + pack.folder;
  if (!is_folder(folder)) return {folder + " is missing"};
  std::vector<std::string> out;
  std::map<std::string, const PackFile*> expected;
  for (const PackFile& file : pack.files) {
    expected[file.path] = &file;
    if (const std::string changed = difference(folder, file, hash); !changed.empty()) out.push_back(changed);
  }
  for (const std::string& path : files_below(folder))
    if (expected.count(path) == 0) out.push_back(path + " is there, and packs.lock does not name it");
  return out;
}

std::vector<std::string> unlocked_folders(const std::string& packs, const std::vector<Pack>& lock) {
  std::vector<std::string> out;
  for (const std::string& name : names_in(packs)) {
    const auto is_it = [&](const Pack& pack) { return pack.folder == name; };
    // A name that begins with a dot is a pack that is being added, or what is left of one.
    if (name.front() == '.' || std::any_of(lock.begin(), lock.end(), is_it)) continue;
    if (is_there(packs + "/" + name + "/" + kPackManifest)) out.push_back(name);
  }
  return out;
}

Kernels read_kernels(const std::string& path, const std::string& backend, const Hash& hash) {
  if (is_folder(path)) return read_packs(path, backend, hash);
  if (path.front() == '/') check_lock_above(trusted_path(path), hash);
  return {read_manifest(path, backend), {}};
}

}  // namespace rlk::tvmffi
