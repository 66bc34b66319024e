// Rewards normalised within groups: the declaration's formula, fp64.
#include <rlk/ops/group_advantages.h>

#include <map>
#include <vector>

#include "core/golden/logp_rows.hpp"
#include "core/golden/sequences.hpp"
#include "core/golden/tracked.hpp"

namespace rlk::golden {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
using Params = rlk_group_advantages_params;
using Rows = std::vector<int64_t>;

// The mean as a reward plus the mean difference to it: exact where all are equal.
Tracked mean_of(const View& rewards, const Rows& rows) {
  const double first = rewards.load(rows[0]);
  double difference = 0, magnitude = 0;
  bool all_equal = true;
  for (const int64_t b : rows) {
    difference += rewards.load(b) - first;
    magnitude += std::fabs(rewards.load(b));
    all_equal &= rewards.load(b) == first;
  }
  const auto n = static_cast<double>(rows.size());
  const double mean = first + difference / n;
  return {mean, all_equal ? 0.0 : magnitude / n + std::fabs(mean)};
}

Tracked deviation_of(const Params& params, const View& rewards, const Rows& rows, Tracked mean) {
  const auto n = static_cast<double>(rows.size());
  if (rows.size() == 1) return params.singleton == RLK_GROUP_ADVANTAGES_SINGLETON_RAW ? 1.0 : 0.0;
  TrackedSum squares;
  for (const int64_t b : rows) {
    const Tracked difference = Tracked(rewards.load(b)) - mean;
    squares.add(difference * difference);
  }
  return sqrt(squares.total() / Tracked(params.std == RLK_GROUP_ADVANTAGES_STD_UNBIASED ? n - 1 : n));
}

// The rows of each group; error and nothing more when they cannot be told.
std::vector<Rows> groups_of(const Call& call, const Params& params, DataError& error) {
  const int64_t rows = call[RLK_GROUP_ADVANTAGES_IN_REWARDS].shape[0];
  std::vector<Rows> groups;
  if (params.grouping == RLK_GROUP_ADVANTAGES_GROUPING_FIXED) {
    const int64_t size = params.samples_per_prompt > 0 ? params.samples_per_prompt : rows;
    for (int64_t b = 0; b < rows; ++b) {
      if (b % size == 0) groups.emplace_back();
      groups.back().push_back(b);
    }
  } else if (params.grouping == RLK_GROUP_ADVANTAGES_GROUPING_BOUNDARIES) {
    const View& boundaries = call[RLK_GROUP_ADVANTAGES_IN_GROUP_BOUNDARIES];
    const int64_t last = boundaries.shape[0] - 1;
    error = check_seqlens(boundaries, rows);
    if (error.kind != kNoDataError) return {};
    for (int64_t g = 0; g < last; ++g) {
      groups.emplace_back();
      for (int64_t b = boundaries.load_int(g); b < boundaries.load_int(g + 1); ++b) groups.back().push_back(b);
    }
  } else {
    std::map<int64_t, Rows> by_id;
    for (int64_t b = 0; b < rows; ++b) {
      const int64_t id = call[RLK_GROUP_ADVANTAGES_IN_GROUP_IDS].load_int(b);
      if (id < 0 || id >= rows) {
        keep_first(error, {kIdOutOfRange, b, id});
      } else {
        by_id[id].push_back(b);
      }
    }
    for (auto& [id, members] : by_id) groups.push_back(std::move(members));
  }
  return groups;
}

}  // namespace

Answer answer_group_advantages(const Call& call) {
  const auto& params = call.params_as<Params>();
  const View& rewards = call[RLK_GROUP_ADVANTAGES_IN_REWARDS];
  Answer answer;
  answer.outputs.resize(RLK_GROUP_ADVANTAGES_N_OUTPUTS);
  const std::vector<Rows> groups = groups_of(call, params, answer.error);

  Rows all;
  for (const Rows& group : groups) all.insert(all.end(), group.begin(), group.end());
  std::sort(all.begin(), all.end());
  std::vector<Tracked> advantages(static_cast<size_t>(rewards.shape[0]), Tracked(kNan));
  for (const Rows& group : groups) {
    if (group.empty()) continue;
    const bool raw = group.size() == 1 && params.singleton == RLK_GROUP_ADVANTAGES_SINGLETON_RAW;
    const Tracked mean = raw ? Tracked(0.0) : mean_of(rewards, group);
    Tracked divisor = 1.0;
    if (params.scale != RLK_GROUP_ADVANTAGES_SCALE_NONE) {
      const bool batch = params.scale == RLK_GROUP_ADVANTAGES_SCALE_BATCH;
      const Rows& rows = batch ? all : group;
      const Tracked deviation = deviation_of(params, rewards, rows, mean_of(rewards, rows));
      if (params.eps_mode == RLK_GROUP_ADVANTAGES_EPS_MODE_ADDITIVE) {
        divisor = deviation + Tracked(params.eps);
      } else {
        divisor = deviation.value < params.eps ? Tracked(params.eps) : deviation;
      }
    }
    const auto n = static_cast<double>(group.size());
    const bool rloo = params.baseline == RLK_GROUP_ADVANTAGES_BASELINE_RLOO && group.size() > 1;
    const Tracked factor = rloo ? Tracked(n) / Tracked(n - 1) : Tracked(1.0);
    for (const int64_t b : group) {
      advantages[static_cast<size_t>(b)] = (Tracked(rewards.load(b)) - mean) * factor / divisor;
    }
  }
  for (const Tracked& advantage : advantages) put(answer.outputs[RLK_GROUP_ADVANTAGES_OUT_ADVANTAGES], advantage);
  return answer;
}

}  // namespace rlk::golden
