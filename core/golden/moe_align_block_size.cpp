// Tokens in order of their experts, in whole blocks: the declaration's rules.
#include <rlk/sdk/ops/moe_align_block_size.hpp>

#include "core/golden/moved.hpp"
#include "core/golden/operator.hpp"

namespace rlk::golden {

DataError moe_align_block_size(CallOf<sdk::ops::MoeAlignBlockSize>& call) {
  DataError error;
  const int64_t places = call.N * call.K, block = call.params.block_size;
  std::vector<int64_t> sorted, blocks;
  for (int64_t e = 0; e < call.params.experts; ++e) {
    if (e == call.params.ignore_index) continue;
    for (int64_t i = 0; i < places; ++i) {
      if (call.topk_ids.load_int(i / call.K, i % call.K) == e) sorted.push_back(i);
    }
    while (sorted.size() % static_cast<size_t>(block) != 0) sorted.push_back(places);
    while (static_cast<int64_t>(blocks.size()) * block < static_cast<int64_t>(sorted.size())) blocks.push_back(e);
  }
  for (int64_t i = 0; i < places && error.kind == kNoDataError; ++i) {
    const int64_t id = call.topk_ids.load_int(i / call.K, i % call.K);
    if (id == call.params.ignore_index) continue;
    if (id < 0 || id >= call.params.experts) error = {kIdOutOfRange, i, id};
  }
  put_integer(call.num_tokens_post_pad, static_cast<int64_t>(sorted.size()));
  const int64_t room = places + call.params.experts * (block - 1);
  sorted.resize(static_cast<size_t>(room), places);
  blocks.resize(static_cast<size_t>((room + block - 1) / block), -1);
  for (const int64_t place : sorted) put_integer(call.sorted_token_ids, place);
  for (const int64_t expert : blocks) put_integer(call.expert_ids, expert);
  return error;
}

}  // namespace rlk::golden
