// One case tried on one implementation: twice with different poison, once with other data through the same plan, in
// parts, and from a graph.
#pragma once

#include "core/conformance/compare.hpp"
#include "core/conformance/examples.hpp"
#include "core/conformance/harness.hpp"

namespace rlk::core::conformance {

struct Verdict {
  std::optional<Failure> failure;
  uint32_t numerics = 0;  // classes that were claimed, tried and held
  Quality quality{};
};

// What the last comparison of a case run had before it.
struct Seen {
  ConcreteCall call;
  Answer answer;
  std::vector<std::vector<std::byte>> outputs;
};

struct CaseRunOptions {
  bool graph_replay = false;
  // Once more with other data through the same plan. Its right answer costs as much as the first one.
  bool other_data = true;
  Seen* seen = nullptr;
};

// `numerics` is demanded of every query that the run makes, as it was of the one that gave the claim.
Verdict try_case(Harness& harness, Examples& examples, const rlk_implementation& implementation, const Example& example,
                 uint32_t numerics, const Claim& claim, const CaseRunOptions& options = {});

}  // namespace rlk::core::conformance
