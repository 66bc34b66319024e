// Which implementation takes which case? Walks the schedule of one operator and dtype for each implementation, and
// keeps the cases that were asked for and what was answered.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/conformance/harness.hpp"
#include "core/conformance/schedule.hpp"
#include "core/conformance/units.hpp"

namespace rlk::core::conformance {

// An implementation's yes to a case: what it was asked for, and what it claims.
struct Job {
  size_t implementation = 0;
  uint32_t numerics = 0;
  Claim claim;
};

struct Work {
  Case spec;
  ConcreteCall call;  // without values
  Stage stage = Stage::plain;
  std::string words;
  Words features;
  std::vector<Job> jobs;
};

class AcceptedCases {
public:
  using Refused = std::function<void(size_t implementation, const Work& work, const Claim& claim)>;
  AcceptedCases(const OpDecl& decl, int dtype_choice, const std::vector<const rlk_implementation*>& implementations,
                Harness& harness, Extent extent, uint64_t seed, Refused refused);

  // Asks every implementation for the cases of its schedule.
  void walk();
  // Asks one of them for one case more.
  void offer(size_t i, const Case& c, Stage stage);
  std::vector<Work>& work() { return work_; }

private:
  // A walk of the schedule, as one implementation had it.
  struct Walked {
    std::vector<const rlk_switch*> switches;
    struct Step {
      size_t work;
      std::vector<std::string> variants;  // of the answer
    };
    std::vector<Step> steps;  // each case once
  };
  void walk(size_t i, size_t form);
  bool follows(size_t i, const Walked& walked);
  std::span<const rlk_switch* const> switches_of(size_t i) const {
    return {implementations_[i]->switches, implementations_[i]->n_switches};
  }
  std::optional<size_t> work_of(const Case& c, Stage stage);
  std::vector<std::string> ask(size_t i, size_t w);

  const OpDecl& decl_;
  int dtype_choice_;
  const std::vector<const rlk_implementation*>& implementations_;
  Harness& harness_;
  Extent extent_;
  uint64_t seed_;
  Refused refused_;
  std::vector<Work> work_;
  std::unordered_map<std::string, size_t> index_;  // of work_, by words
  std::vector<std::vector<bool>> asked_;           // by implementation, of work_
  std::vector<Walked> walked_;                     // by form, the last one
};

}  // namespace rlk::core::conformance
