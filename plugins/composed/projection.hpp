// projection: scores of a vocabulary made of hidden states, and what becomes of their gradients. An operator's file
// says what is recorded of a call as in scores.hpp:
//
//   RLK_COMPOSED_LINEAR_SCORES(LinearLogpBackward, logp_options(call), refuse_ids(entries), {
//     const LogpTokens<decltype(d)> tokens(d, call, View(), call.N);
//     const Projection<decltype(d)> model(d, call.hidden, call.weight, tokens.targets.active());
//     model.gradients(call, logp_slopes(d, terms, call, tokens, model.scores()));
//   })
//
// A chunk of rows has its scores in memory, never all rows. Products are those of fp32 matrices: a weight matrix of 16
// bits is cast in blocks (Recorder::block_bytes) for every chunk and each use. The gradient of the weights is a sum
// over chunks in its own memory.
#pragma once

#include <algorithm>

#include "scores.hpp"

namespace rlk::composed {

template <class D>
class Projection {
public:
  // counts: which rows' hidden states are looked at.
  Projection(D d, const View& hidden, const View& weight, Mask counts)
      : d_(d),
        dtype_(weight.dtype == sdk::Dtype::f64 ? weight.dtype : sdk::Dtype::f32),
        weight_(weight),
        counts_(counts),
        hidden_(IfThenElseZero(counts, {d.recorder, d.recorder->cast(d.recorder->input(hidden), dtype_)})) {}

  // [rows, V]
  Value scores() const {
    const bool is_plain = weight_.dtype == dtype_ && is_dense(weight_.dims, weight_.strides);
    const int64_t all = weight_.dims[0];
    int made = -1;
    each_block(is_plain ? all : rows_of_block(), [&](int64_t first, int64_t count) {
      const Value part = product(hidden_, transposed(weight(first, count, 0)));
      made = count == all ? part.node : recorder().join(made, part.node, first, {dims_of(hidden_)[0], all});
    });
    return {&recorder(), recorder().cast(made, D::kDtype)};
  }
  Value scores(const View& bias) const { return Add(scores(), Reader<D>{recorder()}(or_number(of_columns(bias), 0))); }

  // slopes: the gradient of the scores. grad_hidden, grad_weight and grad_bias of the call.
  template <class Call>
  void gradients(const Call& call, Value slopes) const {
    slopes = {&recorder(), recorder().cast(slopes.node, dtype_)};
    Value of_hidden{&recorder(), -1};
    each_block(rows_of_block(), [&](int64_t first, int64_t count) {
      const Value part = count == weight_.dims[0] ? slopes : copy_of(some_columns(slopes, first, count));
      const Value own = product(part, weight(first, count, count == weight_.dims[0] ? 0 : 1));
      of_hidden = first == 0 ? own : Add(of_hidden, own);
      if (!call.grad_weight.is_present()) return;
      recorder().sum(some_rows(call.grad_weight, first, count), product(transposed(part), hidden_).node);
    });
    put(recorder(), call.grad_hidden, IfThenElseZero(counts_, of_hidden));
    recorder().sum(of_columns(call.grad_bias), sum_of_rows(slopes).node);
  }

private:
  Recorder& recorder() const { return *d_.recorder; }
  // Multiples of 64 keep every block aligned.
  int64_t rows_of_block() const {
    const int64_t fitting = recorder().block_bytes() / std::max<int64_t>(1, weight_.dims[1] * sdk::bytes_of(dtype_));
    return std::max<int64_t>(1, fitting / 64) * 64;
  }
  template <class Visit>
  void each_block(int64_t rows, const Visit& visit) const {
    const int64_t all = weight_.dims[0];
    int64_t first = 0;
    do {
      visit(first, std::min(rows, all - first));
      first += rows;
    } while (first < all);
  }
  Value weight(int64_t first, int64_t count, int64_t use) const {
    return {&recorder(), recorder().cast(recorder().table(some_rows(weight_, first, count)), dtype_, use)};
  }

  const D d_;
  const sdk::Dtype dtype_;  // of the products
  const View weight_;
  const Mask counts_;
  const Value hidden_;
};

}  // namespace rlk::composed

// What two products round is theirs, so nothing is promised of it. A chunk takes four of the vendor's workspaces: each
// reads all weights.
#define RLK_COMPOSED_LINEAR_SCORES(OP, made, refusal, ...) \
  RLK_COMPOSED_ROWS_OF(OP, Scores, 0, 4, made, refusal, __VA_ARGS__)
