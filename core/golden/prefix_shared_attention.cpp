// Attention of samples that share a prefix: each sample's keys and values are the prefix's and then its own. fp64.
#include <rlk/sdk/ops/prefix_shared_attention.hpp>

#include "core/golden/attention_gathered.hpp"

namespace rlk::golden {

DataError prefix_shared_attention(CallOf<sdk::ops::PrefixSharedAttention>& call) {
  const auto add_tokens = [&](std::vector<double>& to, const View& tensor, int64_t b, int64_t m, int64_t tokens) {
    const bool is_own = tensor.ndim == 5;
    const int64_t first = b * tensor.strides[0] + (is_own ? m * tensor.strides[1] : 0);
    const int64_t heads = tensor.shape[tensor.ndim - 2];
    for (int64_t j = 0; j < tokens; ++j) {
      GatheredSequence::add(to, tensor, first + j * tensor.strides[is_own ? 2 : 1], heads, call.D);
    }
  };
  for (int64_t b = 0; b < call.B; ++b) {
    for (int64_t m = 0; m < call.G; ++m) {
      GatheredSequence sample;
      add_tokens(sample.q, call.q, b, m, call.Sq);
      add_tokens(sample.k, call.prefix_k, b, m, call.Sp);
      add_tokens(sample.v, call.prefix_v, b, m, call.Sp);
      add_tokens(sample.k, call.k, b, m, call.Sk);
      add_tokens(sample.v, call.v, b, m, call.Sk);
      for (int64_t j = 0; j < call.Sp; ++j) {
        sample.mask.push_back(!call.prefix_mask.present() || call.prefix_mask.load_int(b, j) != 0);
      }
      for (int64_t j = 0; j < call.Sk; ++j) {
        sample.mask.push_back(!call.key_mask.present() || call.key_mask.load_int(b, m, j) != 0);
      }
      attend_gathered(call, sample, static_cast<CausalAlignment>(call.params.causal_alignment));
    }
  }
  return {};
}

}  // namespace rlk::golden
