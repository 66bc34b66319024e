// What the products of cuBLASLt are called.
#pragma once

#include "../products/operators.hpp"

namespace rlk::cuda {

struct CublasLt {
  static constexpr const char* kName = "cublaslt";
};

}  // namespace rlk::cuda
