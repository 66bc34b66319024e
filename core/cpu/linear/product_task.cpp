// A block of a product of matrices, from packed rows to what is stored; for every instruction set.
#include "core/cpu/linear/product_task.hpp"

#include <algorithm>
#include <cstring>

#include "core/cpu/simd/scratch.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/linear/product_task.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/cpu/linear/linear_product-inl.hpp"
#include "core/cpu/simd/blocks-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

// alpha times the products with columns [column, column + columns), and the bias. They are sums[column][row], columns
// `width` apart.
void scale_sums(const Product& p, int64_t column, int64_t columns, int64_t width, double* sums) {
  for (int64_t j = 0; j < columns && (p.alpha != 1 || p.bias.present()); ++j) {
    const double bias = p.bias.present() ? p.bias.get(column + j) : 0;
    for (int64_t t = 0; t < width; ++t) sums[j * width + t] = p.alpha * sums[j * width + t] + bias;
  }
}

// Adds beta c of rows [row, row + rows) to them, a line of c's memory at a time.
void add_c(const Product& p, int64_t row, int64_t rows, int64_t column, int64_t columns, int64_t width, double* sums) {
  const bool by_rows = p.c.strides[1] == 1 || p.c.strides[0] != 1;  // a line is a row's numbers
  const int64_t lines = by_rows ? rows : columns, length = by_rows ? columns : rows;
  const int64_t line_step = by_rows ? 1 : width, step = by_rows ? width : 1;
  double before[std::max<int64_t>(kLinearBlock, kMaxVecs * hn::MaxLanes(hn::ScalableTag<float>()))];
  for (int64_t i = 0; i < lines; ++i) {
    const int64_t first = (row + (by_rows ? i : 0)) * p.c.strides[0] + (column + (by_rows ? 0 : i)) * p.c.strides[1];
    read_line(Line{element(p.c.data, first, p.c.dtype), p.c.dtype, p.c.strides[by_rows ? 1 : 0]}, length,
              static_cast<double*>(before));
    double* const to = sums + i * line_step;
    for (int64_t k = 0; k < length; ++k) to[k * step] += p.beta * before[k];
  }
}

// The same sums, rounded to y, where vectors of y are written: returns how many columns.
template <typename T, typename E>
HWY_NOINLINE int64_t store_squares([[maybe_unused]] const Array& y, [[maybe_unused]] int64_t row,
                                   [[maybe_unused]] int64_t rows, [[maybe_unused]] int64_t column,
                                   [[maybe_unused]] int64_t columns, [[maybe_unused]] int64_t width,
                                   [[maybe_unused]] const double* sums) {
  int64_t whole = 0;
#if RLK_CPU_VECTOR_ARRAYS
  if constexpr (kWidens<T, E>) {
    const hn::ScalableTag<T> d;
    whole = columns / kLanes<T> * kLanes<T>;
    hn::VFromD<decltype(d)> square[kLanes<T>];
    // A row of y gets all its columns at once: rows lie a power of two apart, often, and L1 holds few lines of those.
    HWY_ALIGN E lines[kLanes<T> * kLinearBlock];
    for (int64_t t = 0; t < rows; t += kLanes<T>) {
      for (int64_t j = 0; j < whole; j += kLanes<T>) {
#pragma GCC unroll 16
        for (int i = 0; i < kLanes<T>; ++i) square[i] = load_sum(d, sums + (j + i) * width + t, 0.0);
        transpose_square<T>(square);
#pragma GCC unroll 16
        for (int i = 0; i < kLanes<T>; ++i) store(d, square[i], lines + i * kLinearBlock + j);
      }
      for (int64_t i = 0; i < std::min<int64_t>(kLanes<T>, rows - t); ++i) {
        std::memcpy(y.as<E>() + (row + t + i) * y.strides[0] + column, lines + i * kLinearBlock,
                    static_cast<size_t>(whole) * sizeof(E));
      }
    }
  }
#endif
  return whole;
}

// The same where y's rows are neighbours: returns how many of them.
template <typename T, typename E>
HWY_NOINLINE int64_t store_lines([[maybe_unused]] const Array& y, [[maybe_unused]] int64_t row,
                                 [[maybe_unused]] int64_t rows, [[maybe_unused]] int64_t column,
                                 [[maybe_unused]] int64_t columns, [[maybe_unused]] int64_t width,
                                 [[maybe_unused]] const double* sums) {
  int64_t t = 0;
#if RLK_CPU_VECTOR_ARRAYS
  if constexpr (kWidens<T, E>) {
    const hn::ScalableTag<T> d;
    t = rows / kLanes<T> * kLanes<T>;
    for (int64_t j = 0; j < columns; ++j) {
      E* to = y.as<E>() + row + (column + j) * y.strides[1];
      for (int64_t i = 0; i < t; i += kLanes<T>) store(d, load_sum(d, sums + j * width + i, 0.0), to + i);
    }
  }
#endif
  return t;
}

template <typename T>
HWY_NOINLINE void store_sums(const Array& y, int64_t row, int64_t rows, int64_t column, int64_t columns, int64_t width,
                             const double* sums) {
  int64_t rows_done = 0, columns_done = 0;
  with_element(y.dtype, [&](auto tag) HWY_ATTR {
    using E = decltype(tag);
    if (y.strides[1] == 1) {
      columns_done = store_squares<T, E>(y, row, rows, column, columns, width, sums);
    } else if (y.strides[0] == 1) {
      rows_done = store_lines<T, E>(y, row, rows, column, columns, width, sums);
    }
  });
  const bool as_vectors = size_of(y.dtype) <= static_cast<int64_t>(sizeof(T));  // rounded to T first
  for (int64_t j = columns_done; j < columns; ++j) {
    for (int64_t t = rows_done; t < rows; ++t) {
      const double sum = sums[j * width + t];
      y.put(row + t, column + j, as_vectors ? static_cast<double>(static_cast<T>(sum)) : sum);
    }
  }
}

template <typename T>
HWY_NOINLINE bool block_task(const ProductPiece& piece, int64_t column) {
  const LinearOperands operands = operands_of(piece);
  const int64_t tile_count = (piece.batch.count + tile_rows_of<T>() - 1) / tile_rows_of<T>();
  const int64_t per_tile = kLinearBlock * tile_rows_of<T>();
  const Tiles<T> tiles{operands, piece.batch, 0, tile_count};
  const auto lay_out = [&](Carve carve, double** sums, T** weights) {
    *sums = carve.take<double>(tile_count * per_tile);
    *weights = carve.take<T>(kPackedWeights<T>);
    return static_cast<size_t>(carve.bytes());
  };
  double* sums = nullptr;
  T* weights = nullptr;
  void* const scratch = thread_scratch(lay_out(Carve(nullptr), &sums, &weights));
  if (scratch == nullptr) return false;
  lay_out(Carve(scratch), &sums, &weights);
  const Product& product = piece.product;
  const int64_t columns = std::min(kLinearBlock, product.columns - column);
  block_products(tiles, column, columns, weights, sums);
  for (int64_t tile = 0; tile < tile_count; ++tile, sums += per_tile) {
    const int64_t row = piece.row + tiles.begin(tile), rows = tiles.end(tile) - tiles.begin(tile);
    scale_sums(product, column, columns, tiles.width(tile), sums);
    if (product.c.present() && product.beta != 0) add_c(product, row, rows, column, columns, tiles.width(tile), sums);
    store_sums<T>(product.y, row, rows, column, columns, tiles.width(tile), sums);
  }
  return true;
}

bool product_task_for(const ProductPiece& piece, int64_t column) {
  return piece.product.a.dtype == Dtype::f64 ? block_task<double>(piece, column) : block_task<float>(piece, column);
}

template <typename T>
int64_t room_of(int64_t count) {
  return has_few_rows<T>(LinearBatch{nullptr, count, nullptr}) ? few_rows(count) : round_up(count, lanes_of<T>());
}
int64_t product_room_for(int64_t count, bool in_f64) {
  return in_f64 ? room_of<double>(count) : room_of<float>(count);
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rlk::cpu {

HWY_EXPORT(product_task_for);
HWY_EXPORT(product_room_for);

int64_t product_room(int64_t count, bool in_f64) {
  return HWY_DYNAMIC_DISPATCH(product_room_for)(count, in_f64);
}
bool product_task(const ProductPiece& piece, int64_t column) {
  return HWY_DYNAMIC_DISPATCH(product_task_for)(piece, column);
}

}  // namespace rlk::cpu
#endif  // HWY_ONCE
