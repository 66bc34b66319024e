// Values in a tensor that break their domain, as kernels tell them (RLK_DATA_ERROR).
#pragma once

#include <cstdint>

namespace rlk::sdk {

// The kinds of rlk_data_error.
enum DataErrorKind : int32_t {
  kNoDataError = 0,
  kIdOutOfRange = 1,      // value = the id
  kNoFiniteLogit = 2,     // value = 0
  kRowOutOfRange = 3,     // value = the row index, out of range or out of order
  kBadSeqlens = 4,        // row = first bad position, value = its content
  kBadSecondSeqlens = 5,  // the same of the operator's second input of lengths
};

// The first one: that of the lowest row.
struct DataError {
  int32_t kind = kNoDataError;
  int64_t row = 0;
  int64_t value = 0;
};

}  // namespace rlk::sdk
