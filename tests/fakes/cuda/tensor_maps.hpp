// What the emulated driver writes into a tensor map, and the emulated copies read: of matrices of 16-bit elements.
#pragma once

#include <cstdint>

namespace fake_cuda {

constexpr uint32_t kBoxColumns = 64;

struct TensorMap {
  const void* data;
  int64_t columns, rows, row_bytes;
  uint32_t box_rows, reserved;
  int64_t matrices, matrix_bytes;
  uint64_t unused[9];
};
static_assert(sizeof(TensorMap) == 128);

}  // namespace fake_cuda
