// Attention over a cache of blocks: the keys and values of each sequence are gathered from their blocks. fp64.
#include <rlk/sdk/ops/paged_attention.hpp>

#include "core/golden/attention_gathered.hpp"

namespace rlk::golden {
namespace {

using PagedCall = CallOf<sdk::ops::PagedAttention>;
using CacheLayout = sdk::ops::paged_attention::Layout;

DataError check_sequence(const PagedCall& call, int64_t b) {
  const int64_t length = call.context_lens.load_int(b);
  if (length < 0 || length > call.MB * call.BS) return {kBadSeqlens, b, length};
  for (int64_t m = 0; m * call.BS < length; ++m) {
    const int64_t block = call.block_table.load_int(b, m);
    if (block < 0 || block >= call.NB) return {kIdOutOfRange, b, block};
  }
  return {};
}

// The key or value of a token, [Hkv, D].
void add_token(const PagedCall& call, int64_t block, int64_t place, GatheredSequence& sequence) {
  for (int64_t h = 0; h < call.Hkv; ++h) {
    for (int64_t d = 0; d < call.D; ++d) {
      if (call.params.layout == CacheLayout::token_major) {
        sequence.k.push_back(call.key_cache.load(block, place, h, d));
        sequence.v.push_back(call.value_cache.load(block, place, h, d));
      } else {
        sequence.k.push_back(call.key_cache.load(block, h, d / call.X, place, d % call.X));
        sequence.v.push_back(call.value_cache.load(block, h, d, place));
      }
    }
  }
}

}  // namespace

DataError paged_attention(PagedCall& call) {
  DataError first;
  if (call.cu_seqlens_q.present()) first = in_second(check_seqlens(call.cu_seqlens_q, call.Tq));
  if (first.kind != kNoDataError) {
    answer_nan(call, call.Tq);
    return first;
  }
  for (int64_t b = 0; b < call.B; ++b) {
    const int64_t begin = call.cu_seqlens_q.present() ? call.cu_seqlens_q.load_int(b) : b;
    const int64_t end = call.cu_seqlens_q.present() ? call.cu_seqlens_q.load_int(b + 1) : b + 1;
    const DataError error = check_sequence(call, b);
    if (first.kind == kNoDataError) first = error;
    if (error.kind != kNoDataError) {
      answer_nan(call, end - begin);
      continue;
    }
    GatheredSequence sequence;
    for (int64_t i = begin; i < end; ++i) sequence.add(sequence.q, call.q, i * call.q.strides[0], call.Hq, call.D);
    for (int64_t j = 0; j < call.context_lens.load_int(b); ++j) {
      add_token(call, call.block_table.load_int(b, j / call.BS), j % call.BS, sequence);
    }
    attend_gathered(call, sequence);
  }
  return first;
}

}  // namespace rlk::golden
