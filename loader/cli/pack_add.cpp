// Adding a pack and removing one. The lock decides which packs there are and is replaced in one step, so that a
// process that starts meanwhile has the packs of before or those of after.
#include <fcntl.h>
#include <fmt/core.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <rlk/sdk/sha256.hpp>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <filesystem>

#include "loader/cli/pack.hpp"
#include "loader/cli/place.hpp"
#include "loader/cli/verb.hpp"
#include "loader/store/cache.hpp"
#include "loader/store/file.hpp"

extern char** environ;

namespace rlk::cli {
namespace {

namespace fs = std::filesystem;
using tvmffi::Pack;

constexpr double kSecondsToWait = 60;
constexpr size_t kDigitsOfFolder = 12;

// This command's own folder in the folder of packs, gone with this object. Its name begins with a dot: no pack's does.
class WorkFolder {
public:
  explicit WorkFolder(const std::string& packs) : path_(packs + "/.adding-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr)
      throw Failure(
          fmt::format("{} cannot be written: {}; name a folder of your own with --to, and name it as "
                      "RLK_TVMFFI_MANIFEST too",
                      packs, loader::errno_text(errno)));
  }
  ~WorkFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  std::string operator/(const char* name) const { return path_ + "/" + name; }

private:
  std::string path_;
};

// One command at a time changes the folder. Where a file system has no locks, two at once could lose an entry of the
// lock, which `pack ls` shows.
loader::FileLock lock_folder(const std::string& packs) {
  auto lock = loader::FileLock::acquire(packs + "/.changing", kSecondsToWait);
  if (!lock) throw Failure(packs + ": another rlk-plugins pack changes it; try again when it has ended");
  return std::move(*lock);
}

void copy_file(const std::string& from, const std::string& to) {
  struct stat status = {};
  // No link: what files_below() saw may have been replaced since.
  const loader::UniqueFd in(open(from.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!in || fstat(in.get(), &status) != 0 || !S_ISREG(status.st_mode))
    throw Failure(fmt::format("{} cannot be read: {}", from, loader::errno_text(errno)));
  const mode_t mode = (status.st_mode & S_IXUSR) != 0 ? 0755 : 0644;
  const loader::UniqueFd out(open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!out || fchmod(out.get(), mode) != 0)
    throw Failure(fmt::format("{} cannot be written: {}", to, loader::errno_text(errno)));
  std::vector<char> piece(size_t{1} << 20);
  for (;;) {
    const ssize_t got = read(in.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Failure(fmt::format("{} cannot be read: {}", from, loader::errno_text(errno)));
    if (got == 0) return;
    for (ssize_t done = 0; done < got;) {
      const ssize_t put = write(out.get(), piece.data() + done, static_cast<size_t>(got - done));
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) throw Failure(fmt::format("{} cannot be written: {}", to, loader::errno_text(errno)));
      done += put;
    }
  }
}

void copy_pack(const std::string& from, const std::string& to) {
  fs::create_directory(to);
  fs::permissions(to, fs::perms(0755));
  for (const std::string& file : tvmffi::files_below(from)) {
    fs::create_directories(fs::path(to + "/" + file).parent_path());
    copy_file(from + "/" + file, to + "/" + file);
  }
}

// By the system's tar, which knows every compression that is installed. What it leaves is checked like any folder.
void unpack(const std::string& archive, const std::string& to) {
  fs::create_directory(to);
  const char* const words[] = {"tar", "-x", "-o", "-f", archive.c_str(), "-C", to.c_str(), nullptr};
  pid_t pid = 0;
  const int failed = posix_spawnp(&pid, "tar", nullptr, nullptr, const_cast<char* const*>(words), environ);
  if (failed != 0)
    throw Failure(
        fmt::format("{}: tar, which unpacks archives, cannot be started: {}", archive, loader::errno_text(failed)));
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw Failure(archive +
                  " is no folder, and tar cannot unpack it; expected a folder with kernels.toml, or an archive "
                  "of one");
}

// The pack in an unpacked archive: all of it, or its only folder.
std::string pack_in(const std::string& folder) {
  if (fs::exists(folder + "/" + tvmffi::kPackManifest)) return folder;
  std::vector<fs::path> entries;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) entries.push_back(entry.path());
  return entries.size() == 1 && fs::is_directory(fs::symlink_status(entries[0])) ? entries[0].string() : folder;
}

// Messages about the copy name what the user knows.
std::string about_source(std::string text, const std::string& copy, const std::string& source) {
  for (size_t at = text.find(copy); at != std::string::npos; at = text.find(copy, at + source.size()))
    text.replace(at, copy.size(), source);
  return text;
}

std::vector<tvmffi::PackFile> hashed(const std::string& folder) {
  std::vector<tvmffi::PackFile> files;
  for (const std::string& path : tvmffi::files_below(folder))
    files.push_back({path, tvmffi::sha256_of_file(folder + "/" + path)});
  return files;
}

std::string folder_name(const Pack& pack) {
  sdk::Sha256 hash;
  for (const tvmffi::PackFile& file : pack.files) hash.add(fmt::format("{}  {}\n", file.sha256, file.path));
  return fmt::format("{}-{}", pack.name, hash.finish().substr(0, kDigitsOfFolder));
}

// Implementations are known by operator, backend and name: two packs cannot both have one.
void refuse_namesakes(const std::string& packs, const std::vector<Pack>& lock, const Pack& mine,
                      const std::vector<PackKernel>& kernels) {
  for (const Pack& other : lock) {
    if (other.name == mine.name) continue;
    std::vector<PackKernel> theirs;
    try {
      theirs = kernels_of(packs + "/" + other.folder);
    } catch (const std::exception&) {
      continue;  // that pack is broken, which `pack ls` says
    }
    for (const PackKernel& kernel : kernels) {
      const bool is_taken = std::any_of(theirs.begin(), theirs.end(), [&](const PackKernel& their) {
        return their.op == kernel.op && their.implementation == kernel.implementation && their.device == kernel.device;
      });
      if (is_taken)
        throw Failure(fmt::format(
            "the kernel {} of {} on {} is in the pack {} too: give it another name in {}, or "
            "remove that pack (rlk-plugins pack rm {})",
            kernel.implementation, kernel.op, kernel.device, other.name, tvmffi::kPackManifest, other.name));
    }
  }
}

// Puts the checked copy where the lock will say it is. A folder of this name has the same content, unless another
// program changed it.
void put_in_place(const std::string& copy, const std::string& place, const std::string& away) {
  if (fs::exists(fs::symlink_status(place))) fs::rename(place, away);
  fs::rename(copy, place);
}

}  // namespace

std::vector<PackKernel> kernels_of(const std::string& folder) {
  std::vector<PackKernel> out;
  for (const char* backend : kPackBackends)
    for (const tvmffi::Kernel& kernel : tvmffi::read_pack(folder, backend).kernels)
      out.push_back({kernel.op->name, kernel.name, backend, kernel.library});
  return out;
}

std::vector<Pack> lock_or_none(const std::string& packs) {
  std::error_code ignored;
  const bool is_there = fs::exists(fs::symlink_status(packs + "/" + tvmffi::kLockName, ignored));
  return is_there ? tvmffi::read_lock(packs) : std::vector<Pack>();
}

void write_lock(const std::string& packs, const std::vector<Pack>& lock) {
  const std::string text = tvmffi::lock_text(lock);
  write_whole(packs + "/" + tvmffi::kLockName, {text});
}

PackAdded add_pack(const PackToAdd& what) {
  umask(022);  // every user reads the packs, their owner alone writes them
  std::error_code error;
  fs::create_directories(what.packs, error);
  if (error)
    throw Failure(
        fmt::format("{} cannot be made: {}; name a folder of your own with --to", what.packs, error.message()));
  const WorkFolder work(what.packs);
  const loader::FileLock turn = lock_folder(what.packs);
  std::string from = what.source;
  if (!fs::is_directory(from)) {
    unpack(what.source, work / "archive");
    from = pack_in(work / "archive");
  }
  const std::string copy = work / "pack";
  PackAdded out;
  Pack& pack = out.pack;
  try {
    copy_pack(from, copy);
    const tvmffi::Manifest manifest = tvmffi::read_pack(copy, kPackBackends[0]);
    out.kernels = kernels_of(copy);
    pack = {manifest.name, manifest.version, what.source, {}, what.runtime, hashed(copy)};
  } catch (const std::exception& failure) {
    throw Failure(about_source(about_source(failure.what(), copy, what.source), from, what.source));
  }
  pack.folder = folder_name(pack);
  std::vector<Pack> lock = lock_or_none(what.packs);
  const auto old = std::find_if(lock.begin(), lock.end(), [&](const Pack& one) { return one.name == pack.name; });
  std::string old_folder;
  if (old != lock.end()) {
    if (!what.replace)
      throw Failure(fmt::format("the pack {} {} is there already, from {}: --replace puts {} in its stead", old->name,
                                old->version, old->source, pack.version));
    out.replaced = old->version;
    old_folder = old->folder;
    lock.erase(old);
  }
  refuse_namesakes(what.packs, lock, pack, out.kernels);
  put_in_place(copy, what.packs + "/" + pack.folder, work / "before");
  lock.push_back(pack);
  write_lock(what.packs, lock);
  // Processes that run have loaded what they need of it.
  if (!old_folder.empty() && old_folder != pack.folder) fs::remove_all(what.packs + "/" + old_folder, error);
  return out;
}

Pack remove_pack(const std::string& packs, const std::string& name) {
  umask(022);
  if (!fs::is_directory(packs)) throw UsageError("pack rm " + name + ": there is no folder " + packs);
  const loader::FileLock turn = lock_folder(packs);
  std::vector<Pack> lock = lock_or_none(packs);
  const auto found = std::find_if(lock.begin(), lock.end(), [&](const Pack& one) { return one.name == name; });
  if (found == lock.end()) {
    std::vector<std::string> names;
    for (const Pack& pack : lock) names.push_back(pack.name);
    if (fs::exists(fs::symlink_status(packs + "/" + name)))
      throw UsageError(
          fmt::format("{}/{} is in no line of {}: remove the folder yourself", packs, name, tvmffi::kLockName));
    throw UsageError(names.empty() ? packs + " has no packs"
                                   : fmt::format("no pack is called '{}'{}", name, suggestion(name, names)));
  }
  Pack pack = *found;
  lock.erase(found);
  write_lock(packs, lock);
  std::error_code error;
  fs::remove_all(packs + "/" + pack.folder, error);
  if (error)
    throw Failure(fmt::format("{} is out of the lock, but {}/{} could not be removed: {}", name, packs, pack.folder,
                              error.message()));
  return pack;
}

}  // namespace rlk::cli
