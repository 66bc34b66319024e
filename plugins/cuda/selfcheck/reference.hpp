// The operators' formulas as plain fp64 loops over the rounded inputs: slow, obvious, and sharing nothing with the
// kernels.
#pragma once

#include "harness.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace selfcheck {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

inline double epsilon_of(Type accumulator) {
  return accumulator == Type::f64 ? 0x1p-53 : 0x1p-24;
}

struct LogpCase {
  Type type = Type::f32, ids_type = Type::i64, out_type = Type::f32;
  int64_t tokens = 0, rows = 0, vocab = 1;
  double temperature = 1, softcap = 0;
  int64_t ignore_index = -100, vocab_start = 0, global_vocab = 0;
  bool bias = false, mask = false, indexed = false, entropy = true, lse = true;
  int64_t offset = 0, padding = 0;  // elements by which the logits are off their alignment; between rows
  std::vector<double> logits, ids, bias_values, mask_values, indices;

  int64_t limit() const { return global_vocab > 0 ? global_vocab : vocab; }
  bool sharded() const { return limit() > vocab; }
  std::string text() const;
};

struct LogpRow {
  double logp = 0, lse = 0, entropy = 0;
  double condition = 0;  // size of the numbers that are subtracted on the way
  int kind = 0;          // of the data error
  int64_t row = -1;      // of the logits, -1 when ignored or unknown
  int64_t target = -1;
};

// Random arguments: -inf among the logits, NaN in a row when `nan`, ignored tokens with arbitrary ids and indices.
void fill(LogpCase& c, uint64_t seed, bool nan);
std::vector<LogpRow> reference_logp(const LogpCase& c);
// y = cap(x + bias) of one logit.
double transformed(const LogpCase& c, int64_t row, int64_t column);

// Error over allowance of one value; NaN and infinities must agree exactly.
inline double error_ratio(Type type, double got, double expected, double extra) {
  if (std::isnan(expected) || std::isnan(got)) return std::isnan(expected) && std::isnan(got) ? 0 : kInf;
  if (std::isinf(expected) || std::isinf(got)) return expected == got ? 0 : kInf;
  const double error = std::fabs(got - expected);
  return error == 0 ? 0 : error / (ulp(type, expected) + extra);
}

}  // namespace selfcheck
