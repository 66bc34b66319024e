// whiten against each trainer's own formula, and its promises: moments of other processes, exact zeros.
#include <rlk/sdk/ops/whiten.hpp>

#include "unit/cpu/trainer_rows.hpp"

namespace rlk::test {
namespace {

using Whiten = CallOf<ops::Whiten>;
using ops::whiten::EpsMode, ops::whiten::Params, ops::whiten::ShiftMean, ops::whiten::Std;

const std::vector<int> kMost = {0, 1, 1, 1, 1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0, 1};
// The fewest that have an unbiased variance.
const std::vector<int> kTwo = {0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0};

Whiten make_case(double scale, const Params& params, const std::vector<int>& mask = kMost) {
  const Tensor x = random_tensor(Dtype::f64, {4, 5}, scale, 1).set(0, 1e300);
  return {.x = x, .mask = flags(mask, {4, 5}), .params = params};
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
    for (const auto& [scale, kept] : {std::pair(1.0, kMost), {1e-5, kMost}, {1.0, kTwo}}) {  // 1e-5: below eps
      SCOPED_TRACE(trainer.name);
      const Whiten c = make_case(scale, trainer.params, kept);
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
