// What holds of operators that take the log-probabilities of two models: the policy's and the reference's logits.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "core/cpu/simd/kernel.hpp"
#include "unit/cpu/support.hpp"

namespace rlk::test {

// Of rows of -inf the lowest is told, whichever model has it. error_of(policy, reference) runs the kernel; the last
// dimension of both is the vocabulary, low < high are two of its rows.
template <typename ErrorOf>
void expect_lowest_error_of_both(const Tensor& policy, const Tensor& reference, const ErrorOf& error_of, int64_t low,
                                 int64_t high) {
  const auto spoilt = [](Tensor logits, const std::vector<int64_t>& rows) {
    const int64_t vocab = logits.shape().back();
    for (const int64_t row : rows) {
      for (int64_t v = 0; v < vocab; ++v) logits.set(row * vocab + v, -kInfinity);
    }
    return logits;
  };
  const auto told = [&](const std::vector<int64_t>& of_policy, const std::vector<int64_t>& of_reference) {
    const cpu::DataError error = error_of(spoilt(policy, of_policy), spoilt(reference, of_reference));
    EXPECT_EQ(error.kind, cpu::kNoFiniteLogit);
    return error.row;
  };
  EXPECT_EQ(told({}, {high}), high);
  EXPECT_EQ(told({high}, {}), high);
  EXPECT_EQ(told({high}, {low}), low);
  EXPECT_EQ(told({low}, {high}), low);
}

}  // namespace rlk::test
