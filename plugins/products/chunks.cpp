// Chunks of rows, and the small kernels around their products.
#include "chunks.hpp"

#include <algorithm>

namespace rlk::products {

using namespace simt::host;

namespace {

constexpr int64_t kSmallBytes = 16 << 20;  // of all slopes
constexpr int64_t kFewRows = 16;           // with them rows of any length are whole accesses of 16 bytes

// Rows of so many parts, all but the last alike.
int64_t part_rows(int64_t rows, int64_t parts, int64_t multiple) {
  return ceil_divide(ceil_divide(rows, parts), multiple) * multiple;
}

int64_t rows_that_fit(uint64_t bytes, int64_t row_bytes) {
  const int64_t fit = static_cast<int64_t>(bytes) / std::max<int64_t>(row_bytes, 1);
  const int64_t multiple = fit > kManyRows ? kManyRows : fit > kFewRows ? kFewRows : 1;
  return std::max<int64_t>(fit / multiple * multiple, 1);
}

}  // namespace

ChunkRows chunk_rows_of(int64_t rows, int64_t score_bytes, uint64_t beside) {
  const int64_t fit = rows_that_fit(std::clamp(beside, kScoreBytes, kMostScoreBytes), score_bytes);
  const int64_t chunk = std::max<int64_t>(std::min(part_rows(rows, 2, kFewRows), fit), 1);
  return {chunk, chunk};
}

ChunkRows chunk_rows_of(int64_t rows, int64_t score_bytes, int64_t slope_bytes, uint64_t beside) {
  const bool is_small = rows * slope_bytes < kSmallBytes;
  const int64_t fit = rows_that_fit(kScoreBytes, score_bytes);
  const int64_t slopes_fit = rows_that_fit(std::clamp(beside, kScoreBytes, kMostScoreBytes), slope_bytes);
  const int64_t parts = is_small ? 4 : ceil_divide(std::max<int64_t>(rows, 1), fit);
  const int64_t multiple = is_small || parts == 1 ? kFewRows : kManyRows;
  const int64_t piece = std::max<int64_t>(std::min(part_rows(rows, parts, multiple), fit), 1);
  const int64_t pieces = std::max<int64_t>(ceil_divide(rows, piece), 1);
  const int64_t most = std::max<int64_t>(is_small ? 2 : slopes_fit / piece, 1);  // of a chunk
  const int64_t chunk = ceil_divide(pieces, ceil_divide(pieces, most)) * piece;
  return {std::max<int64_t>(std::min(chunk, part_rows(rows, 1, kFewRows)), 1), piece};
}

int64_t slope_rows_of(int64_t rows, int64_t slope_bytes, uint64_t beside) {
  const bool is_small = rows * slope_bytes < kSmallBytes;
  const int64_t fit = rows_that_fit(std::clamp(beside, kScoreBytes, kMostScoreBytes), slope_bytes);
  const int64_t parts = is_small ? 2 : ceil_divide(std::max<int64_t>(rows, 1), fit);
  const int64_t multiple = parts == 1 ? 1 : is_small ? kFewRows : kManyRows;
  return std::max<int64_t>(std::min(part_rows(rows, parts, multiple), fit), 1);
}

const void* from_row(const rlk_tensor* tensor, int64_t row) {
  if (tensor == nullptr || tensor->data == nullptr) return nullptr;
  return sdk::data_of<const char>(tensor) + row * sdk::bytes_of(sdk::dtype_of(*tensor));
}

ChunkKernels::ChunkKernels(Device& device, sdk::Dtype dtype)
    : dtype_(dtype),
      score_(score_of(dtype)),
      rows_{device.kernel("products", "products_rows_2"), device.kernel("products", "products_rows_4"),
            device.kernel("products", "products_rows_8")},
      errors_(device.kernel("products", "products_errors")),
      largest_(device.kernel("products", "products_largest")),
      scale_(device.kernel("products", "products_scale")),
      widen_(device, dtype, score_),
      narrow_(device, score_, dtype),
      same_(device, score_, score_) {}

void ChunkKernels::launch_rows(const Matrix* from, const Matrix& to, const Active& active, StreamHandle stream) const {
  simt::ProductsRowsArgs args{};
  args.y = to.data;
  args.rows = to.rows;
  args.columns = to.columns;
  args.y_stride[0] = to.row_stride;
  args.y_stride[1] = to.column_stride;
  if (from != nullptr) {
    args.x = from->data;
    args.x_stride[0] = from->row_stride;
    args.x_stride[1] = from->column_stride;
  }
  args.ids = active.ids;
  args.mask = static_cast<const uint8_t*>(active.mask);
  args.ignore_index = active.ignore_index;
  args.ids_are_i64 = active.ids_are_i64 ? 1 : 0;
  const int64_t bytes = sdk::bytes_of(to.dtype);
  launch_walking(rows_[bytes == 2 ? 0 : bytes == 4 ? 1 : 2], to.rows, simt::kProductsThreads, 0, stream, args);
}

void ChunkKernels::copy_active(const Matrix& rows, const Matrix& to, const Active& active, StreamHandle stream) const {
  launch_rows(&rows, to, active, stream);
}

void ChunkKernels::clear_ignored(const Matrix& rows, const Active& active, StreamHandle stream) const {
  launch_rows(nullptr, rows, active, stream);
}

void ChunkKernels::report(rlk_data_error_record* chunk, int64_t first_row, const sdk::Run& run,
                          StreamHandle stream) const {
  if (chunk == nullptr) return;
  simt::ProductsErrorsArgs args{};
  args.chunk = reinterpret_cast<simt::DataErrorRecord*>(chunk);
  args.first_row = first_row;
  args.errors = error_sink(run);
  launch_walking(errors_, 1, 1, 0, stream, args);
}

namespace {

void map(const ElementMap& kernel, const void* from, sdk::Dtype from_dtype, void* to, sdk::Dtype to_dtype,
         int64_t count, const void* bias, StreamHandle stream, const float* scale = nullptr) {
  Elements elements;
  elements.x = dense(const_cast<void*>(from), from_dtype, 1, count);
  elements.y = dense(to, to_dtype, 1, count);
  elements.bias = bias;
  elements.scale = scale;
  kernel.run(elements, stream);
}

}  // namespace

void ChunkKernels::widen(const void* from, void* to, int64_t count, StreamHandle stream) const {
  map(widen_, from, dtype_, to, score_, count, nullptr, stream);
}
void ChunkKernels::narrow(const void* from, void* to, int64_t count, StreamHandle stream) const {
  map(narrow_, from, score_, to, dtype_, count, nullptr, stream);
}
void ChunkKernels::narrow_scaled(const float* from, void* to, int64_t count, simt::ProductsScale* scale,
                                 StreamHandle stream) const {
  constexpr int64_t kMostBlocks = 1024;  // each ends with one atomic operation
  simt::ProductsScaleArgs args{from, scale, count};
  fill(scale, 0, sizeof(*scale), stream);
  const int64_t blocks = ceil_divide(count, int64_t{simt::kProductsThreads} * simt::kProductsPack);
  launch_walking(largest_, std::min(blocks, kMostBlocks), simt::kProductsThreads, 0, stream, args);
  launch_walking(scale_, 1, 1, 0, stream, args);
  map(narrow_, from, score_, to, dtype_, count, nullptr, stream, &scale->scale);
}
void ChunkKernels::repeat(const float* from, float* to, int64_t count, StreamHandle stream) const {
  Elements elements;
  elements.x = dense(const_cast<float*>(from), sdk::Dtype::f32, 1, count);
  elements.x.column_stride = 0;
  elements.y = dense(to, sdk::Dtype::f32, 1, count);
  same_.run(elements, stream);
}
void ChunkKernels::add(const void* part, void* sum, int64_t count, StreamHandle stream) const {
  map(same_, part, score_, sum, score_, count, sum, stream);
}

}  // namespace rlk::products
