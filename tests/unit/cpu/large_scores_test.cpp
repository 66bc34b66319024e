// Scores far from 0, far apart, or all but certain: where an implementation that multiplies before it subtracts loses
// all digits. No log-probability is above 0, no entropy below it, and no probability above 1.
#include <cmath>
#include <limits>

#include "core/cpu/tbb_parallel.hpp"
#include "unit/cpu/attention_case.hpp"
#include "unit/cpu/linear_case.hpp"
#include "unit/cpu/logp_case.hpp"
#include "unit/cpu/operator.hpp"

namespace rlk::test {
namespace {

double largest_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f16:
      return 65504;
    case Dtype::bf16:
      return 0x1.fep127;
    case Dtype::f32:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

// From a few to a third of the largest number of the dtype, of which the others are at most twice away.
std::vector<double> magnitudes(Dtype dtype) {
  std::vector<double> list;
  for (const double m : {20.0, 60.0, 1000.0, 6e4, 1e6, 1e10, 1e30, 1e38, 1e300}) {
    if (m <= largest_of(dtype)) list.push_back(m);
  }
  list.push_back(largest_of(dtype) / 3);
  return list;
}

// [[m, 0, 0], [-m, 0, 0], [m, -m, m], ...]: each token of each row.
struct LargeRow {
  std::vector<double> signs;
  int64_t id;
};
std::vector<LargeRow> rows() {
  std::vector<LargeRow> list;
  for (const std::vector<double>& signs :
       {std::vector<double>{1, 0, 0}, {-1, 0, 0}, {1, -1, 1}, {1, 1, 0}, {-1, -1, -1}, {0, 1, -1}}) {
    for (int64_t id = 0; id < 3; ++id) list.push_back({signs, id});
  }
  return list;
}
LogpCase logp_case(Dtype dtype, double magnitude) {
  const std::vector<LargeRow> list = rows();
  const auto n = static_cast<int64_t>(list.size());
  LogpCase c = make_logp_case(dtype, n, 3, 1);
  for (int64_t i = 0; i < n; ++i) {
    const LargeRow& row = list[static_cast<size_t>(i)];
    for (int64_t v = 0; v < 3; ++v) c.logits.set(3 * i + v, magnitude * row.signs[static_cast<size_t>(v)]);
    c.ids.set_int(i, row.id);
  }
  return c;
}
// A row's softmax as a person finds it: the differences are 0 or larger than any exponent but for small magnitudes.
struct Softmax {
  double logp, entropy, p[3];
};
Softmax softmax_of(const Tensor& logits, int64_t row, int64_t id, double temperature) {
  long double z[3], max = -std::numeric_limits<long double>::infinity(), sum = 0, mean = 0;
  for (int64_t v = 0; v < 3; ++v) {
    z[v] = static_cast<long double>(logits.get(3 * row + v)) / static_cast<long double>(temperature);
    max = std::max(max, z[v]);
  }
  for (const long double score : z) sum += std::exp(score - max);
  for (const long double score : z) mean += std::exp(score - max) / sum * (score - max);
  Softmax result{static_cast<double>(z[id] - max - std::log(sum)), static_cast<double>(std::log(sum) - mean), {}};
  for (int v = 0; v < 3; ++v) result.p[v] = static_cast<double>(std::exp(z[v] - max) / sum);
  return result;
}
// The same number, infinity where the dtype of the result has none so large.
void expect_same(double got, double want, double tolerance, const std::string& what) {
  if (std::fabs(want) > std::numeric_limits<float>::max() * 0.999) {
    EXPECT_TRUE(got == want || std::isinf(got) || std::fabs(got / want - 1) < tolerance) << what << " " << got;
  } else {
    EXPECT_LE(std::fabs(got - want), tolerance * std::max(1.0, std::fabs(want)))
        << what << " " << got << " not " << want;
  }
}

const std::vector<double> kTemperatures = {1.0, 0.7, 1e-3, 50.0};

TEST(LargeScores, LogProbabilitiesAreNotAboveZeroAndEntropiesNotBelow) {
  for_each_target([] {
    for (const Dtype dtype : kFloatDtypes) {
      for (const double magnitude : magnitudes(dtype)) {
        for (const double temperature : kTemperatures) {
          SCOPED_TRACE(name(dtype) + " " + std::to_string(magnitude) + " / " + std::to_string(temperature));
          LogpCase c = logp_case(dtype, magnitude);
          c.params.temperature = temperature;
          const LogpOutputs got = run_logp(c, cpu::serial_parallel());
          for (int64_t n = 0; n < c.ids.size(); ++n) {
            const Softmax want = softmax_of(c.logits, n, c.ids.get_int(n), temperature);
            EXPECT_LE(got.logp.get(n), 0) << n;
            EXPECT_GE(got.entropy.get(n), 0) << n;
            expect_same(got.logp.get(n), want.logp, 3e-7, "logp");
            expect_same(got.entropy.get(n), want.entropy, 1e-6, "entropy");
          }
        }
      }
    }
  });
}

// Many columns: the certain one in each block, among random others.
TEST(LargeScores, CertainTokensAmongManyAreNotAboveZero) {
  for_each_target([] {
    for (const Dtype dtype : kFloatDtypes) {
      for (const double temperature : {1.0, 0.7, 1e-3}) {
        for (const double softcap : {0.0, 30.0}) {
          constexpr int64_t kVocab = 9000;
          LogpCase c = make_logp_case(dtype, 5, kVocab, 3);
          c.params.temperature = temperature;
          c.params.softcap = softcap;
          for (const int64_t column : {0, 37, 4095, 4096, 8999}) {
            for (int64_t n = 0; n < 5; ++n) {
              c.ids.set_int(n, column);
              LogpCase certain = c;
              certain.logits.set(n * kVocab + column, 28.7 + 3.3 * static_cast<double>(n));
              const LogpOutputs got = run_logp(certain, cpu::serial_parallel());
              EXPECT_LE(got.logp.get(n), 0) << name(dtype) << " " << temperature << " " << softcap << " " << column;
              EXPECT_GE(got.entropy.get(n), 0) << name(dtype) << " " << temperature << " " << softcap << " " << column;
              EXPECT_GE(got.logp.get(n), -1e-3);
            }
          }
        }
      }
    }
  });
}

TEST(LargeScores, LinearLogProbabilitiesAreNotAboveZeroAndEntropiesNotBelow) {
  for_each_target([] {
    for (const Dtype dtype : kFloatDtypes) {
      for (const double magnitude : magnitudes(dtype)) {
        for (const double temperature : kTemperatures) {
          SCOPED_TRACE(name(dtype) + " " + std::to_string(magnitude) + " / " + std::to_string(temperature));
          const LogpCase logits = logp_case(dtype, magnitude);
          for (int64_t n = 0; n < logits.ids.size(); ++n) {
            LinearCase c = make_linear_case(dtype, 1, 3, 1, 2);
            c.hidden.set(0, 1);
            for (int64_t v = 0; v < 3; ++v) c.weight.set(v, logits.logits.get(3 * n + v));
            c.ids.set_int(0, logits.ids.get_int(n));
            c.params.temperature = temperature;
            const LinearOutputs got = run_linear(c, cpu::serial_parallel());
            const Softmax want = softmax_of(logits.logits, n, logits.ids.get_int(n), temperature);
            EXPECT_LE(got.logp.get(0), 0) << n;
            EXPECT_GE(got.entropy.get(0), 0) << n;
            expect_same(got.logp.get(0), want.logp, 3e-7, "logp");
            expect_same(got.entropy.get(0), want.entropy, 1e-6, "entropy");
          }
        }
      }
    }
  });
}

// Where lse is exact, which it is of rows whose largest logit has all of the probability.
TEST(LargeScores, GradientsOfCertainTokensAreOneMinusProbability) {
  for_each_target([] {
    for (const Dtype dtype : kFloatDtypes) {
      for (const double m : magnitudes(dtype)) {
        for (const bool strided : {false, true}) {
          SCOPED_TRACE(name(dtype) + " " + std::to_string(m));
          LogpCase c = make_logp_case(dtype, 2, 3, 1, strided ? Strides::gaps : Strides::contiguous);
          for (int64_t v = 0; v < 6; ++v) c.logits.set(v, v % 3 == 0 ? m : 0);
          c.ids.set_int(0, 1).set_int(1, 0);
          add_gradients(c, false, false, 3);
          c.grad_logp.fill([](int64_t) { return 1; });
          c.lse.fill([&](int64_t) { return c.logits.get(0); });
          const Tensor got = run_logp_backward(c, cpu::serial_parallel()).grad_logits;
          const double rest = std::exp(-c.logits.get(0));
          const double tolerance = dtype == Dtype::bf16 ? 4e-3 : dtype == Dtype::f16 ? 5e-4 : 3e-7;
          const std::vector<double> want = {-1, 1 - rest, -rest, 2 * rest, -rest, -rest};
          for (int64_t i = 0; i < 6; ++i) EXPECT_NEAR(got.get(i), want[static_cast<size_t>(i)], tolerance) << i;

          LinearCase linear = make_linear_case(dtype, 2, 3, 1, 2);
          linear.hidden.fill([](int64_t) { return 1; });
          for (int64_t v = 0; v < 3; ++v) linear.weight.set(v, v == 0 ? m : 0);
          linear.ids.set_int(0, 1).set_int(1, 0);
          add_gradients(linear, false, false, 3);
          linear.grad_logp.fill([](int64_t n) { return n == 0 ? 1 : 0; });
          linear.lse.fill([&](int64_t) { return c.logits.get(0); });
          const LinearGradients gradients = run_linear_backward(linear, cpu::serial_parallel());
          for (int64_t v = 0; v < 3; ++v) {
            EXPECT_NEAR(gradients.grad_bias.get(v), want[static_cast<size_t>(v)], tolerance) << v;
          }
        }
      }
    }
  });
}

// Those of linear_logp_backward, in fp32 at least: each row alone, whose logits are its weights.
List linear_gradients_of(const LogpCase& c) {
  List list;
  for (int64_t n = 0; n < c.ids.size(); ++n) {
    LinearCase row = make_linear_case(c.logits.dtype(), 1, 3, 1, 2);
    row.hidden.set(0, 1);
    for (int64_t v = 0; v < 3; ++v) row.weight.set(v, c.logits.get(3 * n + v));
    row.ids.set_int(0, c.ids.get_int(n));
    row.params.temperature = c.params.temperature;
    row.lse = Tensor(c.lse.dtype(), {1}).set(0, c.lse.get(n));
    row.grad_logp = Tensor(c.grad_logp.dtype(), {1}).set(0, c.grad_logp.get(n));
    const LinearGradients got = run_linear_backward(row, cpu::serial_parallel());
    for (int64_t v = 0; v < 3; ++v) list.push_back(got.grad_bias.get(v));
  }
  return list;
}

// The lse that is passed is rounded: p may be off by what that rounding makes of exp, and by no more.
TEST(LargeScores, GradientsFollowTheGivenLse) {
  for_each_target([] {
    for (const Dtype dtype : kFloatDtypes) {
      for (const double magnitude : {60.0, 1000.0, 6e4}) {
        for (const double temperature : kTemperatures) {
          SCOPED_TRACE(name(dtype) + " " + std::to_string(magnitude) + " / " + std::to_string(temperature));
          LogpCase c = logp_case(dtype, magnitude);
          c.params.temperature = temperature;
          add_gradients(c, false, false, 3);
          const Tensor got = run_logp_backward(c, cpu::serial_parallel()).grad_logits;
          const List of_linear = linear_gradients_of(c);
          const double eps = dtype == Dtype::bf16  ? 0x1p-8
                             : dtype == Dtype::f16 ? 0x1p-11
                             : dtype == Dtype::f32 ? 0x1p-21
                                                   : 0x1p-44;
          for (int64_t i = 0; i < got.size(); ++i) {
            const int64_t n = i / 3;
            const long double z = static_cast<long double>(c.logits.get(i)) / static_cast<long double>(temperature);
            const double log_p = static_cast<double>(z - static_cast<long double>(c.lse.get(n)));
            const double p = std::exp(log_p), is_target = i % 3 == c.ids.get_int(n) ? 1 : 0;
            const double want = c.grad_logp.get(n) * (is_target - p) / temperature;
            const double size = std::fabs(c.grad_logp.get(n)) * std::max(1.0, p) * (1 + std::fabs(log_p));
            if (std::fabs(want) > largest_of(dtype) / 2) continue;
            EXPECT_NEAR(got.get(i), want, eps * size / temperature + 1e-7) << n << " " << i % 3;
            EXPECT_NEAR(of_linear[static_cast<size_t>(i)], want, 0x1p-21 * size / temperature + 1e-7)
                << n << " " << i % 3;
          }
        }
      }
    }
  });
}

// Two keys of one number: every score is one product, which the compute type has, and the first has all of the
// probability, or what the rounding of lse makes of it.
TEST(LargeScores, AttentionGradientsOfCertainKeys) {
  for_each_target([] {
    for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16}) {
      for (const double root : {0x1p5, 0x1p10, 0x1p17, 0x1p50}) {
        for (const double scale : {1.0, 0.3}) {
          if (scale != 1 && root > 0x1p10 && dtype != Dtype::f64) continue;  // lse is off by more than exp can hold
          SCOPED_TRACE(name(dtype) + " " + std::to_string(root) + " " + std::to_string(scale));
          Attention c = dense_attention(dtype, 1, 1, 2, {1, 1, 1});
          c.params.scale = scale;
          c.q.set(0, root);
          c.k.set(0, root).set(1, 0);
          AttentionBackward backward = with_gradients(c, false, 4);
          backward.grad_out.set(0, 1);
          const auto got = run(backward);
          const double p = std::exp(root * root * scale - backward.lse.get(0));
          EXPECT_NEAR(got.grad_v.get(0) / p, 1, dtype == Dtype::bf16 ? 4e-3 : 1e-6);
          EXPECT_NEAR(got.grad_v.get(1), 0, 1e-30);
        }
      }
    }
  });
}

}  // namespace
}  // namespace rlk::test
