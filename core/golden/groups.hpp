// Groups of samples of the same prompt, and their rewards less a baseline, normalised: what the operators on groups
// share.
#pragma once

#include <vector>

#include "core/golden/tracked.hpp"

namespace rlk::golden {

using Rows = std::vector<int64_t>;

enum class Grouping : int64_t { fixed, boundaries, ids };
struct GroupingCall {
  Grouping grouping = Grouping::fixed;
  int64_t rows = 0;
  int64_t samples_per_prompt = 0;
  View boundaries, ids;
  std::vector<bool> kept;  // [rows]: a row that is not kept is in no group, and its id is not looked at
};
// The rows of each group; error is set where they cannot be told, and rows with a bad id are in no group.
std::vector<Rows> groups_of(const GroupingCall& call, DataError& error);

// The ordinals are those of the declarations.
struct Normalisation {
  enum class Baseline : int64_t { mean, rloo, opo, given, second_best } baseline = Baseline::mean;
  enum class Scale : int64_t { group, batch, none } scale = Scale::group;
  bool unbiased = true;
  bool additive_eps = true;
  double eps = 0;
  bool raw_singletons = false;
  bool rescale_nonzero = false;
  View lengths, baselines;
};
// Advantages of all rows: NaN for a kept row of no group, 0 for one that is not kept.
std::vector<Tracked> normalised(const Normalisation& how, const GroupingCall& call, const std::vector<Rows>& groups,
                                const std::vector<Tracked>& rewards);

}  // namespace rlk::golden
