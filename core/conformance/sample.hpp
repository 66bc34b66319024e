// Which part of a call is enough to judge its result by? Calls of production size are judged by a few of their rows.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/conformance/call.hpp"

namespace rlk::core::conformance {

// The kept indices of each axis of a tensor, increasing; none stand for all of them, however many those are.
using Kept = std::vector<std::optional<std::vector<int64_t>>>;

struct Sample {
  ConcreteCall call;                  // of the part: shapes and parameters; inputs have no values yet
  std::vector<Kept> inputs, outputs;  // where the part lies in the whole call; empty for what is absent
  std::vector<bool> judged;           // outputs that the part determines
};

struct SampleLimits {
  uint64_t bytes = uint64_t{64} << 20;  // of the part's tensors
  double work = 2e8;                    // elements that the golden reference may have to visit
};

// Whether the tensor has every index. Ask before copying any part of a caller's tensor.
bool lies_within(const Kept& kept, std::span<const int64_t> shape);

// Rows drawn with the seed, the first and the last among them, where rows are calls of their own and all that the call
// gives is of rows; otherwise the whole call, where it is within the limits. nullopt, and why, when neither is, or when
// the rows give nothing of the call. `whole` needs no values.
std::optional<Sample> sample_of(const ConcreteCall& whole, uint64_t seed, const SampleLimits& limits,
                                std::string* why_not);

// Sizes that are alike for an implementation: the same power of two below each size, the same alignment of each size
// and of the tensors' addresses, the same features. A number that is the same in every process.
uint32_t size_class(const ConcreteCall& call, uint32_t alignment_bytes, const std::vector<std::string>& features);

}  // namespace rlk::core::conformance
