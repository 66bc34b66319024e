// From rows of scores to cross entropies, and to the gradient of each score: what cross_entropy and
// linear_cross_entropy agree on, fp64.
#pragma once

#include <rlk/sdk/ops/cross_entropy.hpp>

#include <cmath>

#include "core/golden/factors.hpp"
#include "core/golden/logp_rows.hpp"

namespace rlk::golden {

// score_of without a temperature.
struct CapParams {
  double temperature = 1, softcap = 0;
};

template <class Call>
Tracked class_weight(const Call& call, int64_t v) {
  return call.class_weight.present() ? call.class_weight.load(v) : 1.0;
}

// D and Z of the declaration.
struct Denominators {
  Tracked loss = 0.0, z_loss = 0.0;
};
template <class Call>
Denominators denominators(const Call& call) {
  if (call.params.denominator > 0) return {call.params.denominator, call.params.denominator};
  if (call.params.reduction != decltype(call.params.reduction)::mean) return {1.0, 1.0};
  TrackedSum weights;
  double rows = 0;
  for (int64_t n = 0; n < call.N; ++n) {
    if (is_ignored(call, n)) continue;
    rows += 1;
    if (row_error(call, n).kind == kNoDataError) weights.add(class_weight(call, call.ids.load_int(n)));
  }
  return {call.class_weight.present() ? weights.total() : Tracked(rows), rows};
}
inline Tracked share(Tracked sum, Tracked denominator) {
  return denominator.value == 0 ? Tracked(0.0) : sum / denominator;
}

// Answers every row. scores(n): those of an active row n whose id is in range.
template <class Call, typename Scores>
DataError answer_cross_entropy(Call& call, Scores&& scores) {
  DataError first;
  const double smoothing = call.params.label_smoothing, scale = call.params.lse_square_scale;
  TrackedSum losses, z_losses;
  for (int64_t n = 0; n < call.N; ++n) {
    LogpRow row;  // of zeros: ignored
    Tracked loss, z_loss;
    if (!is_ignored(call, n)) {
      DataError error = row_error(call, n);
      const int64_t target = call.ids.load_int(n);
      std::vector<Score> z;
      if (error.kind == kNoDataError) {
        z = scores(n);
        if (all_masked(z)) error = {kNoFiniteLogit, n, 0};
      }
      keep_first(first, error);
      row = error.kind == kNoDataError ? logp_of(z, target) : nan_row();
      const Tracked weight = class_weight(call, error.kind == kIdOutOfRange ? 0 : target);
      loss = times(Tracked(1 - smoothing, smoothing) * weight, -row.logp);
      if (smoothing > 0) {
        TrackedSum spread;
        for (size_t v = 0; v < z.size(); ++v) {
          spread.add(times(class_weight(call, static_cast<int64_t>(v)), row.lse - Tracked(z[v].z, z[v].z_error)));
        }
        loss = loss + Tracked(smoothing, smoothing) * spread.total() / Tracked(static_cast<double>(call.V));
      }
      if (scale > 0) z_loss = Tracked(scale, scale) * row.lse * row.lse;
    }
    losses.add(loss);
    z_losses.add(z_loss);
    put(call.token_loss, loss + z_loss);
    put(call.lse, row.lse);
  }
  const Denominators by = denominators(call);
  const bool reduced = call.params.reduction != decltype(call.params.reduction)::none;
  // A row whose id is out of range has no weight and is no number: weights of 0 do not hide it.
  const auto mean = [&](const Tracked& sum, const Tracked& denominator) {
    if (!reduced) return Tracked(0.0);
    return std::isnan(sum.value) ? sum : share(sum, denominator);
  };
  const Tracked z_loss = mean(z_losses.total(), by.z_loss);
  put(call.loss, mean(losses.total(), by.loss) + z_loss);
  put(call.z_loss, z_loss);
  return first;
}

// The gradient of score v of an active row.
template <class Call>
class CrossEntropyGradients {
public:
  explicit CrossEntropyGradients(const Call& call) : call_(call), by_(denominators(call)) {
    TrackedSum weights;
    for (int64_t v = 0; v < call.V; ++v) weights.add(class_weight(call, v));
    weights_ = weights.total();
  }
  Tracked operator()(const Score& score, int64_t n, int64_t v) const {
    if (score.x == -std::numeric_limits<double>::infinity()) return 0.0;
    const double smoothing = call_.params.label_smoothing;
    const bool reduced = call_.params.reduction != decltype(call_.params.reduction)::none;
    const Tracked of_loss = reduced ? call_.grad_loss.load(0) : 0.0;
    const Tracked of_token = call_.grad_token_loss.present() ? call_.grad_token_loss.load(n) : 0.0;
    const Tracked of_entropy = share(of_loss, by_.loss) + of_token, of_z = share(of_loss, by_.z_loss) + of_token;
    const int64_t target = call_.ids.load_int(n);
    const Tracked lse = call_.lse.load(n), log_p = Tracked(score.z, score.z_error) - lse, p = exp(log_p);
    const Tracked miss = v == target ? Tracked(std::expm1(log_p.value), p.error) : p;
    Tracked slope = Tracked(1 - smoothing, smoothing) * class_weight(call_, target) * of_entropy * miss;
    if (smoothing > 0) {
      const Tracked spread = Tracked(smoothing, smoothing) / Tracked(static_cast<double>(call_.V));
      slope = slope + spread * of_entropy * (weights_ * p - class_weight(call_, v));
    }
    const double scale = call_.params.lse_square_scale;
    if (scale > 0) slope = slope + Tracked(2 * scale, 2 * scale) * lse * of_z * p;
    if (is_vague(score.z_error, call_.epsilon)) {  // p is any number, but a NaN in what it is multiplied by stays
      const double factors = lse.value + of_entropy.value + of_z.value;
      return {std::isfinite(factors) ? 0.0 : factors * 0, std::numeric_limits<double>::infinity()};
    }
    return slope * Tracked(score.slope, score.slope_error);
  }

private:
  const Call& call_;
  const Denominators by_;
  Tracked weights_;
};

}  // namespace rlk::golden
