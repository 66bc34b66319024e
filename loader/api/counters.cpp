// Copies of counters and their forms; the counts of runtimes that are gone are kept for the end of the process.
#include "loader/api/counters.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <rlk/rlk.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <mutex>
#include <new>
#include <nlohmann/json.hpp>

#include "core/declaration/text.hpp"
#include "core/dispatch/log.hpp"
#include "loader/api/handles.hpp"
#include "loader/store/file.hpp"

namespace rlk::loader {
namespace {

using core::OpCounters;
using nlohmann::ordered_json;

constexpr struct {
  const char* name;
  core::Counter OpCounters::*counter;
  const char* help;
} kNumbers[] = {
    {"calls", &OpCounters::calls, "Calls that were accepted."},
    {"plan_hits", &OpCounters::plan_hits, "Calls that a plan served which was there."},
    {"plan_misses", &OpCounters::plan_misses, "Calls that a plan had to be made for."},
    {"decisions", &OpCounters::decisions, "Calls that candidates had to be asked for."},
    {"staged", &OpCounters::staged, "Calls that the CPU ran for a device's stream."},
    {"staged_blocking", &OpCounters::blocking, "Staged calls at which the host waited."},
    {"host_copies", &OpCounters::host_copies, "Host-readable inputs that were copied from the device."},
    {"data_errors", &OpCounters::data_errors, "Data errors that were told to the caller."},
    {"failures", &OpCounters::failures, "Calls that an implementation failed at run time."},
    {"not_ready", &OpCounters::not_ready, "Calls that another implementation served while a plan was compiled."},
};
static_assert(std::size(kNumbers) == Counts::kNumbers);

// What staged calls cost, of an operator and of each of its reasons.
constexpr struct {
  const char* name;
  core::Counter core::StagedCost::*counter;
  const char* help;
} kCosts[] = {
    {"staged_to_host_bytes", &core::StagedCost::to_host_bytes, "Bytes that staged calls copied to the host."},
    {"staged_to_device_bytes", &core::StagedCost::to_device_bytes, "Bytes that staged calls copied back."},
    {"staged_ns", &core::StagedCost::nanoseconds,
     "Nanoseconds that the CPU computed for staged calls, and that their callers took to hand them over; copies that "
     "the device makes meanwhile are not in it."},
};
static_assert(std::size(kCosts) == Counts::kCosts);

template <class Costs>
void read_costs(const core::StagedCost& from, Costs* to) {
  for (size_t k = 0; k < std::size(kCosts); ++k) (*to)[k] += (from.*kCosts[k].counter).load();
}

std::string text_of_bytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  auto value = static_cast<double>(bytes);
  for (; value >= 10240 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return fmt::format("{:.0f} {}", value, kUnits[unit]);
}

// A label's value between quotes.
std::string label(const std::string& value) {
  return "\"" + label_text(value) + "\"";
}

void head(const std::string& name, const char* help, std::string* out) {
  *out += fmt::format("# HELP {} {}\n# TYPE {} counter\n", name, help, name);
}

// What is to be written at the end, and of which runtimes. Never destroyed: threads may still call.
struct Report {
  std::mutex mutex;
  std::vector<core::Dispatcher*> live;
  Counts ended;
  bool tells_staged = false;  // a function at exit is registered for it
  std::string wanted;         // the value of RLK_COUNTERS; empty: nothing
  std::string who;            // set it: the variable, or a line of the policy file
  pid_t pid = 0;
};
Report& report() {
  static auto* const one = new Report;
  return *one;
}

void warn(const std::string& text) {
  core::log_line(RLK_LOG_WARN, "counters", text);
}

// A reader sees the old file or the whole new one; what is no regular file is not replaced.
void write_file(const std::string& who, std::string path, const std::string& text) {
  const std::string pid = std::to_string(getpid());
  for (size_t at = path.find("%p"); at != std::string::npos; at = path.find("%p", at + pid.size()))
    path.replace(at, 2, pid);
  struct stat status = {};
  if (lstat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    return warn(who + ": " + path + " is no regular file; nothing is written");
  std::string temporary = path + ".XXXXXX";
  const UniqueFd fd(mkostemp(temporary.data(), O_CLOEXEC));
  const bool written = fd && write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       fchmod(fd.get(), 0644) == 0 && rename(temporary.c_str(), path.c_str()) == 0;
  if (written) return;
  const int error = errno;
  if (fd) unlink(temporary.c_str());
  warn(fmt::format("{}: {} cannot be written: {}", who, path, errno_text(error)));
}

void tell_now() {
  Report& all = report();
  if (all.pid != getpid()) return;  // a fork's end is not that of the process that counted
  Counts sum;
  {
    const std::lock_guard lock(all.mutex);
    sum = all.ended;
    for (core::Dispatcher* dispatcher : all.live) sum.add(Counts(*dispatcher));
  }
  if (all.wanted != "1") return write_file(all.who, all.wanted, sum.prometheus());
  const std::vector<std::string> lines = sum.lines();
  for (const std::string& line : lines) core::log_always("counters", line);
  if (lines.empty()) core::log_always("counters", "no operator was called");
}

// Of runtimes whose policy warns of fallbacks.
void tell_staged_now() {
  Report& all = report();
  if (all.pid != getpid()) return;
  Counts sum;
  {
    const std::lock_guard lock(all.mutex);
    sum = all.ended;
    for (core::Dispatcher* dispatcher : all.live) sum.add(Counts(*dispatcher));
  }
  if (const std::string text = sum.staged(); !text.empty()) core::log_line(RLK_LOG_WARN, "counters", text);
}

}  // namespace

Counts::Counts(core::Dispatcher& dispatcher) : shadow_(dispatcher.shadow_check().statistics()) {
  core::Counters& counters = dispatcher.counters();
  const auto declarations = core::declarations();
  for (size_t i = 0; i < declarations.size(); ++i) {
    Operator& op = ops_[i];
    OpCounters& of = counters.of(declarations[i]);
    for (size_t k = 0; k < kNumbers; ++k) op.numbers[k] = (of.*loader::kNumbers[k].counter).load();
    for (const auto* one : counters.implementations(declarations[i]))
      op.implementations[{one->plugin, one->implementation}] += one->calls.load();
    read_costs(of.staged_cost, &op.costs);
    for (const auto* one : counters.fallbacks(declarations[i])) {
      Fallback& fallback = op.fallbacks[one->reason_code];
      fallback.reason = one->reason;
      fallback.calls = one->calls.load();
      fallback.staged = one->staged.load();
      read_costs(one->staged_cost, &fallback.costs);
      fallback.is_news = dispatcher.policy().fallback() != core::Fallback::allow && one->reason_code != core::kAskedFor;
    }
  }
}

void Counts::add(const Counts& other) {
  shadow_.compared += other.shadow_.compared;
  shadow_.wrong += other.shadow_.wrong;
  shadow_.passed_over += other.shadow_.passed_over;
  shadow_.uncompared.insert(shadow_.uncompared.end(), other.shadow_.uncompared.begin(), other.shadow_.uncompared.end());
  for (const auto& [i, theirs] : other.ops_) {
    Operator& op = ops_[i];
    for (size_t k = 0; k < kNumbers; ++k) op.numbers[k] += theirs.numbers[k];
    for (const auto& [who, calls] : theirs.implementations) op.implementations[who] += calls;
    for (size_t k = 0; k < kCosts; ++k) op.costs[k] += theirs.costs[k];
    for (const auto& [code, fallback] : theirs.fallbacks) {
      Fallback& mine = op.fallbacks[code];
      mine.reason = fallback.reason;
      mine.calls += fallback.calls;
      mine.staged += fallback.staged;
      mine.is_news |= fallback.is_news;
      for (size_t k = 0; k < kCosts; ++k) mine.costs[k] += fallback.costs[k];
    }
  }
}

std::string Counts::json() const {
  ordered_json document = {{"schema", 1},
                           {"watch",
                            {{"compared", shadow_.compared},
                             {"wrong", shadow_.wrong},
                             {"passed_over", shadow_.passed_over},
                             {"uncompared", ordered_json::array()}}},
                           {"ops", ordered_json::array()}};
  for (const core::UncomparedClass& one : shadow_.uncompared)
    document["watch"]["uncompared"].push_back({{"op", one.unit.op},
                                               {"plugin", one.unit.plugin},
                                               {"implementation", one.unit.implementation},
                                               {"dtype", one.unit.dtype},
                                               {"variant", one.unit.variant},
                                               {"size_class", one.unit.size_class},
                                               {"sizes", one.sizes},
                                               {"reason_code", one.reason_code},
                                               {"reason", one.reason},
                                               {"calls", one.calls}});
  for (const auto& [i, counted] : ops_) {
    ordered_json op = {{"name", core::declarations()[i].name}};
    for (size_t k = 0; k < kNumbers; ++k) op[loader::kNumbers[k].name] = counted.numbers[k];
    for (size_t k = 0; k < kCosts; ++k) op[loader::kCosts[k].name] = counted.costs[k];
    op["implementations"] = ordered_json::array();
    for (const auto& [who, calls] : counted.implementations)
      op["implementations"].push_back({{"plugin", who.first}, {"implementation", who.second}, {"calls", calls}});
    op["fallbacks"] = ordered_json::array();
    for (const auto& [code, fallback] : counted.fallbacks) {
      ordered_json one = {
          {"reason_code", code}, {"reason", fallback.reason}, {"calls", fallback.calls}, {"staged", fallback.staged}};
      for (size_t k = 0; k < kCosts; ++k) one[loader::kCosts[k].name] = fallback.costs[k];
      op["fallbacks"].push_back(std::move(one));
    }
    document["ops"].push_back(std::move(op));
  }
  return document.dump(2, ' ', false, ordered_json::error_handler_t::replace);
}

std::string Counts::prometheus() const {
  std::string out;
  const auto each = [&](const auto& visit) {
    for (const auto& [i, op] : ops_) {
      if (op.numbers[0] > 0) visit("op=" + label(core::declarations()[i].name), op);
    }
  };
  for (size_t k = 0; k < kNumbers; ++k) {
    const std::string name = std::string("rlk_") + loader::kNumbers[k].name + "_total";
    head(name, loader::kNumbers[k].help, &out);
    each([&](const std::string& labels, const Operator& op) {
      out += name + "{" + labels + "} " + std::to_string(op.numbers[k]) + "\n";
    });
  }
  for (size_t k = 0; k < kCosts; ++k) {
    const std::string name = std::string("rlk_") + loader::kCosts[k].name + "_total";
    head(name, loader::kCosts[k].help, &out);
    each([&](const std::string& labels, const Operator& op) {
      for (const auto& [code, fallback] : op.fallbacks) {
        if (fallback.staged == 0) continue;
        out += name + "{" + labels + ",reason_code=" + label(code) + "} " + std::to_string(fallback.costs[k]) + "\n";
      }
    });
  }
  head("rlk_implementation_calls_total", "Calls by who served them.", &out);
  each([&](const std::string& labels, const Operator& op) {
    for (const auto& [who, calls] : op.implementations)
      out += "rlk_implementation_calls_total{" + labels + ",plugin=" + label(who.first) +
             ",implementation=" + label(who.second) + "} " + std::to_string(calls) + "\n";
  });
  head("rlk_fallbacks_total", "Calls that did not go where the policy or the data are.", &out);
  each([&](const std::string& labels, const Operator& op) {
    for (const auto& [code, fallback] : op.fallbacks)
      out += "rlk_fallbacks_total{" + labels + ",reason_code=" + label(code) + "} " + std::to_string(fallback.calls) +
             "\n";
  });
  head("rlk_watch_total", "Rows of results that were compared with the reference at run time.", &out);
  const std::pair<const char*, uint64_t> watched[] = {
      {"compared", shadow_.compared}, {"wrong", shadow_.wrong}, {"passed_over", shadow_.passed_over}};
  for (const auto& [result, calls] : watched)
    out += "rlk_watch_total{result=" + label(result) + "} " + std::to_string(calls) + "\n";
  // Classes would be too many series.
  std::map<std::string, uint64_t> classes;
  for (const core::UncomparedClass& one : shadow_.uncompared)
    ++classes["op=" + label(one.unit.op) + ",plugin=" + label(one.unit.plugin) +
              ",implementation=" + label(one.unit.implementation) + ",dtype=" + label(one.unit.dtype) +
              ",reason_code=" + label(one.reason_code)];
  const std::string uncompared = "rlk_watch_uncompared_classes";
  out += fmt::format("# HELP {0} Classes of calls of which none was compared with the reference.\n# TYPE {0} gauge\n",
                     uncompared);
  for (const auto& [labels, count] : classes) out += uncompared + "{" + labels + "} " + std::to_string(count) + "\n";
  return out;
}

std::vector<std::string> Counts::lines() const {
  std::vector<std::string> lines;
  for (const auto& [i, op] : ops_) {
    if (op.numbers[0] == 0) continue;
    std::string line = std::string(core::declarations()[i].name) + ": ";
    for (const auto& [who, calls] : op.implementations) {
      if (calls > 0) line += fmt::format("{} {}/{}, ", calls, who.first, who.second);
    }
    uint64_t fallbacks = 0;
    std::string reasons;
    for (const auto& [code, fallback] : op.fallbacks) {
      fallbacks += fallback.calls;
      reasons += (reasons.empty() ? "" : ", ") + fmt::format("{} {}", fallback.calls, code);
    }
    line += fmt::format("{} {}", fallbacks, fallbacks == 1 ? "fallback" : "fallbacks");
    lines.push_back(line + (reasons.empty() ? "" : " (" + reasons + ")"));
  }
  for (const core::UncomparedClass& one : shadow_.uncompared) lines.push_back(core::text_of(one));
  return lines;
}

std::string Counts::staged() const {
  struct Row {
    std::string text;
    uint64_t nanoseconds, bytes;
  };
  std::vector<Row> rows;
  uint64_t calls = 0;
  for (const auto& [i, op] : ops_) {
    for (const auto& [code, fallback] : op.fallbacks) {
      if (fallback.staged == 0 || !fallback.is_news) continue;
      const auto& [to_host, to_device, nanoseconds] = fallback.costs;
      calls += fallback.staged;
      rows.push_back(
          {fmt::format("{} {} {} ({}): {} to the host, {} back, {:.3g} s", core::declarations()[i].name,
                       fallback.staged, fallback.staged == 1 ? "call" : "calls", code, text_of_bytes(to_host),
                       text_of_bytes(to_device), static_cast<double>(nanoseconds) * 1e-9),
           nanoseconds, to_host + to_device});
    }
  }
  if (rows.empty()) return "";
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return std::pair(a.nanoseconds, a.bytes) > std::pair(b.nanoseconds, b.bytes);
  });
  constexpr size_t kMostRows = 8;
  std::string text = fmt::format("{} {} of a device ran on the CPU, by time there (copies not counted): ", calls,
                                 calls == 1 ? "call" : "calls");
  for (size_t i = 0; i < std::min(rows.size(), kMostRows); ++i) text += (i == 0 ? "" : "; ") + rows[i].text;
  if (rows.size() > kMostRows) text += fmt::format("; and {} more", rows.size() - kMostRows);
  return text + ". RLK_FALLBACK=strict makes such a call an error, RLK_FALLBACK=allow keeps it out of the log";
}

std::string problem_of_counters(const std::string& value) {
  if (value.empty() || value == "0" || value == "1" || value[0] == '/') return "";
  return "is '" + value + "'; expected 1 (log them), 0, or the absolute path of a file for Prometheus";
}

namespace {

void tell_staged_at_exit() {
  Report& all = report();
  const std::lock_guard lock(all.mutex);
  if (std::exchange(all.tells_staged, true)) return;
  all.pid = getpid();
  std::atexit(tell_staged_now);
}

}  // namespace

void tell_counters_at_exit(const Environment& environment) {
  // In a privileged process its user does not choose what rlk writes where.
  tell_staged_at_exit();
  const std::string value = environment.path("RLK_COUNTERS").value_or("");
  const std::string who = environment.origin("RLK_COUNTERS");
  if (const std::string problem = problem_of_counters(value); !problem.empty()) return warn(who + " " + problem);
  if (value.empty() || value == "0") return;
  Report& all = report();
  const std::lock_guard lock(all.mutex);
  if (!all.wanted.empty()) return;
  all.wanted = value;
  all.who = who;
  all.pid = getpid();
  std::atexit(tell_now);
}

void count_in(core::Dispatcher* dispatcher) {
  const std::lock_guard lock(report().mutex);
  report().live.push_back(dispatcher);
}

void count_out(core::Dispatcher* dispatcher) noexcept {
  Report& all = report();
  const std::lock_guard lock(all.mutex);
  all.live.erase(std::remove(all.live.begin(), all.live.end(), dispatcher), all.live.end());
  try {
    all.ended.add(Counts(*dispatcher));
  } catch (const std::bad_alloc&) {
    core::log_line(RLK_LOG_WARN, "counters", "host memory is exhausted: what a runtime has counted is lost");
  }
}

}  // namespace rlk::loader

using rlk::loader::Counts;
using rlk::loader::give_text;
using rlk::loader::guarded;

extern "C" {

rlk_status rlk_counters_json(rlk_runtime* runtime, char** out, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(runtime);
  RLK_REQUIRE_ARGUMENT(out);
  return guarded(error, [&]() -> rlk_status {
    *out = nullptr;
    return give_text(Counts(*runtime->dispatcher).json(), out, error);
  });
}

rlk_status rlk_counters_prometheus(rlk_runtime* runtime, char** out, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(runtime);
  RLK_REQUIRE_ARGUMENT(out);
  return guarded(error, [&]() -> rlk_status {
    *out = nullptr;
    const std::string plugins = rlk::loader::prometheus_of_plugins(runtime->process->records());
    return give_text(Counts(*runtime->dispatcher).prometheus() + plugins, out, error);
  });
}

}  // extern "C"
