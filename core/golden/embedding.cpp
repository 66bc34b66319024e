// Rows of a table by their ids, and the gradient: the declarations' formulas.
#include <rlk/sdk/ops/embedding.hpp>
#include <rlk/sdk/ops/embedding_backward.hpp>

#include "core/golden/moved.hpp"
#include "core/golden/operator.hpp"
#include "core/golden/tracked.hpp"

namespace rlk::golden {
namespace {

DataError bad_id(const View& ids, int64_t count, int64_t rows) {
  for (int64_t n = 0; n < count; ++n) {
    const int64_t id = ids.load_int(n);
    if (id < 0 || id >= rows) return {kIdOutOfRange, n, id};
  }
  return {};
}

}  // namespace

DataError embedding(CallOf<sdk::ops::Embedding>& call) {
  for (int64_t n = 0; n < call.N; ++n) {
    const int64_t id = call.ids.load_int(n);
    for (int64_t d = 0; d < call.D; ++d) {
      if (id >= 0 && id < call.V) {
        put_moved(call.y, call.weight, id * call.weight.strides[0] + d * call.weight.strides[1]);
      } else {
        put(call.y, Tracked(kNan));
      }
    }
  }
  return bad_id(call.ids, call.N, call.V);
}

DataError embedding_backward(CallOf<sdk::ops::EmbeddingBackward>& call) {
  const DataError error = bad_id(call.ids, call.N, call.V);
  std::vector<TrackedSum> sums(static_cast<size_t>(call.V * call.D));
  std::vector<double> counts(static_cast<size_t>(call.V));
  for (int64_t n = 0; n < call.N && error.kind == kNoDataError; ++n) {
    const int64_t id = call.ids.load_int(n);
    if (id == call.params.padding_idx) continue;
    ++counts[static_cast<size_t>(id)];
    for (int64_t d = 0; d < call.D; ++d) sums[static_cast<size_t>(id * call.D + d)].add(call.grad_y.load(n, d));
  }
  const bool scales = call.params.scale_by_frequency == sdk::ops::embedding_backward::ScaleByFrequency::on;
  for (int64_t v = 0; v < call.V; ++v) {
    const double count = counts[static_cast<size_t>(v)];
    for (int64_t d = 0; d < call.D; ++d) {
      const Tracked sum = sums[static_cast<size_t>(v * call.D + d)].total();
      if (error.kind != kNoDataError) {
        put(call.grad_weight, Tracked(kNan));
      } else {
        put(call.grad_weight, scales && count > 1 ? sum / Tracked(count) : sum);
      }
    }
  }
  return error;
}

}  // namespace rlk::golden
