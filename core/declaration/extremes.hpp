// What few declarations say of extremes: outputs with limits that no rounding may pass (at_least, at_most), and inputs
// whose scores, or the scores that they make, must be right however large they are (extreme).
#pragma once

#include <limits>
#include <string_view>

namespace rlk::core {

struct Limits {
  double at_least = -std::numeric_limits<double>::infinity(), at_most = std::numeric_limits<double>::infinity();
};
Limits limits_of(std::string_view op, std::string_view output);

enum class Extreme {
  none,
  scores,   // the scores themselves
  single,   // a factor of scores: one number a row, a power of two, so that the products are not rounded
  certain,  // the other factor: in each column one row stands out
};
Extreme extreme_of(std::string_view op, std::string_view input);

}  // namespace rlk::core
