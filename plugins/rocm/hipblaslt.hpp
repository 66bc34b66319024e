// What the products of hipBLASLt are called.
#pragma once

#include "../products/operators.hpp"

namespace rlk::rocm {

struct HipblasLt {
  static constexpr const char* kName = "hipblaslt";
};

}  // namespace rlk::rocm
