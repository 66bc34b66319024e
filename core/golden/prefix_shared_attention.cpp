// Attention of samples that share a prefix, and the gradients: each sample's keys and values are the prefix's and then
// its own. fp64.
#include <rlk/sdk/ops/attention_backward.hpp>
#include <rlk/sdk/ops/prefix_shared_attention.hpp>
#include <rlk/sdk/ops/prefix_shared_attention_backward.hpp>

#include "core/golden/attention_gathered.hpp"

namespace rlk::golden {

using AttentionBackwardCall = CallOf<sdk::ops::AttentionBackward>;
DataError attention_backward(AttentionBackwardCall& call);

namespace {

// The tokens of sample m of group b, or of the prefix of the group: [token, head, D].
void add_tokens(std::vector<double>& to, const View& tensor, int64_t b, int64_t m, int64_t tokens) {
  const bool is_own = tensor.ndim == 5;
  const int64_t first = b * tensor.strides[0] + (is_own ? m * tensor.strides[1] : 0);
  const int64_t heads = tensor.shape[tensor.ndim - 2], size = tensor.shape[tensor.ndim - 1];
  for (int64_t j = 0; j < tokens; ++j) {
    GatheredSequence::add(to, tensor, first + j * tensor.strides[is_own ? 2 : 1], heads, size);
  }
}

template <class Call>
GatheredSequence sample_of(const Call& call, int64_t b, int64_t m) {
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
  return sample;
}

// The part [from, to) of an output.
Output part_of(const Output& output, int64_t from, int64_t to) {
  const auto cut = [&](const std::vector<double>& list) {
    return list.empty() ? list : std::vector<double>(list.begin() + from, list.begin() + to);
  };
  Output part;
  part.value = cut(output.value), part.cond = cut(output.cond), part.rounded = cut(output.rounded);
  return part;
}

// Gradients of several samples: their sum, whose terms' magnitudes are in their conditions already.
void add(Output& sum, const Output& more) {
  if (sum.value.empty()) {
    sum = more;
    return;
  }
  const auto add_lists = [](std::vector<double>& to, const std::vector<double>& from) {
    for (size_t i = 0; i < from.size(); ++i) to[i] += from[i];
  };
  add_lists(sum.value, more.value);
  add_lists(sum.cond, more.cond);
  add_lists(sum.rounded, more.rounded);
}

}  // namespace

DataError prefix_shared_attention(CallOf<sdk::ops::PrefixSharedAttention>& call) {
  for (int64_t b = 0; b < call.B; ++b) {
    for (int64_t m = 0; m < call.G; ++m) {
      attend_gathered(call, sample_of(call, b, m), static_cast<CausalAlignment>(call.params.causal_alignment));
    }
  }
  return {};
}

DataError prefix_shared_attention_backward(CallOf<sdk::ops::PrefixSharedAttentionBackward>& call) {
  const int64_t row = call.Hkv * call.D;
  for (int64_t b = 0; b < call.B; ++b) {
    Output of_prefix_k, of_prefix_v;
    for (int64_t m = 0; m < call.G; ++m) {
      const GatheredSequence sample = sample_of(call, b, m);
      std::vector<double> out, grad_out, lse, grad_lse;
      add_tokens(out, call.out, b, m, call.Sq);
      add_tokens(grad_out, call.grad_out, b, m, call.Sq);
      for (int64_t i = 0; i < call.Sq; ++i) {
        for (int64_t h = 0; h < call.Hq; ++h) {
          lse.push_back(call.lse.load(b, m, i, h));
          if (call.grad_lse.present()) grad_lse.push_back(call.grad_lse.load(b, m, i, h));
        }
      }
      GatheredCall<AttentionBackwardCall> gathered(call, sample,
                                                   static_cast<CausalAlignment>(call.params.causal_alignment));
      AttentionBackwardCall& own = gathered.own;
      own.out = gathered.view(out, Dtype::f64, {1, call.Sq, call.Hq, call.D});
      own.grad_out = gathered.view(grad_out, Dtype::f64, {1, call.Sq, call.Hq, call.D});
      own.lse = gathered.view(lse, Dtype::f64, {1, call.Sq, call.Hq});
      if (call.grad_lse.present()) own.grad_lse = gathered.view(grad_lse, Dtype::f64, {1, call.Sq, call.Hq});
      own.grad_q.wanted = own.grad_k.wanted = own.grad_v.wanted = true;
      attention_backward(own);
      append(call.grad_q, own.grad_q);
      add(of_prefix_k, part_of(own.grad_k, 0, call.Sp * row));
      add(of_prefix_v, part_of(own.grad_v, 0, call.Sp * row));
      append(call.grad_k, part_of(own.grad_k, call.Sp * row, (call.Sp + call.Sk) * row));
      append(call.grad_v, part_of(own.grad_v, call.Sp * row, (call.Sp + call.Sk) * row));
    }
    if (call.G == 0) {
      fill(of_prefix_k, call.Sp * row, 0.0);
      fill(of_prefix_v, call.Sp * row, 0.0);
      if (call.rounding) of_prefix_k.rounded = of_prefix_v.rounded = of_prefix_k.cond;
    }
    append(call.grad_prefix_k, of_prefix_k);
    append(call.grad_prefix_v, of_prefix_v);
  }
  return {};
}

}  // namespace rlk::golden
