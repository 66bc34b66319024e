// Which rows logp and linear_logp have, which of them count and which are in error, forward and backward, and how a
// row's sums become its answer.
#pragma once

#include "core/cpu/logp/logp_backward_block.hpp"
#include "core/cpu/logp/logp_sums.hpp"
#include "core/cpu/simd/array.hpp"

namespace rlk::cpu {

template <class Call>
bool is_ignored(const Call& call, int64_t n) {
  return !call.mask.keeps(n) || call.ids.integer(n) == call.params.ignore_index;
}

// The logits row of an active row; may be out of range.
template <class Call>
int64_t logits_row(const Call& call, int64_t n) {
  if constexpr (requires { call.row_indices; }) {
    if (call.row_indices.present()) return call.row_indices.integer(n);
  }
  return n;
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

// The column of an active row's target; outside [0, V) where another shard owns it.
template <class Call>
int64_t target_column(const Call& call, int64_t n) {
  if constexpr (requires { call.params.vocab_start; }) return call.ids.integer(n) - call.params.vocab_start;
  return call.ids.integer(n);
}

// The data error of an active row that shows without its scores; kind 0 when there is none.
template <class Call>
DataError row_error(const Call& call, int64_t n) {
  const int64_t id = call.ids.integer(n);
  if (id < 0 || id >= global_vocab(call)) return {kIdOutOfRange, n, id};
  if constexpr (requires { call.row_indices; }) {
    const int64_t row = logits_row(call, n);
    if (row < 0 || row >= call.R) return {kRowOutOfRange, n, row};
  }
  return {};
}
// Of the lowest bad row, whatever it was that showed it.
template <class Call>
DataError first_error(const Call& call, const FirstBadRow& bad) {
  if (!bad.any()) return {};
  const DataError error = row_error(call, bad.row());
  return error.kind != kNoDataError ? error : DataError{kNoFiniteLogit, bad.row(), 0};
}

template <class Call>
void put_row(const Call& call, int64_t n, double logp, double lse, double entropy, double sum_p2) {
  call.logp.put(n, logp);
  if (call.lse.present()) call.lse.put(n, lse);
  if (call.entropy.present()) call.entropy.put(n, entropy);
  if (call.sum_p2.present()) call.sum_p2.put(n, sum_p2);
}

// Writes rows that need no scores; false for the others.
template <class Call>
bool settled(const Call& call, int64_t n, FirstBadRow& bad) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (is_ignored(call, n)) {
    put_row(call, n, 0, 0, 0, 0);
    return true;
  }
  if (row_error(call, n).kind == kNoDataError) return false;
  bad.report(n);
  put_row(call, n, kNan, kNan, kNan, kNan);
  return true;
}

// Writes a row from its sums. capped(column): the target's capped score, asked for only where it is here.
template <class Call, typename Capped>
void finish_row(const Call& call, int64_t n, const RowSums& sums, FirstBadRow& bad, Capped&& capped) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (sums.all_masked()) {
    if (!has_whole_vocabulary(call)) return put_row(call, n, -kInfinity, -kInfinity, 0, 0);
    bad.report(n);
    return put_row(call, n, kNan, kNan, kNan, kNan);
  }
  const int64_t target = target_column(call, n);
  const bool here = target >= 0 && target < call.V;
  put_row(call, n, here ? sums.logp(capped(target)) : -kInfinity, sums.lse(),
          call.entropy.present() ? sums.entropy() : 0, call.sum_p2.present() ? sums.sum_p2() : 0);
}

// What an output row contributes to gradients.
template <class Call>
RowGradient row_gradient(const Call& call, int64_t n) {
  const auto get = [n](const Array& array) { return array.present() ? array.get(n) : 0.0; };
  return {get(call.lse),          get(call.grad_logp), get(call.grad_lse),
          get(call.grad_entropy), get(call.entropy),   target_column(call, n)};
}

}  // namespace rlk::cpu
