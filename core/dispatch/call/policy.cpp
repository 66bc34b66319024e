// Which implementation should serve an operator, by the preferences of the environment and the policy file.
#include "core/dispatch/call/policy.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <sstream>

#include "core/declaration/error.hpp"
#include "core/declaration/near_name.hpp"
#include "core/declaration/numerics.hpp"
#include "core/dispatch/call/policy_check.hpp"
#include "core/dispatch/call/registry.hpp"
#include "core/dispatch/log.hpp"

namespace rlk::core {
namespace {

constexpr std::string_view kOpPrefix = "RLK_OP_";
constexpr std::string_view kNumericsKey = "numerics";
constexpr std::string_view kShadowCheckKey = "watch";
constexpr std::string_view kFallbackKey = "fallback";
constexpr std::string_view kCallTimeoutKey = "call_timeout";

// Longer than anything that enqueues work, or waits for it, takes in a healthy job.
constexpr double kCallTimeoutSeconds = 600;

// "off", "first", or a share of calls.
bool parse_shadow_check(const std::string& value, double* rate) {
  char* end = nullptr;
  *rate = std::strtod(value.c_str(), &end);
  if (value == "off" || value == "first") return *rate = 0, true;
  return end != value.c_str() && *end == '\0' && *rate > 0 && *rate <= 1;
}

std::string shadow_check_problem(const std::string& value, const std::string& source) {
  return fmt::format("{} is \"{}\"; expected off, first, or a share of calls like 0.001", source, value);
}

// "off", or seconds.
bool parse_call_timeout(const std::string& value, double* seconds) {
  char* end = nullptr;
  *seconds = std::strtod(value.c_str(), &end);
  if (value == "off") return *seconds = 0, true;
  return end != value.c_str() && *end == '\0' && *seconds > 0 && *seconds <= 1e6;
}

std::string call_timeout_problem(const std::string& value, const std::string& source) {
  return fmt::format("{} is \"{}\"; expected off, or seconds like 600", source, value);
}

std::string wish_problem(const std::string& value, const std::string& source) {
  return fmt::format("{} is \"{}\"; expected BACKEND, BACKEND:IMPLEMENTATION or PLUGIN/IMPLEMENTATION", source, value);
}

bool is_name(std::string_view text) {
  if (text.empty()) return false;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_' && c != '-' && c != '.') return false;
  }
  return true;
}

std::string variable_of(const OpDecl& decl) {
  std::string name(kOpPrefix);
  for (const char* c = decl.name; *c != '\0'; ++c)
    name += static_cast<char>(std::toupper(static_cast<unsigned char>(*c)));
  return name;
}

// The operator that an unknown name was meant for, as `text` of the operator has it.
std::string meant_operator(std::string_view name, std::string (*text)(const OpDecl&)) {
  std::vector<std::string> names;
  for (const OpDecl& decl : declarations()) names.push_back(text(decl));
  const std::string near = near_name(name, names);
  return near.empty() ? fmt::format("; `rlk-plugins ops` lists the {}", names.size())
                      : fmt::format(", did you mean {}?", near);
}

// False, and the value as it was, for any other word.
bool parse_fallback(const std::string& text, Fallback* out) {
  if (text == "allow") *out = Fallback::allow;
  if (text == "warn") *out = Fallback::warn;
  if (text == "strict") *out = Fallback::strict;
  return text == "allow" || text == "warn" || text == "strict";
}

std::string fallback_problem(const std::string& value, const std::string& source) {
  return fmt::format("{} sets fallback to \"{}\"; expected allow, warn or strict", source, value);
}

}  // namespace

bool parse_preference(std::string_view text, std::string source, Preference* out) {
  const size_t at = text.find_first_of(":/");
  out->who = text.substr(0, at);
  out->plugin_only = at != std::string_view::npos && text[at] == '/';
  out->implementation = at != std::string_view::npos ? text.substr(at + 1) : std::string_view();
  out->source = std::move(source);
  return is_name(out->who) && (at == std::string_view::npos || is_name(out->implementation));
}

bool Preference::matches(const Candidate& candidate) const {
  const bool right_plugin = candidate.plugin->id == who || (!plugin_only && candidate.plugin->backend == who);
  return right_plugin && (implementation.empty() || implementation == candidate.implementation->name);
}

std::vector<std::string> problems_of(const std::vector<PolicyEntry>& entries) {
  std::vector<std::string> problems;
  for (const PolicyEntry& entry : entries) {
    double rate = 0;
    Preference preference;
    if (entry.op == kNumericsKey) {
      std::istringstream classes(entry.value);
      for (std::string name; std::getline(classes, name, ',');) {
        if (numerics_of_name(name) != 0) continue;
        problems.push_back(fmt::format("{} demands the numerics class \"{}\"; expected some of: {}", entry.source, name,
                                       text_of_numerics(kAllNumerics)));
      }
    } else if (entry.op == kFallbackKey) {
      if (Fallback ignored{}; !parse_fallback(entry.value, &ignored))
        problems.push_back(fallback_problem(entry.value, entry.source));
    } else if (entry.op == kShadowCheckKey) {
      if (!parse_shadow_check(entry.value, &rate)) problems.push_back(shadow_check_problem(entry.value, entry.source));
    } else if (entry.op == kCallTimeoutKey) {
      if (!parse_call_timeout(entry.value, &rate)) problems.push_back(call_timeout_problem(entry.value, entry.source));
    } else if (!entry.op.empty() && find_declaration(entry.op) == nullptr) {
      problems.push_back(
          fmt::format("{} names the operator \"{}\", which rlk does not have{}", entry.source, entry.op,
                      meant_operator(entry.op, [](const OpDecl& decl) { return std::string(decl.name); })));
    } else if (!entry.off.empty()) {
      if (!entry.value.empty() && !is_name(entry.value)) {
        problems.push_back(
            fmt::format("{} turns \"{}\" off; expected an implementation's name", entry.source, entry.value));
      }
    } else if (!parse_preference(entry.value, entry.source, &preference)) {
      problems.push_back(wish_problem(entry.value, entry.source));
    }
  }
  return problems;
}

std::vector<Preference> Policy::preferences(const OpDecl& decl, std::string_view platform) const {
  std::vector<Preference> here;
  for (const Preference& preference : preferences(decl)) {
    if (preference.platform.empty() || preference.platform == platform) here.push_back(preference);
  }
  return here;
}

const Exclusion* Policy::exclusion(const Candidate& candidate) const {
  const std::string& platform = candidate.on->backend;
  for (const Exclusion& one : exclusions_[index_of(*candidate.decl)]) {
    if (!one.implementation.empty() && one.implementation != candidate.implementation->name) continue;
    if (platform == "cpu" || (!one.platform.empty() && one.platform != platform)) continue;
    for (const Preference& preference : preferences(*candidate.decl, platform)) {
      if (preference.of_operator && preference.matches(candidate)) return nullptr;
    }
    return &one;
  }
  return nullptr;
}

Policy::Policy() : preferences_(declarations().size()), exclusions_(declarations().size()) {}

rlk_status Policy::make(const Environment& environment, const std::vector<std::string>& names,
                        const std::vector<PolicyEntry>& entries, Policy* out, rlk_error* error) {
  Policy policy;
  std::vector<std::string> problems;
  const auto problem = [&](const std::string& text) {
    if (std::find(problems.begin(), problems.end(), text) != problems.end()) return;
    problems.push_back(text);
    log_line(RLK_LOG_WARN, "policy", text);
  };
  const auto value_of = [&](const char* name) {
    const char* value = environment(name);
    return std::string(value != nullptr ? value : "");
  };

  const auto by_file =
      std::find_if(entries.begin(), entries.end(), [](const PolicyEntry& entry) { return entry.op == kFallbackKey; });
  if (by_file != entries.end()) parse_fallback(by_file->value, &policy.fallback_);
  const std::string fallback = value_of("RLK_FALLBACK");
  if (!fallback.empty() && !parse_fallback(fallback, &policy.fallback_)) {
    problem(fallback_problem(fallback, "RLK_FALLBACK"));
  }
  const std::string log = value_of("RLK_LOG_DISPATCH");
  policy.logs_dispatch_ = log == "1";
  if (!log.empty() && log != "0" && log != "1") {
    problem("RLK_LOG_DISPATCH is \"" + log + "\"; expected 0 or 1. Using 0");
  }

  policy.shadow_checks_first_uses_ = true;
  const auto shadow_check = [&](const std::string& value, const std::string& source) {
    if (value.empty()) return;
    double rate = 0;
    if (!parse_shadow_check(value, &rate)) {
      problem(shadow_check_problem(value, source));
      return;
    }
    policy.shadow_checks_first_uses_ = value != "off";
    policy.shadow_check_rate_ = rate;
  };
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (entry->op == kShadowCheckKey) shadow_check(entry->value, entry->source);
  }
  shadow_check(value_of("RLK_WATCH"), "RLK_WATCH");

  policy.call_timeout_seconds_ = kCallTimeoutSeconds;
  const auto call_timeout = [&](const std::string& value, const std::string& source) {
    double seconds = 0;
    if (value.empty()) return;
    if (!parse_call_timeout(value, &seconds)) return problem(call_timeout_problem(value, source));
    policy.call_timeout_seconds_ = seconds;
  };
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (entry->op == kCallTimeoutKey) call_timeout(entry->value, entry->source);
  }
  call_timeout(value_of("RLK_CALL_TIMEOUT"), "RLK_CALL_TIMEOUT");

  // From the strongest source to the weakest.
  const auto add = [&](const OpDecl& decl, const PolicyEntry& entry) {
    Preference preference;
    if (entry.value.empty() || !entry.off.empty()) return;
    if (parse_preference(entry.value, entry.source, &preference)) {
      preference.platform = entry.platform;
      preference.of_operator = !entry.op.empty();
      policy.preferences_[index_of(decl)].push_back(std::move(preference));
    } else {
      problem(wish_problem(entry.value, entry.source));
    }
  };
  for (const OpDecl& decl : declarations()) {
    add(decl, {decl.name, value_of(variable_of(decl).c_str()), variable_of(decl)});
    add(decl, {"", value_of("RLK_BACKEND"), "RLK_BACKEND"});
    for (const PolicyEntry& entry : entries) {
      if (entry.op == decl.name) add(decl, entry);
    }
    for (const PolicyEntry& entry : entries) {
      if (entry.op.empty()) add(decl, entry);
    }
    for (const PolicyEntry& entry : entries) {
      if (entry.off.empty() || entry.op != decl.name) continue;
      policy.exclusions_[index_of(decl)].push_back({entry.value, entry.platform, entry.off, entry.source});
    }
  }
  const auto demand =
      std::find_if(entries.begin(), entries.end(), [](const PolicyEntry& entry) { return entry.op == kNumericsKey; });
  if (demand != entries.end()) {
    policy.numerics_source_ = demand->source;
    std::istringstream classes(demand->value);
    for (std::string name; std::getline(classes, name, ',');) {
      const uint32_t bit = numerics_of_name(name);
      policy.numerics_ |= bit;
    }
  }
  for (const std::string& name : names) {
    if (name.compare(0, kOpPrefix.size(), kOpPrefix) != 0) continue;
    bool known = false;
    for (const OpDecl& decl : declarations()) known = known || name == variable_of(decl);
    if (!known) problem(fmt::format("{} names no operator{}", name, meant_operator(name, variable_of)));
  }
  for (const std::string& text : problems_of(entries)) problem(text);
  if (!problems.empty() && policy.fallback_ == Fallback::strict) {
    return fail(error, RLK_INVALID_ARGUMENT, problems.front() + " (an error because RLK_FALLBACK=strict)");
  }
  *out = std::move(policy);
  return RLK_OK;
}

}  // namespace rlk::core
