// What the operators share whose scores are products and are never stored as a whole: rows are taken in chunks.
#pragma once

#include "../simt/products.h"
#include "inner.hpp"

namespace rlk::products {

using simt::host::StreamHandle;

// Of a chunk's scores or slopes. Every chunk but the first reads and writes all of grad_weight: chunks are as large as
// that is, between these.
constexpr uint64_t kScoreBytes = uint64_t{512} << 20, kMostScoreBytes = uint64_t{1} << 30;
constexpr int64_t kManyRows = 128;  // of a chunk; a multiple of them keeps every operand's alignment

// A chunk's rows are those of one product for each gradient. Slopes that have memory of their own are made of the
// scores of some of these rows at a time, a piece: of as many as `rows` is a multiple of, or the last ones.
struct ChunkRows {
  int64_t rows, piece;
};
// At most half of the rows, so that small cases take the way of large ones. beside: bytes of sums over all chunks.
ChunkRows chunk_rows_of(int64_t rows, int64_t score_bytes, uint64_t beside);
// With pieces; bytes of a row's scores and slopes. Of few rows there are two chunks of two pieces.
ChunkRows chunk_rows_of(int64_t rows, int64_t score_bytes, int64_t slope_bytes, uint64_t beside);
// Of slopes that are made without scores in memory: as many as fit, in parts alike. Of few rows there are two chunks.
int64_t slope_rows_of(int64_t rows, int64_t slope_bytes, uint64_t beside);

// Scores are fp32, of fp64 tensors fp64.
inline sdk::Dtype score_of(sdk::Dtype dtype) {
  return dtype == sdk::Dtype::f64 ? sdk::Dtype::f64 : sdk::Dtype::f32;
}

// One row after another, of any tensor of one dimension that is contiguous.
const void* from_row(const rlk_tensor* tensor, int64_t row);

// The kernels around the chunks.
class ChunkKernels {
public:
  ChunkKernels(Device& device, sdk::Dtype dtype);
  // A copy of the rows in which those that are ignored are 0: what they hold is not looked at.
  struct Active {
    const void* ids;  // nullptr: none
    bool ids_are_i64;
    int64_t ignore_index;
    const void* mask;  // nullptr: none
  };
  void copy_active(const Matrix& rows, const Matrix& to, const Active& active, StreamHandle stream) const;
  // Rows of a result that are ignored are 0 whatever they were multiplied with.
  void clear_ignored(const Matrix& rows, const Active& active, StreamHandle stream) const;
  // What the chunk found goes to the call's record, the row counted from the chunk's first.
  void report(rlk_data_error_record* chunk, int64_t first_row, const sdk::Run& run, StreamHandle stream) const;
  // to = from, dense, of `count` numbers.
  void widen(const void* from, void* to, int64_t count, StreamHandle stream) const;   // to scores
  void narrow(const void* from, void* to, int64_t count, StreamHandle stream) const;  // from scores
  // The same times the power of two that brings the largest finite number near f16's largest, which `scale` then holds
  // with its inverse: of slopes by themselves f16 has no exponents.
  void narrow_scaled(const float* from, void* to, int64_t count, simt::ProductsScale* scale, StreamHandle stream) const;
  // to = *from, `count` times, of fp32.
  void repeat(const float* from, float* to, int64_t count, StreamHandle stream) const;
  // sum += part, of scores.
  void add(const void* part, void* sum, int64_t count, StreamHandle stream) const;

private:
  sdk::Dtype dtype_, score_;
  void launch_rows(const Matrix* from, const Matrix& to, const Active& active, StreamHandle stream) const;
  simt::host::FunctionHandle rows_[3], errors_, largest_, scale_;  // rows of elements of 2, 4 and 8 bytes
  ElementMap widen_, narrow_, same_;
};

}  // namespace rlk::products
