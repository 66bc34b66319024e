// An entry of the store per unit that failed.
#include "loader/store/quarantine.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/dispatch/log.hpp"
#include "loader/host/services.hpp"
#include "loader/store/cache.hpp"
#include "loader/store/file.hpp"

namespace rlk::loader {
namespace {

using nlohmann::json;

constexpr int kSchema = 1;

std::string name_of(const QuarantineEntry& entry) {
  std::string all;
  for (const std::string* text : {&entry.key, &entry.op, &entry.implementation, &entry.dtype})
    all += fmt::format("{}:{}", text->size(), *text);
  return fmt::format("{}{}-{}", kQuarantinePrefix, hash_bytes(entry.id).substr(0, 8), hash_bytes(all));
}

// Whether something else may have caused it: the machine, or a user who ended the process.
bool is_doubtful(const std::string& reason_code) {
  return reason_code == kEndedInside || reason_code == "DEVICE_LOST" || reason_code == "TIMEOUT" ||
         reason_code == "OUT_OF_MEMORY";
}

std::optional<QuarantineEntry> read_entry(const std::string& text) {
  const json entry = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!entry.is_object() || entry.value("schema", json()) != kSchema) return std::nullopt;
  QuarantineEntry out;
  const auto word = [&](const char* name, std::string* value) {
    const json found = entry.value(name, json());
    if (found.is_string()) *value = found.get<std::string>();
    return found.is_string();
  };
  const auto number = [&](const char* name, int64_t* value) {
    const json found = entry.value(name, json());
    if (found.is_number_integer()) *value = found.get<int64_t>();
    return found.is_number_integer();
  };
  const bool whole = word("key", &out.key) && word("id", &out.id) && word("path", &out.path) && word("op", &out.op) &&
                     word("implementation", &out.implementation) && word("dtype", &out.dtype) &&
                     word("reason_code", &out.reason_code) && word("reason", &out.reason) &&
                     word("program", &out.program) && word("machine", &out.machine) && number("pid", &out.pid) &&
                     number("since_unix", &out.since_unix) && number("until_unix", &out.until_unix) &&
                     number("times", &out.times);
  return whole ? std::optional(std::move(out)) : std::nullopt;
}

std::string text_of(const QuarantineEntry& entry) {
  const json text = {{"schema", kSchema},
                     {"key", entry.key},
                     {"id", entry.id},
                     {"path", entry.path},
                     {"op", entry.op},
                     {"implementation", entry.implementation},
                     {"dtype", entry.dtype},
                     {"reason_code", entry.reason_code},
                     {"reason", entry.reason},
                     {"program", entry.program},
                     {"machine", entry.machine},
                     {"pid", entry.pid},
                     {"since_unix", entry.since_unix},
                     {"until_unix", entry.until_unix},
                     {"times", entry.times}};
  return text.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string duration_text(int64_t seconds) {
  constexpr int64_t kMinute = 60, kHour = 3600;
  if (seconds < 2 * kMinute) return fmt::format("{} s", std::max<int64_t>(seconds, 0));
  if (seconds < 2 * kHour) return fmt::format("{} min", seconds / kMinute);
  return fmt::format("{} h", seconds / kHour);
}

}  // namespace

std::string state_of_plugin(const PluginRecord& record, Store* store) {
  std::string all = fmt::format("{}\n{}\n{}\n", record.id, record.version, host_version());
  if (!record.path.empty()) all += content_hash(store, record.path).value_or("unreadable") + '\n';
  for (const std::string& identity : identities_of(record.loaded_files)) all += identity + '\n';
  for (const DeviceInfo& device : record.devices) all += fmt::format("{} {}\n", device.name, device.arch);
  return hash_bytes(all);
}

QuarantineList::QuarantineList(Store* store, Clock now)
    : store_(*store), now_(now ? std::move(now) : [] { return static_cast<int64_t>(std::time(nullptr)); }) {}

void QuarantineList::add(QuarantineEntry entry) {
  const int64_t now = now_();
  const std::string name = name_of(entry);
  if (entry.since_unix == 0) entry.since_unix = now;
  if (entry.pid == 0) entry.pid = getpid();
  if (entry.machine.empty()) {
    char machine[256] = {};
    gethostname(machine, sizeof(machine) - 1);
    entry.machine = machine;
  }
  if (entry.program.empty()) {
    entry.program = read_file("/proc/self/comm", 256).value_or("");
    entry.program = entry.program.substr(0, entry.program.find('\n'));
  }
  // Those that fail at the same time in the processes of one job have failed once.
  constexpr int64_t kSameTimeSeconds = 60;
  entry.times = 1;
  if (const auto text = store_.get(name)) {
    if (const auto known = read_entry(*text)) {
      const bool again = entry.since_unix - known->since_unix > kSameTimeSeconds;
      // A process that ended inside what had failed already, by a hang say: the first entry says more.
      const bool says_more = known->reason_code != kEndedInside && known->until_unix > now;
      if (!again && entry.reason_code == kEndedInside && says_more) return;
      entry.times = known->times + (again ? 1 : 0);
    }
  }
  const int64_t first = is_doubtful(entry.reason_code) ? kFirstDoubtfulSeconds : kFirstSeconds;
  entry.until_unix = now + (entry.times > 1 ? kAgainSeconds : first);
  store_.put(name, text_of(entry));
}

void QuarantineList::add_breadcrumbs() {
  std::vector<Breadcrumb> breadcrumbs = Breadcrumbs::collect(store_.folder());
  for (const Breadcrumb& breadcrumb : breadcrumbs) {
    QuarantineEntry entry;
    entry.key = breadcrumb.key, entry.id = breadcrumb.id, entry.path = breadcrumb.path;
    entry.op = breadcrumb.op, entry.implementation = breadcrumb.implementation, entry.dtype = breadcrumb.dtype;
    entry.program = breadcrumb.program, entry.machine = breadcrumb.machine, entry.pid = breadcrumb.pid;
    entry.reason_code = kEndedInside;
    entry.since_unix = breadcrumb.unix;  // what was reported meanwhile, of a hang say, is the same failure
    entry.reason =
        fmt::format("process {} ({}) on {} ended, by a crash or otherwise, while it was inside {} of this plugin",
                    breadcrumb.pid, breadcrumb.program, breadcrumb.machine, breadcrumb.phase);
    const auto others = std::count_if(breadcrumbs.begin(), breadcrumbs.end(), [&](const Breadcrumb& other) {
      return other.pid == breadcrumb.pid && other.machine == breadcrumb.machine;
    });
    if (others > 1) entry.reason += fmt::format("; {} more calls of plugins were under way", others - 1);
    core::log_line(RLK_LOG_WARN, "quarantine",
                   fmt::format("plugin {}, {}: {}", breadcrumb.id, entry.who(), entry.reason));
    add(std::move(entry));
  }
}

std::vector<QuarantineEntry> QuarantineList::all() const {
  std::vector<QuarantineEntry> entries;
  for (const StoreEntry& stored : store_.list(kQuarantinePrefix)) {
    const auto text = store_.get(stored.name);
    if (!text) continue;
    if (auto entry = read_entry(*text)) entries.push_back(std::move(*entry));
  }
  return entries;
}

std::vector<QuarantineEntry> QuarantineList::in_force() const {
  std::vector<QuarantineEntry> entries = all();
  const int64_t now = now_();
  std::erase_if(entries, [&](const QuarantineEntry& entry) {
    return entry.until_unix <= now || entry.since_unix > now + 86400;  // a clock that was set back since
  });
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return a.since_unix < b.since_unix; });
  return entries;
}

size_t QuarantineList::clear(const std::string& id, std::vector<std::string>* staying) {
  const int64_t now = now_();
  size_t cleared = 0;
  for (const QuarantineEntry& entry : all()) {
    if (!id.empty() && entry.id != id) continue;
    const std::string name = name_of(entry);
    store_.clear(name);
    const auto left = store_.get(name);
    const auto still = left ? read_entry(*left) : std::nullopt;
    const bool stays = still && still->until_unix > now;
    cleared += entry.until_unix > now && !stays ? 1 : 0;
    if (stays && staying != nullptr) staying->push_back(store_.place_of(name));
  }
  return cleared;
}

void apply(const std::vector<QuarantineEntry>& in_force, Store* store, PluginRecord* record) {
  if (!may_run(*record) || record->path.empty()) return;
  std::string key;
  std::string said;
  for (const QuarantineEntry& entry : in_force) {
    if (entry.id != record->id) continue;
    if (key.empty()) key = state_of_plugin(*record, store);
    if (entry.key != key) continue;
    const std::string why = fmt::format("{} is switched off for {} more ({}{}): {}", entry.who(),
                                        duration_text(entry.until_unix - std::time(nullptr)), entry.reason_code,
                                        entry.times > 1 ? fmt::format(", {} times", entry.times) : "", entry.reason);
    if (entry.op.empty()) return record->stop(State::quarantined, Place::host, reason::kQuarantined, why);
    const core::Quarantined off{entry.id, entry.op, entry.implementation, entry.dtype, {}, {}};
    for (core::UnitResult& unit : record->units) {
      if (!off.concerns(unit.op, unit.implementation) || (!off.dtype.empty() && unit.dtype != off.dtype)) continue;
      unit.verdict = core::UnitResult::Verdict::failed;
      unit.reason_code = reason::kQuarantined.code;
      unit.reason = fmt::format("{} at run time: {}", entry.reason_code, entry.reason);
    }
    record->notes.push_back(why);
    if (said.empty()) said = why;
  }
  if (!said.empty()) record->stop(State::partial, Place::host, reason::kQuarantined, said);
}

}  // namespace rlk::loader
