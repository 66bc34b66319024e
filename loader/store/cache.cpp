// The key of a result, how long each verdict is believed, and the records in the store: a line of JSON that says how
// long the record behind it is believed.
#include "loader/store/cache.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "loader/screen/closure.hpp"
#include "loader/screen/library.hpp"
#include "loader/store/exact_text.hpp"
#include "loader/store/limits.hpp"

namespace rlk::loader {
namespace {

using nlohmann::json;

constexpr int kSchema = 3;

int64_t system_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

constexpr int64_t kForEver = INT64_MAX;
constexpr int64_t kNotAtAll = -1;

// Time ran out for the whole plugin, or for some of its units.
bool is_time_out(const PluginRecord& record) {
  return record.reason_code == reason::kTimedOut.code ||
         std::any_of(record.units.begin(), record.units.end(),
                     [](const core::UnitResult& unit) { return unit.reason_code == kUnitNotReached; });
}

// How long the record is believed.
int64_t lifetime(const PluginRecord& record, int64_t timeout_seconds) {
  if (is_time_out(record)) return timeout_seconds;
  switch (record.state) {
    case State::smoke_tested:
      return kForEver;  // its key is complete
    case State::partial:
      return ResultCache::kPartialSeconds;
    case State::absent:
      return ResultCache::kAbsentSeconds;
    case State::rejected:
      return record.broken ? ResultCache::kFailureSeconds : ResultCache::kAbsentSeconds;
    default:
      return kNotAtAll;
  }
}

// Ends of a probe that say nothing about the plugin, so there is nothing to remember about it.
bool says_nothing(const PluginRecord& record) {
  for (const Reason* own : {&reason::kSpawnFailed, &reason::kProbeOff, &reason::kProbeBusy, &reason::kCancelled})
    if (record.state == State::rejected && record.reason_code == own->code) return true;
  return false;
}

json head_of(std::string_view entry) {
  return json::parse(entry.substr(0, entry.find('\n')), nullptr, /*allow_exceptions=*/false);
}

std::string_view record_of(std::string_view entry) {
  return entry.substr(std::min(entry.find('\n'), entry.size() - 1) + 1);
}

// What has the name of a loaded file in a folder that LD_LIBRARY_PATH names: code that opens one by its name alone may
// get another file as soon as one appears there, and the one that was loaded is still where it was.
std::vector<std::string> namesakes_of(const std::vector<std::string>& loaded, const ResultKey& key) {
  constexpr std::string_view kVariable = "LD_LIBRARY_PATH=";
  std::vector<std::string> found;
  for (const std::string& text : key.environment) {
    if (!text.starts_with(kVariable)) continue;
    for (const std::string& folder : folders_of_library_path(text.substr(kVariable.size()))) {
      for (const std::string& file : loaded) {
        const std::string path = folder + "/" + file.substr(file.find_last_of('/') + 1);
        if (path != file && access(path.c_str(), F_OK) == 0) found.push_back(path);
      }
    }
  }
  return identities_of(found);
}

std::vector<uint64_t> numbers_of(const json& list) {
  std::vector<uint64_t> numbers;
  if (!list.is_array()) return numbers;
  for (const json& number : list)
    if (number.is_number_unsigned()) numbers.push_back(number.get<uint64_t>());
  return numbers;
}

}  // namespace

std::string ResultKey::name() const {
  std::string all;
  const auto add = [&all](const std::string& text) { all += fmt::format("{}:{}", text.size(), text); };
  for (const std::string* text : {&id, &content, &host, &device_fingerprint, &tried}) add(*text);
  for (const auto* list : {&dependencies, &environment}) {
    add(std::to_string(list->size()));
    for (const std::string& text : *list) add(text);
  }
  return fmt::format("{}{}-{}", kVerdictPrefix, hash_bytes(id).substr(0, 8), hash_bytes(all));
}

std::vector<std::string> relevant_environment(const Environment& environment,
                                              const std::vector<std::string>& declared) {
  constexpr std::string_view kSuffix = "_VISIBLE_DEVICES";
  std::vector<std::string> out;
  for (const auto& [name, value] : environment.values) {
    const bool is_declared = std::find(declared.begin(), declared.end(), name) != declared.end();
    if (!is_declared && name != "LD_LIBRARY_PATH" && name != "LD_PRELOAD" && !name.ends_with(kSuffix)) continue;
    out.push_back(name + "=" + value);
    // Not a folder: a toolkit's has thousands of files.
    struct stat status = {};
    if (is_declared && value.starts_with('/') && stat(value.c_str(), &status) == 0 && S_ISREG(status.st_mode))
      out.back() += state_of(value);
  }
  return out;
}

std::string state_of(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return {};
  if (S_ISREG(status.st_mode)) return " " + to_string(identity_of(status));
  if (!S_ISDIR(status.st_mode)) return {};
  std::vector<std::string> files, folders = {path};
  // What is more than this is no folder of a few kernels; that there is more is noticed all the same.
  constexpr size_t kMostFiles = 16384;
  while (!folders.empty() && files.size() < kMostFiles) {
    const std::string at = std::move(folders.back());
    folders.pop_back();
    const Folder open = open_folder(at);
    while (const dirent* item = open == nullptr || files.size() >= kMostFiles ? nullptr : readdir(open.get())) {
      const std::string name = item->d_name;
      if (name == "." || name == "..") continue;
      std::string file = at + "/" + name;
      // A link to a folder is not followed: it may lead back.
      if (lstat(file.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) folders.push_back(file);
      const auto identity = identity_of(file);
      files.push_back(file + (identity ? " " + to_string(*identity) : ""));
    }
  }
  std::sort(files.begin(), files.end());
  std::string all;
  for (const std::string& file : files) all += file + '\n';
  return " " + hash_bytes(all);
}

std::vector<std::string> identities_of(const std::vector<std::string>& paths) {
  std::vector<std::string> out;
  for (const std::string& path : paths) {
    struct stat status = {};
    const UniqueFd fd = open_regular(path, &status);
    std::string text = "absent";
    if (fd) {
      const auto library = read_library(fd.get(), status);
      const std::string& build_id = library->info.build_id;
      // A file can be patched, or built again, under one build-id: size and time tell.
      const std::string built = fmt::format("{}:{}.{}", status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
      text = build_id.empty() ? to_string(identity_of(status)) : build_id + ":" + built;
    }
    out.push_back(shown(path) + " " + text);
  }
  return out;
}

ResultCache::ResultCache(Store* store, Clock now, int64_t timeout_seconds)
    : store_(store), now_(now ? std::move(now) : &system_seconds), timeout_seconds_(timeout_seconds) {}

std::optional<PluginRecord> ResultCache::find(const ResultKey& key, std::optional<int64_t> waited_since) const {
  const auto text = store_->get(key.name());
  if (!text) return std::nullopt;
  const json entry = head_of(*text);
  if (!entry.is_object() || entry.value("schema", json()) != kSchema) return std::nullopt;
  const auto number = [&](const char* name) {
    const json value = entry.value(name, json());
    return value.is_number_integer() ? value.get<int64_t>() : int64_t{-1};
  };
  const int64_t measured = number("measured_unix"), expires = number("expires_unix");
  const bool awaited = waited_since && measured >= *waited_since;
  // A time in the future is that of a clock which was set back since.
  if (expires < 0 || measured > now_() || (expires <= now_() && !awaited)) return std::nullopt;
  PluginRecord record;
  std::string error;
  if (!record_from_text(record_of(*text), &record, &error)) return std::nullopt;
  if (entry.value("loaded", json()) != json(identities_of(record.loaded_files)) ||
      entry.value("namesakes", json()) != json(namesakes_of(record.loaded_files, key)))
    return std::nullopt;
  if (record.state != State::smoke_tested && may_have_more(key.limits, numbers_of(entry.value("limits", json()))))
    return std::nullopt;
  if (is_time_out(record)) {
    const json scale = entry.value("time_scale", json());
    if (!scale.is_number() || scale.get<double>() < key.time_scale) return std::nullopt;
    record.hint += fmt::format(
        "; measured {} s ago, tried again in {} s (RLK_PROBE_RETRY), "
        "or now with `rlk-plugins probe --fresh {}`",
        now_() - measured, std::max<int64_t>(expires - now_(), 0), record.id);
  }
  record.from_cache = true;
  return record;
}

bool ResultCache::was_judged(const ResultKey& key) const {
  const auto text = store_->get(key.name());
  const json entry = text ? head_of(*text) : json();
  return entry.is_object() && entry.value("judged", json()) == true;
}

void ResultCache::store(const ResultKey& key, const PluginRecord& record) {
  const int64_t seconds = lifetime(record, timeout_seconds_);
  if (seconds == kNotAtAll || says_nothing(record)) return;
  const int64_t now = now_();
  const json entry = {{"schema", kSchema},
                      {"measured_unix", now},
                      {"expires_unix", seconds == kForEver ? kForEver : now + seconds},
                      {"time_scale", key.time_scale},
                      {"limits", key.limits},
                      {"judged", !is_time_out(record)},
                      {"loaded", identities_of(record.loaded_files)},
                      {"namesakes", namesakes_of(record.loaded_files, key)}};
  store_->put(key.name(), entry.dump(-1, ' ', false, json::error_handler_t::replace) + "\n" + record_to_text(record));
  // Keys change with every upgrade, and old entries are then never asked for again. Looking at all takes its time.
  if (stored_.fetch_add(1) % kTidyEvery != 0) return;
  std::vector<StoreEntry> entries = store_->list(kVerdictPrefix);
  std::sort(entries.begin(), entries.end(),
            [](const StoreEntry& a, const StoreEntry& b) { return a.modified_unix < b.modified_unix; });
  for (size_t i = 0; i + kMaxEntries < entries.size(); ++i) store_->clear(entries[i].name);
}

bool parse_retry_seconds(const std::string& text, int64_t* seconds) {
  constexpr int64_t kLongest = 86400;
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || last != end || value < 0 || value > kLongest) return false;
  *seconds = value;
  return true;
}

bool retry_seconds_of(const Environment& environment, int64_t* seconds) {
  *seconds = ResultCache::kTimeoutSeconds;
  const auto text = environment.get("RLK_PROBE_RETRY");
  return !text || parse_retry_seconds(*text, seconds);
}

std::optional<FileLock> FileLock::acquire(const std::string& path, double seconds, const std::atomic<bool>* cancel,
                                          const std::function<bool()>& on_wait) {
  using Clock = std::chrono::steady_clock;
  if (path.empty()) return FileLock(UniqueFd());
  UniqueFd fd = open_private(path, O_RDWR);
  if (!fd) return FileLock(UniqueFd());  // a folder that became read-only: probing twice beats not at all
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  while (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return FileLock(UniqueFd());  // a file system without locks
    const bool cancelled = cancel != nullptr && cancel->load(std::memory_order_relaxed);
    if (cancelled || Clock::now() >= until || (on_wait && on_wait())) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return FileLock(std::move(fd));
}

// Unlocks explicitly. Closing is not enough: a process that another thread forked meanwhile holds the descriptor too,
// and with it the lock.
FileLock::~FileLock() {
  if (fd_) flock(fd_.get(), LOCK_UN);
}

std::string lock_path(const Store& store, const std::string& plugin_id) {
  if (store.folder().empty()) return {};
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  return fmt::format("{}/.lock-{}", store.folder(), hash_bytes(plugin_id + '\n' + host).substr(0, 16));
}

}  // namespace rlk::loader
