// An argument of one or two dimensions, with its strides.
#pragma once

#include "map.h"

namespace rlk::simt {

struct GridTensor {
  void* data;           // nullptr: absent
  int64_t row, column;  // strides in elements
  int32_t dtype;        // as MapTensor's
  int32_t reserved;
};

}  // namespace rlk::simt
