// What few declarations say of extremes: outputs with limits that no rounding may pass (at_least, at_most), and inputs
// whose scores must be right up to the largest number of their dtype (extreme).
#pragma once

#include <limits>
#include <string_view>

namespace rlk::core {

struct Limits {
  double at_least = -std::numeric_limits<double>::infinity(), at_most = std::numeric_limits<double>::infinity();
};
Limits limits_of(std::string_view op, std::string_view output);

bool is_extreme(std::string_view op, std::string_view input);

}  // namespace rlk::core
