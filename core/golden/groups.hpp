// Groups of samples of the same prompt, and their rewards less a baseline, normalised: what the operators on groups
// share.
#pragma once

#include <rlk/sdk/ops/group_advantages.hpp>

#include <vector>

#include "core/golden/tracked.hpp"

namespace rlk::golden {

using Rows = std::vector<int64_t>;

using Grouping = sdk::ops::group_advantages::Grouping;
struct GroupingCall {
  Grouping grouping = Grouping::fixed;
  int64_t rows = 0;
  int64_t samples_per_prompt = 0;
  View boundaries, ids;
  std::vector<bool> kept;  // [rows]: a row that is not kept is in no group, and its id is not looked at
};
// The rows of each group; error is set where they cannot be found, and rows with a bad id are in no group.
std::vector<Rows> groups_of(const GroupingCall& call, DataError& error);

struct Normalisation {
  sdk::ops::group_advantages::Params params{};
  View lengths{}, baselines{};  // of opo and given
};
// Advantages of all rows: NaN for a kept row of no group, 0 for one that is not kept.
std::vector<Tracked> normalised(const Normalisation& how, const GroupingCall& call, const std::vector<Rows>& groups,
                                const std::vector<Tracked>& rewards);

}  // namespace rlk::golden
