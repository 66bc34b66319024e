// Groups and the formulas of group_advantages, fp64.
#include "core/golden/groups.hpp"

#include <map>

#include "core/golden/logp_rows.hpp"
#include "core/golden/mean.hpp"
#include "core/golden/sequences.hpp"

namespace rlk::golden {
using namespace sdk::ops::group_advantages;  // NOLINT(google-build-using-namespace): its enumerations

namespace {

Numbers numbers_of(const Numbers& rewards, const Rows& rows) {
  Numbers numbers;
  for (const int64_t b : rows) numbers.push_back(rewards[static_cast<size_t>(b)]);
  return numbers;
}

Tracked deviation_of(const Normalisation& how, const Numbers& numbers) {
  if (numbers.empty()) return 0.0;
  if (numbers.size() == 1) return how.params.singleton == Singleton::raw ? 1.0 : 0.0;
  const Tracked mean = mean_of(numbers);
  const bool unbiased = how.params.std == Std::unbiased;
  Tracked deviation = sqrt(variance_of(numbers, mean, unbiased));
  if (deviation.value != 0) return deviation;
  double inherited = 0;  // what errors of the differences do where the deviation itself is 0
  for (const Tracked& number : numbers) inherited += std::pow((number - mean).error, 2);
  deviation.error = std::sqrt(inherited / static_cast<double>(numbers.size() - (unbiased ? 1 : 0)));
  return deviation;
}

Tracked divisor_of(const Normalisation& how, Tracked deviation) {
  if (how.params.scale == Scale::none) return 1.0;
  if (how.params.eps_mode == EpsMode::additive) return deviation + Tracked(how.params.eps);
  return deviation.value < how.params.eps ? Tracked(how.params.eps) : deviation;
}

Tracked length_weighted_mean(const View& lengths, const Rows& rows, const Numbers& numbers) {
  std::vector<double> weights;
  double total = 0;
  for (const int64_t b : rows) {
    weights.push_back(static_cast<double>(std::max<int64_t>(lengths.load_int(b), 0)));
    total += weights.back();
  }
  return total > 0 ? mean_of(numbers, weights) : mean_of(numbers);
}

// The distance of the only best number to the second best; 0 for the others.
std::vector<Tracked> distances_of_best(const Numbers& numbers) {
  size_t best = 0;
  bool nan = false;
  for (size_t i = 0; i < numbers.size(); ++i) {
    nan |= std::isnan(numbers[i].value);
    if (numbers[i].value > numbers[best].value) best = i;
  }
  if (nan) return std::vector<Tracked>(numbers.size(), Tracked(kNan));
  std::vector<Tracked> distances(numbers.size(), Tracked(0.0));
  bool any = false;
  Tracked second;
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i != best && (!any || numbers[i].value > second.value)) second = numbers[i];
    any |= i != best;
  }
  if (any && second.value < numbers[best].value) distances[best] = numbers[best] - second;
  return distances;
}

// The rewards less their baseline, times the factor of the baseline.
std::vector<Tracked> differences_of(const Normalisation& how, const Rows& rows, const Numbers& numbers) {
  if (how.params.baseline == Baseline::second_best) return distances_of_best(numbers);
  const bool alone = rows.size() == 1;
  Tracked baseline = mean_of(numbers);
  if (how.params.baseline == Baseline::opo) baseline = length_weighted_mean(how.lengths, rows, numbers);
  if (alone) baseline = how.params.singleton == Singleton::raw ? Tracked(0.0) : numbers[0];
  const bool is_own_baseline =
      alone && how.params.singleton != Singleton::raw && how.params.baseline != Baseline::given;
  const auto n = static_cast<double>(rows.size());
  const bool rloo = how.params.baseline == Baseline::rloo && !alone;
  std::vector<Tracked> differences;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (how.params.baseline == Baseline::given) baseline = how.baselines.load(rows[i]);
    Tracked difference = numbers[i] - baseline;
    // A sample alone is its own baseline: exactly 0, whatever an eps then divides by (a NaN stays one).
    if (is_own_baseline) difference.error = 0;
    differences.push_back(rloo ? difference * (Tracked(n) / Tracked(n - 1)) : difference);
  }
  return differences;
}

}  // namespace

std::vector<Rows> groups_of(const GroupingCall& call, DataError& error) {
  std::vector<Rows> groups;
  const auto add = [&](int64_t b) {
    if (call.kept[static_cast<size_t>(b)]) groups.back().push_back(b);
  };
  if (call.grouping == Grouping::fixed) {
    const int64_t size = call.samples_per_prompt > 0 ? call.samples_per_prompt : call.rows;
    for (int64_t b = 0; b < call.rows; ++b) {
      if (b % size == 0) groups.emplace_back();
      add(b);
    }
  } else if (call.grouping == Grouping::boundaries) {
    error = check_seqlens(call.boundaries, call.rows);
    if (error.kind != kNoDataError) return {};
    for (int64_t g = 0; g + 1 < call.boundaries.shape[0]; ++g) {
      groups.emplace_back();
      for (int64_t b = call.boundaries.load_int(g); b < call.boundaries.load_int(g + 1); ++b) add(b);
    }
  } else {
    std::map<int64_t, Rows> by_id;
    for (int64_t b = 0; b < call.rows; ++b) {
      if (!call.kept[static_cast<size_t>(b)]) continue;
      const int64_t id = call.ids.load_int(b);
      if (id < 0 || id >= call.rows) {
        keep_first(error, {kIdOutOfRange, b, id});
      } else {
        by_id[id].push_back(b);
      }
    }
    for (auto& [id, members] : by_id) groups.push_back(std::move(members));
  }
  return groups;
}

std::vector<Tracked> normalised(const Normalisation& how, const GroupingCall& call, const std::vector<Rows>& groups,
                                const std::vector<Tracked>& rewards) {
  std::vector<Tracked> advantages;
  for (const bool kept : call.kept) advantages.emplace_back(kept ? kNan : 0.0);
  Rows all;
  for (const Rows& group : groups) all.insert(all.end(), group.begin(), group.end());
  std::sort(all.begin(), all.end());
  const Numbers every = numbers_of(rewards, all);
  const Tracked batch_deviation = deviation_of(how, every);
  Tracked rescale = 1.0;
  if (how.params.rescale == Rescale::nonzero) {
    const auto nonzero = std::count_if(every.begin(), every.end(), [](const Tracked& r) { return r.value != 0; });
    rescale = Tracked(static_cast<double>(every.size())) / Tracked(static_cast<double>(std::max<int64_t>(nonzero, 1)));
  }
  for (const Rows& group : groups) {
    if (group.empty()) continue;
    const Numbers numbers = numbers_of(rewards, group);
    const bool batch = how.params.scale == Scale::batch;
    const Tracked divisor = divisor_of(how, batch ? batch_deviation : deviation_of(how, numbers));
    const std::vector<Tracked> differences = differences_of(how, group, numbers);
    for (size_t i = 0; i < group.size(); ++i) {
      const bool not_best = how.params.baseline == Baseline::second_best && differences[i].value == 0;
      advantages[static_cast<size_t>(group[i])] = not_best ? Tracked(0.0) : differences[i] * rescale / divisor;
    }
  }
  return advantages;
}

}  // namespace rlk::golden
