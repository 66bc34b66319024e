// How long calls took when an implementation was timed on a kind of device (`rlk-plugins bench --remember`), and what
// that says of other calls.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/declaration/validate.hpp"

namespace rlk::core {

struct MeasuredCost {
  std::string op;
  std::string implementation;
  std::string device;          // its name
  std::string kind;            // kind_of_call
  std::vector<int64_t> sizes;  // of the operator's symbols, as in BoundCall
  double stated_us = 0;        // what the implementation said that the call costs; 0: nothing
  double measured_us = 0;
  bool operator==(const MeasuredCost&) const = default;
};

// What two calls have in common whose times are comparable: "bf16 causal=on strided", the dtype and features_of().
std::string kind_of_call(const BoundCall& call, const std::vector<std::string>& features);
std::vector<int64_t> sizes_of_call(const BoundCall& call);

// What a call would take by the nearest of these, in us: of the same kind, and no size of it more than twice or less
// than half. Of another size than the call's it is scaled by what the implementation states of both. 0: none is near.
double measured_cost(const std::vector<const MeasuredCost*>& known, const std::string& kind,
                     const std::vector<int64_t>& sizes, double stated_us);

}  // namespace rlk::core
