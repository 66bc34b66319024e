// What logp and its backward agree on: which rows count, which are in error, and what a score is.
#pragma once

#include <cmath>

#include "core/golden/golden.hpp"

namespace rlk::golden {

template <typename Call>
bool is_ignored(const Call& call, int64_t n) {
  return (call.mask.present() && call.mask.load_int(n) == 0) || call.ids.load_int(n) == call.ignore_index;
}

// The data error that can be seen without looking at logits; an active row only.
template <typename Call>
DataError row_error(const Call& call, int64_t n) {
  const int64_t global_vocab = call.global_vocab > 0 ? call.global_vocab : call.logits.shape[1];
  const int64_t id = call.ids.load_int(n);
  if (id < 0 || id >= global_vocab) return {kIdOutOfRange, n, id};
  if (call.row_indices.present()) {
    const int64_t r = call.row_indices.load_int(n);
    if (r < 0 || r >= call.logits.shape[0]) return {kRowOutOfRange, n, r};
  }
  return {};
}

inline void keep_first(DataError& first, const DataError& error) {
  if (first.kind == kNoDataError || error.row < first.row) first = error;
}

// logits[r, v] + bias[v]
template <typename Call>
double biased_logit(const Call& call, int64_t r, int64_t v) {
  return call.logits.load(r, v) + (call.bias.present() ? call.bias.load(v) : 0.0);
}

// z[v] = cap(logits[r, v] + bias[v]) / temperature
template <typename Call>
double score(const Call& call, int64_t r, int64_t v) {
  const double x = biased_logit(call, r, v);
  const double capped = call.softcap > 0 ? call.softcap * std::tanh(x / call.softcap) : x;
  return capped / call.temperature;
}

}  // namespace rlk::golden
