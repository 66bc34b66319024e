// Means that are exact where all numbers are equal, and variances.
#pragma once

#include <algorithm>
#include <vector>

#include "core/golden/tracked.hpp"

namespace rlk::golden {

using Numbers = std::vector<Tracked>;

// A weighted mean as a number with weight plus the weighted mean difference to it: exact where all are equal.
inline Tracked mean_of(const Numbers& numbers, const std::vector<double>& weights) {
  const auto weighty = std::find_if(weights.begin(), weights.end(), [](double weight) { return weight > 0; });
  const double first = numbers[static_cast<size_t>(weighty - weights.begin())].value;
  Sum difference;
  double magnitude = 0, total = 0;
  bool exact = true;
  for (size_t i = 0; i < numbers.size(); ++i) {
    total += weights[i];
    difference.add(weights[i] * (numbers[i].value - first));
    magnitude += weights[i] * (std::fabs(numbers[i].value) + numbers[i].error);
    exact &= numbers[i].value == first && numbers[i].error == 0;
  }
  const double mean = first + difference.value() / total;
  return {mean, exact ? 0.0 : magnitude / total + std::fabs(mean)};
}
inline Tracked mean_of(const Numbers& numbers) {
  return mean_of(numbers, std::vector<double>(numbers.size(), 1.0));
}

// Of one number or more; 0 where it is not defined.
inline Tracked variance_of(const Numbers& numbers, Tracked mean, bool unbiased) {
  TrackedSum squares;
  for (const Tracked& x : numbers) squares.add((x - mean) * (x - mean));
  const double n = static_cast<double>(numbers.size()) - (unbiased ? 1 : 0);
  return n > 0 ? squares.total() / Tracked(n) : Tracked(0.0);
}

}  // namespace rlk::golden
