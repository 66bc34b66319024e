// whiten against each trainer's own formula, and its promises: exact zeros, masks.
#include <rlk/sdk/ops/whiten.hpp>

#include <cmath>
#include <functional>

#include "unit/cpu/token_case.hpp"

namespace rlk::test {
namespace {

using Whiten = CallOf<ops::Whiten>;
using ops::whiten::EpsMode, ops::whiten::Params, ops::whiten::ShiftMean, ops::whiten::Std;

struct Moments {
  double mean = 0, squares = 0, n = 0;
};
Moments moments(const Tensor& x, const Tensor& mask) {
  Moments m;
  for (int64_t i = 0; i < x.size(); ++i) m.n += mask.get_int(i) != 0 ? 1 : 0;
  for (int64_t i = 0; i < x.size(); ++i) m.mean += mask.get_int(i) != 0 ? x.get(i) / m.n : 0;
  for (int64_t i = 0; i < x.size(); ++i) m.squares += mask.get_int(i) != 0 ? std::pow(x.get(i) - m.mean, 2) : 0;
  return m;
}
Whiten make_case(double scale, const Params& params) {
  Whiten c;
  c.x = random_tensor(Dtype::f64, {4, 5}, scale, 1);
  c.mask = flags({1, 0, 1, 1, 1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0, 1}, {4, 5});
  c.params = params;
  return c;
}

TEST(CpuWhiten, MatchesEveryTrainersFormula) {
  const auto verl = [](double x, const Moments& m) { return (x - m.mean) / std::sqrt(m.squares / (m.n - 1) + 1e-8); };
  struct Trainer {
    const char* name;
    Params params;
    std::function<double(double x, const Moments& m)> formula;
  };
  const Trainer trainers[] = {
      {"verl, slime", {}, verl},
      {"verl shift_mean=False",
       {.shift_mean = ShiftMean::off},
       [&](double x, const Moments& m) { return verl(x, m) + m.mean; }},
      {"OpenRLHF",
       {.std = Std::population, .eps_mode = EpsMode::variance_floor},
       [](double x, const Moments& m) { return (x - m.mean) / std::sqrt(std::max(m.squares / m.n, 1e-8)); }},
      {"TRL",
       {.eps_mode = EpsMode::deviation, .eps = 1e-4},
       [](double x, const Moments& m) { return (x - m.mean) / (std::sqrt(m.squares / (m.n - 1)) + 1e-4); }},
  };
  for (const Trainer& trainer : trainers) {
    for (const double scale : {1.0, 1e-5}) {  // the second below eps
      const Whiten c = make_case(scale, trainer.params);
      const Tensor y = run(c).y;
      const Moments m = moments(c.x, c.mask);
      for (int64_t i = 0; i < 20; ++i) {
        EXPECT_NEAR(y.get(i), c.mask.get_int(i) != 0 ? trainer.formula(c.x.get(i), m) : 0, 1e-12) << trainer.name;
      }
    }
  }
}

// Two processes with the moments of both, as the trainers' all-reduce gives them, are the whole batch.
TEST(CpuWhiten, GivenMomentsAreThoseOfAllProcesses) {
  for (const EpsMode eps_mode : {EpsMode::variance, EpsMode::variance_floor, EpsMode::deviation}) {
    for (const ShiftMean shift_mean : {ShiftMean::on, ShiftMean::off}) {
      const Whiten whole = make_case(1, {.eps_mode = eps_mode, .shift_mean = shift_mean});
      const std::vector<double> want = list_of(run(whole).y);
      const Moments m = moments(whole.x, whole.mask);
      for (const int64_t rank : {0, 1}) {
        Whiten own = whole;
        own.x = Tensor(Dtype::f64, {2, 5}).fill([&](int64_t i) { return whole.x.get(rank * 10 + i); });
        own.mask = Tensor(Dtype::u8, {2, 5});
        for (int64_t i = 0; i < 10; ++i) own.mask.set_int(i, whole.mask.get_int(rank * 10 + i));
        own.mean = numbers({m.mean});
        own.variance = numbers({m.squares / (m.n - 1)});
        const std::vector<double> got = list_of(run(own).y), golden = golden_answer(own).y.value;
        for (size_t i = 0; i < 10; ++i) {
          EXPECT_NEAR(golden[i], got[i], 1e-14);
          EXPECT_NEAR(got[i], want[static_cast<size_t>(rank) * 10 + i], 1e-13);
        }
      }
    }
  }
}

TEST(CpuWhiten, EqualNumbersGiveExactlyZero) {
  for (const Dtype dtype : kFloatDtypes) {
    Whiten c;
    c.x = Tensor(dtype, {4, 4}).fill([](int64_t) { return 1.1; });
    EXPECT_EQ(list_of(run(c).y), List(16, 0.0));
    c.params.shift_mean = ShiftMean::off;
    EXPECT_EQ(run(c).y.get(3), static_cast<double>(dtype == Dtype::f64 ? 1.1 : c.x.get(0)));
    c.params.shift_mean = ShiftMean::on;
    for (const int64_t count : {3, 41}) {  // of so many the rounded sum, divided again, is not 0.1
      c.x = Tensor(dtype, {1, count}).fill([](int64_t) { return 0.1; });
      EXPECT_EQ(list_of(run(c).y), List(static_cast<size_t>(count), 0.0)) << name(dtype) << count;
    }
  }
}

TEST(CpuWhiten, LargeNumbersWithSmallDifferencesKeepTheirVariance) {
  Whiten c;
  c.x = numbers({1000, 1000.01, 1000.02, 1000.03}, {2, 2}, Dtype::f32);
  c.params.std = Std::population;
  EXPECT_NEAR(run(c).y.get(0), -1.3416, 5e-3);
  EXPECT_NEAR(run(c).y.get(3), 1.3416, 5e-3);
}

// Against extended precision: squares of two sizes, which a plain chain of additions rounds one way.
TEST(CpuWhiten, ManyNumbersLikeEachOtherKeepTheirDigits) {
  Whiten c;
  c.params.eps = 1e-300;  // nothing beside the variance
  c.x = Tensor(Dtype::f64, {64, 500}).fill([](int64_t i) { return i % 2 == 0 ? 0.1 : 0.7 + 1e-3 * (i % 5 == 0); });
  c.mask = Tensor(Dtype::u8, {64, 500}).fill([](int64_t) { return 1; });
  long double sum = 0, squares = 0;
  for (int64_t i = 0; i < c.x.size(); ++i) sum += c.x.get(i);
  const long double n = c.x.size(), mean = sum / n;
  for (int64_t i = 0; i < c.x.size(); ++i) squares += (c.x.get(i) - mean) * (c.x.get(i) - mean);
  const Tensor y = run(c).y;
  for (int64_t i = 0; i < 20; ++i) {
    const auto expected = static_cast<double>((c.x.get(i) - mean) / std::sqrt(squares / (n - 1)));
    EXPECT_NEAR(y.get(i), expected, 1e-15) << i;
  }
}

TEST(CpuWhiten, TwoNumbersHaveOneDegreeOfFreedomOneIsItsMeanAndNoneGivesZeros) {
  Whiten c;
  c.x = numbers({kNan, 7, kInfinity, 5}, {1, 4});
  c.mask = flags({0, 1, 0, 1}, {1, 4});
  EXPECT_NEAR(run(c).y.get(1), std::sqrt(0.5), 1e-7);
  c.mask = flags({0, 1, 0, 0}, {1, 4});
  EXPECT_EQ(list_of(run(c).y), List(4, 0.0));
  c.params.shift_mean = ShiftMean::off;
  EXPECT_EQ(list_of(run(c).y), (List{0, 7, 0, 0}));
  c.mask = flags({0, 0, 0, 0}, {1, 4});
  EXPECT_EQ(list_of(run(c).y), List(4, 0.0));
}

}  // namespace
}  // namespace rlk::test
