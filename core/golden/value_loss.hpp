// What value_loss and its backward agree on: the clipped prediction, and what a token weighs in the reduced loss.
#pragma once

#include <rlk/ops/value_loss.h>

#include <optional>
#include <vector>

#include "core/golden/sequences.hpp"
#include "core/golden/tracked.hpp"

namespace rlk::golden {

// c of the declaration.
inline Tracked clipped(double value, std::optional<double> old_value, double eps) {
  if (!old_value) return value;
  const Tracked low = Tracked(*old_value) - Tracked(eps), high = Tracked(*old_value) + Tracked(eps);
  if (value >= low.value && value <= high.value) return value;
  return value < low.value ? low : high;
}

inline std::optional<double> maybe(const Sequences& sequences, const View& view, int64_t b, int64_t t) {
  return view.present() ? std::optional<double>(sequences.load(view, b, t)) : std::nullopt;
}

struct TokenCounts {
  std::vector<double> of_sequence;
  double all = 0, nonempty = 0;
};
inline TokenCounts count_tokens(const Sequences& sequences, const View& mask) {
  TokenCounts counts;
  for (int64_t b = 0; b < sequences.count(); ++b) {
    double count = 0;
    for (int64_t t = 0; t < sequences.tokens(b); ++t) count += sequences.kept(mask, b, t) ? 1 : 0;
    counts.of_sequence.push_back(count);
    counts.all += count;
    counts.nonempty += count > 0 ? 1 : 0;
  }
  return counts;
}

// The weight of a token of sequence b in the reduced loss.
template <typename Params>
Tracked token_weight(const Params& params, const TokenCounts& counts, size_t b) {
  const bool by_sequence = params.aggregation == RLK_VALUE_LOSS_AGGREGATION_SEQ_MEAN_TOKEN_MEAN ||
                           params.aggregation == RLK_VALUE_LOSS_AGGREGATION_SEQ_MEAN_TOKEN_SUM;
  double denominator = 1;
  if (params.aggregation == RLK_VALUE_LOSS_AGGREGATION_TOKEN_MEAN) denominator = std::max(counts.all, 1.0);
  if (by_sequence) {
    const bool exclude = params.exclude_empty_sequences == RLK_VALUE_LOSS_EXCLUDE_EMPTY_SEQUENCES_ON;
    denominator = std::max(exclude ? counts.nonempty : static_cast<double>(counts.of_sequence.size()), 1.0);
  }
  if (params.denominator > 0) denominator = params.denominator;
  if (params.aggregation == RLK_VALUE_LOSS_AGGREGATION_NONE) return 0.0;
  Tracked weight = Tracked(1.0) / Tracked(denominator);
  if (params.aggregation == RLK_VALUE_LOSS_AGGREGATION_SEQ_MEAN_TOKEN_MEAN) {
    weight = weight / Tracked(std::max(counts.of_sequence[b], params.seq_denominator_floor));
  }
  return weight;
}

}  // namespace rlk::golden
