// Each block sums some columns of a chunk of rows; the chunks are added in order.
#include "columns.hpp"

#include "../simt/products.h"

#include <algorithm>

namespace rlk::products {

using namespace simt::host;

namespace {

constexpr int64_t kMostChunks = 256;

int64_t chunk_rows_of(int64_t rows) {
  return std::max(simt::kColumnChunkRows, ceil_divide(rows, kMostChunks));
}

}  // namespace

ColumnSums::ColumnSums(Device& device, sdk::Dtype dtype)
    : parts_(device.kernel("products", std::string("products_columns_") + sdk::name_of(dtype))),
      finish_(device.kernel(
          "products", dtype == sdk::Dtype::f64 ? "products_columns_finish_f64" : "products_columns_finish_f32")) {}

uint64_t ColumnSums::workspace_of(int64_t rows, int64_t columns, sdk::Dtype dtype) {
  return static_cast<uint64_t>(ceil_divide(rows, chunk_rows_of(rows)) * columns * accumulator_bytes(dtype));
}

void ColumnSums::run(const Matrix& x, void* sums, StreamHandle stream, void* workspace) const {
  simt::ProductsColumnsArgs args{};
  args.x = x.data;
  args.part = workspace;
  args.sums = sums;
  args.rows = x.rows;
  args.columns = x.columns;
  args.row_stride = x.row_stride;
  args.column_stride = x.column_stride;
  args.chunk_rows = chunk_rows_of(x.rows);
  args.chunks = ceil_divide(x.rows, args.chunk_rows);
  const int64_t tiles = ceil_divide(x.columns, simt::kProductsThreads);
  launch_walking(parts_, tiles * args.chunks, simt::kProductsThreads, 0, stream, args);
  launch_walking(finish_, tiles, simt::kProductsThreads, 0, stream, args);
}

}  // namespace rlk::products
