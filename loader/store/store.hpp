// Small files that outlive the process: named bytes in a private folder, written atomically, checked when read. Probe
// results, content hashes and plugins' compiled kernels are kept here.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loader/discover/environment.hpp"
#include "loader/screen/trust.hpp"
#include "loader/store/seed.hpp"

namespace rlk::loader {

// Where verdicts are kept, and where else they are looked up.
struct CacheFolders {
  // The first folder that exists or can be made, belongs to the user, is writable by us and no other user, and that
  // no other user can replace, of:
  // RLK_CACHE_DIR, XDG_CACHE_HOME/rlk, HOME/.cache/rlk, /tmp/rlk-<user id>. One that is full or cannot be written is
  // passed over, and taken when there is no other. Empty when there is none: memory is used.
  std::string own;
  std::vector<std::string> read_only;  // those that were passed over: what they remember counts
  bool full = false;                   // own has no room
};
// `notes` receives a line for each folder that was named and could not be used, or not be written. `temporary` takes
// /tmp's place.
CacheFolders choose_cache_folders(const Environment& environment, const Identity& identity,
                                  std::vector<std::string>* notes, const std::string& temporary = "/tmp");
// Its own folder alone.
std::string choose_cache_folder(const Environment& environment, const Identity& identity,
                                std::vector<std::string>* notes, const std::string& temporary = "/tmp");

// Is there too little room left in the folder for a verdict? Where the file system cannot say, there is enough.
bool has_no_room(const std::string& folder);

// Names of the entries that say what failed at run time: emptying the cache does not forget them.
inline constexpr std::string_view kQuarantinePrefix = "quarantine-";

struct StoreEntry {
  std::string name;
  uint64_t bytes = 0;
  int64_t modified_unix = 0;
};

// [thread-safe], and safe between processes: a reader sees a whole old or a whole new file.
class Store {
public:
  static constexpr size_t kMaxBytes = size_t{256} << 20;

  // An empty folder keeps everything in memory. What it does not have is looked up in the read-only folders, then in
  // the seed.
  explicit Store(std::string folder, std::vector<std::string> read_only = {},
                 std::shared_ptr<const Seed> seed = nullptr)
      : folder_(std::move(folder)), read_only_(std::move(read_only)), seed_(std::move(seed)) {}

  const std::string& folder() const { return folder_; }
  const std::shared_ptr<const Seed>& seed() const { return seed_; }
  // Nothing when there is no such entry or it is damaged. Names consist of [A-Za-z0-9._-].
  std::optional<std::string> get(const std::string& name) const;
  // False when it could not be written (a full disk); the entry then lives in memory.
  bool put(const std::string& name, std::string_view bytes);
  std::vector<StoreEntry> list(std::string_view prefix) const;
  // The file that `get` reads: of its own folder, a read-only one or the seed; "" where there is none.
  std::string place_of(const std::string& name) const;
  // Removes the entries whose names begin with `prefix`; returns how many. What lies in the read-only folders stays.
  size_t clear(std::string_view prefix);

private:
  std::string path_of(const std::string& name) const { return folder_ + "/" + name; }

  const std::string folder_;
  const std::vector<std::string> read_only_;
  const std::shared_ptr<const Seed> seed_;
  mutable std::mutex mutex_;
  std::map<std::string, std::string> memory_;  // guarded by mutex_
};

// The store of a process with this environment. `tell` gets what was passed over, and as a warning that no start will
// find what this one measures, or that the seed which the environment names is not used.
Store open_store(const Environment& environment, const Identity& identity,
                 const std::function<void(bool is_warning, const std::string& text)>& tell,
                 const std::string& temporary = "/tmp");

// The content hash of a file. A file whose identity (device, inode, size, times) is known is not read again, which
// spares hashing half a gigabyte at every start; one that changed within the last two seconds is always read, because
// the next change might leave the same times.
std::optional<std::string> content_hash(Store* store, const std::string& path);

}  // namespace rlk::loader
