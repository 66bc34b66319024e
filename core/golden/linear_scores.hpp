// What linear_logp and its backward agree on: which rows count, which are in error, and what a score is.
#pragma once

#include <vector>

#include "core/golden/golden.hpp"

namespace rlk::golden {

struct LinearOperands {
  View hidden;  // [N, D]
  View weight;  // [V, D]
  View ids;     // [N]
  View bias;    // [V], optional
  View mask;    // [N], optional
  double temperature = 1.0;
  double softcap = 0.0;
  int64_t ignore_index = -100;
  int64_t vocab_start = 0;
  int64_t global_vocab = 0;

  int64_t rows() const { return hidden.shape[0]; }
  int64_t vocab() const { return weight.shape[0]; }
  int64_t depth() const { return hidden.shape[1]; }
  bool whole_vocabulary() const { return global_vocab <= 0 || global_vocab == vocab(); }
  bool is_ignored(int64_t n) const;
  // Of an active row; what shows without its scores.
  DataError id_error(int64_t n) const;
};

// One score of one row. An implementation's x is off by eps x_error, its z by eps z_error.
struct LinearScore {
  double x = 0, x_error = 0;  // sum_d |hidden| |weight| + |bias|
  double z = 0, z_error = 0;
  double slope = 0, slope_error = 0;  // d z / d x, and what eps times it is off by
};

// A tensor [rows, columns] as row-major numbers.
std::vector<double> load_matrix(const View& view);

// The scores of row n over the vocabulary; weight is load_matrix(operands.weight).
std::vector<LinearScore> linear_scores(const LinearOperands& operands, const std::vector<double>& weight, int64_t n);

}  // namespace rlk::golden
