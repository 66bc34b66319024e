// whiten against each trainer's own formula, and its promises: moments of other processes, exact zeros.
#include <rlk/sdk/ops/whiten.hpp>

#include "unit/cpu/trainer_rows.hpp"

namespace rlk::test {
namespace {

using Whiten = CallOf<ops::Whiten>;
using ops::whiten::EpsMode, ops::whiten::Params, ops::whiten::ShiftMean, ops::whiten::Std;

Whiten make_case(double scale, const Params& params) {
  Whiten c;
  c.x = random_tensor(Dtype::f64, {4, 5}, scale, 1).set(0, 1e300);
  c.mask = flags({0, 1, 1, 1, 1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0, 1}, {4, 5});
  c.params = params;
  return c;
}

TEST(CpuWhiten, MatchesEveryTrainersFormula) {
  const struct {
    const char* name;
    Params params;
    double (*divisor)(const Statistics&);
  } trainers[] = {
      {"verl, slime", {}, verl_divisor},
      {"verl shift_mean=False", {.shift_mean = ShiftMean::off}, verl_divisor},
      {"OpenRLHF", {.std = Std::population, .eps_mode = EpsMode::variance_floor}, openrlhf_divisor},
      {"TRL", {.eps_mode = EpsMode::deviation, .eps = 1e-4}, trl_divisor},
  };
  for (const auto& trainer : trainers) {
    for (const double scale : {1.0, 1e-5}) {  // the second below eps
      SCOPED_TRACE(trainer.name);
      const Whiten c = make_case(scale, trainer.params);
      const Matrix x = matrix_of(c.x), mask = matrix_of(c.mask);
      const double shift = trainer.params.shift_mean == ShiftMean::off ? Statistics(x, mask).mean : 0;
      expect_near(run(c).y, masked_normal(x, mask, trainer.divisor, shift));
    }
  }
}

// Two processes with the moments of both, as the trainers' all-reduce gives them, are the whole batch.
TEST(CpuWhiten, GivenMomentsAreThoseOfAllProcesses) {
  const Whiten whole = make_case(1, {.shift_mean = ShiftMean::off});
  const Matrix x = matrix_of(whole.x), mask = matrix_of(whole.mask), y = matrix_of(run(whole).y);
  for (const size_t first : {0, 2}) {
    const auto half = [first](const Matrix& rows) { return Matrix{rows[first], rows[first + 1]}; };
    Whiten own = whole;
    own.x = tensor_of(half(x));
    own.mask = flags_of(half(mask));
    own.mean = numbers({Statistics(x, mask).mean});
    own.variance = numbers({Statistics(x, mask).variance(true)});
    expect_near(run(own).y, half(y), 1e-13);
  }
}

TEST(CpuWhiten, TwoNumbersThatCountHaveAnUnbiasedVariance) {
  Whiten c;
  c.x = numbers({3, 1e9, 7}, {1, 3});
  c.mask = flags({1, 0, 1}, {1, 3});
  const Matrix y = matrix_of(run(c).y);
  const double expected = 2 / std::sqrt(8 + c.params.eps);  // (3 - 5)^2 + (7 - 5)^2 over 2 - 1
  EXPECT_NEAR(y[0][0], -expected, 1e-14);
  EXPECT_EQ(y[0][1], 0);
  EXPECT_NEAR(y[0][2], expected, 1e-14);
}

TEST(CpuWhiten, EqualNumbersGiveExactlyZero) {
  for (const Dtype dtype : kFloatDtypes) {
    for (const size_t count : {1, 3, 41}) {  // of so many the rounded sum, divided again, is not 0.1
      const Tensor x = numbers(List(count, 0.1), {1, static_cast<int64_t>(count)}, dtype);
      EXPECT_EQ(list_of(run(Whiten{.x = x}).y), List(count, 0.0)) << name(dtype) << count;
    }
  }
}

}  // namespace
}  // namespace rlk::test
