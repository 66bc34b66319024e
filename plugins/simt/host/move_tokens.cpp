// Calls that move tokens: to the slots of a cache, turned by their positions, in order of their experts.
#include "move_parts.hpp"

#include <algorithm>
#include <limits>

namespace rlk::simt::host::moves {
namespace {

using sdk::bytes_of;
using sdk::dtype_of;

// The widest word of which `count` contiguous elements are whole ones, in both tensors. Strides and sizes become words.
struct Words {
  simt::MoveTensor* tensors[2];
  int inner[2];  // dimensions of which an element is a step
  int64_t* sizes[2];
};
int64_t widen_words(const Words& of, int64_t bytes) {
  const auto fits = [&](int64_t ratio) {
    for (const int64_t* size : of.sizes) {
      if (*size % ratio != 0) return false;
    }
    for (int t = 0; t < 2; ++t) {
      const simt::MoveTensor& tensor = *of.tensors[t];
      if (tensor.stride[of.inner[t]] != 1) return false;
      if (reinterpret_cast<uintptr_t>(tensor.data) % static_cast<uintptr_t>(ratio * bytes) != 0) return false;
      for (int d = 0; d < simt::kMoveDims; ++d) {
        if (d != of.inner[t] && tensor.stride[d] % ratio != 0) return false;
      }
    }
    return true;
  };
  int64_t ratio = 16 / bytes;
  while (ratio > 1 && !fits(ratio)) ratio /= 2;
  for (int64_t* size : of.sizes) *size /= ratio;
  for (int t = 0; t < 2; ++t) {
    for (int d = 0; d < simt::kMoveDims; ++d) {
      if (d != of.inner[t]) of.tensors[t]->stride[d] /= ratio;
    }
  }
  return ratio * bytes;
}

simt::MoveTensor cache_of(const rlk_tensor* tensor, bool is_token_major) {
  simt::MoveTensor out = tensor_of(tensor);
  const int64_t* const stride = tensor->strides;
  const auto set = [&](int64_t place, int64_t head, int64_t group, int64_t element) {
    out.stride[1] = place;
    out.stride[2] = head;
    out.stride[3] = group;
    out.stride[4] = element;
  };
  if (is_token_major) {
    set(stride[1], stride[2], 0, stride[3]);
  } else if (tensor->ndim == 5) {
    set(stride[3], stride[1], stride[2], stride[4]);
  } else {
    set(stride[3], stride[1], 0, stride[2]);
  }
  return out;
}

}  // namespace

MoveCall cached(const sdk::Arguments<sdk::ops::ReshapeAndCache>& call) {
  MoveCall out;
  simt::MoveArgs& args = out.args;
  const bool is_token_major = call.params.layout == decltype(call.params.layout)::token_major;
  args.tensor[0] = cache_of(call.out_key_cache, is_token_major);
  args.tensor[1] = cache_of(call.out_value_cache, is_token_major);
  args.tensor[2] = tensor_of(call.key);
  args.tensor[3] = tensor_of(call.value);
  args.tensor[4] = tensor_of(call.slot_mapping);
  args.size[simt::kCacheTokens] = call.N;
  args.size[simt::kCacheSlots] = call.B * call.BS;
  int64_t units = 0;
  const int64_t bytes = bytes_of(dtype_of(*call.key));
  for (int which = 0; which < 2; ++which) {
    int64_t words = call.D, group = is_token_major || which == 1 ? call.D : call.X;
    args.size[simt::kCacheKeyBytes + which] =
        widen_words({{&args.tensor[which], &args.tensor[2 + which]}, {4, 2}, {&words, &group}}, bytes);
    args.divisor[simt::kByKeyWords + which] = divisor_of(words);
    args.divisor[simt::kByKeyGroup + which] = divisor_of(group);
    units += call.N * call.H * words;
    if (which == 0) args.size[simt::kCacheKeyUnits] = units;
  }
  args.divisor[simt::kByHeads] = divisor_of(call.H);
  args.divisor[simt::kByBlockSize] = divisor_of(call.BS);
  out.bytes = 4.0 * static_cast<double>(call.N * call.H) * static_cast<double>(call.D * bytes);
  out.may_work = true;
  if (call.N > std::numeric_limits<int32_t>::max()) {
    out.refusal = sdk::Support::no("SIZE", "a slot remembers its token in 32 bits");
  }
  if (units == 0) {  // the slots are looked at all the same
    out.add({1, call.N});
    return out;
  }
  if (call.N > simt::kCacheFew) {
    out.work_bytes[0] = static_cast<uint64_t>(args.size[simt::kCacheSlots]) * sizeof(int32_t);
    out.add({0, call.N});
    out.add({1, call.N});
  }
  out.add({2, units});
  return out;
}

MoveCall turned_by_position(const sdk::Arguments<sdk::ops::RotaryEmbedding>& call) {
  MoveCall out =
      by_units(0, {call.query_out, call.key_out, call.query, call.key, call.cos_sin_cache, call.positions}, {});
  simt::MoveArgs& args = out.args;
  const bool are_halves = call.params.style == decltype(call.params.style)::neox;
  const int64_t heads = call.Hq + (call.key != nullptr ? call.Hk : 0);
  const auto begins_packs = [](int64_t element, const simt::MoveTensor& tensor) {
    return element * bytes_of(static_cast<sdk::Dtype>(tensor.dtype)) % 16 == 0;
  };
  const rlk_tensor* const tensors[] = {call.query_out, call.key_out, call.query, call.key, call.cos_sin_cache};
  for (int t = 0; t < 5; ++t) {
    simt::MoveTensor& tensor = args.tensor[t];
    if (tensors[t] == nullptr || !rows_in_packs(*tensors[t])) continue;
    const bool fits = (t == 4 || begins_packs(call.params.offset, tensor)) &&
                      ((t < 4 && !are_halves) || begins_packs(call.F, tensor));
    tensor.in_packs = fits ? 1 : 0;
  }
  args.size[simt::kTurnPairs] = call.F;
  args.size[simt::kTurnOffset] = call.params.offset;
  args.size[simt::kTurnElements] = call.D;
  args.size[simt::kTurnQueryHeads] = call.Hq;
  args.size[simt::kTurnPositions] = call.P;
  args.size[simt::kTurnHalves] = are_halves ? 1 : 0;
  args.size[simt::kTurnInverse] = call.params.inverse == decltype(call.params.inverse)::on ? 1 : 0;
  const int64_t size = 16 / bytes_of(dtype_of(*call.query));
  int64_t packs = ceil_divide(call.F, size) + ceil_divide(call.D - 2 * call.F, size);
  if (heads == 0) {  // the positions are looked at all the same
    args.tensor[0].data = nullptr;
    args.tensor[1].data = nullptr;
    packs = 1;
  }
  args.divisor[simt::kByTurnPacks] = divisor_of(packs);
  args.divisor[simt::kByTurnHeads] = divisor_of(heads);
  out.launches[0].units = call.N * std::max<int64_t>(heads, 1) * packs;
  return out;
}

MoveCall aligned_to_blocks(const sdk::Arguments<sdk::ops::MoeAlignBlockSize>& call) {
  MoveCall out;
  simt::MoveArgs& args = out.args;
  args.tensor[0] = tensor_of(call.sorted_token_ids);
  args.tensor[1] = tensor_of(call.expert_ids);
  args.tensor[2] = tensor_of(call.topk_ids);
  args.tensor[3] = tensor_of(call.num_tokens_post_pad);
  int64_t* const stride = args.tensor[2].stride;
  stride[2] = stride[1];
  stride[1] = stride[0];
  stride[0] = 0;
  const int64_t places = call.N * call.K, experts = call.params.experts;
  sort_lists(out, 1, places, experts);
  args.divisor[simt::kByWidth] = divisor_of(call.K);
  args.divisor[simt::kByAlignBlock] = divisor_of(call.params.block_size);
  args.size[simt::kIdsSkips] = 1;
  args.size[simt::kIdsSkipped] = call.params.ignore_index;
  const int64_t length = call.sorted_token_ids->shape[0];
  args.size[simt::kAlignLength] = length;
  args.size[simt::kAlignBlocks] = call.expert_ids->shape[0];
  out.work_bytes[2] = static_cast<uint64_t>(2 * (experts + 1)) * sizeof(int64_t);
  out.bytes = 32.0 * static_cast<double>(places) + 4.0 * static_cast<double>(length);
  out.add({2, 1, 1});
  out.add({3, std::max(length, args.size[simt::kAlignBlocks])});
  return out;
}

}  // namespace rlk::simt::host::moves
