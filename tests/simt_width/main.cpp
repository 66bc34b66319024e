// The shared SIMT kernels on a CUDA card in waves of 32 and of 64 lanes: each operator's cases of the conformance
// suite, against golden. It needs a card and NVIDIA's driver, and nothing else but the files beside it.
//   simt_width [--width 32|64] [--op NAME] [--dtype D] [--full] [--seconds N]
// Prints a line for each operator, dtype and width, PASS or FAIL at its head. It ends within N seconds (45) and a few
// more; what was not run by then has failed. Ends with 0, 1 when something failed, 77 when there is no card.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "conformance/simple/target.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using rlk::core::UnitResult;

constexpr int kFailed = 1, kUsage = 2, kSkipped = 77;

struct Options {
  std::vector<std::string> widths = {"32", "64"};
  std::vector<std::string> ops = {"add", "logp", "logp_backward", "attention"};
  std::vector<std::string> dtypes = {"f32", "bf16", "f16", "f64"};
  bool full = false;
  double seconds = 45;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

[[noreturn]] void explain(const char* word) {
  std::fprintf(stderr, "simt_width: %s; see the head of its source, or run it without arguments\n", word);
  std::exit(kUsage);
}

Options options_of(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--full") {
      options.full = true;
      continue;
    }
    if (i + 1 == argc) explain((word + " is no option, or lacks its value").c_str());
    const std::string value = argv[++i];
    if (word == "--width" && (value == "32" || value == "64")) {
      options.widths = {value};
    } else if (word == "--op") {
      options.ops = {value};
    } else if (word == "--dtype") {
      options.dtypes = {value};
    } else if (word == "--seconds" && std::atof(value.c_str()) > 0) {
      options.seconds = std::atof(value.c_str());
    } else {
      explain((word + " " + value + " is no option").c_str());
    }
  }
  return options;
}

std::string folder_of_this_program() {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  const std::string whole(path, static_cast<size_t>(std::max<ssize_t>(length, 0)));
  return whole.substr(0, whole.rfind('/') + 1);
}

const rlk_plugin* load(const std::string& width) {
  const std::string path = folder_of_this_program() + "librlk_plugin_simt_width" + width + ".so";
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    std::printf("FAIL  width %s: %s\n", width.c_str(), dlerror());
    return nullptr;
  }
  return reinterpret_cast<rlk_plugin_entry_v1_fn>(dlsym(library, RLK_PLUGIN_ENTRY_SYMBOL))(rlk::simple::bare_host(),
                                                                                           nullptr);
}

// Why nothing can run here; empty when it can.
std::string missing_device(const rlk_plugin* plugin) {
  rlk_plugin_instance* instance = nullptr;
  rlk_probe_result result{};
  result.struct_size = sizeof(result);
  const rlk_evidence_sink sink{sizeof(rlk_evidence_sink), 0, nullptr, [](void*, const rlk_evidence*) {}};
  plugin->create(rlk::simple::bare_host(), &instance, nullptr);
  plugin->probe(instance, &sink, &result, nullptr);
  plugin->destroy(instance, nullptr);
  return result.verdict == RLK_PROBE_MINE ? std::string() : std::string(result.reason_code) + ": " + result.reason;
}

// By unit: what of it was verified. Two widths must agree in it.
using Verified = std::map<std::string, bool>;

bool is_pass(const std::vector<UnitResult>& units, std::string* why) {
  for (const UnitResult& unit : units) {
    const bool out_of_time = unit.reason_code == "BUDGET";
    if (unit.verdict != UnitResult::Verdict::failed && !out_of_time) continue;
    *why = "\"" + unit.feature + "\": " + unit.reason_code + ": " + unit.reason;
    return false;
  }
  for (const UnitResult& unit : units) {
    if (unit.feature.empty() && unit.verdict == UnitResult::Verdict::verified && unit.cases > 0) return true;
  }
  *why = units.empty() ? "no unit" : "the plain call is not verified: " + units.front().reason;
  return false;
}

bool run(const rlk::core::Target& target, const std::string& width, const rlk::core::ConformanceOptions& options,
         Verified* verified) {
  const auto start = Clock::now();
  const std::vector<UnitResult> units = rlk::core::run_conformance(target, options);
  int cases = 0, good = 0;
  double ratio = 0;
  for (const UnitResult& unit : units) {
    const bool is_good = unit.verdict == UnitResult::Verdict::verified;
    good += is_good ? 1 : 0;
    cases += unit.cases;
    ratio = std::max(ratio, unit.worst_error_ratio);
    if (unit.reason_code != "BUDGET") (*verified)[unit.op + " " + unit.dtype + " \"" + unit.feature + "\""] |= is_good;
  }
  std::string why;
  const bool pass = is_pass(units, &why);
  std::printf(
      "%s  width %s  %-13s %-4s  %d units verified, %zu declined, %d cases, worst %.3f of the bound, %.1f s%s%s\n",
      pass ? "PASS" : "FAIL", width.c_str(), options.ops.front().c_str(), options.dtype.c_str(), good,
      static_cast<size_t>(
          std::count_if(units.begin(), units.end(),
                        [](const UnitResult& unit) { return unit.verdict == UnitResult::Verdict::declined; })),
      cases, ratio, seconds_since(start), pass ? "" : "  ", why.c_str());
  return pass;
}

bool lanes_are_right(const rlk_plugin* plugin, const std::string& width) {
  rlk_plugin_instance* instance = nullptr;
  plugin->create(rlk::simple::bare_host(), &instance, nullptr);
  using Check = const char* (*)();
  const auto check = reinterpret_cast<Check>(plugin->get_extension(instance, "rlk.test.lanes"));
  const char* const wrong = check();
  plugin->destroy(instance, nullptr);
  std::printf("%s  width %s  lanes%s%s\n", wrong == nullptr ? "PASS" : "FAIL", width.c_str(),
              wrong == nullptr ? "" : ": ", wrong == nullptr ? "" : wrong);
  return wrong == nullptr;
}

// A kernel that never ends.
void give_up(int) {
  constexpr char kText[] = "FAIL  the card does not answer\n";
  [[maybe_unused]] const ssize_t written = write(STDOUT_FILENO, kText, sizeof(kText) - 1);
  _exit(kFailed);
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const Options options = options_of(argc, argv);
  const auto start = Clock::now();
  std::signal(SIGALRM, &give_up);
  alarm(static_cast<unsigned>(options.seconds) + 4);

  int failures = 0;
  size_t left = options.widths.size() * options.ops.size() * options.dtypes.size();
  std::map<std::string, Verified> verified;
  for (const std::string& width : options.widths) {
    const rlk_plugin* plugin = load(width);
    if (plugin == nullptr) return kFailed;
    if (const std::string missing = missing_device(plugin); !missing.empty()) {
      std::printf("skipped: no card here: %s\n", missing.c_str());
      return kSkipped;
    }
    if (!lanes_are_right(plugin, width)) {
      ++failures;
      left -= options.ops.size() * options.dtypes.size();
      continue;
    }
    const rlk::simple::OpenTarget target(plugin, rlk::simple::bare_host());
    for (const std::string& op : options.ops) {
      for (const std::string& dtype : options.dtypes) {
        rlk::core::ConformanceOptions suite;
        suite.smoke = !options.full;
        suite.ops = {op};
        suite.dtype = dtype;
        // An operator that needs less leaves more to the others.
        suite.budget_s = std::max(options.seconds - seconds_since(start), 0.1) * (left == 1 ? 1 : 0.5);
        failures += run(target.target(), width, suite, &verified[width]) ? 0 : 1;
        --left;
      }
    }
  }
  // Of units that both widths had time for: a line above has told of the others.
  for (const auto& [unit, is_good] : verified["32"]) {
    const auto other = verified["64"].find(unit);
    if (other == verified["64"].end() || other->second == is_good) continue;
    ++failures;
    std::printf("FAIL  %s is verified at width %s alone\n", unit.c_str(), is_good ? "32" : "64");
  }
  std::printf("%s: %d failed, %.1f s\n", failures == 0 ? "PASS" : "FAIL", failures, seconds_since(start));
  return failures == 0 ? 0 : kFailed;
}
