// What logp, linear_logp and their backwards agree on: which rows count, which are in error, what a score is, and what
// becomes of a row of scores.
#pragma once

#include <rlk/sdk/ops/logp.hpp>
#include <rlk/sdk/ops/logp_backward.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include "core/golden/operator.hpp"
#include "core/golden/tracked.hpp"

namespace rlk::golden {

template <class Call>
bool is_ignored(const Call& call, int64_t n) {
  return (call.mask.present() && call.mask.load_int(n) == 0) || call.ids.load_int(n) == call.params.ignore_index;
}

// V where nothing is sharded.
template <class Call>
int64_t global_vocab(const Call& call) {
  if constexpr (requires { call.params.global_vocab; }) {
    if (call.params.global_vocab > 0) return call.params.global_vocab;
  }
  return call.V;
}
template <class Call>
bool has_whole_vocabulary(const Call& call) {
  return global_vocab(call) == call.V;
}

// The row of logits of an active row.
template <class Call>
int64_t logits_row(const Call& call, int64_t n) {
  if constexpr (requires { call.row_indices; }) {
    if (call.row_indices.present()) return call.row_indices.load_int(n);
  }
  return n;
}

// The data error that can be seen without looking at scores; an active row only.
template <class Call>
DataError row_error(const Call& call, int64_t n) {
  const int64_t id = call.ids.load_int(n);
  if (id < 0 || id >= global_vocab(call)) return {kIdOutOfRange, n, id};
  if constexpr (requires { call.row_indices; }) {
    const int64_t r = logits_row(call, n);
    if (r < 0 || r >= call.R) return {kRowOutOfRange, n, r};
  }
  return {};
}

inline void keep_first(DataError& first, const DataError& error) {
  if (error.kind == kNoDataError) return;
  if (first.kind == kNoDataError || error.row < first.row) first = error;
}

// One score of a row; an implementation's z is off by eps z_error.
struct Score {
  double x = 0;  // the logit, or the product, with its bias
  double z = 0, z_error = 0;
  double slope = 0, slope_error = 0;  // d z / d x, and what eps times it is off by
};

// x is off by eps x_error. Where z is x itself nothing is rounded; a cap is a tanh and a product, a temperature a
// quotient.
template <class Params>
Score score_of(const Params& params, double x, double x_error) {
  Score score;
  score.x = x;
  score.z = x / params.temperature;
  score.slope = score.slope_error = 1 / params.temperature;
  if (params.softcap > 0) {
    const double t = std::tanh(x / params.softcap);
    score.z = params.softcap * t / params.temperature;
    score.slope *= 1 - t * t;
    // 1 - t^2 is off by an absolute eps, and follows x with -2 t (1 - t^2) / softcap.
    score.slope_error += 2 * std::fabs(t) * score.slope * x_error / params.softcap;
  }
  score.z_error = score.slope * x_error;
  const int roundings = (params.softcap > 0 ? 2 : 0) + (params.temperature != 1 ? 1 : 0);
  if (roundings > 0 && std::isfinite(score.z)) score.z_error += roundings * std::fabs(score.z);
  return score;
}

// What keep_mask drops: no number of its own, no probability and no gradient.
inline Score dropped_score() {
  return {-kInfinity, -kInfinity, 0, 0, 0};
}
template <class Call>
bool is_dropped(const Call& call, int64_t row, int64_t v) {
  return call.keep_mask.present() && call.keep_mask.load_int(row, v) == 0;
}

// The scores of logits row r.
std::vector<Score> scores_of(const CallOf<sdk::ops::Logp>& call, int64_t r);

bool all_masked(const std::vector<Score>& scores);

struct LogpRow {
  Tracked logp, lse, entropy, sum_p2;
};
// Of an active row; target: its column, or one outside.
LogpRow logp_of(const std::vector<Score>& scores, int64_t target);
LogpRow nan_row();

// Answers every row. scores(n): those of an active row n that is not in error.
template <class Call, typename Scores>
DataError answer_rows(Call& call, Scores&& scores) {
  DataError first;
  for (int64_t n = 0; n < call.N; ++n) {
    LogpRow row;  // of zeros: ignored
    if (!is_ignored(call, n)) {
      DataError error = row_error(call, n);
      if (error.kind == kNoDataError) {
        const std::vector<Score> z = scores(n);
        if (all_masked(z) && has_whole_vocabulary(call)) error = {kNoFiniteLogit, n, 0};
        row = logp_of(z, call.ids.load_int(n) - call.params.vocab_start);
      }
      keep_first(first, error);
      if (error.kind != kNoDataError) row = nan_row();
    }
    put(call.logp, row.logp);
    put(call.lse, row.lse);
    put(call.entropy, row.entropy);
    put(call.sum_p2, row.sum_p2);
  }
  return first;
}

// Whether a score that is off by eps z_error says so little of its power that no first order tells what that is off by.
inline bool is_vague(double z_error, double epsilon) {
  return z_error * epsilon > 0x1p-8;
}

// What a row's gradients have in common.
struct RowGradients {
  double lse, of_logp, of_lse, of_entropy, entropy;
  int64_t target;
  double epsilon;  // of the call
};
template <class Call>
RowGradients row_gradients(const Call& call, int64_t n) {
  const auto load = [n](const View& view) { return view.present() ? view.load(n) : 0.0; };
  return {load(call.lse),      load(call.grad_logp),
          load(call.grad_lse), load(call.grad_entropy),
          load(call.entropy),  call.ids.load_int(n) - call.params.vocab_start,
          call.epsilon};
}
// The gradient of one x.
Tracked gradient_of(const Score& score, const RowGradients& row, bool is_target);

// For operators that are built from them.
DataError logp(CallOf<sdk::ops::Logp>& call);
DataError logp_backward(CallOf<sdk::ops::LogpBackward>& call);

}  // namespace rlk::golden
