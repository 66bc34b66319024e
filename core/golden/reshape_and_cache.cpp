// Keys and values put into the slots of a paged cache: the declaration's formula.
#include <rlk/sdk/ops/reshape_and_cache.hpp>

#include "core/golden/operator.hpp"

namespace rlk::golden {
namespace {

// The cache as it is, in row-major order; nothing of it is written yet.
void keep(const View& cache, int64_t elements, Output& out) {
  std::vector<int64_t> index(static_cast<size_t>(cache.ndim), 0);
  for (int64_t i = 0; i < elements; ++i) {
    int64_t rest = i, at = 0;
    for (int axis = cache.ndim - 1; axis >= 0; --axis) {
      at += rest % cache.shape[axis] * cache.strides[axis];
      rest /= cache.shape[axis];
    }
    out.value.push_back(cache.load_at(at));
  }
  out.cond.assign(out.value.size(), 0.0);
  out.kept.assign(out.value.size(), true);
}

}  // namespace

DataError reshape_and_cache(CallOf<sdk::ops::ReshapeAndCache>& call) {
  DataError first;
  const bool is_token_major = call.params.layout == sdk::ops::reshape_and_cache::Layout::token_major;
  const int64_t slots = call.B * call.BS;
  keep(call.key_cache, slots * call.H * call.D, call.out_key_cache);
  keep(call.value_cache, slots * call.H * call.D, call.out_value_cache);
  const auto write = [](Output& out, int64_t at, double value) {
    out.value[static_cast<size_t>(at)] = value;
    out.kept[static_cast<size_t>(at)] = false;
  };
  for (int64_t n = 0; n < call.N; ++n) {
    const int64_t slot = call.slot_mapping.load_int(n);
    if (slot == -1) continue;
    if (slot < 0 || slot >= slots) {
      if (first.kind == kNoDataError) first = {kIdOutOfRange, n, slot};
      continue;
    }
    const int64_t block = slot / call.BS, place = slot % call.BS;
    for (int64_t h = 0; h < call.H; ++h) {
      for (int64_t d = 0; d < call.D; ++d) {
        const int64_t row = block * call.H + h;  // of a head of a block
        int64_t key_at = (slot * call.H + h) * call.D + d, value_at = key_at;
        if (!is_token_major) {
          key_at = ((row * (call.D / call.X) + d / call.X) * call.BS + place) * call.X + d % call.X;
          value_at = (row * call.D + d) * call.BS + place;
        }
        write(call.out_key_cache, key_at, call.key.load(n, h, d));
        write(call.out_value_cache, value_at, call.value.load(n, h, d));
      }
    }
  }
  return first;
}

}  // namespace rlk::golden
