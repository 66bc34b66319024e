// What logp and its backward share: which rows count, which are in error, and what a score is.
#pragma once

#include <cmath>
#include <limits>

#include "elements.hpp"
#include "operators.hpp"

namespace golden_plugin {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The rows of a call; Params is that of logp or of logp_backward, whose fields have the same names.
template <class Params>
struct Rows {
  const Params& params;
  Elements logits, ids, bias, mask, row_indices;

  int64_t count() const { return ids.size(0); }
  int64_t logits_count() const { return logits.size(0); }
  int64_t vocab() const { return logits.size(1); }
  int64_t global_vocab() const { return params.global_vocab > 0 ? params.global_vocab : vocab(); }

  bool ignored(int64_t n) const { return (mask && mask.integer(n) == 0) || ids.integer(n) == params.ignore_index; }
  bool id_in_range(int64_t n) const { return ids.integer(n) >= 0 && ids.integer(n) < global_vocab(); }
  // The column of the target, outside [0, vocab) when another shard owns it.
  int64_t target(int64_t n) const { return ids.integer(n) - params.vocab_start; }
  int64_t logits_row(int64_t n) const { return row_indices ? row_indices.integer(n) : n; }
  bool has_logits_row(int64_t n) const { return logits_row(n) >= 0 && logits_row(n) < logits_count(); }

  double biased_logit(int64_t r, int64_t v) const { return logits.real(r, v) + (bias ? bias.real(v) : 0.0); }
  double score(int64_t r, int64_t v) const {
    const double x = biased_logit(r, v);
    return (params.softcap > 0 ? params.softcap * std::tanh(x / params.softcap) : x) / params.temperature;
  }
};

}  // namespace golden_plugin
