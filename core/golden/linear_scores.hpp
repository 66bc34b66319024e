// The scores of linear_logp: products of hidden states with the rows of weight, fp64.
#pragma once

#include <rlk/sdk/ops/linear_logp.hpp>

#include <vector>

#include "core/golden/logp_rows.hpp"

namespace rlk::golden {

// A tensor [rows, columns] as row-major numbers.
std::vector<double> load_matrix(const View& view);

// The scores of row n over the vocabulary; weight is load_matrix(call.weight).
std::vector<Score> scores_of(const CallOf<sdk::ops::LinearLogp>& call, const std::vector<double>& weight, int64_t n);

}  // namespace rlk::golden
