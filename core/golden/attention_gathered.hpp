// Attention of queries whose keys lie in several places: what is gathered from there is a call of attention.
#pragma once

#include <deque>

#include "core/golden/attention_rows.hpp"

namespace rlk::golden {

DataError attention(AttentionCall& call);

// One sequence: q [Lq, Hq, D], k and v [Lk, Hkv, D], and where there is one a mask [Lk].
struct GatheredSequence {
  std::vector<double> q, k, v;
  std::vector<uint8_t> mask;

  static void add(std::vector<double>& to, const View& heads_of_token, int64_t offset, int64_t heads, int64_t size) {
    const int64_t* strides = heads_of_token.strides + heads_of_token.ndim - 2;
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t d = 0; d < size; ++d) to.push_back(heads_of_token.load_at(offset + h * strides[0] + d * strides[1]));
    }
  }
};

inline void append(Output& to, const Output& from) {
  to.value.insert(to.value.end(), from.value.begin(), from.value.end());
  to.cond.insert(to.cond.end(), from.cond.begin(), from.cond.end());
  to.rounded.insert(to.rounded.end(), from.rounded.begin(), from.rounded.end());
}

// The call of attention over one sequence; for as long as the sequence lives.
template <class Own>
class GatheredCall {
public:
  Own own;

  // Parameters of one name mean what attention's do.
  template <class Call>
  GatheredCall(const Call& call, const GatheredSequence& sequence, CausalAlignment alignment) {
    own.B = 1, own.Hq = call.Hq, own.Hkv = call.Hkv, own.D = call.D;
    own.Sq = static_cast<int64_t>(sequence.q.size()) / (call.Hq * call.D);
    own.Sk = static_cast<int64_t>(sequence.k.size()) / (call.Hkv * call.D);
    own.q = view(sequence.q, Dtype::f64, {1, own.Sq, own.Hq, own.D});
    own.k = view(sequence.k, Dtype::f64, {1, own.Sk, own.Hkv, own.D});
    own.v = view(sequence.v, Dtype::f64, {1, own.Sk, own.Hkv, own.D});
    if (!sequence.mask.empty()) own.key_mask = view(sequence.mask, Dtype::u8, {1, own.Sk});
    own.params.causal = static_cast<Causal>(call.params.causal);
    own.params.window_left = call.params.window_left;
    own.params.window_right = call.params.window_right;
    own.params.scale = call.params.scale;
    own.params.softcap = call.params.softcap;
    own.params.causal_alignment = alignment;
    own.rounding = call.rounding;
    own.epsilon = call.epsilon;
  }
  template <class T>
  View view(const std::vector<T>& numbers, Dtype dtype, std::vector<int64_t> shape) {
    std::vector<int64_t> strides(shape.size(), 1);
    for (size_t axis = shape.size() - 1; axis-- > 0;) strides[axis] = strides[axis + 1] * shape[axis + 1];
    const auto ndim = static_cast<int>(shape.size());
    sizes_.push_back(std::move(shape));
    sizes_.push_back(std::move(strides));
    return {numbers.data(), dtype, ndim, sizes_[sizes_.size() - 2].data(), sizes_.back().data()};
  }

private:
  std::deque<std::vector<int64_t>> sizes_;  // which views point to
};

// Appends the sequence's out and lse to those of the call.
template <class Call>
void attend_gathered(Call& call, const GatheredSequence& sequence,
                     CausalAlignment alignment = CausalAlignment::bottom_right) {
  GatheredCall<AttentionCall> gathered(call, sequence, alignment);
  AttentionCall& own = gathered.own;
  own.out.wanted = true;
  own.lse.wanted = call.lse.wanted;
  attention(own);
  append(call.out, own.out);
  append(call.lse, own.lse);
}

// Appends queries of which nothing is known.
template <class Call>
void answer_nan(Call& call, int64_t queries) {
  const auto add = [&](Output& out, int64_t numbers) {
    Output nan;
    fill(nan, numbers, std::numeric_limits<double>::quiet_NaN());
    if (call.rounding && &out == &call.out) nan.rounded.assign(nan.value.size(), 0.0);
    append(out, nan);
  };
  add(call.out, queries * call.Hq * call.D);
  add(call.lse, queries * call.Hq);
}

}  // namespace rlk::golden
