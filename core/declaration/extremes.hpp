// What few declarations say of extremes: outputs with limits that no rounding may pass (at_least, at_most), and inputs
// whose scores, or the scores that they make, must be right however large they are (extreme), or which cases bring
// close to another input (close_to).
#pragma once

#include <limits>
#include <string_view>

#include "core/declaration/declaration.hpp"

namespace rlk::core {

struct Limits {
  double at_least = -std::numeric_limits<double>::infinity(), at_most = std::numeric_limits<double>::infinity();
  Expr when{};  // of at_least: the calls that keep it; without one: all

  bool has_least(const Values& values) const { return when.eval == nullptr || when.eval(values) != 0; }
};
Limits limits_of(std::string_view op, std::string_view output);

enum class Extreme {
  none,
  scores,   // the scores themselves
  single,   // a factor of scores: one number a row, a power of two, so that the products are not rounded
  certain,  // the other factor: in each column one row stands out
};
Extreme extreme_of(std::string_view op, std::string_view input);

// The input whose numbers this one has in some cases, a little moved: two distributions that nearly agree. Or "".
std::string_view close_to(std::string_view op, std::string_view input);

}  // namespace rlk::core
