// logp_backward, one row after the other, with a few of its possible defects.
#include "conformance/simple/implementations.hpp"
#include "conformance/simple/tokens.hpp"

#include <limits>

namespace rlk::simple {
namespace {

using Params = rlk_logp_backward_params;

class LogpBackwardPlan : public sdk::Plan {
public:
  explicit LogpBackwardPlan(const Params& params) : params_(params) {
    dynamic_symbols = 1u << RLK_LOGP_BACKWARD_SYM_N | 1u << RLK_LOGP_BACKWARD_SYM_R;
    numerics = kAllClasses;
    variant = "serial";
  }

  void enqueue(sdk::Stream&, const sdk::Run& run) override {
    if (sdk::dtype_of(*run.input(RLK_LOGP_BACKWARD_IN_LOGITS)) == Dtype::f64) return rows<double>(run);
    rows<float>(run);
  }

private:
  template <class A>
  struct Row {
    A lse, entropy, g_logp, g_lse, g_entropy;
    int64_t column;
  };

  template <class A>
  void rows(const sdk::Run& run) {
    constexpr A kNan = std::numeric_limits<A>::quiet_NaN();
    const Tokens<Params> in{params_,
                            Tensor(run.input(RLK_LOGP_BACKWARD_IN_LOGITS)),
                            Tensor(run.input(RLK_LOGP_BACKWARD_IN_IDS)),
                            Tensor(run.input(RLK_LOGP_BACKWARD_IN_BIAS)),
                            Tensor(run.input(RLK_LOGP_BACKWARD_IN_MASK)),
                            Tensor(run.input(RLK_LOGP_BACKWARD_IN_ROW_INDICES)),
                            Tensor(run.input(RLK_LOGP_BACKWARD_IN_KEEP_MASK)),
                            run.symbol(RLK_LOGP_BACKWARD_SYM_N),
                            run.symbol(RLK_LOGP_BACKWARD_SYM_R),
                            run.symbol(RLK_LOGP_BACKWARD_SYM_V)};
    const Tensor grad(run.output(RLK_LOGP_BACKWARD_OUT_GRAD_LOGITS));
    const Tensor grad_bias(run.output(RLK_LOGP_BACKWARD_OUT_GRAD_BIAS));
    std::vector<A> sums(static_cast<size_t>(in.vocab), A(0));
    const auto fill = [&](int64_t row, A value) {
      for (int64_t v = 0; v < in.vocab; ++v) grad.store(grad.at(row, v), value);
    };
    // Which token owns each logits row: rows without an owner are 0. Written row by row, since grad may be the logits.
    std::vector<int64_t> owner(static_cast<size_t>(in.logits_rows), -1);
    std::vector<Token> tokens;
    int64_t previous = -1;
    bool any_wrong = false;
    for (int64_t n = 0; n < in.rows; ++n) {
      Token token = in.resolve(run, n);
      if (token.state == Token::State::active && !in.is_sharded() && is_hopeless<A>(in, token.row)) {
        report(run, RLK_DATA_NO_FINITE_LOGIT, n, 0);
        token.state = Token::State::wrong;
      }
      if (token.state != Token::State::ignored && token.row >= 0) {
        if (token.row <= previous && !mutant("order_not_checked")) {
          report(run, RLK_DATA_ROW_OUT_OF_RANGE, n, token.row);
          token.state = Token::State::wrong;
        }
        previous = std::max(previous, token.row);
        owner[static_cast<size_t>(token.row)] = n;
      }
      any_wrong |= token.state == Token::State::wrong;
      tokens.push_back(token);
    }
    for (int64_t row = 0; row < in.logits_rows; ++row) {
      const int64_t n = owner[static_cast<size_t>(row)];
      if (n < 0) {
        if (!(mutant("unnamed_rows_not_written") && in.row_indices.given())) fill(row, 0);
      } else if (tokens[static_cast<size_t>(n)].state == Token::State::wrong) {
        fill(row, kNan);
      } else {
        gradient<A>(run, in, grad, n, tokens[static_cast<size_t>(n)], sums);
      }
    }
    if (!grad_bias.given() || mutant("grad_bias_not_written")) return;
    for (int64_t v = 0; v < in.vocab; ++v) {
      grad_bias.store(grad_bias.at(v), any_wrong ? kNan : sums[static_cast<size_t>(v)]);
    }
  }

  template <class A>
  static bool is_hopeless(const Tokens<Params>& in, int64_t row) {
    for (int64_t v = 0; v < in.vocab; ++v) {
      if (in.capped<A>(row, v) != -std::numeric_limits<A>::infinity()) return false;
    }
    return true;
  }

  template <class A>
  void gradient(const sdk::Run& run, const Tokens<Params>& in, const Tensor& grad, int64_t n, const Token& token,
                std::vector<A>& sums) const {
    const auto value = [&](uint32_t input) {
      const Tensor tensor(run.input(input));
      return tensor.given() ? tensor.load<A>(tensor.at(n)) : A(0);
    };
    Row<A> row{value(RLK_LOGP_BACKWARD_IN_LSE),          value(RLK_LOGP_BACKWARD_IN_ENTROPY),
               value(RLK_LOGP_BACKWARD_IN_GRAD_LOGP),    value(RLK_LOGP_BACKWARD_IN_GRAD_LSE),
               value(RLK_LOGP_BACKWARD_IN_GRAD_ENTROPY), token.column};
    if (mutant("grad_lse_ignored")) row.g_lse = 0;
    if (mutant("grad_entropy_ignored")) row.g_entropy = 0;
    if (mutant("entropy_ignored")) row.entropy = 0;
    if (mutant("lse_computed_anew")) {
      double sum = 0;
      for (int64_t v = 0; v < in.vocab; ++v) sum += std::exp(in.score<A>(token.row, v) - row.lse);
      row.lse += static_cast<A>(std::log(sum));
    }
    for (int64_t v = 0; v < in.vocab; ++v) {
      const A dx = element<A>(in, token.row, v, row);
      sums[static_cast<size_t>(v)] += dx;
      if (mutant("tail_not_written") && v == in.vocab - 1 && v > 0) continue;
      grad.store(grad.at(token.row, v), dx);
      // With grad_logits over logits, the next column's logit is gone before it is read.
      if (mutant("alias_written_early") && v + 1 < in.vocab) grad.store(grad.at(token.row, v + 1), A(0));
    }
  }

  // The difference first, then the temperature: a quotient is rounded as if it stood alone, and makes p larger than 1
  // where scores are large.
  template <class A>
  A log_probability(A capped, A lse) const {
    const A temperature = mutant("temperature_ignored") ? A(1) : static_cast<A>(params_.temperature);
    const A base = lse * temperature;
    const A lost = std::isinf(base) ? A(0) : std::fma(lse, temperature, -base);
    return ((capped - base) - lost) / temperature;
  }

  template <class A>
  A element(const Tokens<Params>& in, int64_t logits_row, int64_t v, const Row<A>& row) const {
    const A capped = in.capped<A>(logits_row, v);
    const bool missing = mutant("minus_inf_gradient") || (mutant("minus_inf_entropy_gradient") && row.g_entropy != 0);
    if (std::isinf(capped) && !missing) return 0;
    const A log_p = log_probability(capped, row.lse);
    const A p = std::exp(log_p);
    A dz = row.g_logp * ((v == row.column ? A(1) : A(0)) - p) + row.g_lse * p;
    if (row.g_entropy != 0) dz -= row.g_entropy * p * (log_p + row.entropy);
    A slope = 1;
    if (params_.softcap > 0 && !mutant("softcap_slope_missing")) {
      const A t = capped / static_cast<A>(params_.softcap);
      slope = 1 - t * t;
    }
    return mutant("temperature_slope_missing") ? dz * slope : dz * slope / static_cast<A>(params_.temperature);
  }

  Params params_;
};

}  // namespace

sdk::Support LogpBackward::query(SimpleDevice&, const sdk::Call<Op>&) {
  return sdk::Support::yes("serial", kAllClasses);
}

std::unique_ptr<sdk::Plan> LogpBackward::plan(SimpleDevice&, const sdk::Call<Op>& call) {
  return std::make_unique<LogpBackwardPlan>(call.params());
}

}  // namespace rlk::simple
