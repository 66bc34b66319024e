// What the products of mcBLASLt are called.
#pragma once

#include "../products/operators.hpp"

namespace rlk::maca {

struct McblasLt {
  static constexpr const char* kName = "mcblaslt";
};

}  // namespace rlk::maca
