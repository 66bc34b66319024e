// Rows of logits of two models as distributions: what jsd and its backward agree on.
#pragma once

#include <rlk/sdk/ops/logp.hpp>

#include <vector>

#include "core/golden/logp_rows.hpp"
#include "core/golden/operator.hpp"
#include "core/golden/tracked.hpp"

namespace rlk::golden {

// lse of every row, by the reference of logp, which has no use here for its ids.
class RowSums {
public:
  template <class Call>
  RowSums(const Call& call, const View& logits) : ids_(static_cast<size_t>(call.N), 0), shape_{call.N}, strides_{1} {
    rows_.logits = logits;
    rows_.ids = {ids_.data(), Dtype::i64, 1, shape_, strides_};
    rows_.mask = call.mask;
    rows_.N = rows_.R = call.N;
    rows_.V = call.V;
    rows_.params.temperature = call.params.temperature;
    error_ = logp(rows_);
    for (int64_t n = 0; n < call.N; ++n) {
      bool all_masked = !call.mask.present() || call.mask.load_int(n) != 0;
      for (int64_t v = 0; v < call.V && all_masked; ++v) {
        all_masked = logits.load(n, v) == -std::numeric_limits<double>::infinity();
      }
      bad_.push_back(all_masked);
    }
  }
  const DataError& error() const { return error_; }
  bool is_bad(int64_t n) const { return bad_[static_cast<size_t>(n)]; }
  Tracked lse(int64_t n) const {
    return {rows_.lse.value[static_cast<size_t>(n)], rows_.lse.cond[static_cast<size_t>(n)]};
  }

private:
  std::vector<int64_t> ids_;
  int64_t shape_[1], strides_[1];
  CallOf<sdk::ops::Logp> rows_;
  DataError error_;
  std::vector<bool> bad_;
};

// Of one token: of the student (q), of the teacher (p), and of their mixture (m).
struct Probabilities {
  Tracked log_q, log_p, q, p, log_m;

  template <class Call>
  Probabilities(const Call& call, Tracked lse, Tracked teacher_lse, int64_t n, int64_t v) {
    const Tracked temperature(call.params.temperature, call.params.temperature);
    log_q = Tracked(call.logits.load(n, v)) / temperature - lse;
    log_p = Tracked(call.teacher_logits.load(n, v)) / temperature - teacher_lse;
    q = exp(log_q);
    p = exp(log_p);
    const Tracked beta(call.params.beta, call.params.beta);
    log_m = log(beta * p + (Tracked(1.0) - beta) * q);
  }
};

// x log(x / y); 0 where x is.
inline Tracked relative(const Tracked& x, const Tracked& log_x, const Tracked& log_y) {
  return x.value == 0 ? Tracked(0.0, x.error) : x * (log_x - log_y);
}

}  // namespace rlk::golden
