// What Liger-Kernel's fused linear GRPO loss computes in one call, hidden states and a head to a loss and the gradients
// of both, by linear_logp and policy_loss and their backwards, against the formula in fp64 from hidden states on.
#include <cmath>

#include "core/cpu/tbb_parallel.hpp"
#include "unit/cpu/linear_case.hpp"
#include "unit/cpu/policy_case.hpp"

namespace rlk::test {
namespace {

constexpr int64_t kSequences = 2, kLigerTokens = 3, kHidden = 4, kLigerVocab = 9;
const double kAdvantages[kSequences] = {0.8, -1.1};

// The chunked loss and triton_grpo_loss have defaults of their own.
struct Defaults {
  double temperature, epsilon_high;
};

bool active(int64_t n) {
  return n != 2;  // the last token of the first sequence is padding
}

// dapo with the defaults of both: epsilon_low 0.2, beta 0.04, one process, k3.
double published(const LinearCase& head, const PolicyCase& batch, const Defaults& o, const LinearCase& start) {
  const auto log_prob = [&](const LinearCase& c, int64_t n) {
    double sum = 0, of_token = 0;
    for (int64_t v = 0; v < kLigerVocab; ++v) {
      double z = c.bias.get(v);
      for (int64_t d = 0; d < kHidden; ++d) z += c.hidden.get(n * kHidden + d) * c.weight.get(v * kHidden + d);
      sum += std::exp(z / o.temperature);
      if (v == c.ids.get_int(n)) of_token = z / o.temperature;
    }
    return of_token - std::log(sum);
  };
  double total = 0, count = 0;
  for (int64_t n = 0; n < kSequences * kLigerTokens; ++n) {
    if (!active(n)) continue;
    const double lp = log_prob(head, n), a = kAdvantages[n / kLigerTokens];
    const double ratio = std::exp(lp - (batch.old_logp.present() ? batch.old_logp.get(n) : log_prob(start, n)));
    const double x = batch.ref_logp.get(n) - lp;
    total += -std::min(ratio * a, clip(ratio, 0.8, 1 + o.epsilon_high) * a) + 0.04 * (std::exp(x) - x - 1);
    count += 1;
  }
  return total / std::max(count, 1.0);
}

TEST(LigerFusedLinear, GradientsReachHiddenStatesWeightAndBias) {
  for (const Defaults o : {Defaults{1.0, 0.2}, Defaults{0.9, 0.4}}) {
    for (const bool has_old : {true, false}) {
      LinearCase head = make_linear_case(Dtype::f64, kSequences * kLigerTokens, kLigerVocab, kHidden, 31);
      head.bias = random_tensor(Dtype::f64, {kLigerVocab}, 0.3, 32);
      head.params.temperature = o.temperature;
      head.ids.set_int(2, -100);
      const LinearOutputs forward = run_linear(head, cpu::serial_parallel());

      PolicyCase batch;
      const auto rows = [](const std::function<double(int64_t)>& f) {
        return Tensor(Dtype::f64, {kSequences, kLigerTokens}).fill(f);
      };
      batch.logp = rows([&](int64_t n) { return forward.logp.get(n); });
      batch.advantages = rows([](int64_t n) { return kAdvantages[n / kLigerTokens]; });
      batch.ref_logp =
          rows([&](int64_t n) { return forward.logp.get(n) + 0.3 * std::sin(5.0 * static_cast<double>(n)); });
      if (has_old) {
        batch.old_logp =
            rows([&](int64_t n) { return forward.logp.get(n) - 0.35 * std::cos(2.0 * static_cast<double>(n)); });
      }
      batch.mask = Tensor(Dtype::u8, {kSequences, kLigerTokens});
      for (int64_t n = 0; n < kSequences * kLigerTokens; ++n) batch.mask.set_int(n, active(n) ? 1 : 0);
      batch.params.clip_high = o.epsilon_high;
      batch.params.beta = 0.04;

      const LinearCase start = head;
      EXPECT_NEAR(run_policy_loss(batch).loss, published(head, batch, o, start), 1e-13);
      const Tensor of_logp = run_policy_loss_backward(batch).grad_logp;
      add_gradients(head, false, false, 33);
      for (int64_t n = 0; n < kSequences * kLigerTokens; ++n) head.grad_logp.set(n, of_logp.get(n));
      const LinearGradients gradients = run_linear_backward(head, cpu::serial_parallel());

      const auto expect_slopes = [&](Tensor& tensor, const Tensor& gradient) {
        ASSERT_EQ(gradient.size(), tensor.size());
        for (int64_t i = 0; i < tensor.size(); ++i) {
          const double value = tensor.get(i), step = 1e-5;
          tensor.set(i, value + step);
          const double above = published(head, batch, o, start);
          tensor.set(i, value - step);
          const double below = published(head, batch, o, start);
          tensor.set(i, value);
          EXPECT_NEAR(gradient.get(i), (above - below) / (2 * step), 1e-9) << i;
        }
      };
      expect_slopes(head.hidden, gradients.grad_hidden);
      expect_slopes(head.weight, gradients.grad_weight);
      expect_slopes(head.bias, gradients.grad_bias);
    }
  }
}

}  // namespace
}  // namespace rlk::test
