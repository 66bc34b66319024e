// Which part of a call is a call of its own? Batch invariance is proved by running parts and reorderings of a call and
// comparing bits: a row's bits may depend on that row alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/conformance/call.hpp"

namespace rlk::core::conformance {

// What varies: the rows of a call are the values of its first symbol (output rows of logp, sequences of attention), or
// the first dimension of a broadcast.
struct Part {
  std::string name;  // "rows 0..2 alone", "rows in another order"
  ConcreteCall call;
  // For each output, the bytes of the whole call's output that this part must reproduce, gathered into the part's
  // shape; elements that it says nothing about are marked in `skip` (one flag per element; empty: none).
  struct Expected {
    bool compared = false;
    std::vector<std::byte> bytes;
    std::vector<bool> skip;
  };
  std::vector<Expected> expected;
};

// The parts of a call whose outputs are known. Empty when the call has fewer than two rows.
std::vector<Part> parts_of(const ConcreteCall& whole, const std::vector<std::vector<std::byte>>& outputs);

}  // namespace rlk::core::conformance
