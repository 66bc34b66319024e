// logp, one row after the other, with a few of its possible defects.
#include "conformance/simple/implementations.hpp"
#include "conformance/simple/tokens.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

namespace rlk::simple {
namespace {

constexpr int64_t kOnlineFrom = 64;  // columns: from here the maximum is found on the way

template <class A>
struct RowSums {
  A max, sum, weighted, squares;  // sum of exp(z - max), of exp(z - max) (z - max), and of exp(z - max)^2
  // Of the blocks before the last one: a sum over a whole vocabulary has lost too many digits.
  double blocks_sum = 0, blocks_weighted = 0, blocks_squares = 0;

  void end_block() {
    blocks_sum += static_cast<double>(std::exchange(sum, A(0)));
    blocks_weighted += static_cast<double>(std::exchange(weighted, A(0)));
    blocks_squares += static_cast<double>(std::exchange(squares, A(0)));
  }
};
constexpr int64_t kBlock = 128;  // columns; equal numbers round to the same side, so that it is short

// Which way the columns are walked; only defects change it.
bool backwards(int64_t n, int64_t rows) {
  static int calls = 0;
  if (mutant("nondeterministic")) return ++calls % 2 == 0;
  if (mutant("position_dependent")) return n % 2 == 1;
  if (mutant("batch_dependent")) return rows % 2 == 0;
  return false;
}

template <class A>
RowSums<A> reduce(const Tokens<rlk_logp_params>& in, int64_t row, int64_t n) {
  constexpr A kLowest = -std::numeric_limits<A>::infinity();
  int64_t columns = in.vocab;
  if (mutant("tail_dropped") && columns > 1) --columns;
  if (mutant("long_tail_dropped") && columns > 1000) --columns;
  const bool reverse = backwards(n, in.rows);
  const auto score = [&](int64_t v) {
    A z = in.score<A>(row, reverse ? columns - 1 - v : v);
    if (mutant("nan_swallowed") && std::isnan(z)) z = kLowest;
    return z;
  };
  RowSums<A> sums{kLowest, 0, 0, 0};
  int64_t added = 0;
  const auto add = [&](A z) {
    const A shifted = z - sums.max;
    const A p = std::exp(shifted);
    if (++added % kBlock == 0) sums.end_block();
    sums.sum += p;
    sums.squares += p * p;
    if (p > 0 || std::isnan(p) || mutant("minus_inf_counts")) sums.weighted += p * shifted;
    if (mutant("bf16_sums") && in.logits.dtype() == Dtype::bf16) {
      sums.sum = static_cast<A>(widen_bf16(narrow_bf16(static_cast<float>(sums.sum))));
    }
  };
  if (in.vocab < kOnlineFrom) {
    for (int64_t v = 0; v < columns; ++v) {
      const A z = score(v);
      if (z > sums.max || std::isnan(z)) sums.max = z;  // a NaN stays: nothing is larger
    }
    if (mutant("no_maximum") && sums.max > kLowest) sums.max = 0;
    if (sums.max == kLowest) return sums;
    for (int64_t v = 0; v < columns; ++v) add(score(v));
    return sums;
  }
  for (int64_t v = 0; v < columns; ++v) {
    const A z = score(v);
    if (z > sums.max || std::isnan(z)) {
      const A shift = sums.max - z;
      const A scale = std::exp(shift);
      const bool any = sums.sum > 0 || sums.blocks_sum > 0;
      sums.weighted = any ? scale * (sums.weighted + shift * sums.sum) : A(0);
      sums.blocks_weighted = any ? scale * (sums.blocks_weighted + shift * sums.blocks_sum) : 0;
      sums.sum *= scale;
      sums.blocks_sum *= scale;
      sums.squares *= scale * scale;
      sums.blocks_squares *= static_cast<double>(scale) * static_cast<double>(scale);
      sums.max = z;
    }
    if (sums.max > kLowest || std::isnan(sums.max)) add(z);
  }
  return sums;
}

class LogpPlan : public sdk::Plan {
public:
  explicit LogpPlan(const sdk::Call<sdk::ops::Logp>& call, std::string name) : params_(call.params()) {
    dynamic_symbols = 1u << RLK_LOGP_SYM_N | 1u << RLK_LOGP_SYM_R;
    numerics = kAllClasses;
    variant = std::move(name);
    planned_rows_ = call.symbol(RLK_LOGP_SYM_N);
  }

  void enqueue(sdk::Stream&, const sdk::Run& run) override {
    if (mutant("throws")) throw std::runtime_error("no such luck");
    const Dtype dtype = sdk::dtype_of(*run.input(RLK_LOGP_IN_LOGITS));
    if (dtype == Dtype::f64 && !mutant("f64_in_f32")) return rows<double>(run);
    rows<float>(run);
  }

private:
  template <class A>
  void rows(const sdk::Run& run) {
    Tokens<rlk_logp_params> in{params_,
                               Tensor(run.input(RLK_LOGP_IN_LOGITS)),
                               Tensor(run.input(RLK_LOGP_IN_IDS)),
                               Tensor(run.input(RLK_LOGP_IN_BIAS)),
                               Tensor(run.input(RLK_LOGP_IN_MASK)),
                               Tensor(run.input(RLK_LOGP_IN_ROW_INDICES)),
                               Tensor(run.input(RLK_LOGP_IN_KEEP_MASK)),
                               run.symbol(RLK_LOGP_SYM_N),
                               run.symbol(RLK_LOGP_SYM_R),
                               run.symbol(RLK_LOGP_SYM_V)};
    const Tensor logp(run.output(RLK_LOGP_OUT_LOGP));
    const Tensor lse(mutant("lse_not_written") ? nullptr : run.output(RLK_LOGP_OUT_LSE));
    const Tensor entropy(run.output(RLK_LOGP_OUT_ENTROPY)), sum_p2(run.output(RLK_LOGP_OUT_SUM_P2));
    if (mutant("rows_of_the_plan")) in.rows = std::min(in.rows, planned_rows_);
    if (mutant("stale_mask") && in.mask.given()) {
      if (mask_.empty()) {
        for (int64_t n = 0; n < in.rows; ++n) mask_.push_back(in.mask.load_int(in.mask.at(n)));
      }
    }
    for (int64_t n = 0; n < in.rows; ++n) {
      if (mutant("last_row_not_written") && n > 0 && n == in.rows - 1) break;
      const auto put = [&](A a, A b, A c, A d) {
        logp.store(logp.at(n), a);
        if (lse.given()) lse.store(lse.at(n), b);
        if (entropy.given()) entropy.store(entropy.at(n), c);
        if (sum_p2.given()) sum_p2.store(sum_p2.at(n), d);
      };
      row<A>(run, in, n, put);
    }
    if (mutant("one_past_the_end") && in.rows > 0) logp.store(logp.at(in.rows), A(0));
    if (mutant("writes_to_logits") && in.rows > 0 && in.logits_rows > 0) in.logits.store(0, A(0));
  }

  template <class A, class Put>
  void row(const sdk::Run& run, const Tokens<rlk_logp_params>& in, int64_t n, Put&& put) {
    constexpr A kNan = std::numeric_limits<A>::quiet_NaN();
    constexpr A kLowest = -std::numeric_limits<A>::infinity();
    const Token token = in.resolve(run, n);
    const bool stale = static_cast<size_t>(n) < mask_.size() && mask_[static_cast<size_t>(n)] == 0;
    if (token.state == Token::State::ignored || stale) return put(0, 0, 0, 0);
    if (token.state == Token::State::wrong) {
      const A value = mutant("wrong_row_not_nan") ? A(0) : kNan;
      return put(value, value, value, value);
    }
    const RowSums<A> sums = reduce<A>(in, token.row, n);
    if (sums.max == kLowest) {
      if (in.is_sharded()) return put(kLowest, kLowest, 0, 0);
      if (!mutant("hopeless_row_not_told")) report(run, RLK_DATA_NO_FINITE_LOGIT, n, 0);
      return put(kNan, kNan, kNan, kNan);
    }
    const double sum = sums.blocks_sum + static_cast<double>(sums.sum);
    const A log_sum = static_cast<A>(std::log(sum));
    const A lse = sums.max + log_sum;
    // Not the score minus lse, which has lost its last digits.
    const A logp = token.column >= 0 ? (in.score<A>(token.row, token.column) - sums.max) - log_sum : kLowest;
    const double weighted = sums.blocks_weighted + static_cast<double>(sums.weighted);
    const double squares = sums.blocks_squares + static_cast<double>(sums.squares);
    put(logp, lse, log_sum - static_cast<A>(weighted / sum), static_cast<A>(squares / sum / sum));
  }

  rlk_logp_params params_;
  int64_t planned_rows_ = 0;
  std::vector<int64_t> mask_;
};

}  // namespace

sdk::Support Logp::query(SimpleDevice&, const sdk::Call<Op>& call) {
  if (call.params().softcap > 0 && mutant("softcap_declined")) {
    return sdk::Support::no("SOFTCAP", "softcap is not offered");
  }
  return sdk::Support::yes(call.symbol(RLK_LOGP_SYM_V) < kOnlineFrom ? "two_pass" : "online", kAllClasses);
}

std::unique_ptr<sdk::Plan> Logp::plan(SimpleDevice&, const sdk::Call<Op>& call) {
  if (call.params().softcap > 0 && mutant("plan_refused")) throw sdk::Error(RLK_UNSUPPORTED, "not after all");
  const bool online = call.symbol(RLK_LOGP_SYM_V) >= kOnlineFrom;
  return std::make_unique<LogpPlan>(call, mutant("variant_differs") ? "other" : online ? "online" : "two_pass");
}

}  // namespace rlk::simple
