// What tests of attention's programs share: sizes of heads, numbers, options.
#pragma once

#include <gtest/gtest.h>

#include "interpreter.hpp"

#include <rlk/sdk/ops.hpp>

#include <cmath>
#include <type_traits>

namespace composed_test {

using Numbers = std::vector<float>;

constexpr int64_t kHeads = 4, kKeyHeads = 2, kColumns = 3;

inline Numbers numbers(int64_t count, int64_t seed) {
  Numbers made(static_cast<size_t>(count));
  for (size_t i = 0; i < made.size(); ++i)
    made[i] = static_cast<float>((static_cast<int64_t>(i) * 37 + seed * 11) % 29) / 10 - 1.4F;
  return made;
}

inline View view(View::Place place, uint32_t index, const Dims& dims) {
  View made;
  made.place = place;
  made.index = index;
  made.dtype = Dtype::f32;
  made.dims = dims;
  made.strides = dense_strides(dims);
  return made;
}

struct Options {
  bool causal = false, top_left = false;
  int64_t left = -1, right = -1;
  double softcap = 0;
};

template <class Params>
void set(Params& params, const Options& options) {
  params.causal = options.causal ? decltype(Params::causal)::on : decltype(Params::causal)::off;
  params.causal_alignment = options.top_left ? decltype(Params::causal_alignment)::top_left
                                             : decltype(Params::causal_alignment)::bottom_right;
  params.window_left = options.left, params.window_right = options.right;
  params.softcap = options.softcap;
}

inline void expect_near(const Numbers& seen, const Numbers& wanted, const char* which) {
  ASSERT_EQ(seen.size(), wanted.size());
  for (size_t i = 0; i < seen.size(); ++i) {
    if (std::isinf(wanted[i]))
      EXPECT_EQ(seen[i], wanted[i]) << which << " " << i;
    else
      EXPECT_NEAR(seen[i], wanted[i], 2e-5F) << which << " " << i;
  }
}

}  // namespace composed_test
