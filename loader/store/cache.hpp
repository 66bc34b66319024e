// Results of probes that are still valid: what they depend on, how long they are believed, and which process may probe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loader/store/file.hpp"
#include "loader/store/record.hpp"
#include "loader/store/store.hpp"

namespace rlk::loader {

// Everything that a probe's result depends on and that is known before the probe runs.
struct ResultKey {
  std::string id;
  std::string content;                    // content hash of the plugin file
  std::vector<std::string> dependencies;  // identities of the libraries that the linker will bring in
  std::string host;                       // version, ABI and build of the code that probes
  std::string device_fingerprint;
  std::vector<std::string> environment;  // "NAME=value" of the variables that count
  // How patient the probe is (RLK_PROBE_TIMEOUT). Not in the name: only a time-out depends on it, and one that a less
  // patient probe ran into says nothing.
  double time_scale = 1.0;
  // What the prober may have (limits.hpp). Not in the name: a plugin that was verified with little needs no more, and
  // one that failed with little says nothing to a process that has more.
  std::vector<uint64_t> limits;
  std::string tried{kTriedEverything};  // a canary's verdict is not that of everything

  std::string name() const;  // of the entry in the store
};

// The variables that change what a plugin offers: LD_LIBRARY_PATH, LD_PRELOAD, every *_VISIBLE_DEVICES, and those that
// the plugin's note declares; where one of those names a file, its identity too. RLK_NUM_THREADS is not among them: it
// is as the number of processors that a process may use, which is not in the key either. The CPU's operators give the
// same bits for any number (conformance_properties test), and a plugin must be right for any (`parallel_for` says so);
// one that looks at the variable declares it.
std::vector<std::string> relevant_environment(const Environment& environment, const std::vector<std::string>& declared);

// What changes when a file does, or any file below a folder: a verdict that rests on it is found again by the same
// text. "" where there is neither.
std::string state_of(const std::string& path);

// One text per library that changes when it does: build-id, size and time of its content where it has a build-id
// (packages and images keep the time, so it is the same on every machine of a cluster that shares a cache), else its
// inode and times; "absent" when it is gone.
std::vector<std::string> identities_of(const std::vector<std::string>& paths);

// How the names of entries with verdicts begin.
inline constexpr std::string_view kVerdictPrefix = "probe-";

class ResultCache {
public:
  using Clock = std::function<int64_t()>;  // seconds since 1970
  static constexpr int64_t kFailureSeconds = 3600;
  static constexpr int64_t kAbsentSeconds = 600;  // absent hardware: cheap to look again
  static constexpr int64_t kPartialSeconds = 86400;
  static constexpr int64_t kTimeoutSeconds = 300;  // long enough that the ranks of a job pay once
  // Room for a thousand plugins under several environments, builds and cards.
  static constexpr size_t kMaxEntries = 8192;
  static constexpr size_t kTidyEvery = 64;  // verdicts stored by one process

  // The store outlives the cache.
  explicit ResultCache(Store* store, Clock now = {}, int64_t timeout_seconds = kTimeoutSeconds);

  // A remembered result that is not out of date: also every file the probe had loaded (record.loaded_files) must still
  // be the one it was. Its history and path are those of the probe then. A caller that waited since `waited_since` for
  // the probe of another caller takes a verdict from that time or later, whatever its life is.
  std::optional<PluginRecord> find(const ResultKey& key, std::optional<int64_t> waited_since = {}) const;
  // Whether there was a verdict on what was tried, out of date or not; a time-out is none.
  bool was_judged(const ResultKey& key) const;
  int64_t seconds_now() const { return now_(); }
  // Remembers a final record. States that say nothing lasting (deferred for another reason than time) are not stored.
  void store(const ResultKey& key, const PluginRecord& record);

private:
  Store* store_;
  Clock now_;
  const int64_t timeout_seconds_;
  std::atomic<size_t> stored_{0};
};

// RLK_PROBE_RETRY: how long a time-out is believed; kTimeoutSeconds when it is unset. False, with the default, when the
// value is no number of seconds from 0 (probe anew at every start) to a day.
bool retry_seconds_of(const Environment& environment, int64_t* seconds);
bool parse_retry_seconds(const std::string& text, int64_t* seconds);

// A lock between processes, given back when the object dies or its process does.
class FileLock {
public:
  FileLock(FileLock&&) noexcept = default;
  FileLock& operator=(FileLock&&) noexcept = default;
  ~FileLock();
  // Waits up to `seconds`; nothing when another process keeps it that long or `cancel` becomes true. `on_wait`, if
  // set, is called about every 100 ms and ends the wait by returning true. An empty path locks nothing and succeeds.
  static std::optional<FileLock> acquire(const std::string& path, double seconds,
                                         const std::atomic<bool>* cancel = nullptr,
                                         const std::function<bool()>& on_wait = {});

private:
  explicit FileLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

// Where the lock of a plugin lies: in the store's folder, by plugin and host (the folder may be shared between
// machines). Empty when the store has no folder.
std::string lock_path(const Store& store, const std::string& plugin_id);

}  // namespace rlk::loader
