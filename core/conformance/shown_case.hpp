// A case for people to look at: what went in, what came out, what was expected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/conformance/conformance.hpp"
#include "core/declaration/declaration.hpp"

namespace rlk::core {

struct ShownTensor {
  std::string name;  // of the argument
  enum class Role : uint8_t { input, got, expected } role = Role::input;
  Dtype dtype = Dtype::f32;  // expected values are f64, or i64 where the output holds integers
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;  // row-major without gaps, however the tensor lay in memory
};

struct ShownCase {
  std::string title;                // "logp fused bf16 softcap N=5,V=37"
  std::string op, variant;          // of the implementation that was tried
  std::string code, reason;         // of the failure; empty when the case passed
  std::vector<std::string> params;  // "softcap=3": those that are not at their defaults
  // Of the last execution that was compared: mostly the one that failed.
  std::vector<ShownTensor> tensors;
};

}  // namespace rlk::core
