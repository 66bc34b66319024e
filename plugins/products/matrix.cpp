// Matrices as operators have them: of tensors, of a workspace, and parts of them.
#include "product.hpp"

#include <algorithm>

namespace rlk::products {

void* Matrix::from(int64_t elements) const {
  return static_cast<char*>(data) + elements * sdk::bytes_of(dtype);
}

Matrix Matrix::rows_from(int64_t first, int64_t count) const {
  Matrix part = *this;
  if (data != nullptr) {
    part.data = from(first * row_stride);
  } else if (const auto bytes = static_cast<uint64_t>(first * row_stride * sdk::bytes_of(dtype)); bytes != 0) {
    part.alignment = std::min<uint64_t>(alignment, bytes & (~bytes + 1));
  }
  part.rows = count;
  return part;
}

Matrix matrix_of(const rlk_tensor& tensor) {
  Matrix matrix;
  matrix.data = sdk::data_of(&tensor);
  matrix.dtype = sdk::dtype_of(tensor);
  const int32_t n = tensor.ndim;
  matrix.rows = tensor.shape[n - 2];
  matrix.columns = tensor.shape[n - 1];
  matrix.row_stride = tensor.strides[n - 2];
  matrix.column_stride = tensor.strides[n - 1];
  for (int32_t d = 0; d < n - 2; ++d) {
    matrix.batch_stride[4 - n + d] = tensor.shape[d] == 1 ? 0 : tensor.strides[d];
  }
  matrix.alignment = tensor.alignment;
  return matrix;
}

Bias bias_of(const rlk_tensor* tensor) {
  if (tensor == nullptr) return {};
  return {true, sdk::data_of(tensor), tensor->alignment};
}

Matrix dense(void* data, sdk::Dtype dtype, int64_t rows, int64_t columns) {
  Matrix matrix;
  matrix.data = data;
  matrix.dtype = dtype;
  matrix.rows = rows;
  matrix.columns = columns;
  matrix.row_stride = columns;
  matrix.column_stride = 1;
  matrix.alignment = 256;
  return matrix;
}

}  // namespace rlk::products
