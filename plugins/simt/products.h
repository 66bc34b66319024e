// What the host passes to the kernels around a library's products (products.cuh): plain structs.
#pragma once

#include "args.h"

namespace rlk::simt {

constexpr int kProductsThreads = 256;
constexpr int kProductsPack = 8;          // elements of a thread where rows are dense
constexpr int64_t kColumnChunkRows = 64;  // rows that one thread sums, at least

// y = factor x + bias for [batch 0, batch 1, rows, columns].
struct ProductsMapArgs {
  const void* x;  // nullptr: none
  void* y;
  const void* bias;  // [columns], of y's dtype; nullptr: none
  int64_t size[4];
  int64_t x_stride[4];
  int64_t y_stride[4];
  int64_t dense;  // both follow each other without gaps: elements of one row
  double factor;
  const float* scale;  // on the device, multiplies the factor; nullptr: none
};

// A power of two by which numbers are multiplied before they are rounded to fewer exponents, and what takes it back:
// the factors of a product, which the library reads here.
struct ProductsScale {
  uint32_t largest;  // bits of the largest finite |x|, 0 at first
  float scale;       // 2^k
  float factors[3];  // 2^-k, 0 and 1
};
constexpr int kProductsTop = 14;  // the largest becomes at least 2^14 and less than 2^15
struct ProductsScaleArgs {
  const float* x;  // `count` numbers without gaps
  ProductsScale* scale;
  int64_t count;
};

// sums[v] = sum of x[n, v] over n.
struct ProductsColumnsArgs {
  const void* x;
  void* part;  // [chunks, columns] accumulators
  void* sums;  // [columns] accumulators
  int64_t rows, columns, row_stride, column_stride;
  int64_t chunk_rows, chunks;
};

// y[n] = x[n], 0 where row n is ignored; without x the others stay.
struct ProductsRowsArgs {
  const void* x;
  void* y;
  int64_t rows, columns;
  int64_t x_stride[2], y_stride[2];  // of rows and columns
  const void* ids;                   // nullptr: no row is ignored by its id
  const uint8_t* mask;               // nullptr: every row
  int64_t ignore_index;
  int32_t ids_are_i64;
  int32_t reserved;
};

// A chunk's data error becomes the call's.
struct ProductsErrorsArgs {
  DataErrorRecord* chunk;
  int64_t first_row;
  DataErrorSink errors;
};

}  // namespace rlk::simt
