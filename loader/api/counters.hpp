// What was counted, in the forms that people and monitoring read; on demand also written at the end of the process.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/dispatch/call/dispatcher.hpp"
#include "loader/discover/environment.hpp"
#include "loader/store/record_metrics.hpp"

namespace rlk::loader {

// A copy of a dispatcher's counters, or the sum of several.
class Counts {
public:
  static constexpr size_t kNumbers = 10;  // of an operator: those of core::OpCounters
  static constexpr size_t kCosts = 3;     // of its staged calls: those of core::StagedCost

  Counts() = default;
  explicit Counts(core::Dispatcher& dispatcher);
  void add(const Counts& other);

  // The document of rlk_counters_json: every operator.
  std::string json() const;
  // The text format 0.0.4 of Prometheus: every operator that was called.
  std::string prometheus() const;
  // "logp: 16001 cuda/segments, 0 fallbacks", a line for every operator that was called.
  std::vector<std::string> lines() const;
  // What staged calls cost, the costliest first; "" where there was none, or the policy allows them (RLK_FALLBACK).
  std::string staged() const;

private:
  struct Fallback {
    std::string reason;  // the first
    uint64_t calls = 0, staged = 0;
    std::array<uint64_t, kCosts> costs{};
    bool is_news = false;
  };
  struct Operator {
    std::array<uint64_t, kNumbers> numbers{};
    std::map<std::pair<std::string, std::string>, uint64_t> implementations;  // by plugin and name
    std::array<uint64_t, kCosts> costs{};
    std::map<std::string, Fallback> fallbacks;  // by code
  };
  std::map<size_t, Operator> ops_;  // by declaration
  core::ShadowStatistics shadow_;
};

// RLK_COUNTERS: at the end of the process the counters of all its runtimes are logged (1), or written as Prometheus
// text to a file (an absolute path, in which %p is the process id).
// A warning when the value is neither; the first call of a process decides. Staged calls are reported in any case.
void tell_counters_at_exit(const Environment& environment);
// What is wrong with the variable's value, "" when nothing is.
std::string problem_of_counters(const std::string& value);
// A runtime's dispatcher from its creation to just before its end. [thread-safe]
void count_in(core::Dispatcher* dispatcher);
void count_out(core::Dispatcher* dispatcher) noexcept;

}  // namespace rlk::loader
