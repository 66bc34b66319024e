// tokens: numbers of tokens, [sequences, tokens], of which a mask leaves some out, with sums over each sequence and
// over the batch. An operator's file says what is recorded of a call:
//
//   RLK_COMPOSED_TOKENS(ValueLoss, refuse_packed(call.cu_seqlens), {
//     const Tokens<D> tokens(d, call.values, call.mask);
//     ...
//     out(of_columns(call.loss), tokens.batch(tokens.sums(loss)));
//   })
//
// The operator's name, what it declines of a call (can: what the vendor has), and statements: d is the tag
// and D its type, V a value, in(view) a tensor's numbers, out(view, value) what becomes of them. In fp64 where the
// device has it. What is one for each sequence is [sequences, 1], and what is one for the batch [1, 1].
#pragma once

#include <rlk/formula/loss_weights.hpp>

#include "rows.hpp"

namespace rlk::composed {

inline sdk::Refusal refuse_packed(const View& cu_seqlens) {
  if (!cu_seqlens.is_present()) return std::nullopt;
  return sdk::Support::no("PACKED", "packed sequences are not composed of primitives; pad them, layout dense");
}

template <class D>
class Tokens {
public:
  Tokens(D d, const View& like, const View& mask) : Tokens(d, mask_of(d, mask), like.dims[0], like.dims[1]) {}
  Tokens(D d, Mask mask, int64_t sequences, int64_t length)
      : mask_(mask), d_(d), sequences_(sequences), length_(length) {}

  Mask mask() const { return mask_; }
  Value ones(Mask chosen) const { return IfThenElse(chosen, number(d_, 1), Zero(d_)); }
  // Of each sequence. What is the same for all of its tokens is counted as often.
  Value sums(Value x) const { return reduced(x, length_, true); }
  Value counts(Mask chosen) const { return sums(ones(chosen)); }
  // Of all sequences; x is one for each.
  Value batch(Value x) const { return reduced(x, sequences_, false); }
  int64_t sequences() const { return sequences_; }
  int64_t length() const { return length_; }
  Value positions() const {  // 0, 1, ..., [tokens]
    const Value counted{d_.recorder, d_.recorder->positions({length_}, sdk::Dtype::f32)};
    return {d_.recorder, d_.recorder->cast(counted.node, d_.kDtype)};
  }

private:
  static Mask mask_of(D d, const View& mask) {
    Recorder& recorder = *d.recorder;
    if (!mask.is_present()) return {&recorder, recorder.number(1, sdk::Dtype::boolean)};
    return {&recorder, recorder.cast(recorder.input(mask), sdk::Dtype::boolean)};
  }
  Value reduced(Value x, int64_t size, bool is_row) const {
    const Dims& dims = x.recorder->nodes()[static_cast<size_t>(x.node)].dims;
    const int64_t own = is_row ? (dims.empty() ? 1 : dims.back()) : (dims.size() < 2 ? 1 : dims[0]);
    if (own != size) return Mul(x, number(d_, static_cast<double>(size)));
    return is_row ? row_sum(x) : sum_of_rows(x);
  }

  const Mask mask_;
  const D d_;
  const int64_t sequences_, length_;
};

// formula::LossWeights of values: the weight of an active token in the loss.
template <class D>
class TokenWeights {
public:
  template <class Params>
  TokenWeights(D d, const Params& params, const Tokens<D>& tokens, Value active)
      : d_(d), weights_(formula::loss_weights(params)) {
    tokens_ = tokens.batch(active);
    const Value counted =
        weights_.leaves_empty_out ? IfThenElse(Gt(active, Zero(d)), number(d, 1), Zero(d)) : number(d, 1);
    sequences_ = tokens.batch(counted);
  }

  // Of a sequence with so many active tokens.
  Value of_token(Value active) const {
    using Aggregation = formula::LossWeights::Aggregation;
    if (weights_.aggregation == Aggregation::none) return Zero(d_);
    const Value one = number(d_, 1);
    Value divisor = weights_.denominator > 0                          ? number(d_, weights_.denominator)
                    : weights_.aggregation == Aggregation::token_mean ? tokens_
                    : weights_.aggregation == Aggregation::token_sum  ? one
                                                                      : sequences_;
    if (weights_.aggregation == Aggregation::seq_mean_token_mean) {
      const Value floor = number(d_, weights_.floor);
      divisor = Mul(IfThenElse(Lt(active, floor), floor, active), divisor);
    }
    return IfThenZeroElse(Eq(active, Zero(d_)), Div(one, divisor));
  }
  Value weighted(Value sum, Value active) const {
    const Value weight = of_token(active);
    return IfThenZeroElse(Eq(weight, Zero(d_)), Mul(sum, weight));
  }

private:
  const D d_;
  const formula::LossWeights weights_;
  Value tokens_, sequences_;
};

// In fp64 where the device has it or a tensor is.
struct TokenTerms {
  bool has_f64;
  bool asks_f64() const { return has_f64; }
};
template <class Record>
void record_tokens(Recorder& recorder, bool is_f64, Record record) {
  record_rows(recorder, is_f64 || recorder.has_f64(), record);
}

}  // namespace rlk::composed

#define RLK_COMPOSED_TOKENS(OP, refusal, ...) \
  RLK_COMPOSED_ROWS_OF(OP, Tokens, RLK_NUMERICS_DETERMINISTIC, 0, TokenTerms{recorder.has_f64()}, refusal, __VA_ARGS__)
