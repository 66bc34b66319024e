// Keys and values of tokens copied into the slots of a paged cache. Heads in parallel, the tokens of each in their
// order, so that of two tokens with one slot the later one stays.
#include <rlk/sdk/ops/reshape_and_cache.hpp>

#include <algorithm>
#include <cstring>

#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {
namespace {

using Call = CallOf<sdk::ops::ReshapeAndCache>;
using sdk::ops::reshape_and_cache::Layout;

bool is_slot(const Call& call, int64_t slot) {
  return slot >= 0 && slot < call.B * call.BS;
}

// Elements along one dimension, bits as they are.
void copy(const Array& to, int64_t to_at, int64_t to_stride, const Array& from, int64_t from_at, int64_t from_stride,
          int64_t count) {
  const auto size = static_cast<size_t>(size_of(to.dtype));
  if (to_stride == 1 && from_stride == 1) {
    std::memcpy(element(to.data, to_at, to.dtype), element(from.data, from_at, from.dtype),
                size * static_cast<size_t>(count));
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(element(to.data, to_at + i * to_stride, to.dtype),
                element(from.data, from_at + i * from_stride, from.dtype), size);
  }
}

void put_token(const Call& call, int64_t n, int64_t h, int64_t slot) {
  const Array &keys = call.out_key_cache, &values = call.out_value_cache;
  const int64_t block = slot / call.BS, place = slot % call.BS;
  const int64_t key = n * call.key.strides[0] + h * call.key.strides[1];
  const int64_t value = n * call.value.strides[0] + h * call.value.strides[1];
  const auto at = [&](const Array& cache, int64_t i, int64_t j) {
    return block * cache.strides[0] + i * cache.strides[1] + j * cache.strides[2];
  };
  if (call.params.layout == Layout::token_major) {
    copy(keys, at(keys, place, h), keys.strides[3], call.key, key, call.key.strides[2], call.D);
    copy(values, at(values, place, h), values.strides[3], call.value, value, call.value.strides[2], call.D);
    return;
  }
  for (int64_t group = 0; group < call.D / call.X; ++group) {
    copy(keys, at(keys, h, group) + place * keys.strides[3], keys.strides[4], call.key,
         key + group * call.X * call.key.strides[2], call.key.strides[2], call.X);
  }
  copy(values, at(values, h, 0) + place * values.strides[3], values.strides[2], call.value, value,
       call.value.strides[2], call.D);
}

DataError reshape_and_cache(const Call& call, const Context& context) {
  const int64_t grain = std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, call.N * call.D));
  parallel_for(context.parallel, call.H, grain, [&](int64_t begin, int64_t end) {
    for (int64_t n = 0; n < call.N; ++n) {
      const int64_t slot = call.slot_mapping.integer(n);
      for (int64_t h = begin; h < end && is_slot(call, slot); ++h) put_token(call, n, h, slot);
    }
  });
  for (int64_t n = 0; n < call.N; ++n) {
    const int64_t slot = call.slot_mapping.integer(n);
    if (slot != -1 && !is_slot(call, slot)) return {kIdOutOfRange, n, slot};
  }
  return {};
}

double operations(const Call& call) {
  return static_cast<double>(call.N * call.H) * static_cast<double>(call.D) * 4;
}

}  // namespace

RLK_CPU_KERNEL(ReshapeAndCache, .run = reshape_and_cache, .operations = operations);

}  // namespace rlk::cpu
