// The list of variables, and what each may be.
#include "loader/cli/variables.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <cstdlib>

#include "core/declaration/declaration.hpp"
#include "loader/api/counters.hpp"
#include "loader/cli/verb.hpp"
#include "loader/probe/child_probe.hpp"
#include "loader/store/cache.hpp"

namespace rlk::cli {
namespace {

// The variables that rlk reads; RLK_OP_<NAME> goes with each operator.
constexpr const char* kVariables[] = {
    "RLK_PLUGIN_PATH",  "RLK_ADD_PLUGIN_PATH", "RLK_WHEEL_PLUGINS", "RLK_PLUGINS_SELECT", "RLK_PLUGINS_DISABLE",
    "RLK_CONFIG",       "RLK_BACKEND",         "RLK_FALLBACK",      "RLK_REQUIRE",        "RLK_LOG",
    "RLK_LOG_DISPATCH", "RLK_LOG_FILE",        "RLK_PROBE",         "RLK_PROBE_TIMEOUT",  "RLK_PROBE_RETRY",
    "RLK_PROBER",       "RLK_NUM_THREADS",     "RLK_THREAD_POOL",   "RLK_CACHE_DIR",      "RLK_CACHE_SEED",
    "RLK_WATCH",        "RLK_CUDA_REMOTE",     "RLK_COUNTERS",      "RLK_CALL_TIMEOUT",   "RLK_ALLOW",
    "RLK_ALLOW_LIST",   "RLK_TVMFFI_MANIFEST", "RLK_VERIFY",        "RLK_REPORTS"};

}  // namespace

std::vector<std::string> variable_names() {
  std::vector<std::string> names(std::begin(kVariables), std::end(kVariables));
  for (const core::OpDecl& decl : core::declarations()) {
    std::string name = "RLK_OP_" + std::string(decl.name);
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
    names.push_back(name);
  }
  return names;
}

namespace {

bool is_number_to(double most, const std::string& text) {  // above 0
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  return number > 0 && number <= most && *end == 0;
}

bool is_thread_count(const std::string& text) {
  int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  return error == std::errc() && end == text.data() + text.size() && count >= 1 && count <= 4096;
}

}  // namespace

std::string problem_of_value(const std::string& name, const std::string& value) {
  const auto one_of = [&](std::vector<std::string> words) {
    return std::find(words.begin(), words.end(), value) != words.end()
               ? std::string()
               : fmt::format("is '{}'{}", value, suggestion(value, words));
  };
  if (value.empty()) return "";  // as good as unset
  if (name == "RLK_PROBE") return one_of({"isolated", "inprocess", "off"});
  if (name == "RLK_VERIFY") return one_of({"lazy", "eager"});
  if (name == "RLK_REPORTS") return one_of({"use", "ignore"});
  if (name == "RLK_THREAD_POOL") return one_of({"own"});
  if (name == "RLK_FALLBACK") return one_of({"allow", "warn", "strict"});
  if (name == "RLK_ALLOW") return one_of({"off", "warn", "require"});
  if (name == "RLK_LOG") return one_of({"trace", "debug", "info", "warn", "err", "critical", "off"});
  if (name == "RLK_LOG_DISPATCH") return one_of({"0", "1"});
  if (double scale = 1.0; name == "RLK_PROBE_TIMEOUT" && !loader::timeout_scale_of({{{name, value}}}, &scale)) {
    return "is '" + value + "', not seconds above 0 and below 1000000";
  }
  if (int64_t seconds = 0; name == "RLK_PROBE_RETRY" && !loader::parse_retry_seconds(value, &seconds)) {
    return "is '" + value + "', not seconds from 0 to 86400";
  }
  if (name == "RLK_WATCH" && value != "off" && value != "first" && !is_number_to(1, value)) {
    return "is '" + value + "', not off, first or a share of calls like 0.001";
  }
  if (name == "RLK_CUDA_REMOTE") return one_of({"0", "1"});
  if (name == "RLK_COUNTERS") return loader::problem_of_counters(value);
  if (name == "RLK_CALL_TIMEOUT" && value != "off" && !is_number_to(1e6, value)) {
    return "is '" + value + "', not off, or seconds like 600";
  }
  if (name == "RLK_NUM_THREADS" && !is_thread_count(value)) return "is '" + value + "', not a number from 1 to 4096";
  return "";
}

std::vector<std::string> problems_of_variables(const loader::Environment& environment) {
  std::vector<std::string> problems;
  for (const auto& [name, value] : environment.values) {
    if (name.rfind("RLK_", 0) != 0) continue;
    if (const std::string problem = problem_of_value(name, value); !problem.empty())
      problems.push_back(name + " " + problem);
  }
  return problems;
}

void forget_misspelt_variables() {
  for (const auto& [name, value] : loader::Environment::of_process().values) {
    if (name.rfind("RLK_", 0) != 0 || problem_of_value(name, value).empty()) continue;
    if (name == "RLK_ALLOW") {  // a misspelt value must not allow more than the user meant
      setenv(name.c_str(), "require", 1);
    } else {
      unsetenv(name.c_str());
    }
  }
}

}  // namespace rlk::cli
