// linear_logp and its backward: a row's scores, never stored beyond it, and the gradient of the scores as operand of
// the two products that follow.
#include <algorithm>
#include <limits>
#include <vector>

#include "conformance/rounding/arithmetic.hpp"
#include "conformance/rounding/implementations.hpp"

namespace rlk::rounding {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The rows of a call, forward or backward: both begin with the same three inputs.
class Rows {
public:
  Rows(const sdk::Run& run, int64_t ignored)
      : hidden(run.input(RLK_LINEAR_LOGP_IN_HIDDEN)),
        weight(run.input(RLK_LINEAR_LOGP_IN_WEIGHT)),
        ids_(run.input(RLK_LINEAR_LOGP_IN_IDS)),
        ignored_(ignored) {}

  int64_t count() const { return hidden.size(0); }
  int64_t vocab() const { return weight.size(0); }
  int64_t depth() const { return hidden.size(1); }
  int64_t id(int64_t n) const { return ids_.load_int(ids_.at(n)); }
  bool is_ignored(int64_t n) const { return id(n) == ignored_; }
  bool is_wrong(int64_t n) const { return id(n) < 0 || id(n) >= vocab(); }

  std::vector<double> scores(int64_t n) const {
    std::vector<double> list;
    for (int64_t v = 0; v < vocab(); ++v) {
      Sum sum;
      for (int64_t d = 0; d < depth(); ++d) {
        sum.add(load(hidden, hidden.at(n, d)) * load(weight, weight.at(v, d)), hidden.dtype());
      }
      const bool rounded = mutant("scores_in_16_bits") || mutant("scores_in_bf16");
      const Dtype to = mutant("scores_in_bf16") ? Dtype::bf16 : coarse(hidden.dtype());
      list.push_back(rounded ? to_nearest(sum.value(), to) : sum.value());
    }
    return list;
  }

  const Tensor hidden, weight;

private:
  const Tensor ids_;
  int64_t ignored_;
};

void log_probabilities(const sdk::Run& run) {
  const Rows rows(run, -100);
  const Tensor logp(run.output(RLK_LINEAR_LOGP_OUT_LOGP)), lse(run.output(RLK_LINEAR_LOGP_OUT_LSE)),
      entropy(run.output(RLK_LINEAR_LOGP_OUT_ENTROPY));
  const auto put = [](const Tensor& tensor, int64_t n, double value) {
    if (tensor.given()) tensor.store(tensor.at(n), value);
  };
  for (int64_t n = 0; n < rows.count(); ++n) {
    double values[3] = {0, 0, 0};
    if (!rows.is_ignored(n) && rows.is_wrong(n)) {
      simple::report(run, RLK_DATA_ID_OUT_OF_RANGE, n, rows.id(n));
      std::fill(values, values + 3, kNan);
    } else if (!rows.is_ignored(n)) {
      const std::vector<double> x = rows.scores(n);
      const double max = *std::max_element(x.begin(), x.end());
      Sum total, mean;
      for (size_t v = 0; v < x.size(); ++v) {
        if (is_dropped(static_cast<int64_t>(v))) continue;
        total.add(std::exp(x[v] - max), rows.hidden.dtype());
      }
      const double log_total = std::log(total.value());
      for (const double one : x) mean.add(std::exp(one - max - log_total) * (one - max), rows.hidden.dtype());
      values[0] = x[static_cast<size_t>(rows.id(n))] - max - log_total;
      values[1] = max + log_total;
      values[2] = log_total - mean.value();
    }
    put(logp, n, values[0]);
    put(lse, n, values[1]);
    put(entropy, n, values[2]);
  }
}

void all_gradients(const sdk::Run& run) {
  const Rows rows(run, -100);
  const Tensor lse(run.input(RLK_LINEAR_LOGP_BACKWARD_IN_LSE)),
      grad_logp(run.input(RLK_LINEAR_LOGP_BACKWARD_IN_GRAD_LOGP));
  const Tensor grad_hidden(run.output(RLK_LINEAR_LOGP_BACKWARD_OUT_GRAD_HIDDEN)),
      grad_weight(run.output(RLK_LINEAR_LOGP_BACKWARD_OUT_GRAD_WEIGHT)),
      grad_bias(run.output(RLK_LINEAR_LOGP_BACKWARD_OUT_GRAD_BIAS));
  const Dtype dtype = rows.hidden.dtype();
  const auto depth = static_cast<size_t>(rows.depth());
  std::vector<Sum> of_weight(static_cast<size_t>(rows.vocab()) * depth), of_bias(static_cast<size_t>(rows.vocab()));
  bool wrong = false;
  for (int64_t n = 0; n < rows.count(); ++n) {
    std::vector<Sum> of_hidden(depth);
    const bool active = !rows.is_ignored(n);
    if (active && rows.is_wrong(n)) {
      simple::report(run, RLK_DATA_ID_OUT_OF_RANGE, n, rows.id(n));
      wrong = true;
      for (size_t d = 0; d < depth; ++d) grad_hidden.store(grad_hidden.at(n, d), kNan);
      continue;
    }
    const std::vector<double> x = active ? rows.scores(n) : std::vector<double>();
    for (size_t v = 0; v < x.size(); ++v) {
      if (is_dropped(static_cast<int64_t>(v)) || is_dropped(n)) continue;
      const double target = static_cast<int64_t>(v) == rows.id(n) ? 1.0 : 0.0;
      const double dx = load(grad_logp, grad_logp.at(n)) * (target - std::exp(x[v] - load(lse, lse.at(n))));
      const double factor = operand(dx, dtype);
      of_bias[v].add(dx, dtype);
      for (size_t d = 0; d < depth; ++d) {
        of_hidden[d].add(factor * load(rows.weight, rows.weight.at(v, d)), dtype);
        of_weight[v * depth + d].add(factor * load(rows.hidden, rows.hidden.at(n, d)), dtype);
      }
    }
    for (size_t d = 0; d < depth; ++d) grad_hidden.store(grad_hidden.at(n, d), of_hidden[d].value());
  }
  for (size_t v = 0; v < of_bias.size(); ++v) {
    if (grad_bias.given()) grad_bias.store(grad_bias.at(v), wrong ? kNan : of_bias[v].value());
    for (size_t d = 0; d < depth && grad_weight.given(); ++d) {
      grad_weight.store(grad_weight.at(v, d), wrong ? kNan : of_weight[v * depth + d].value());
    }
  }
}

}  // namespace

sdk::Support LinearLogp::query(simple::SimpleDevice&, const sdk::Call<Op>& call) {
  if (auto no = sdk::refuse_output(call.output(RLK_LINEAR_LOGP_OUT_SUM_P2), "sum_p2")) return *no;
  return plain_calls(call, RLK_LINEAR_LOGP_PARAMS_INIT, RLK_LINEAR_LOGP_IN_IDS + 1);
}
std::unique_ptr<sdk::Plan> LinearLogp::plan(simple::SimpleDevice&, const sdk::Call<Op>&) {
  return std::make_unique<FunctionPlan<Op>>(&log_probabilities);
}

sdk::Support LinearLogpBackward::query(simple::SimpleDevice&, const sdk::Call<Op>& call) {
  return plain_calls(call, RLK_LINEAR_LOGP_BACKWARD_PARAMS_INIT, RLK_LINEAR_LOGP_BACKWARD_IN_GRAD_LSE);
}
std::unique_ptr<sdk::Plan> LinearLogpBackward::plan(simple::SimpleDevice&, const sdk::Call<Op>&) {
  return std::make_unique<FunctionPlan<Op>>(&all_gradients);
}

}  // namespace rlk::rounding
