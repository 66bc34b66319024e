// Sums over the rows of a matrix, in one order.
#pragma once

#include "product.hpp"

namespace rlk::products {

class ColumnSums {
public:
  ColumnSums(Device& device, sdk::Dtype dtype);
  static uint64_t workspace_of(int64_t rows, int64_t columns, sdk::Dtype dtype);
  // sums: [columns] of accumulators.
  void run(const Matrix& x, void* sums, simt::host::StreamHandle stream, void* workspace) const;

private:
  simt::host::FunctionHandle parts_, finish_;
};

}  // namespace rlk::products
