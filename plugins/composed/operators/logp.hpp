// Log-probabilities of chosen tokens, with log-sum-exp, entropy and the sum of squares, and the gradient of the logits.
// Of logits that are known, or made of hidden states (linear_logp.hpp). What is one for each token is made of all
// tokens before the first chunk of rows, and their errors are told behind the last: a chunk is calls over its logits
// and few besides.
#pragma once

#include "../logits.hpp"

#include <rlk/formula/cross_entropy.hpp>

namespace rlk::composed {

struct LogpOptions {
  double temperature, softcap;

  bool asks_f64() const {
    const auto is_far = [](double x) { return x < 0x1p-60 || x > 0x1p60; };
    return is_far(temperature) || (softcap > 0 && is_far(softcap));
  }
};
template <class Call>
LogpOptions logp_options(const Call& call) {
  return {call.params.temperature, call.params.softcap};
}

template <class Call>
sdk::Refusal refuse_logp(const Call& call) {
  if (call.R > kMostRows && call.row_indices.is_present())
    return sdk::Support::no("SIZE", "row_indices of more than 2^31 - 2 rows are not composed of primitives");
  return refuse_ids(entries_of(call).all);
}

// What is left of logits with their bias, capped and divided; what keep_mask drops is -inf.
struct Scores {
  Mask are_shown;  // not -inf before the cap
  Value z;

  template <class D>
  Scores(D d, const LogpOptions& options, Value logits, const Value* bias, Mask kept)
      : Scores(d, options, IfThenElse(kept, bias != nullptr ? Add(logits, *bias) : logits, Neg(Inf(d))), kept) {}

  // Gradients of z as those of x.
  template <class D>
  Value gradients(D d, const LogpOptions& options, Value of_z) const {
    if (options.softcap > 0) {
      const Value slope = d.recorder->has_tanh() ? Sub(number(d, 1), Mul(cap_.slope, cap_.slope)) : cap_.slope;
      of_z = Mul(of_z, slope);
    }
    return Div(of_z, number(d, options.temperature));
  }

private:
  template <class D>
  Scores(D d, const LogpOptions& options, Value x, Mask kept) : are_shown(Ne(x, Neg(Inf(d)))), z(x) {
    if (options.softcap > 0) {
      cap_ = capped_by(d, x, options.softcap);
      z = cap_.value;
    }
    z = Div(z, number(d, options.temperature));
    if (options.softcap > 0) z = IfThenElse(kept, z, Neg(Inf(d)));
  }
  // In three calls where there is a tanh, which then stands for the slope.
  template <class D>
  static Capped<Value> capped_by(D d, Value x, double softcap) {
    if (!d.recorder->has_tanh()) return cap_of(d, x, softcap);
    const Value t = tanh_of(Div(x, number(d, softcap)));
    return {Mul(t, number(d, softcap)), t};
  }

  Capped<Value> cap_{};
};

template <class D, class Call>
void record_logp(D d, const LogpOptions& options, const Call& call, const LogitRows& rows, Value logits) {
  Recorder& recorder = *d.recorder;
  const Writer out{recorder};
  const bool is_whole = !entries_of(call).is_shard();
  const Targets targets = targets_of(recorder, call);
  const Mask active = ahead_of_rows(targets.active()), known = ahead_of_rows(And(targets.known(), rows.known()));
  const Value column = ahead_of_rows(targets.column());
  if (rows.count() == 0 && call.N > 0) {  // no row can be read: every active one is an error
    report_errors(targets, rows, rows.known(), nullptr);
    for (const View& view : {call.logp, call.lse, call.entropy, call.sum_p2})
      out(of_row(view), IfThenElseZero(active, number(d, std::numeric_limits<double>::quiet_NaN())));
    return;
  }
  const Value bias = Reader<D>{recorder}(or_number(of_columns(call.bias), 0));
  const Value* const added = call.bias.is_present() ? &bias : nullptr;
  const Value z = Scores(d, options, logits, added, rows.kept(call.keep_mask)).z;
  const Value of_target = at_column(z, column);  // before others of a row, which then take its memory
  const Value largest = row_largest(z), below = Sub(z, largest), power = exp(d, below), sum = row_sum(power);
  const Value log_sum = log(d, sum), hidden = Neg(Inf(d));
  const Mask is_empty = Eq(largest, hidden), has_score = Ne(largest, hidden);
  if (is_whole) {
    const Mask are_empty = collected(is_empty);
    report_errors(targets, rows, rows.known(), &are_empty);
  } else {  // a shard without a score is no error
    report_errors(targets, rows, rows.known(), nullptr);
  }
  const Mask valid = is_whole ? And(known, has_score) : known;
  const auto answer = [&](const View& view, Value value, Value of_empty) {
    if (view.is_present())
      out(of_row(view), answer_of(d, active, valid, is_whole ? value : IfThenElse(is_empty, of_empty, value)));
  };
  const Value score = Sub(Sub(of_target, largest), log_sum);
  answer(call.logp, is_whole ? score : IfThenElse(ahead_of_rows(targets.here()), score, hidden), hidden);
  answer(call.lse, Add(largest, log_sum), hidden);
  const Value term = Mul(below, power), moment = row_sum(IfThenZeroElse(Eq(below, hidden), term));
  answer(call.entropy, Sub(log_sum, Div(moment, sum)), Zero(d));
  const Value squares = Div(Div(row_sum(Mul(power, power)), sum), sum);
  answer(call.sum_p2, at_most(d, 1, squares), Zero(d));
}

// Gradients of a row of scores z. Where the row's log-sum-exp has no digits behind the point a probability may be
// anything; it stays finite, as no score is far above the log-sum-exp.
template <class D>
Value gradients_of(D d, Value z, const TokenGradients& token, Value largest) {
  constexpr double kMost = 16.6, kLeast = -0.5 * static_cast<double>(std::numeric_limits<float>::max());
  const Value least = Sub(largest, number(d, kMost));
  Value log_p = Sub(z, IfThenElse(Lt(token.lse, least), least, token.lse)), slope = token.of_all;
  if (token.has_entropy) {
    log_p = at_least(d, kLeast, log_p);
    slope = Sub(slope, Mul(Add(log_p, token.entropy), token.of_entropy));
  }
  const Value gradient = Mul(exp(d, log_p), slope);
  return Add(gradient, IfThenElseZero(token.is_target, token.of_target));
}

// Tokens and the rows of logits that are theirs.
template <class D>
struct LogpTokens {
  Targets targets;
  LogitRows rows;
  TokenRows<D> of_rows;

  template <class Call>
  LogpTokens(D d, const Call& call, const View& row_indices, int64_t count)
      : targets(targets_of(*d.recorder, call)),
        rows(*d.recorder, row_indices, count),
        of_rows(d, call.N, targets, rows) {}
  LogpTokens(const LogpTokens&) = delete;
};

// The gradient of the logits.
template <class D, class Call>
Value logp_slopes(D d, const LogpOptions& options, const Call& call, const LogpTokens<D>& of, Value logits) {
  const TokenRows<D>& tokens = of.of_rows;
  const Reader<D> in{*d.recorder};
  const auto at_rows = [&](const View& view) { return tokens.at_rows(in(of_row(view)), 0); };
  TokenGradients token;
  token.is_target = Eq(positions_of(d, {call.V}), tokens.column());
  token.lse = at_rows(call.lse);
  token.of_target = at_rows(call.grad_logp);
  token.of_all = call.grad_lse.is_present() ? Sub(at_rows(call.grad_lse), token.of_target) : Neg(token.of_target);
  token.has_entropy = call.grad_entropy.is_present();
  if (token.has_entropy) {
    token.entropy = at_rows(call.entropy);
    token.of_entropy = at_rows(call.grad_entropy);
  }
  const Value bias = in(or_number(of_columns(call.bias), 0)), hidden = Neg(Inf(d));
  const Value* const added = call.bias.is_present() ? &bias : nullptr;
  const Scores scores(d, options, logits, added, kept_columns(*d.recorder, call.keep_mask));
  const Value largest = row_largest(scores.z), nan = number(d, std::numeric_limits<double>::quiet_NaN());
  const Mask has_token = tokens.has_token();
  Mask is_wrong = tokens.is_wrong();
  if (entries_of(call).is_shard()) {
    tokens.report();
  } else {
    const Mask is_empty = And(has_token, Eq(largest, hidden));
    tokens.report(is_empty);
    is_wrong = Or(is_wrong, is_empty);
  }
  const Value of_z = gradients_of(d, scores.z, token, largest);
  const Mask is_shown = And(AndNot(is_wrong, has_token), scores.are_shown);
  return IfThenElse(is_shown, scores.gradients(d, options, of_z), IfThenElseZero(is_wrong, nan));
}

}  // namespace rlk::composed

RLK_COMPOSED_SCORES(Logp, logp_options(call), refuse_logp(call), {
  const LogitRows rows(recorder, call.row_indices, call.R);
  record_logp(d, terms, call, rows, rows.numbers(d, call.logits));
})
RLK_COMPOSED_SCORES(LogpBackward, logp_options(call), refuse_logp(call), {
  const LogpTokens<decltype(d)> tokens(d, call, call.row_indices, call.R);
  if (call.R == 0) {  // no row has a gradient
    tokens.of_rows.report();
    return out(of_columns(call.grad_bias), tokens.of_rows.spoiled(Zero(d)));
  }
  const V slopes = logp_slopes(d, terms, call, tokens, in(call.logits));
  out(call.grad_logits, slopes);
  if (call.grad_bias.is_present()) out(of_columns(call.grad_bias), tokens.of_rows.spoiled(summed(sum_of_rows(slopes))));
})

namespace rlk::composed {
template <>
inline uint64_t dynamic_symbols<LogpScores>() {
  using Named = sdk::Arguments<sdk::ops::Logp>;
  return sdk::bits_of(&Named::N, &Named::R);
}
template <>
inline uint64_t dynamic_symbols<LogpBackwardScores>() {
  using Named = sdk::Arguments<sdk::ops::LogpBackward>;
  return sdk::bits_of(&Named::N, &Named::R);
}
}  // namespace rlk::composed
