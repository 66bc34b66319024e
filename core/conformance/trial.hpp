// One case tried on one implementation: twice with different poison, once with other data through the same plan, in
// parts, and from a graph.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/conformance/cases.hpp"
#include "core/conformance/compare.hpp"
#include "core/conformance/golden_bridge.hpp"
#include "core/conformance/rig.hpp"

namespace rlk::core::conformance {

// A case with its data and its right answer.
struct Example {
  Case spec;
  Call call;
  Answer answer;
  std::string words;
};

// Golden answers are slow and asked for again: by each implementation of the operator, and as the other data of every
// case of the same variations. The last ones are kept.
class Examples {
public:
  explicit Examples(uint64_t seed) : seed_(seed) {}
  // `other_data` draws the inputs anew.
  std::shared_ptr<const Example> get(const Case& c, bool other_data);

private:
  struct Kept {
    std::string key;
    size_t bytes;
    std::shared_ptr<const Example> example;
  };
  void keep(std::string key, const std::shared_ptr<const Example>& example);

  uint64_t seed_;
  std::list<Kept> kept_;  // used last first
  std::unordered_map<std::string_view, std::list<Kept>::iterator> index_;
  size_t bytes_ = 0;
};

struct Verdict {
  std::optional<Failure> failure;
  uint32_t numerics = 0;  // classes that were claimed, tried and held
  Quality quality{};
};

// `numerics` is demanded of every query that the trial makes, as it was of the one that gave the claim.
Verdict try_case(Rig& rig, Examples& examples, const rlk_implementation& implementation, const Example& example,
                 uint32_t numerics, const Claim& claim, bool graph_replay);

}  // namespace rlk::core::conformance
