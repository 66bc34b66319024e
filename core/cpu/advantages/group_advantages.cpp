// The moments of a group in two passes: differences to a reward of the group first, so that equal rewards have
// differences of exactly 0, whatever their size.
#include "core/cpu/advantages/group_advantages.hpp"

#include <algorithm>
#include <cmath>

#include "core/cpu/simd/long_sum.hpp"
#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {
using namespace sdk::ops::group_advantages;  // NOLINT(google-build-using-namespace): its enumerations

namespace {

using Call = CallOf<sdk::ops::GroupAdvantages>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Moments {
  int64_t n = 0;
  double mean = 0, deviation = 0;
};
// for_each calls its argument with every row that counts, in the same order each time.
template <typename ForEach>
Moments moments_of(const Call& call, ForEach&& for_each) {
  Moments moments;
  double first = 0;
  LongSum sum, squares;
  for_each([&](int64_t row) {
    const double reward = call.rewards.get(row);
    if (moments.n++ == 0) first = reward;
    sum.add(reward - first);
  });
  if (moments.n == 0) return moments;
  if (moments.n == 1) return call.params.singleton == Singleton::raw ? Moments{1, 0, 1} : Moments{1, first, 0};
  const auto n = static_cast<double>(moments.n);
  moments.mean = first + sum.value() / n;
  for_each([&](int64_t row) {
    const double difference = call.rewards.get(row) - moments.mean;
    squares.add(difference * difference);
  });
  moments.deviation = std::sqrt(squares.value() / (call.params.std == Std::unbiased ? n - 1 : n));
  return moments;
}

// The mean in which every reward weighs as much as its sample is long.
double length_weighted_mean(const Call& call, const Members& members, const Moments& moments) {
  if (moments.n == 1) return moments.mean;
  double first = 0, weights = 0;
  LongSum sum;
  members.for_each([&](int64_t row) {
    const double reward = call.rewards.get(row);
    const auto weight = static_cast<double>(std::max<int64_t>(call.lengths.integer(row), 0));
    if (weights == 0) first = reward;  // in the end one with weight
    sum.add(weight * (reward - first));
    weights += weight;
  });
  return weights > 0 ? first + sum.value() / weights : moments.mean;
}

class Normaliser {
public:
  Normaliser(const Call& call, const Groups& groups) : call_(call) {
    const auto for_each_row = [&groups](auto&& function) { groups.for_each_row(function); };
    if (call.params.scale == Scale::batch) batch_deviation_ = moments_of(call, for_each_row).deviation;
    if (call.params.rescale != Rescale::nonzero) return;
    int64_t rows = 0, nonzero = 0;
    for_each_row([&](int64_t row) {
      ++rows;
      nonzero += call.rewards.get(row) != 0 ? 1 : 0;
    });
    rescale_ = static_cast<double>(rows) / static_cast<double>(std::max<int64_t>(nonzero, 1));
  }

  void write(const Members& members) const {
    const Moments moments = moments_of(call_, [&members](auto&& function) { members.for_each(function); });
    const double divisor = divisor_of(call_.params.scale == Scale::batch ? batch_deviation_ : moments.deviation);
    if (call_.params.baseline == Baseline::second_best) return write_best(members, divisor);
    const auto n = static_cast<double>(moments.n);
    const bool others = call_.params.baseline == Baseline::rloo && moments.n > 1;
    const double factor = (others ? n / (n - 1) : 1.0) * rescale_;
    const double mean =
        call_.params.baseline == Baseline::opo ? length_weighted_mean(call_, members, moments) : moments.mean;
    members.for_each([&](int64_t row) {
      const double baseline = call_.params.baseline == Baseline::given ? call_.baselines.get(row) : mean;
      call_.advantages.put(row, (call_.rewards.get(row) - baseline) * factor / divisor);
    });
  }

private:
  double divisor_of(double deviation) const {
    if (call_.params.scale == Scale::none) return 1;
    if (call_.params.eps_mode == EpsMode::additive) return deviation + call_.params.eps;
    return deviation < call_.params.eps ? call_.params.eps : deviation;  // a NaN stays
  }

  // The best of the group has the distance to the second best, the others 0. Where two are best the distance is 0, so
  // that it does not matter which of them has it. One NaN makes the whole group NaN.
  void write_best(const Members& members, double divisor) const {
    int64_t n = 0, best_row = -1;
    double best = 0, second = 0, others = 0;
    members.for_each([&](int64_t row) {
      const double reward = call_.rewards.get(row);
      if (std::isnan(reward)) others = kNan;
      if (n == 0 || reward > best) {
        second = best;
        best = reward;
        best_row = row;
      } else if (n == 1 || reward > second) {
        second = reward;
      }
      ++n;
    });
    members.for_each([&](int64_t row) {
      const bool alone = row == best_row && n > 1 && best > second;  // infinities may be equal, too
      call_.advantages.put(row, alone ? others + (best - second) * rescale_ / divisor : others);
    });
  }

  const Call& call_;
  double batch_deviation_ = 0;
  double rescale_ = 1;
};

int64_t group_advantages_workspace(const Call& call) {
  return groups_workspace_bytes(call.params.grouping, call.B);
}

double group_advantages_operations(const Call& call) {
  return static_cast<double>(call.B) * 1000;
}

}  // namespace

DataError group_advantages(const Call& call, const Context& context) {
  const Groups groups({call.params.grouping, call.B, call.G, call.params.samples_per_prompt,
                       call.group_boundaries.integers(), call.group_ids.integers(), call.mask, context.workspace});
  for (int64_t row = 0; row < call.B; ++row) {
    if (!groups.has(row)) call.advantages.put(row, call.mask.keeps(row) ? kNan : 0);
  }
  const Normaliser normaliser(call, groups);
  for_each_group(groups, call.B, context.parallel, [&](int64_t g) { normaliser.write(groups.group(g)); });
  return groups.error();
}

RLK_CPU_KERNEL(GroupAdvantages, .run = group_advantages, .operations = group_advantages_operations,
               .workspace_bytes = group_advantages_workspace);

}  // namespace rlk::cpu
