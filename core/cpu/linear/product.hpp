// Products of matrices, one or many at once: what linear, matmul, gemm and their gradients are made of. The blocks are
// those of linear_logp (linear_product-inl.hpp), with its sums: short chains in fp32 (fp64 of f64), then fp64, and what
// a row's sum is made of depends on the depth alone.
#pragma once

#include <algorithm>

#include "core/cpu/linear/linear_operands.hpp"
#include "core/cpu/simd/operator.hpp"

namespace rlk::cpu {

// y[m, n] = alpha sum over k of a[m, k] b[n, k] + bias[n] + beta c[m, n]. Strides are free: a transposed matrix is its
// strides exchanged.
struct Product {
  int64_t rows = 0, columns = 0, depth = 0;
  Array a, b;  // [rows, depth] and [columns, depth], of one dtype
  Array y;     // [rows, columns]
  Array bias;  // optional, [columns]
  Array c;     // optional, [rows, columns]; may be y
  double alpha = 1, beta = 1;
};

// The matrix of the last two dimensions that begins `offset` elements behind the array's first; and with its dimensions
// exchanged.
inline Array matrix_at(const Array& array, int64_t offset) {
  Array matrix = Array::vector(element(array.data, offset, array.dtype), array.dtype);
  matrix.ndim = 2;
  for (int axis = 0; axis < 2; ++axis) {
    matrix.shape[axis] = array.shape[array.ndim - 2 + axis];
    matrix.strides[axis] = array.strides[array.ndim - 2 + axis];
  }
  return matrix;
}
inline Array transposed(const Array& matrix) {
  Array other = matrix;
  std::swap(other.shape[0], other.shape[1]);
  std::swap(other.strides[0], other.strides[1]);
  return other;
}
// y = a b^T of their shapes.
inline Product product_of(const Array& a, const Array& b, const Array& y) {
  return {a.shape[0], b.shape[0], a.shape[1], a, b, y, {}, {}, 1, 1};
}

// The operations of a product of these sizes, for a registration.
inline double operations_of_product(int64_t rows, int64_t columns, int64_t depth) {
  return 2 * static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(depth);
}

// Rows that are packed at a time, at most.
constexpr int64_t kProductRows = 2304;

// Where the kernel changes its algorithm, if the product's sizes have these names.
template <char rows, char columns, char depth>
struct ProductSwitches {
  static constexpr char kRows[] = {rows, 0}, kColumns[] = {columns, 0}, kDepth[] = {depth, 0};
  static constexpr rlk_switch kAll[] = {{sizeof(rlk_switch), 0, kRows, kProductRows + 1},
                                        {sizeof(rlk_switch), 0, kColumns, kLinearBlock + 1},
                                        {sizeof(rlk_switch), 0, kDepth, kLinearDepth + 1},
                                        {sizeof(rlk_switch), 0, kDepth, kAmxDepth},
                                        {sizeof(rlk_switch), 0, kDepth, kAmxPanelDepth + 1}};
};

// Bytes for so many products with so many rows and columns, all together, and none deeper than `depth`.
struct ProductSizes {
  int64_t products, rows, columns, depth;
};
int64_t products_bytes(const ProductSizes& sizes, Dtype dtype);

// Computes product(ctx, i) for i < count; `memory` has products_bytes. Products are asked for by any thread, again and
// again. Throws throw_no_scratch().
using ProductAt = Product (*)(const void* ctx, int64_t i);
void multiply(const ParallelFor& parallel, void* memory, int64_t count, Dtype dtype, int64_t depth, ProductAt product,
              const void* ctx);

template <class Function>
void multiply(const ParallelFor& parallel, void* memory, int64_t count, Dtype dtype, int64_t depth,
              const Function& product) {
  const auto at = [](const void* ctx, int64_t i) { return (*static_cast<const Function*>(ctx))(i); };
  multiply(parallel, memory, count, dtype, depth, at, &product);
}
inline int64_t product_bytes(const Product& product) {
  return products_bytes({1, product.rows, product.columns, product.depth}, product.a.dtype);
}
inline void multiply(const ParallelFor& parallel, void* memory, const Product& product) {
  multiply(parallel, memory, 1, product.a.dtype, product.depth, [&](int64_t) { return product; });
}

}  // namespace rlk::cpu
